"""Runs a test, unless it is known to pass with all that it reads as it is now: then it is skipped, as ctest lists it.

    unless_known.py [--reads PATH]... [--makes PATH]... [--fails REGEX] -- COMMAND...

What it reads are the files of the command, files and folders that are named, and the packages of this machine with
drivers and compilers; what it is told by variables and the processor count, too. What it makes, and other tests read,
has to be there as it was left. REGEX is what its words must not have, though its status is 0, as
FAIL_REGULAR_EXPRESSION of ctest. WINNOW_RERUN_TESTS=1 runs it in any case.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import known_passes

SKIPPED = 77  # the status that ctest takes for it
PACKAGES = Path("/var/lib/dpkg/status")
TOLD_BY = re.compile(r"(WINNOW|OCL|POCL|OMP|CL|LLAMA|GGML)_\w+|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH")
RERUN = "WINNOW_RERUN_TESTS"
BESIDE = {"__pycache__", ".git", "build"}


def files_below(path):
    """All files of a folder that are a tree's own, or the file itself."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*")
                  if file.is_file() and BESIDE.isdisjoint(file.relative_to(path).parts))


def processor():
    """As far as compilers and kernels differ by it, and how many there are."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    its = [line for line in lines if line.startswith(("model name", "flags"))]
    return [*its, f"processors: {len(os.sched_getaffinity(0))}"]


def said_by(command):
    """The status of a command and its words, which are printed as they come."""
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as running:
        for line in running.stdout:
            said.append(line)
            print(line, end="", flush=True)
    return running.returncode, "".join(said)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("reads", "makes"):
        parser.add_argument(f"--{name}", type=Path, action="append", default=[])
    parser.add_argument("--fails", default="(?!)")
    parser.add_argument("--passes", type=Path, help="folder of what is known to pass, instead of the usual one")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    named = [Path(word) for word in options.command if os.path.isfile(word)
             and not any(Path(word).is_relative_to(made) for made in options.makes)]
    reads = [file for path in [Path(__file__), *named, *options.reads] for file in files_below(path)]
    told = sorted(f"{key}={value}" for key, value in os.environ.items() if TOLD_BY.fullmatch(key) and key != RERUN)
    subject = (*options.command, options.fails, *told, *processor(), *reads)
    passes = known_passes.KnownPasses("tests", folder=options.passes)
    can_be_known = PACKAGES.is_file()
    if can_be_known and os.environ.get(RERUN) != "1":
        since = passes.knows(*subject)
        if since:
            print(f"known to pass with the same files since {since}; {RERUN}=1 runs it again")
            sys.exit(SKIPPED)
    status, said = said_by(options.command)
    if status == 0 and re.search(options.fails, said):
        sys.exit(f"it says what is not to be said: {options.fails}")
    if status == 0 and can_be_known:
        made = [file for path in options.makes for file in files_below(path)]
        passes.keep([*reads, PACKAGES], *subject, made=made)
        passes.trim()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
