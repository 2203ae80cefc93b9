"""What it costs that the cold tier is a file: llama.cpp's decoding with recall=host, with a file in the page cache,
and with a file whose pages are dropped from it again and again, in turns; and what one parallel read of the disk takes.

    cold_file.py --completion DIR/llama-completion --plugin libwinnow_ggml.so --model M.gguf --prompt FILE --folder DIR

Linux alone, whose /proc shows the other process's file.
"""

import argparse
import contextlib
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ci"))

from processes import Kind, run  # noqa: E402  after its path

BLOCK = 4096
READ_TOGETHER = 48  # blocks
FILE_BLOCKS = 1 << 14
READS = 200


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, what in (("completion", "llama-completion"), ("plugin", "libwinnow_ggml.so"), ("model", "GGUF file"),
                       ("prompt", "text file"), ("folder", "folder of the cold tier, on the disk")):
        parser.add_argument(f"--{name}", type=Path, required=True, help=what)
    parser.add_argument("--kv", default="winnow:budget=1/16", help="without recall (default: %(default)s)")
    parser.add_argument("--context", type=int, default=8192, help="cells (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=384, help="to generate (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of llama.cpp (default: %(default)s)")
    parser.add_argument("--every", type=float, default=1.3, help="seconds from drop to drop (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of turns (default: %(default)s)")
    return parser.parse_args()


def print_parallel_reads(folder):
    """Scattered blocks that are asked for together, then read, none of them in the page cache."""
    seconds = []
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(os.urandom(FILE_BLOCKS * BLOCK))
        file.flush()
        number = file.fileno()
        os.fsync(number)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(READS):
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            blocks = sorted(random.sample(range(FILE_BLOCKS), READ_TOGETHER))
            begin = time.perf_counter()
            for block in blocks:
                os.posix_fadvise(number, block * BLOCK, BLOCK, os.POSIX_FADV_WILLNEED)
            for block in blocks:
                os.pread(number, 1, block * BLOCK)
            seconds.append(time.perf_counter() - begin)
    seconds.sort()
    print(f"{READ_TOGETHER} blocks of the disk at once: at least {1e3 * seconds[0]:.2f} ms, "
          f"{1e3 * seconds[READS // 2]:.2f} in the median")


class Dropping(threading.Thread):
    """Drops the pages of the cold file that llama.cpp's process has in a folder, again and again; use as a context
    manager. `drops` counts how often."""

    def __init__(self, folder, every):
        super().__init__()
        self.folder, self.every, self.ended, self.drops = folder, every, threading.Event(), 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()

    def run(self):
        while not self.ended.wait(self.every):
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):  # another user's, or it ended by now
                    for link in (process / "fd").iterdir():
                        self.drop(link)

    def drop(self, link):
        if not os.readlink(link).startswith(f"{self.folder}/"):
            return
        file = os.open(link, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            self.drops += 1
        finally:
            os.close(file)


def measure(chosen, recall, every=None):
    """Prints what a run took. every: seconds from drop to drop, or None."""
    kind = Kind(f"recall={recall}", plugin=chosen.plugin.resolve(), kv=f"{chosen.kv},recall={recall}")
    arguments = ["-f", chosen.prompt, "-c", chosen.context, "-n", chosen.tokens, "-t", chosen.threads, "--ignore-eos",
                 "-fa", "on"]
    with Dropping(recall, every) if every else contextlib.nullcontext() as dropping:
        found = run(kind, chosen.completion, arguments, chosen.model)
    if dropping and not dropping.drops:
        sys.exit(f"{kind.name}: no file was found whose pages could be dropped in {every} s; --every should be less")
    cache = found.report["caches"][0]
    waited = cache["wait_ns"] / 1e6 / chosen.tokens
    print(f"{kind.name}{', dropped' if every else ''}: {1e3 / found.prompt_speed:.2f} ms a token of the prompt, "
          f"{1e3 / found.speed:.2f} a decoded one, of which {waited:.2f} waited for reads; "
          f"{100 * cache['misses'] / cache['picks']:.1f} % of the picks missed", flush=True)


def main():
    chosen = options()
    folder = chosen.folder.resolve()
    print_parallel_reads(folder)
    for _ in range(chosen.rounds):
        measure(chosen, "host")
        measure(chosen, folder)
        measure(chosen, folder, chosen.every)


main()
