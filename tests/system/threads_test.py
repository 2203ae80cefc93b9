"""Builds both backends with clang's thread sanitizer and runs winnow-threads: contexts of eight threads at once.

Proven first on a race that has to be reported in spite of what is left out.

    threads_test.py SOURCE BUILD
"""

import os
import subprocess
import sys
import tempfile

# PoCL, its worker threads, the compiler in it and the loader of drivers are not instrumented: of their locks, and of
# what happens between them, the sanitizer sees nothing. What such modules call is left out; what this project's code
# does is seen wherever it is called from. Without drivers nothing is left out.
LEFT_OUT = {"reference": "", "opencl": ":ignore_noninstrumented_modules=1"}
REPORTED = 66  # the status with which the sanitizer ends a program that it reported a race of
DEVICES = {"reference": "cpu", "opencl": "Portable Computing Language"}


def build(source, build_folder):
    for command in (
        ["cmake", "-S", source, "-B", build_folder, "-G", "Ninja", "-DCMAKE_C_COMPILER=clang",
         "-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1",
         "-DWINNOW_SANITIZE=thread", "-DWINNOW_BUILD_BENCH=OFF", "-DWINNOW_QUICK_BUILD=ON",
         "-DWINNOW_WARNINGS_AS_ERRORS=ON"],
        ["cmake", "--build", build_folder, "--target", "winnow-threads"],
    ):
        print("$", *command, flush=True)
        if subprocess.run(command).returncode != 0:
            sys.exit("it does not build")


def run(build_folder, backend, *options):
    """Compiled programs go into folders that begin empty: all threads compile, write and read at once."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "TSAN_OPTIONS": f"exitcode={REPORTED}:history_size=4{LEFT_OUT[backend]}",
            "XDG_CACHE_HOME": f"{folder}/programs",
            "POCL_CACHE_DIR": f"{folder}/pocl",
            "TMPDIR": folder,
        }
        command = [f"{build_folder}/bin/winnow-threads", *options, f"{build_folder}/lib/libwinnow_{backend}.so",
                   DEVICES[backend]]
        print("$", *command, flush=True)
        return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")


def main():
    source, build_folder = sys.argv[1:]
    build(source, build_folder)
    failed = False
    for backend in DEVICES:
        raced = run(build_folder, backend, "--race")
        if raced.returncode != REPORTED or f"libwinnow_{backend}" not in raced.stderr:
            print(raced.stderr[-4000:])
            sys.exit(f"{backend}: a race in the backend is not reported; status {raced.returncode}")
        result = run(build_folder, backend)
        print((result.stdout + result.stderr)[:20000])
        failed |= result.returncode != 0
    sys.exit(1 if failed else 0)


main()
