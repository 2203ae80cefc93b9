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
NAMES = ("sdpa_vector", "sdpa_prefill", "page_pick", "page_sign", "kv_append", "kv_requantize", "kv_dequantize",
         "hadamard", "slot_append", "slot_evict", "slot_accumulate", "slot_compact", "slot_compact_move", "slot_copy",
         "slot_edit", "slot_scores", "slot_zero")
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
for kernel in "${name%%_workgroup.cl}" slot_compact_move; do
    printf "\\n$kernel:\\n; TotalNumVgprs: 10\\n; ScratchSize: 0\\n; LDSByteSize: 1024\\n"
done >"$output"
"""
PTXAS = f"""#!/bin/sh
for name in {" ".join(NAMES)}; do
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
        for path in (*(f"{name}_workgroup.cl" for name in NAMES), "included.h", "other.h"):
            write(kernels / path, "// A kernel.\n")
        cases = list(json.loads((HERE / "resources.json").read_text())["kernels"])

        def one(case):
            takes_rows = case.startswith(("kv_", "hadamard", "slot_append"))  # 64 work-items; 256 and 128 do the others
            groups = 32 if takes_rows else 8 if case.startswith(("page_", "slot_")) else 16
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
            return done

        write_table()
        first = expect(True, True, "the first time")
        second = expect(False, True, "the second time")
        assert second.stdout.startswith("Nothing was compiled") and first.stdout.count("H100") == len(cases), first
        assert second.stdout.count("H100") == len(cases), f"what is known is printed, too: {second}"
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

        # A spill, though the table has it, too: of kernels that store rows, and of attention.
        spilling = {case: {"H100": one(case)["H100"], "MI200": one(case)["MI200"] | {"spilled": 16}} for case in cases}
        write(folder / "clang", CLANG.replace("ScratchSize: 0", "ScratchSize: 16"))
        write_table(kernels=spilling)
        refused = expect(True, False, "a spill in attention").stderr
        assert "sdpa_vector f16, 4 rows, MI200: 16 bytes spilled, expected at most 0" in refused, refused
        assert "q8_0" not in refused and "step" not in refused and "kv_append" not in refused, refused
    print("ok")


main()
