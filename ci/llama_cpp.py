"""Builds a llama.cpp and the plugin for it, tests the two together, and prints a row for hosts/ggml/INTERNALS.md.

TREE is a source tree of llama.cpp, or a name that ci/parts.py has: a release of llama-cpp-python, as 0.3.36, or a build
of llama.cpp, as b11434. What the tree lacks, and what is not tested for it, is printed and stands in the row. The
status is 1 if something failed.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import parts
from parts import Failure, say

# What llama.cpp is built for; a tree need not have all.
PROGRAMS = ("llama-completion", "llama-bench", "llama-perplexity", "llama-quantize", "llama-server", "llama-simple",
            "llama-parallel", "llama-lookahead", "llama-batched-bench", "ggml-rpc-server", "rpc-server",
            "test-backend-ops", "test-llama-archs")
# Of Winnow's build: what all tests take, and programs against llama.cpp's headers, each with the tests that need it.
TARGETS = ("winnow_ggml", "winnow_opencl", "winnow_reference", "winnow_flush_log", "winnow_old_backend")
HELPERS = {"winnow_load_backend": "llama_archs_.*", "winnow_llama_sequences": "virtual_sequences",
           "winnow_llama_save_load_state": "save_load_state", "winnow_virtual_plan_test": "virtual_plan",
           "winnow_virtual_host_test": "virtual_host", "winnow_llama_states": "virtual_exact_states",
           "winnow_llama_programs": "virtual_programs", "winnow_ggml_later": "version"}
MOST_OUTPUT = 1 << 20  # bytes of a test that passed, in which it says what of it was not tested
# A column of the row, and the tests of tests/ggml that it stands for, as regular expressions.
COLUMNS = {
    "layout": ("layouts", "layout_check", "version", "virtual_plan", "virtual_host"),
    "text": ("generate", "virtual_text", "virtual_family_(grouped|windows|latent|hybrid)"),
    "states": ("virtual_state", "virtual_exact_states", "save_load_state"),
    "shifts": ("virtual_shift", "virtual_sequences", "virtual_programs"),
    "server": ("virtual_server", "server_ways", "virtual_speculation"),
    "programs": ("programs", "rpc", "virtual_bench"),
    "llama.cpp's tests": ("set_rows", "flash_attn_ext", "llama_archs_(in_place|virtual|packed)"),
}


def arguments():
    introduction, details = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(prog="ci/llama-cpp", description=introduction, epilog=details)
    parser.add_argument("tree", metavar="TREE", help="a source tree of llama.cpp, or "
                        f"{', '.join(parts.llama_cpp_names())}")
    parser.add_argument("--filter", metavar="REGEX", help="only the tests whose name matches, as ctest -R")
    return parser.parse_args()


def lacks(programs):
    """What to say of PROGRAMS that a tree has not; the RPC server has two names."""
    missing = [program for program in PROGRAMS if program not in programs and not program.endswith("rpc-server")]
    if not any(program.endswith("rpc-server") for program in programs):
        missing.append("rpc-server")
    return [f"this llama.cpp has no {program}" for program in missing]


def tree_of(text):
    """(what the builds of a tree are named for, the tree)"""
    if text in parts.llama_cpp_names():
        return text, parts.llama_cpp_source(text)
    tree = Path(text).resolve()
    if not (tree / "ggml" / "CMakeLists.txt").is_file():
        raise Failure(f"{text} is no source tree of llama.cpp (no ggml/CMakeLists.txt in it), and none of the names "
                      f"that are known: {', '.join(parts.llama_cpp_names())}")
    return f"{tree.name}-{hashlib.sha256(str(tree).encode()).hexdigest()[:8]}", tree


def programs_of(tree):
    """Those of PROGRAMS that its CMakeLists.txt declare."""
    declared = "".join(path.read_text(errors="replace") for folder in ("tools", "examples", "tests")
                       for path in (tree / folder).rglob("CMakeLists.txt"))
    return [program for program in PROGRAMS
            if re.search(rf"TARGET {program}\)|llama_build(?:_and_test)?\({program}\.cpp", declared)]


def build_number(name, tree):
    """llama.cpp's, as it counts commits itself: its name has it, or its history."""
    if re.fullmatch(r"b\d+", name):
        return name
    if (tree / ".git").exists():
        counted = subprocess.run(["git", "-C", tree, "rev-list", "--count", "HEAD"], capture_output=True, text=True)
        if counted.returncode == 0:
            return f"b{counted.stdout.strip()}"
    return "not in the tree"


def versions_of(tree):
    """(version of ggml, version of its interface of backends)"""
    text = (tree / "ggml" / "CMakeLists.txt").read_text()
    version = ".".join(re.search(rf"GGML_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))
    header = (tree / "ggml" / "src" / "ggml-backend-impl.h").read_text()
    return version, re.search(r"#define GGML_BACKEND_API_VERSION (\d+)", header)[1]


def lacking(tree, log):
    """The library or name of llama.cpp's that the tree lacks, so that a build ended with this log; None if that had
    another cause."""
    if library := re.search(r"ninja: error: '\S*/bin/(lib\S+)', needed by", log):
        return library[1]
    name = re.search(r"error: (?:use of undeclared identifier )?\W((?:llama|ggml)_\w+)\W", log, re.I)
    headers = "".join(path.read_text(errors="replace") for folder in ("include", "ggml/include")
                      for path in (tree / folder).glob("*.h"))
    return name[1] if name and not re.search(rf"\b{name[1]}\b", headers) else None


def build_winnow(tree, llama_cpp, programs):
    """(the build tree of Winnow, [what is not tested and why], [regular expressions of tests whose program cannot be
    built]). One for all trees: the plugin and what links llama.cpp is built again for each."""
    folder = parts.CACHE / "winnow-for-llama-cpp"
    cached = folder / "CMakeCache.txt"
    if cached.exists() and f"CMAKE_HOME_DIRECTORY:INTERNAL={parts.SOURCE}\n" not in cached.read_text():
        shutil.rmtree(folder)  # of another tree of Winnow's
    for library in folder.glob("lib/libwinnow_ggml-*.so"):  # of another llama.cpp
        library.unlink()
    say("building Winnow")
    log, build_log = (parts.CACHE / "logs" / f"{folder.name}-{step}.log" for step in ("configure", "build"))
    parts.run(["cmake", "-S", parts.SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
               "-DWINNOW_BUILD_BENCH=OFF", "-DWINNOW_QUICK_BUILD=ON", "-DWINNOW_TEST_OPTIONS=-O0",
               "-DWINNOW_WARNINGS_AS_ERRORS=ON",
               f"-DWINNOW_LLAMA_CPP_DIR={tree}", f"-DWINNOW_LLAMA_CPP_BUILD_DIR={llama_cpp}",
               f"-DWINNOW_FURTHER_LLAMA_CPP_PROGRAMS={';'.join(programs)}", f"-DWINNOW_MODEL={parts.model()}"], log=log)
    absent = re.findall(r"^-- tests/ggml: (.*)", log.read_text(), re.M)
    parts.run(["cmake", "--build", folder, "--target", *TARGETS], log=build_log)
    unbuilt = []
    for helper, tests in HELPERS.items():
        if any(line.startswith(f"not {tests}: ") for line in absent):  # the build has no such target
            continue
        try:
            parts.run(["cmake", "--build", folder, "--target", helper], log=build_log)
        except Failure as failure:
            if lacked := lacking(tree, build_log.read_text(errors="replace")):
                absent.append(f"not {tests}: this llama.cpp has no {lacked}")
            else:
                say(f"{tests} fails: {helper} cannot be built: {failure}")
                unbuilt.append(tests)
    return folder, absent, unbuilt


def matches(name, patterns):
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def tests_of(folder, absent):
    """{column: its tests}: what Winnow's build has of them, without those that cannot be tested."""
    listed = subprocess.run(["ctest", "--test-dir", folder, "-N"], capture_output=True, text=True, check=True).stdout
    without = re.findall(r"^not (\S+): ", "\n".join(absent), re.M)
    names = {name for name in re.findall(r": ggml\.(\S+)$", listed, re.M) if not matches(name, without)}
    return {column: sorted(name for name in names if matches(name, patterns)) for column, patterns in COLUMNS.items()}


def run_tests(folder, tests, chosen, unbuilt, programs):
    """({test: whether it passed}, [what was not tested and why]), of fixtures, too. A test whose program cannot be
    built fails."""
    results = folder / "llama-cpp.xml"
    results.unlink(missing_ok=True)
    wanted = [name for its in tests.values() for name in its if re.search(chosen or "", name)]
    if not wanted:
        raise Failure(f"no test has a name that matches {chosen}; there are {', '.join(sum(tests.values(), []))}")
    failed = {name: False for name in wanted if matches(name, unbuilt)}
    wanted = [name for name in wanted if name not in failed]
    if not wanted:
        return failed, []
    say(f"testing: {', '.join(wanted)}")
    subprocess.run(["ctest", "--test-dir", folder, "--output-on-failure", "--parallel", "2", "--output-junit", results,
                    "--test-output-size-passed", str(MOST_OUTPUT), "-R", f"^ggml[.]({'|'.join(wanted)})$"],
                   env=os.environ | {"PYTHONUNBUFFERED": "1", "WINNOW_RERUN_TESTS": "1", "WINNOW_TUNING": "off",
                                     "WINNOW_PROGRAM_CACHE_MIB": "1024"})
    if not results.exists():
        raise Failure("ctest ended without results")
    passed, absent = read_results(results, programs)
    return passed | failed, absent


def unknown_option(said, programs):
    """What ended a test that said this, if it was an option that a program of llama.cpp's refused and does not have, as
    an older or newer one may; else None."""
    refused = re.search(r"^FAILED: (\S+) .*^error: invalid (?:parameter for )?argument: (-\S+)", said, re.M | re.S)
    if not refused or not (programs / refused[1]).is_file():
        return None
    shown = subprocess.run([programs / refused[1], "--help"], capture_output=True, text=True, errors="replace")
    if re.search(rf"(?<![\w-]){re.escape(refused[2])}(?![\w-])", shown.stdout + shown.stderr):
        return None
    return f"{Path(refused[1]).name} of this llama.cpp has no {refused[2]}"


def read_results(results, programs):
    """The same, of ctest's file."""
    passed, absent = {}, []
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        name = case.get("name").removeprefix("ggml.")
        said = case.findtext("system-out") or ""
        passed[name] = case.get("status") == "run"
        absent += [f"not {part} of {name}: {why}" for part, why in re.findall("^not tested: (.*?): (.*)", said, re.M)]
        unknown = None if passed[name] else unknown_option(said, programs)
        if unknown:
            del passed[name]
            absent.append(f"not {name}: {unknown}")
    return passed, list(dict.fromkeys(absent))


def show(name, tree, tests, passed, absent):
    ggml, interface = versions_of(tree)
    cells = []
    for its in tests.values():
        ran = [test for test in its if test in passed]
        failed = [test for test in ran if not passed[test]]
        cells.append(f"fails: {', '.join(failed)}" if failed else f"{len(ran)} pass" if ran else "-")
    python = name if name in parts.llama_cpp_names() and not name.startswith("b") else "-"
    print(f"\n| llama.cpp | llama-cpp-python | ggml | API | {' | '.join(tests)} | not tested |")
    print("|---|---|---|---|" + "---|" * (len(tests) + 1))
    print(f"| {build_number(name, tree)} | {python} | {ggml} | {interface} | {' | '.join(cells)} | "
          f"{'; '.join(absent) or '-'} |", flush=True)


def main():
    options = arguments()
    if options.tree not in parts.llama_cpp_names():
        tree_of(options.tree)  # before minutes of setting up
    parts.setup("test")
    name, tree = tree_of(options.tree)
    programs = programs_of(tree)
    source = None if name in parts.llama_cpp_names() else tree
    llama_cpp = parts.llama_cpp_build(*programs, release=name, source=source)
    with parts.locked("winnow-for-llama-cpp"):
        folder, absent, unbuilt = build_winnow(tree, llama_cpp, programs)
        absent = [*lacks(programs), *absent]
        for line in absent:
            say(f"not tested: {line}")
        tests = tests_of(folder, absent)
        passed, refused = run_tests(folder, tests, options.filter, unbuilt, llama_cpp / "bin")
    show(name, tree, tests, passed, [*absent, *refused])
    sys.exit(0 if all(passed.values()) else 1)


if __name__ == "__main__":
    parts.run_main("ci/llama-cpp", main)
