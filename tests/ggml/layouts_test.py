"""Which layout of ggml's the build finds in a source tree of llama.cpp: of a version that it knows, of one that it does
not know and that is laid out as one it knows, and of one that is laid out as none, which it refuses with what differs.

The trees have the headers of one release, with a few lines changed.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

LAYOUTS = Path(__file__).resolve().parents[2] / "hosts" / "ggml" / "layouts.cmake"
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(layouts LANGUAGES CXX)
include({LAYOUTS})
winnow_ggml_version(version ${{TREE}})
winnow_ggml_layout(layout versions ${{version}} ${{TREE}})
message(STATUS "version ${{version}} layout ${{layout}} serves ${{versions}}")
"""


def tree_of(source, folder, version=None, replaced=None):
    """The headers, with another version and with a text in ggml.h replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source / "ggml" / "include", folder / "ggml" / "include")
    (folder / "ggml" / "src").mkdir()
    for header in (source / "ggml" / "src").glob("ggml*.h"):
        shutil.copy(header, folder / "ggml" / "src")
    text = (source / "ggml" / "CMakeLists.txt").read_text()
    for part, number in zip(("MAJOR", "MINOR", "PATCH"), version.split(".") if version else ()):
        text = re.sub(rf"GGML_VERSION_{part} \d+", f"GGML_VERSION_{part} {number}", text)
    (folder / "ggml" / "CMakeLists.txt").write_text(text)
    if replaced:
        header = folder / "ggml" / "include" / "ggml.h"
        before = header.read_text()
        header.write_text(before.replace(*replaced, 1))
        assert header.read_text() != before, f"ggml.h has no {replaced[0]}"
    return folder


def configure(work, tree):
    """The status of CMake, and what it printed, in one line."""
    result = subprocess.run(["cmake", "-G", "Ninja", "-S", work, "-B", work / "build", f"-DTREE={tree}"],
                            capture_output=True, text=True)
    text = " ".join((result.stdout + result.stderr).split())
    print(f"{tree.name}: {text[:3000]}")
    return result.returncode, text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="source tree of llama.cpp")
    parser.add_argument("--ggml", required=True, help="the version of its ggml, which stands in hosts/ggml/versions")
    parser.add_argument("--work", type=Path, required=True, help="folder for what the test writes")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    (options.work / "CMakeLists.txt").write_text(PROJECT)

    status, text = configure(options.work, tree_of(options.source, options.work / "known"))
    known = re.search(rf"version {re.escape(options.ggml)} layout (\S+) serves (\S+)", text)
    assert status == 0 and known, "the layout of a version in versions/ was not found"

    status, text = configure(options.work, tree_of(options.source, options.work / "later", "7.8.9"))
    assert status == 0 and f"version 7.8.9 layout {known[1]} serves {known[2]};7.8.9" in text, "another layout"

    changed = ("GGML_OP_SET_ROWS,", "GGML_OP_ANOTHER, GGML_OP_SET_ROWS,")
    status, text = configure(options.work, tree_of(options.source, options.work / "changed", "7.8.10", changed))
    assert status != 0 and "ggml 7.8.10 has none of the layouts" in text, "a layout was found that nobody knows"
    assert "GGML_OP_SET_ROWS == 42" in text, "what differs is not shown"

    (options.work / "empty").mkdir()
    status, text = configure(options.work, options.work / "empty")
    assert status != 0 and "is no source tree of llama.cpp: no ggml/CMakeLists.txt in it" in text, "it was taken"


sys.exit(main())
