"""Runs the fuzz targets: first every input of the corpus, then new ones for some seconds, all targets together.

    fuzz_test.py PROGRAMS WORK SECONDS [TARGET ...]

What is found while it runs stays in WORK/<target>, from which CONTRIBUTING.md says how to add to the corpus; an input
that ends a target is written beside it, and how to run it again is said.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Bytes of an input, and whether it is made of words.
TARGETS = {"calls": (300, False), "config": (400, True), "descriptors": (300, False), "file": (120, False),
           "profile": (400, True)}
LONG = 60  # seconds of a target
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1:quarantine_size_mb=64",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def run(program, *options):
    command = [str(program), "-timeout=20", "-rss_limit_mb=4000", *map(str, options)]
    result = subprocess.run(command, env=os.environ | SANITIZERS, capture_output=True, text=True, errors="replace")
    if result.returncode != 0:
        print("$", *command)
        print(result.stdout + result.stderr[-20000:])
        for found in re.findall(r"Test unit written to (\S+)", result.stderr):
            print(f"run it again: {program} {found}")
        sys.exit(f"{program.name}: status {result.returncode}")
    return result.stderr


def fuzz(target, programs, work, seconds):
    program, found, corpus = programs / f"fuzz_{target}", work / target, HERE / "corpus" / target
    found.mkdir(parents=True, exist_ok=True)
    inputs = sorted(corpus.iterdir()) if corpus.is_dir() else []
    if not inputs:
        sys.exit(f"{corpus} has no inputs")
    prefix = f"-artifact_prefix={work}/{target}-"
    run(program, prefix, *inputs)
    longest, has_words = TARGETS[target]
    options = [f"-dict={HERE / 'strings.dict'}"] if has_words else []
    if seconds < LONG:
        options.append("-seed=1")  # a short run is to judge a change, not to find what was there before
    said = run(program, found, corpus, f"-max_total_time={seconds}", f"-max_len={longest}", "-print_final_stats=1",
               prefix, *options)
    executed = re.search(r"number_of_executed_units:\s*(\d+)", said)[1]
    coverage = re.findall(r"cov: (\d+) ft: (\d+)", said)[-1]
    print(f"{target}: {len(inputs)} inputs of the corpus, {executed} executions, {coverage[0]} edges, "
          f"{coverage[1]} features", flush=True)


def main():
    programs, work, seconds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    targets = sys.argv[4:] or list(TARGETS)
    for target in targets:
        fuzz(target, programs, work, max(seconds // len(targets), 1))


main()
