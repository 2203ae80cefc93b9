"""What the build finds in source trees of llama.cpp: equal layouts in trees whose headers agree in what this host uses,
another layout in a tree with more fields, functions, parameters and numbers, and one sentence where something that the
host uses was changed or is gone. The trees have the headers of one release, with a few lines changed.

The libraries of the plugin are compared with versions.txt, and that with the page on llama.cpp.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import synthetic_trees
from synthetic_trees import INTERFACE, inside

HOST = Path(__file__).resolve().parents[2] / "hosts" / "ggml"
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(layouts LANGUAGES CXX)
include({HOST}/layouts.cmake)
winnow_ggml_version(version ${{TREE}})
winnow_ggml_layout(layout api ${{TREE}})
message(STATUS "version ${{version}} layout ${{layout}} API version ${{api}}.")
"""
# A change, and all sentences that the build stops with.
FAULTS = {
    "parameter": ((INTERFACE, *inside("ggml_backend_buffer_i", r"(\(\*set_tensor\)[^;]*)\);", r"\g<2>, int newer);")),
                  [r"ggml_backend_buffer_i::set_tensor is void \(\*\)\(.*, int\), expected void \(\*\)\(.*long\b.*\)"]),
    "gone": ((INTERFACE, *inside("ggml_backend_buffer", "size_t size;", "")),
             [r"ggml_backend_buffer::size is gone, expected .*"]),
    "result": ((INTERFACE, r"void( +\(\*graph_optimize\))", r"int\g<1>"),
               [r"ggml_backend_i::graph_optimize is int \(\*\)\(.*\), expected void .*"]),
    "number": (("ggml.h", "GGML_OP_SET_ROWS,", "GGML_OP_NEWER,"),
               ["GGML_OP_SET_ROWS is gone, expected a number of ggml_op"]),
    "function": (("ggml.h", r"\bggml_set_rows\(", "ggml_newer("), [r".*ggml_set_rows.*"]),
}


class Project:
    """A CMake project that asks for the layout of a tree."""

    def __init__(self, work):
        self.work = work
        (work / "CMakeLists.txt").write_text(PROJECT)

    def configure(self, tree):
        """The status of CMake, and what it printed."""
        result = subprocess.run(["cmake", "-G", "Ninja", "-S", self.work, "-B", self.work / "build", f"-DTREE={tree}"],
                                capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr

    def layout(self, tree):
        """(version, layout, API version)"""
        status, text = self.configure(tree)
        found = re.search(r"version (\S+) layout (\S+) API version (\d+)\.", text)
        assert status == 0 and found, f"{tree}: {text[-3000:]}"
        return found.groups()

    def sentences(self, tree):
        """For what the build stops."""
        status, text = self.configure(tree)
        found = re.search(r"cannot be built for the ggml of\s+\S+:\s*\n(.*?)\n\s*Leave this tree out", text, re.DOTALL)
        assert status != 0 and found, f"{tree} was taken: {text[-3000:]}"
        return [line.strip() for line in found[1].splitlines() if line.strip()]


def check_table(table):
    """Trees whose versions stand in one line of versions.txt share a library, and others do not."""
    rows = [line.split() for line in (HOST / "versions.txt").read_text().splitlines() if line[:1].isdigit()]
    page = (HOST / "README.md").read_text()
    for first, last, tested, *_ in rows:
        known = first if first == last else f"{first} to {last}"
        assert f"| {known} | {tested.replace(',', ', ')} |" in page, f"README.md lacks {known}"
    named = [entry.split(":")[0] for entry in table.split()]
    assert len(set(named)) == len(named), f"libraries have one name: {table}"
    seen = []
    for entry in table.split():
        name, _, known, versions = entry.split(":")
        fitting = [row for row in rows if set(row[2].split(",")) & set(versions.split(","))]
        assert len(fitting) <= 1, f"library {name} has versions of several lines of versions.txt: {versions}"
        assert not fitting or known == "-".join(fitting[0][:2]), f"library {name} is said to be for {known}"
        assert not fitting or fitting[0] not in seen, f"several libraries have versions of {fitting[0]}"
        seen += fitting
    print(f"{len(named)} libraries are as {len(rows)} lines of versions.txt say")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="source tree of llama.cpp")
    parser.add_argument("--ggml", required=True, help="the version of its ggml")
    parser.add_argument("--table", required=True, help="what the loader is told of the libraries")
    parser.add_argument("--work", type=Path, required=True, help="folder for what the test writes")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    project = Project(options.work)

    def tree(name, *changes, version=None):
        return synthetic_trees.make(options.source, options.work / name, changes, version)

    version, known, api = project.layout(tree("known"))
    assert version == options.ggml, f"ggml {version}, expected {options.ggml}"
    assert project.layout(tree("renumbered", version="7.8.8")) == ("7.8.8", known, api), "the version is no layout"
    later = project.layout(tree("later", *synthetic_trees.LATER, version="7.8.9"))
    assert later[0] == "7.8.9" and later[1] != known and later[2] == "6", f"a later tree: {later}"
    print(f"a later tree has a layout of its own, API version {later[2]}")

    for name, (change, expected) in FAULTS.items():
        sentences = project.sentences(tree(name, change))
        assert len(sentences) == len(expected) and all(map(re.fullmatch, expected, sentences)), \
            f"{name}: the build says {sentences}, expected {expected}"
        print(f"{name}: {sentences[0]}")

    (options.work / "empty").mkdir()
    status, text = project.configure(options.work / "empty")
    refusal = "is no source tree of llama.cpp: no ggml/CMakeLists.txt in it"
    assert status != 0 and refusal in " ".join(text.split()), text
    check_table(options.table)


sys.exit(main())
