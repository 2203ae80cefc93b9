"""Runs clang-format or clang-tidy over the tree's C and C++.

    clang_test.py format ROOT
    clang_test.py analyse ROOT BUILD all|part    BUILD has compile_commands.json

A twelfth of the sources is the next one with each commit; what the last commit or work since then has changed is read
in any case. Where git does not tell, as without a commit before, it is all of them. A source that has passed is not
read again while it, all that it includes, its command and the configuration are the same (known_passes.py).

OpenCL C is left out: its layout is part of what a kernel explains, and clang-tidy cannot parse it as C++.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

import known_passes  # noqa: E402

ENDINGS = (".c", ".h", ".cpp", ".hpp")
PARTS = 12
ANALYSED = ("backend/", "plugin_api/", "hosts/", "tools/")


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


def files_of(root):
    folders = [root / name for name in ("backend", "bench", "hosts", "lab", "plugin_api", "tests", "tools")]
    return sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in ENDINGS)


def formatted(root):
    """clang-format would change nothing; proven first on a file that it has to change."""
    command = ["clang-format", "--dry-run", "--Werror"]
    bad = subprocess.run([*command, f"--assume-filename={root}/backend/bad.cpp"], input="int  a ;\n", text=True,
                         capture_output=True)
    assert bad.returncode != 0, "clang-format accepts a badly formatted file"
    files = files_of(root)
    status, output = run(*command, *files)
    print(output[:20000])
    print(f"{len(files)} files")
    return status == 0


def one_by_one(entries):
    """The same for each source of those that are compiled some at a time."""
    for entry in entries:
        path = Path(entry["file"])
        if path.parent.name != "Unity":
            yield entry
            continue
        for source in re.findall(r'^#include "(.+)"$', path.read_text(), re.M):
            yield entry | {"file": source, "command": entry["command"].replace(str(path), source)}


def each_once(entries):
    """One command for each file: what is compiled for several releases of ggml is analysed for the first of them."""
    return list({entry["file"]: entry for entry in reversed(list(entries))}.values())


def without_precompiled_headers(entries):
    """The same commands of compilation, but for the headers that g++ has precompiled, which clang cannot read."""
    precompiled = re.compile(r"-Winvalid-pch +-include +\S+cmake_pch\.hx?x?")
    return [entry | {"command": precompiled.sub("", entry["command"])} for entry in entries]


def sample(root, units):
    """Those whose turn it is with this commit, and those that it changed."""
    unknown, changed = run("git", "-C", root, "diff", "--name-only", "HEAD~1")
    if unknown:
        return units
    _, commits = run("git", "-C", root, "rev-list", "--count", "HEAD")
    changed = {root / line for line in changed.splitlines()}
    return [unit for number, unit in enumerate(units) if number % PARTS == int(commits) % PARTS or unit in changed]


def analyse(folder, unit):
    """What clang-tidy says of a source with the commands of a folder: its status, its words, and all files it read."""
    status, output = run("clang-tidy", "--quiet", "--extra-arg=-H", "-p", folder, unit)
    read = re.compile(r"^\.+ (.+)\n", re.M)  # as -H lists what is included
    return status, read.sub("", output), read.findall(output)


def analysed(root, build, extent, kept=None):
    """clang-tidy finds nothing in what is loaded into other programs, nor in the programs themselves."""
    passes = known_passes.KnownPasses("clang_tidy", files_of(root), kept)
    version = run("clang-tidy", "--version")[1]
    commands = build / "clang_tidy"
    commands.mkdir(exist_ok=True)
    entries = json.loads((build / "compile_commands.json").read_text())
    entries = without_precompiled_headers(each_once(one_by_one(entries)))
    (commands / "compile_commands.json").write_text(json.dumps(entries))
    entries = {Path(entry["file"]): entry for entry in entries}
    units = sorted(unit for unit in entries if unit.is_relative_to(root)
                   and str(unit.relative_to(root)).startswith(ANALYSED))
    assert units, "compile_commands.json names none of the sources"
    count = len(units)
    if extent == "part":
        units = sample(root, units)

    def one(unit):
        subject = (version, unit, entries[unit]["directory"], entries[unit]["command"])
        if passes.knows(*subject):
            return unit, None, ""
        status, output, read = analyse(commands, unit)
        if status == 0:
            read = [os.path.join(entries[unit]["directory"], path) for path in read]
            passes.keep([unit, root / ".clang-tidy", __file__, *read], *subject)
        return unit, status, output

    passed, known = True, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for unit, status, output in pool.map(one, units):
            if status is None:
                known += 1
            elif status != 0:
                passed = False
                print(f"{unit.relative_to(root)}:\n{output[:5000]}", flush=True)
    passes.trim()
    print(f"{len(units)} files of {count}: {len(units) - known} read, {known} known to pass")
    return passed


def main():
    what, root, *more = sys.argv[1:]
    passed = formatted(Path(root)) if what == "format" else analysed(Path(root), Path(more[0]), more[1])
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
