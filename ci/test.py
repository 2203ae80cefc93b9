"""Sets up, builds and tests everything: a fresh machine needs nothing before, a second run skips what is done.

The last lines are the summary of ctest, which runs all there is: unit, ABI and conformance tests on every backend and
driver, calls that fail, llama.cpp with a real model, the rules of the tree, formatting, clang-tidy, sanitizers,
fuzzing, threads, an installed package and quickstart. Long tests that passed with all that they read as it is now are
listed as skipped; --rerun runs them, too.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import parts
from parts import say

BUILD = parts.SOURCE / "build" / "test"
MEMORY, MEMORY_NEEDED = Path("/dev/shm"), 1 << 30  # bytes; two tests at a time have a small part of it
LLAMA_CPP_PROGRAMS = ("llama-completion", "llama-bench", "llama-perplexity", "llama-quantize", "llama-server",
                      "test-backend-ops", "test-llama-archs")
FULL_LLAMA_CPP_PROGRAMS = ("llama-parallel", "llama-lookahead", "llama-batched-bench", "ggml-rpc-server")

# One for each layout of ggml's, whose llama.cpp generates a text; the oldest does in every run.
OTHER_RELEASES = (*parts.LLAMA_CPP_BUILDS,
                  *(release for release in parts.LLAMA_CPP_RELEASES if release not in (parts.LLAMA_CPP, "0.3.20")))


def arguments():
    introduction, details = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(prog="ci/test", description=introduction, epilog=details)
    parser.add_argument("--full", action="store_true",
                        help="all cases where otherwise a sample is taken: of ggml's suite, of llama.cpp's "
                             "releases and architectures, on Oclgrind, of calls that fail, under sanitizers, and an "
                             "hour of fuzzing; for a run a day")
    parser.add_argument("--rerun", action="store_true",
                        help="run the tests, too, that are known to pass with all that they read as it is now; --full "
                             "does")
    parser.add_argument("--filter", metavar="REGEX", help="only the tests whose name matches, as ctest -R")
    parser.add_argument("--exclude", metavar="REGEX", help="not the tests whose name matches, as ctest -E")
    return parser.parse_args()


def folder_of_tests():
    """Where a file that has to be on the disk is there at once; empty for the usual one."""
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED
    return MEMORY if has_room else ""


def text_program(release):
    """The smallest program that generates a text and looks for the plugin."""
    return "llama-completion" if release in parts.LLAMA_CPP_BUILDS else "llama-simple"


def settings(options):
    """CMake's of a build with everything. What else is downloaded comes while llama.cpp is built, and its releases are
    built at once, so that where one has a long last step, another one has others."""
    releases = OTHER_RELEASES if options.full else OTHER_RELEASES[-1:]
    source = parts.llama_cpp_source()
    with (concurrent.futures.ThreadPoolExecutor(1) as downloads,
          concurrent.futures.ThreadPoolExecutor(2) as building):
        sources = [downloads.submit(parts.llama_cpp_source, release) for release in releases]
        ggml = downloads.submit(parts.ggml_releases, options.full)
        python, model, mlx, numpy, intel, oclgrind, ptxas = map(downloads.submit, (
            parts.llama_cpp_python, parts.model, parts.mlx_python, parts.numpy_python, parts.intel_runtime,
            parts.oclgrind, parts.ptxas))
        runtimes = [downloads.submit(parts.onnxruntime_python, release) for release in parts.ONNXRUNTIMES]
        llama_cpp = building.submit(parts.llama_cpp_build, *LLAMA_CPP_PROGRAMS,
                                    *(FULL_LLAMA_CPP_PROGRAMS if options.full else ()))
        others = [building.submit(parts.llama_cpp_build, text_program(release), release=release)
                  for release in releases]
        builds = [f"{other.result()}={build.result()}" for other, build in zip(sources, others)]
    icd, libraries = intel.result()
    return {
        "CMAKE_BUILD_TYPE": "Release",
        "WINNOW_BUILD_TESTS": "ON",
        "WINNOW_BUILD_BENCH": "ON",
        "WINNOW_QUICK_BUILD": "ON",
        "WINNOW_WARNINGS_AS_ERRORS": "ON",
        "WINNOW_TEST_OPTIONS": "-O1" if options.full else "-O0",
        "WINNOW_TEST_FOLDER": folder_of_tests(),
        "WINNOW_SYSTEM_TESTS": "ON",
        "WINNOW_FULL_SWEEPS": "ON" if options.full else "OFF",
        "WINNOW_SANITIZED_CONFORMANCE": "all" if options.full else "sample",
        "WINNOW_LLAMA_CPP_DIR": source,
        "WINNOW_LLAMA_CPP_BUILD_DIR": llama_cpp.result(),
        "WINNOW_FURTHER_LLAMA_CPP_PROGRAMS": ";".join(FULL_LLAMA_CPP_PROGRAMS if options.full else ()),
        "WINNOW_FURTHER_LLAMA_CPP_DIRS": ";".join(map(str, ggml.result()[1:])),
        "WINNOW_FURTHER_LLAMA_CPP_BUILD_DIRS": ";".join(builds),
        "WINNOW_LLAMA_CPP_PYTHON": python.result(),
        "WINNOW_MODEL": model.result(),
        "WINNOW_MLX_PYTHON": mlx.result(),
        "WINNOW_NUMPY_PYTHON": numpy.result(),
        "WINNOW_ONNXRUNTIME_PYTHONS": ";".join(str(runtime.result()) for runtime in runtimes),
        "WINNOW_INTEL_ICD_DIR": icd,
        "WINNOW_INTEL_LIB_DIR": libraries,
        "WINNOW_OCLGRIND_ICD": oclgrind.result(),
        "WINNOW_PTXAS": ptxas.result(),
    }


def build(options):
    """Configures and builds everything."""
    defined = settings(options)
    say("building Winnow")
    logs = parts.CACHE / "logs"
    configured = logs / "test-configure.log"
    parts.run(["cmake", "-S", parts.SOURCE, "-B", BUILD, "-G", "Ninja",
               *(f"-D{name}={value}" for name, value in defined.items())], log=configured)
    for line in re.findall(r"^-- (tests/.*)", configured.read_text(), re.M):
        say(f"not tested: {line}")
    parts.run(["cmake", "--build", BUILD], log=logs / "test-build.log")


def main():
    options = arguments()
    parts.setup("test")
    build(options)
    say("testing")
    # Two at a time: compilers of kernels use one core each.
    command = ["ctest", "--test-dir", BUILD, "--output-on-failure", "--no-tests=error", "--parallel", "2"]
    if options.filter:
        command += ["-R", options.filter]
    if options.exclude:
        command += ["-E", options.exclude]
    sys.stdout.flush()
    # All tests together compile more than a user's programs do.
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "WINNOW_PROGRAM_CACHE_MIB": "1024", "WINNOW_TUNING": "off"}
    if options.rerun or options.full:
        environment["WINNOW_RERUN_TESTS"] = "1"
    sys.exit(subprocess.run([str(part) for part in command], env=environment).returncode)


if __name__ == "__main__":
    parts.run_main("ci/test", main)
