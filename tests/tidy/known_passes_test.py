"""What passed once is not done again, and whatever could change that is seen: sources, headers, new headers in their
place, commands, the configuration. Shown with clang-tidy over a tree of a source and a header, and with a test that is
a shell script (unless_known.py).

    known_passes_test.py
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import clang_test

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import known_passes  # noqa: E402
import unless_known  # noqa: E402

GOOD = "#pragma once\ninline int *nothing() { return nullptr; }\n"
BAD = "#pragma once\ninline int *nothing() { return 0; }\n"


def write(path, text):
    """As a file that lies there for some time: one that changes during a run is not remembered."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - 60,) * 2)


class Tree:
    def __init__(self, folder):
        self.root, self.build, self.kept = folder / "tree", folder / "build", folder / "kept"
        write(self.root / ".clang-tidy", "Checks: '-*,modernize-use-nullptr'\nWarningsAsErrors: '*'\n"
                                         "HeaderFilterRegex: '.*'\n")
        write(self.root / "backend" / "a.cpp", '#include "a.hpp"\nint *found() { return nothing(); }\n')
        write(self.root / "plugin_api" / "a.hpp", GOOD)
        self.compile_with("-DA=1")

    def compile_with(self, option):
        source = self.root / "backend" / "a.cpp"
        write(self.build / "compile_commands.json", json.dumps([{
            "directory": str(self.build), "file": str(source),
            "command": f"c++ {option} -I{self.root}/hosts -I../tree/plugin_api -c {source}"}]))

    def expect(self, read, passed, why):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            found = clang_test.analysed(self.root, self.build, "all", self.kept)
        counts = f"1 files of 1: {read} read, {1 - read} known to pass"
        assert found == passed and counts in output.getvalue(), f"{why}: {found}, {output.getvalue()}"


def clang_tidy_reads_what_changed(folder):
    tree = Tree(folder)
    header = tree.root / "plugin_api" / "a.hpp"
    tree.expect(1, True, "the first time")
    tree.expect(0, True, "the second time")
    write(header, BAD)
    tree.expect(1, False, "a header with a defect")
    tree.expect(1, False, "a failure is not kept")
    write(header, GOOD)
    tree.expect(0, True, "as it was")
    write(tree.root / "backend" / "a.cpp", (tree.root / "backend" / "a.cpp").read_text() + "int *more = 0;\n")
    tree.expect(1, False, "a source with a defect")
    write(tree.root / "backend" / "a.cpp", '#include "a.hpp"\nint *more = nothing();\n')
    tree.expect(1, True, "another source")
    tree.compile_with("-DA=2")
    tree.expect(1, True, "another option")
    tree.expect(0, True, "the same option again")
    write(tree.root / "hosts" / "a.hpp", BAD)
    tree.expect(1, False, "a header that is found before the other")
    (tree.root / "hosts" / "a.hpp").unlink()
    tree.expect(0, True, "without it")
    write(tree.root / ".clang-tidy", (tree.root / ".clang-tidy").read_text() + "# changed\n")
    tree.expect(1, True, "another configuration")
    for file in (tree.kept / "clang_tidy").iterdir():
        file.write_bytes(b"\xff\xfe damaged")
    tree.expect(1, True, "damaged")
    os.utime(header, (time.time() + 60,) * 2)
    write(tree.root / ".clang-tidy", (tree.root / ".clang-tidy").read_text() + "# once more\n")
    tree.expect(1, True, "a header that is written during the run")
    tree.expect(1, True, "which is not kept")


def a_test_is_skipped_where_nothing_changed(folder):
    if not unless_known.PACKAGES.is_file():
        print("left out: without the packages of Debian no test is known")
        return
    script, read, made, runs = (folder / name for name in ("test.sh", "read", "folder/made", "runs"))
    write(read / "input", "0")
    write(script, f'echo run >>{runs}; mkdir -p {made.parent}; cat {read}/input >{made}; '
                  f'echo "UNSUPPORTED: $(cat {read}/input)"; '
                  f'exit $(cat {read}/input)')

    def expect(count, status, why, **variables):
        runs.write_text("")
        command = [sys.executable, "-B", HERE.parent / "unless_known.py", "--passes", folder / "kept", "--reads", read,
                   "--makes", made.parent, "--fails", "UNSUPPORTED: [1-9]", "--", "/bin/sh", script, made,
                   "a word that is no file's name" * 100]
        kept = {name: value for name, value in os.environ.items() if name != "WINNOW_RERUN_TESTS"}
        done = subprocess.run(command, env=kept | variables, capture_output=True, text=True)
        count_of_runs = len(runs.read_text().splitlines())
        assert (count_of_runs, done.returncode) == (count, status), f"{why}: {count_of_runs} runs, {done}"

    expect(1, 0, "the first time")
    expect(0, 77, "the second time")
    expect(1, 0, "asked to run again", WINNOW_RERUN_TESTS="1")
    expect(1, 0, "a variable", WINNOW_DEVICE="cpu")
    expect(0, 77, "as it was")
    made.unlink()
    expect(1, 0, "what it made is gone")
    write(made, "another")
    expect(1, 0, "what it made is another")
    write(read / "further", "")
    expect(1, 0, "a further file")
    expect(0, 77, "the same again")
    write(read / "input", "3")
    expect(1, 3, "a failure")
    expect(1, 3, "which is not kept")
    write(read / "input", "0")
    expect(1, 0, "what a failure made is not what the pass made")
    write(script, script.read_text().replace("exit $(cat", "exit 0; : $(cat"))
    expect(1, 0, "another script")
    write(read / "input", "3")
    expect(1, 1, "words that it must not have")
    expect(1, 1, "which are not kept")


def some_are_kept(folder):
    write(folder / "file", "text")
    passes = known_passes.KnownPasses("number", folder=folder, most=2)
    for number in range(4):
        passes.keep([folder / "file"], number)
        for file in passes.folder.iterdir():  # all of them are older now
            os.utime(file, (file.stat().st_mtime - 10,) * 2)
    assert passes.knows(0)
    passes.trim()
    known = [number for number in range(4) if passes.knows(number)]
    assert known == [0, 3], f"of 0 to 3, with 0 used last, {known} are left"


def main():
    for check in (clang_tidy_reads_what_changed, a_test_is_skipped_where_nothing_changed, some_are_kept):
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder))
        print(f"{check.__name__}: ok")


main()
