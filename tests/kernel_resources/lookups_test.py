"""Lookups of codes in a table are permutations of lanes, and not moves of one element after the other, which take six
times as long: compiled for processors with AVX-512 and with AVX2, and, to show that moves are seen, for an older one.

    lookups_test.py --clang clang-14 --kernels kernels
"""

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

SOURCE = """
#include "format_packed.h"
kernel void any_table(global float16* to, global const int16* index, const float16 table) {
    to[0] = lookup16(table, index[0]);
}
kernel void alike(global float16* to, global const int16* index, const float8 table) {
    to[0] = lookup16((float16)(table, table), index[0]);
}
kernel void integers(global float16* to, global const int16* index) { to[0] = LOOKUP_INTEGERS(-8, index[0]); }
"""
KERNELS = ("any_table", "alike", "integers")
MOVES = re.compile(r"\bv?(?:pextr[bwdq]|insertps|pinsr[bwdq])\b")
MOST = 24  # instructions of a kernel that permutes
PROCESSORS = {"skylake-avx512": KERNELS, "haswell": KERNELS, "sandybridge": ("integers",)}  # those without moves


def instructions(clang, kernels, processor):
    """By kernel."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "lookups.cl"
        source.write_text(SOURCE)
        text = subprocess.run([clang, "-x", "cl", "-cl-std=CL1.2", "-target", "x86_64-pc-linux", f"-march={processor}",
                               "-O2", "-Xclang", "-finclude-default-header", "-I", kernels, "-S", "-o", "-", source],
                              check=True, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        if label := re.match(r"(\w+):", line):
            lines = found.setdefault(label[1], [])
        elif re.match(r"\t[a-z]", line) and found:
            lines.append(line.strip())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clang", required=True)
    parser.add_argument("--kernels", required=True)
    options = parser.parse_args()
    wrong = []
    for processor, without in PROCESSORS.items():
        found = instructions(options.clang, options.kernels, processor)
        for kernel in KERNELS:
            lines = found[kernel]
            moves = sum(bool(MOVES.search(line)) for line in lines)
            print(f"{processor}: {kernel}: {len(lines)} instructions, {moves} of them move one element")
            if (moves == 0) != (kernel in without) or (kernel in without and len(lines) > MOST):
                wrong.append(f"{kernel} on {processor}")
    assert not wrong, f"not as expected: {', '.join(wrong)}"


main()
