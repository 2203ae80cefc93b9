"""What one decode step's attention reads, as Oclgrind counts it, against what has to be read: rows of K and V, slots,
and Q once for each work-group.

    traffic.py ICD PLUGIN PROGRAM BACKEND REFERENCE [--full]

In the shape "workgroup", 1024 keys of one KV head in two splits, one query token, 4 query heads and for two formats 8,
for some formats and with --full for all. Two counts come from traffic_plugin.cpp. Once: a byte that a group loads more
than once between two barriers counts once; at most LIMIT times what is needed. Asked: all loads of all work-items; as
ASKED has it. What the second launch reads, which combines the splits, is in neither.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 1.05
KEYS, HEADS, SPLITS = 1024, 4, 2
SIZES = (128, 64)
SAMPLE = ("f16", "f16:slots", "q8_0", "q8_0:slots", "q4_0", "affine4_g32", "turbo4", "turbo3", "sparse8")
# Times what is needed, by head size. A work-item takes 16 elements of a packed row, and reads their scale and bias by
# itself, beside the others that share it; and where a tile's keys are no whole number of batches the last one is loaded
# in the place of those behind it.
ASKED = {
    "f32": {128: 1.0, 64: 1.07}, "f16": {128: 1.01, 64: 1.07}, "bf16": {128: 1.01, 64: 1.07},
    "q8_0": {128: 1.13, 64: 1.08}, "q5_1": {128: 2.12, 64: 2.01}, "q5_0": {128: 2.12, 64: 2.01},
    "q4_1": {128: 2.12, 64: 2.01}, "q4_0": {128: 2.11, 64: 2.01}, "iq4_nl": {128: 2.11, 64: 2.01},
    "affine8_g32": {128: 1.19, 64: 1.13}, "affine8_g64": {128: 1.26, 64: 1.2}, "affine8_g128": {128: 1.29},
    "affine4_g32": {128: 1.29, 64: 1.23}, "affine4_g64": {128: 1.43, 64: 1.36}, "affine4_g128": {128: 1.51},
    "turbo4": {128: 1.36, 64: 1.27}, "turbo3": {128: 1.78, 64: 1.65}, "turbo2": {128: 1.62, 64: 1.5},
    "turbo3_5": {128: 1.54, 64: 1.44}, "turbo2_5": {128: 1.72, 64: 1.59}, "sparse16": {128: 1.2, 64: 1.14},
    "sparse8": {128: 1.3, 64: 1.24}, "f16:slots": {128: 1.01, 64: 1.07}, "q8_0:slots": {128: 1.13, 64: 1.08},
    "turbo4:slots": {128: 1.35, 64: 1.26}
}
# With 8 query heads a value's piece is loaded by two work-items, each for one half of the rows.
ASKED_BY_8 = {"q8_0": {128: 1.65, 64: 1.59}, "turbo4": {128: 1.98, 64: 1.88}}
# Two work-groups share out so many query heads, and each reads all keys and values: the count has to see that.
TWICE = ("f16", 128, 16)


def count(icd, plugin, folder, *command):
    """(bytes needed, counted once, asked) of the first launch."""
    environment = os.environ | {"OCL_ICD_VENDORS": folder, "XDG_CACHE_HOME": folder, "OCLGRIND_PLUGINS": plugin,
                                "OCLGRIND_NUM_THREADS": "1", "OCLGRIND_LOCAL_MEM_SIZE": str(96 << 10)}
    environment.pop("WINNOW_DEVICE", None)
    (Path(folder) / "oclgrind.icd").write_text(f"{icd}\n")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr.strip(), f"{command}: {done.returncode}\n{done.stderr[:2000]}"
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["needed", "read", "read"], done.stdout
    assert lines[0][2].startswith("sdpa_vector_") and "_workgroup_" in lines[0][2], lines[0][2]
    return int(lines[0][1]), int(lines[1][2]), int(lines[1][1])


def main():
    *programs, is_full = sys.argv[1:] if sys.argv[-1] == "--full" else (*sys.argv[1:], "")
    icd, plugin, program, backend, reference = programs
    wrong = []
    print(f"{'format':14} {'D':>4} {'heads':>5} {'needed':>8} {'once':>8} {'x':>6} {'asked':>8} {'x':>6}")
    with tempfile.TemporaryDirectory() as folder:
        def line(format_, size, heads):
            needed, once, asked = count(icd, plugin, folder, program, backend, reference, str(KEYS), str(heads),
                                        str(size), str(SPLITS), format_)
            print(f"{format_:14} {size:4} {heads:5} {needed:8} {once:8} {once / needed:6.3f} {asked:8} "
                  f"{asked / needed:6.3f}", flush=True)
            return once / needed, asked / needed

        once, _ = line(*TWICE)
        assert once > 1.9, "what is read twice is not seen"
        cases = [(format_, HEADS, ASKED[format_]) for format_ in (ASKED if is_full else SAMPLE)]
        cases += [(format_, 8, expected) for format_, expected in ASKED_BY_8.items()]
        for format_, heads, expected in cases:
            for size in SIZES:
                if size not in expected:
                    print(f"{format_:14} {size:4} left out: rows are no whole groups")
                    continue
                once, asked = line(format_, size, heads)
                what = f"{format_}, {size}, {heads} query heads"
                if not 1 <= once <= LIMIT:
                    wrong.append(f"{what}: {once:.4f} times what is needed, expected 1 to {LIMIT}")
                if round(asked, 2) != expected[size]:
                    wrong.append(f"{what}: asked for {asked:.2f} times what is needed, expected {expected[size]}")
    assert not wrong, "\n".join(wrong)


main()
