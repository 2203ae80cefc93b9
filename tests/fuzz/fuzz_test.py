"""Runs the fuzz targets: first every input of the corpus, then new ones for some seconds, all targets together.

    fuzz_test.py PROGRAMS WORK SECONDS [TARGET ...]
    fuzz_test.py PROGRAMS WORK keep [TARGET ...]     adds to the corpus what reaches further of what was found

What is found while it runs stays in WORK/<target>; an input that ends a target is written beside it, and how to run it
again is said. The corpus is one file of text: a line for each input, with its target and its bytes in Base64.
"""

import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus.txt"
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


def unpack(target, folder):
    """The corpus of a target as libFuzzer has it: a file for each input."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lines = (line.split(" ") for line in CORPUS.read_text().splitlines())
    for number, text in enumerate(text for its, text in lines if its == target):
        (folder / f"{number:04}").write_bytes(base64.b64decode(text, validate=True))
    if not any(folder.iterdir()):
        sys.exit(f"{CORPUS} has no inputs of {target}")
    return folder


def keep(target, programs, work):
    corpus = unpack(target, work / "corpus" / target)
    before = len(list(corpus.iterdir()))
    run(programs / f"fuzz_{target}", "-merge=1", "-use_counters=0", corpus, work / target)
    inputs = [f"{target} {base64.b64encode(each.read_bytes()).decode()}" for each in corpus.iterdir()]
    others = [line for line in CORPUS.read_text().splitlines() if line.split(" ")[0] != target]
    CORPUS.write_text("\n".join(sorted({*others, *inputs})) + "\n")
    print(f"{target}: {len(inputs)} inputs of the corpus, {before} before")


def fuzz(target, programs, work, seconds):
    program, found, corpus = programs / f"fuzz_{target}", work / target, unpack(target, work / "corpus" / target)
    found.mkdir(parents=True, exist_ok=True)
    inputs = sorted(corpus.iterdir())
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
    programs, work, targets = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:] or list(TARGETS)
    for target in targets:
        if sys.argv[3] == "keep":
            keep(target, programs, work)
        else:
            fuzz(target, programs, work, max(int(sys.argv[3]) // len(targets), 1))


main()
