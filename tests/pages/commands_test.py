"""Runs the commands of pages as a reader would: each fenced block of `sh`, the blocks of a page one after the other in
one empty folder with a model.gguf, with Winnow's programs and llama.cpp's on the path; blocks of a source tree's own
commands in that tree. A page's command that fails, or a line that ends in `# -> TEXT` and does not print TEXT, is a
failure.

    commands_test.py BUILD LLAMA_CPP_PROGRAMS MODEL [--all] PAGE...

A comment of the page before a block may say why it is not run: `<!-- not run: REASON -->`, or that it takes long:
`<!-- run on demand -->`, which --all runs. What is not run is printed. Texts are short: llama.cpp generates 16 tokens.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"(?:^ *<!-- (?P<note>not run: [^\n]+?|run on demand) -->\n+)?"
                   r"^(?P<indent> *)```sh\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
OF_TREE = re.compile(r"^(ci/|cmake |build/|python3 tests/)", re.M)
SECONDS = 600  # of one block; --all: ten times as many
SHORT = {"LLAMA_ARG_N_PREDICT": "16", "LLAMA_ARG_SEED": "1", "LLAMA_ARG_CTX_SIZE": "2048"}


def blocks(page):
    """(line, note, commands) of each block."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start("text")) + 1, match["note"], textwrap.dedent(match["text"])


def environment(options, folder):
    """Programs of the build and of llama.cpp, their libraries, a home of its own, and short texts."""
    path = [options.build / "bin", options.llama_cpp, os.environ["PATH"]]
    return os.environ | SHORT | {"PATH": ":".join(map(str, path)), "HOME": str(folder), "WINNOW": str(SOURCE),
                                 "WINNOW_PATH": str(options.build / "lib"),
                                 "PYTHONPATH": str(SOURCE / "hosts" / "python")}


def run(commands, folder, options):
    """What is wrong with a block, or None."""
    with subprocess.Popen(["bash", "-euo", "pipefail", "-c", commands], text=True,
                          cwd=SOURCE if OF_TREE.search(commands) else folder, start_new_session=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=environment(options, folder)) as process:
        try:
            said, _ = process.communicate(timeout=SECONDS * (10 if options.all else 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and the programs that it started
            return "takes too long"
    missing = [text for text in re.findall(r"# -> (.*)$", commands, re.M) if text not in said]
    if process.returncode != 0 or missing:
        wrong = f"ended with status {process.returncode}" + "".join(f", did not print {text!r}" for text in missing)
        return f"{wrong}:\n{said[-3000:]}"
    return None


def prove(options):
    """A block that fails, and one that does not print what it should, are found; one that does is accepted."""
    with tempfile.TemporaryDirectory() as folder:
        for commands, word in ("false\ntrue", "status 1"), ("echo one  # -> two", "did not print 'two'"):
            assert word in (run(commands, folder, options) or ""), f"a wrong block is accepted: {commands}"
        wrong = run("echo one  # -> one", folder, options)
        assert wrong is None, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--all", action="store_true", help="also what takes long")
    parser.add_argument("pages", type=Path, nargs="+")
    options = parser.parse_args()
    options.build, options.llama_cpp = options.build.resolve(), options.llama_cpp.resolve()
    prove(options)
    counts = {"run": 0, "not run": 0, "failed": 0}
    for page in options.pages:
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(options.model.resolve(), Path(folder, "model.gguf"))
            for line, note, commands in blocks(page):
                where = f"{page.resolve().relative_to(SOURCE)}:{line}"
                if note and not (options.all and note == "run on demand"):
                    counts["not run"] += 1
                    print(f"{where}: {note}")
                    continue
                wrong = run(commands, folder, options)
                counts["failed" if wrong else "run"] += 1
                print(f"{where}: {wrong or 'ran'}", flush=True)
    print(", ".join(f"{number} {what}" for what, number in counts.items()))
    sys.exit(1 if counts["failed"] or not counts["run"] else 0)


if __name__ == "__main__":
    if not shutil.which("bash"):
        sys.exit("commands_test: no bash")
    main()
