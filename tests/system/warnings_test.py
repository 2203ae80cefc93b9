"""A project that includes Winnow's source tree, with a compiler that warns of its C: WINNOW_WARNINGS_AS_ERRORS decides
whether that ends the build, in every part, and by default it does not.

usage: warnings_test.py SOURCE
"""

import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(includer LANGUAGES C CXX)
set(WINNOW_BUILD_BENCH OFF)
add_subdirectory({source} winnow)
"""
WARNS = "-Wtraditional"  # of every function that is defined with a prototype
TARGETS = ("winnow_loader", "winnow_host")


def build(folder, *settings):
    """(whether the targets are built, what was printed)"""
    made = Path(folder) / f"build{len(settings)}"
    configured = subprocess.run(["cmake", "-S", folder, "-B", made, "-G", "Ninja", f"-DCMAKE_C_FLAGS={WARNS}",
                                 "-DWINNOW_BUILD_TESTS=OFF", *settings], capture_output=True, text=True)
    assert configured.returncode == 0, configured.stdout + configured.stderr
    done = subprocess.run(["cmake", "--build", made, "--", "-k0", *TARGETS], capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def main():
    source = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "CMakeLists.txt").write_text(PROJECT.format(source=source))
        is_built, printed = build(folder)
        assert "winnow_loader.c" in printed and WARNS in printed, f"the compiler warns of nothing:\n{printed}"
        assert is_built, f"a warning ends the build of another project:\n{printed}"
        is_built, printed = build(folder, "-DWINNOW_WARNINGS_AS_ERRORS=ON")
        assert not is_built, f"no warning ends the build:\n{printed}"
        for name in ("winnow_loader.c", "winnow_host.c"):
            lines = [line for line in printed.splitlines() if name in line and "error:" in line]
            assert lines, f"no error of {name}:\n{printed}"
    print("warnings end a build where they are asked to")


if __name__ == "__main__":
    main()
