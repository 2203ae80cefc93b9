"""Runs the C example on a backend and holds what it prints against the closed form of its little problem.

    winnow_host_test.py PROGRAM BACKEND
"""

import math
import re
import subprocess
import sys

TOKENS, Q_HEADS, LOGIT = 5, 4, 2.0


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def expected(head):
    """Query head h sees token h with a logit of 2 and the others with 0; values are t, or 100 + t in KV head 1."""
    total = math.exp(LOGIT) + TOKENS - 1
    scores = [(math.exp(LOGIT) if token == head else 1.0) / total for token in range(TOKENS)]
    value = sum(score * (100 * (head // 2) + token) for token, score in enumerate(scores))
    return value, scores


def main():
    program, backend = sys.argv[1:]
    result = run(program, backend)
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

    missing = run(program, "no_such_backend")
    assert missing.returncode == 1 and "no_such_backend" in missing.stderr, "a missing backend has to be reported"
    device = run(program, backend, "no such device")
    assert device.returncode == 1 and "context_create" in device.stderr, "a missing device has to be reported"


main()
