"""What it costs that the cold tier is a file: llama.cpp's decoding with recall=host, with a file in the page cache,
and with a file whose pages are dropped from it again and again, in turns; and what one parallel read of the disk takes.

    cold_file.py --completion DIR/llama-completion --plugin libwinnow_ggml.so --model M.gguf --prompt FILE --folder DIR

Linux alone, whose /proc shows the other process's file.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

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


def cold_file(process, folder):
    """A descriptor of the process's file in the folder, or None."""
    try:
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            if os.readlink(link).startswith(f"{folder}/"):
                return os.open(link, os.O_RDONLY)
    except FileNotFoundError:  # it ended, or closed one
        pass
    return None


def drop_pages(process, folder, every):
    file = None
    while process.poll() is None:
        if file is None:
            file = cold_file(process, folder)
        else:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(every)
    if file is not None:
        os.close(file)


def run(chosen, recall, every):
    """Prints what a process says of itself. every: seconds from drop to drop, or None."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        environment = os.environ | {"WINNOW_KV": f"{chosen.kv},recall={recall}", "WINNOW_REPORT": str(report),
                                    "GGML_BACKEND_PATH": str(chosen.plugin.resolve())}
        process = subprocess.Popen(
            [chosen.completion, "-m", chosen.model, "-f", chosen.prompt, "-c", str(chosen.context), "-n",
             str(chosen.tokens), "-t", str(chosen.threads), "--ignore-eos", "--temp", "0", "--seed", "1", "-no-cnv",
             "--perf", "-fa", "on", "-dev", "Winnow"],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if every is not None:
            threading.Thread(target=drop_pages, args=(process, recall, every)).start()
        said = process.communicate()[1]
        times = [float(each) for each in re.findall(r"eval time = .*\( *([\d.]+) ms per token", said)]
        if process.returncode != 0 or len(times) != 2 or not report.exists():
            sys.exit(f"{chosen.completion} with recall={recall} failed:\n{said[-2000:]}")
        cache = json.loads(report.read_text(encoding="utf-8"))["caches"][0]
    waited = cache["wait_ns"] / 1e6 / chosen.tokens
    print(f"recall={recall}{', dropped' if every else ''}: {times[0]:.2f} ms a token of the prompt, {times[1]:.2f} a "
          f"decoded one, of which {waited:.2f} waited for reads; {100 * cache['misses'] / cache['picks']:.1f} % of the "
          f"picks missed", flush=True)


def main():
    chosen = options()
    folder = chosen.folder.resolve()
    print_parallel_reads(folder)
    for _ in range(chosen.rounds):
        run(chosen, "host", None)
        run(chosen, folder, None)
        run(chosen, folder, chosen.every)


main()
