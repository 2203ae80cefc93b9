"""What agreed with the table is compiled again where a header, the table, an option or a compiler has changed, and only
there. Shown with programs in the place of both compilers, which say what stands in a table of their own.

    known_test.py
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TAKEN = {"registers": 10, "spilled": 0, "local": 1024}
CLANG = """#!/bin/sh
[ "$1" = --version ] && exec echo "clang version 14.0"
echo one >>"${0%/*}/runs"
for word; do
    [ "$last" = -o ] && output="$word"
    last="$word"
done
echo ". ${last%/*}/included.h" >&2
name="${last##*/}"
printf "\\n${name%%_workgroup.cl}:\\n; TotalNumVgprs: 10\\n; ScratchSize: 0\\n; LDSByteSize: 1024\\n" >"$output"
"""
PTXAS = """#!/bin/sh
for name in sdpa_vector sdpa_prefill page_pick page_sign kv_append; do
    echo "release 12.9 function '$name' Used 10 registers, 1024 bytes smem, 0 bytes stack frame, 0 bytes spill stores"
done
"""


def write(path, text):
    """As a file that lies there for some time: one that changes during a run is not remembered."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    os.utime(path, (time.time() - 60,) * 2)


def append(path, text):
    write(path, path.read_text() + text)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "tests" / "kernel_resources" / "resources_test.py"
        for path in (HERE / script.name, HERE.parent / "known_passes.py", HERE.parent.parent / "ci" / "parts.py"):
            copy = folder / path.relative_to(HERE.parent.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
            os.utime(copy, (time.time() - 60,) * 2)
        for program, text in (("clang", CLANG), ("ptxas", PTXAS)):
            write(folder / program, text)
        kernels = folder / "kernels"
        names = ("sdpa_vector", "sdpa_prefill", "page_pick", "page_sign", "kv_append")
        for path in (*(f"{name}_workgroup.cl" for name in names), "included.h", "other.h"):
            write(kernels / path, "// A kernel.\n")
        cases = list(json.loads((HERE / "resources.json").read_text())["kernels"])

        def one(case):
            groups = {"page": 8, "kv": 32}.get(case.split("_")[0], 16)  # of 256, 64 and 128 work-items
            return {gpu: TAKEN | {"groups": groups} for gpu in ("H100", "MI200")}

        table = script.with_name("resources.json")

        def write_table(**more):
            write(table, json.dumps({"clang": "version 14.0", "ptxas": "release 12.9",
                                     "kernels": {case: one(case) for case in cases}} | more))

        def expect(compiled, passed, why):
            (folder / "runs").write_text("")
            done = subprocess.run([sys.executable, "-B", script, "--clang", folder / "clang", "--ptxas",
                                   folder / "ptxas", "--kernels", kernels, "--passes", folder / "kept"],
                                  capture_output=True, text=True)
            runs = len((folder / "runs").read_text().splitlines())
            assert (runs > 0, done.returncode == 0) == (compiled, passed), f"{why}: {runs}\n{done}"

        write_table()
        expect(True, True, "the first time")
        expect(False, True, "the second time")
        append(kernels / "included.h", "// Changed.\n")
        expect(True, True, "another header")
        append(kernels / "other.h", "// Changed.\n")
        expect(False, True, "a header of other kernels")
        append(folder / "ptxas", "# changed\n")
        expect(True, True, "another assembler")
        write_table(ptxas="release 12.8")
        expect(True, False, "another table")
        expect(True, False, "which is not kept")
        write_table()
        expect(False, True, "the table as it was")
        write(script, script.read_text().replace('"-O3"', '"-O2"'))
        expect(True, True, "another option")
    print("ok")


main()
