"""What a build needs of others: docs/building.md says the versions that CMake asks for, an older compiler is refused
with a sentence, without programs neither CLI11 nor GoogleTest is looked for, and a tree without the lab, in a folder
whose name has a space, is configured with all tests and follows the rules of the tree.

    requirements_test.py SOURCE
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from command import output_of, run

NAMES = {"GNU": "g++", "Clang": "clang", "OpenCL": "OpenCL headers", "libxxhash": "xxHash",
         "nlohmann_json": "nlohmann-json", "CLI11": "CLI11"}  # as CMake and as the page call them


def check_page(source):
    text = (source / "cmake" / "requirements.cmake").read_text()
    asked = {NAMES[name]: version for name, version in re.findall(r"^set\(oldest_(\w+) ([\d.]+)\)$", text, re.M)}
    asked["CMake"] = re.match(r"cmake_minimum_required\(VERSION ([\d.]+)\)", (source / "CMakeLists.txt").read_text())[1]
    said = dict(re.findall(r"^\| ([^|]+) \| ([\d.]+) \|", (source / "docs" / "building.md").read_text(), re.M))
    assert said == asked, f"docs/building.md says {said}, and CMake asks for {asked}"


def check_compilers(source):
    for compiler, version in (("GNU", "11.4.0"), ("Clang", "13.0.1")):
        refused = run("cmake", f"-DCMAKE_CXX_COMPILER_ID={compiler}", f"-DCMAKE_CXX_COMPILER_VERSION={version}",
                      "-DCMAKE_CXX_COMPILER=c++", "-P", source / "cmake" / "requirements.cmake")
        said = " ".join(refused.stderr.split())
        assert refused.returncode != 0 and f"c++ is {compiler} {version}. Winnow needs g++ 12" in said, said


def configure(source, folder, *settings):
    return ("cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON",
            "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON", *settings)


def check_without_programs(source):
    with tempfile.TemporaryDirectory() as folder:
        output_of(*configure(source, folder, "-DWINNOW_BUILD_TOOLS=OFF"))
        targets = output_of("cmake", "--build", folder, "--target", "help")
        built = [name for name in ("libwinnow_opencl.so", "\nwinnow: ", "winnow-unit") if name in targets]
        assert built == ["libwinnow_opencl.so"], built
        refused = run(*configure(source, folder, "-DWINNOW_BUILD_TOOLS=ON"))
        assert refused.returncode != 0 and "CLI11" in refused.stderr, "programs were configured without CLI11"


def check_without_lab(source):
    with tempfile.TemporaryDirectory() as folder:
        tree, build = Path(folder) / "without lab", Path(folder) / "build"
        others = {"lab", "build", "dist", ".git"}
        shutil.copytree(source, tree, ignore=lambda at, names: others & set(names) if Path(at) == source else set())
        shown = output_of("cmake", "-S", tree, "-B", build, "-G", "Ninja")
        targets = output_of("cmake", "--build", build, "--target", "help")
        assert "\nwinnow: " in targets and "winnow-unit" in targets and "measure" not in targets, targets
        assert "lab" not in re.findall(r"\w+", shown), "something of the lab was configured"
        for name in ("tidy_test.py", "messages_test.py"):
            output_of(sys.executable, "-B", tree / "tests" / "tidy" / name, tree)


def main():
    source = Path(sys.argv[1])
    check_page(source)
    check_compilers(source)
    check_without_programs(source)
    check_without_lab(source.resolve())


main()
