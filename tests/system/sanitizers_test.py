"""Builds the reference backend and its judges with ASan and UBSan, and runs them.

    sanitizers_test.py SOURCE BUILD sample|all
"""

import os
import subprocess
import sys

# What a sample of the conformance suite leaves out: the long tables of attention cases.
LONG = r"conformance\.reference\.sdpa"


def run(*command):
    print("$", *command, flush=True)
    options = {"ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    result = subprocess.run(command, env=os.environ | options)
    if result.returncode != 0:
        sys.exit(f"status {result.returncode}")


def main():
    source, build, extent = sys.argv[1:]
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        "-DWINNOW_SANITIZE=address,undefined", "-DWINNOW_BUILD_BENCH=OFF")
    run("cmake", "--build", build)
    leave_out = [] if extent == "all" else ["-E", LONG]
    run("ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "-R",
        r"^(unit|abi|conformance\.reference|host_c\.reference)", *leave_out)


main()
