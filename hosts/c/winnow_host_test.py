"""Runs the C example on a backend and holds what it prints against the closed form of its little problem.

    winnow_host_test.py [EMULATOR] PROGRAM BACKEND
"""

import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOKENS, Q_HEADS, LOGIT = 5, 4, 2.0
LAYERS, LENGTH, BUDGET, CACHE_LOGIT, HEAD_SIZE = 2, 600, 64, 8.0, 64
IS_EMULATED = len(sys.argv) > 3


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, timeout=1200 if IS_EMULATED else 120,
                          env=os.environ | environment)


def expected(head):
    """Query head h sees token h with a logit of 2 and the others with 0; values are t, or 100 + t in KV head 1."""
    total = math.exp(LOGIT) + TOKENS - 1
    scores = [(math.exp(LOGIT) if token == head else 1.0) / total for token in range(TOKENS)]
    value = sum(score * (100 * (head // 2) + token) for token, score in enumerate(scores))
    return value, scores


def field(pattern, text):
    match = re.search(pattern, text, re.M)
    assert match, f"no line matches {pattern}"
    return match


def check_cache(program, backend):
    """Each layer kept the token that its own queries looked at, and attended to its own keys and values; the cache
    stayed inside its budget, and cost what was estimated."""
    result = run(*program, "--cache", backend)
    print(result.stdout + result.stderr)
    assert result.returncode == 0, f"exit status {result.returncode}"
    tokens, steps = map(int, field(r"^cache h2o:\S+: (\d+) tokens in (\d+) steps$", result.stdout).groups())
    assert (tokens, steps) == (LENGTH, LAYERS * LENGTH), f"{tokens} tokens in {steps} steps"
    pattern = r"^bytes: (\d+), estimated (\d+), in F16 (\d+)$"
    used, estimated, original = map(int, field(pattern, result.stdout).groups())
    assert used == estimated and used < original / 4, f"{used} bytes, estimated {estimated}, of {original}"
    slowest = 10000 ** (-(HEAD_SIZE - 2) / HEAD_SIZE)  # radians from token to token
    for layer in range(LAYERS):
        pattern = rf"^layer {layer}: output (\S+), from the (\d+) tokens .+ kept: (.+)$"
        output, count, kept = field(pattern, result.stdout).groups()
        kept, needle = [int(token) for token in kept.split()], 100 * (layer + 1)
        assert len(kept) == int(count) <= BUDGET, f"{count} tokens kept, the budget is {BUDGET}"
        wanted = {0, 1, 2, 3, needle, LENGTH - 1}
        assert wanted <= set(kept), f"layer {layer}: sinks, the needle and the newest have to stay"
        weight = math.exp(CACHE_LOGIT * math.cos(slowest * (LENGTH - 1 - needle)))
        expected_output = 1000 * layer + (weight * needle + sum(kept) - needle) / (weight + len(kept) - 1)
        assert abs(float(output) - expected_output) < 0.005 * expected_output, (
            f"layer {layer}: output {output}, not {expected_output:.2f}")
    evictions = int(field(r"^evicted: (\d+) ", result.stdout)[1])
    assert evictions >= 2 * LAYERS * (LENGTH - BUDGET), f"{evictions} evicted"  # 2 KV heads


def check_experts(program, backend):
    """Tokens of experts that few tokens go to are gone, but for sinks and recent ones; all others are there."""
    result = run(*program, "--experts", backend)
    print(result.stdout + result.stderr)
    assert result.returncode == 0, f"exit status {result.returncode}"
    chosen = [int(count) for count in field(r"^experts chosen: (.+)$", result.stdout)[1].split()]
    length, rare = 320, [token for token in range(320) if token % 16 == 8]
    assert sum(chosen) == 2 * length and chosen[6:] == [len(rare)] * 2, f"experts chosen: {chosen}"
    kept = {int(token) for token in field(r"^kept of layer 0, head 0: (.+)$", result.stdout)[1].split()}
    used, original = map(int, field(r"^bytes: (\d+), in F16 (\d+)$", result.stdout).groups())
    assert used < original / 2, f"{used} bytes of {original}"
    old = length - 2 * 32  # an eviction pass comes every 32 tokens, and leaves 32
    assert kept >= set(range(length)) - set(rare), f"of other experts are gone: {set(range(length)) - set(rare) - kept}"
    seldom = rare[1:]  # when the first one came no expert had been chosen often
    assert not kept & {token for token in seldom if token < old}, f"are still there: {sorted(kept & set(rare))}"


def check_first_start(program, backend):
    """Of PoCL each kernel is compiled once: for groups of any size, and not once more for those of a launch."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(*program, backend, XDG_CACHE_HOME=folder, POCL_CACHE_DIR=f"{folder}/pocl")
        assert result.returncode == 0, result.stderr
        if "Portable Computing Language" not in result.stdout:
            print("the device is not PoCL's, so that how often kernels are compiled is not seen")
            return
        sizes = {path.parent.name for path in Path(folder, "pocl").rglob("*.so")}
        assert sizes == {"0-0-0"}, f"kernels are compiled for groups of {sizes}"


def main():
    *program, backend = sys.argv[1:]
    result = run(*program, backend)
    print(result.stdout + result.stderr)
    assert result.returncode == 0, f"exit status {result.returncode}"
    assert re.search(rf"^backend {backend} \S+, device .+ \(.+\)$", result.stdout, re.M), "no line names the device"
    assert re.search(r"^attention by \S+", result.stdout, re.M), "no line names the variant"
    rows = re.findall(r"^head (\d): output (\S+), scores (.+)$", result.stdout, re.M)
    assert len(rows) == Q_HEADS, f"{len(rows)} heads printed, expected {Q_HEADS}"
    for head, (number, output, scores) in enumerate(rows):
        value, probabilities = expected(head)
        assert int(number) == head
        assert abs(float(output) - value) < 2e-3, f"head {head}: output {output}, expected {value:.3f}"
        for given, wanted in zip(scores.split(), probabilities, strict=True):
            assert abs(float(given) - wanted) < 2e-4, f"head {head}: score {given}, expected {wanted:.4f}"

    check_cache(program, backend)
    check_experts(program, backend)
    check_first_start(program, backend)

    missing = run(*program, "no_such_backend")
    assert missing.returncode == 1 and "no_such_backend" in missing.stderr, "a missing backend has to be reported"
    device = run(*program, backend, "no such device")
    assert device.returncode == 1 and "context_create" in device.stderr, "a missing device has to be reported"


main()
