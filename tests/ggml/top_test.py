"""`winnow top` beside a llama-server that answers: its figures are those of the report, by file and by process, as text
and on the terminal of textual's pilot, and it says when the server was killed or has ended.
"""

import json
import os
import subprocess
import threading
from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect
from llama_server import Server

PACKAGE = Path(__file__).resolve().parents[2] / "hosts" / "python"
SLOTS = 2
TOKENS = 48
EVERY = "0.2"
# Prints the cells of the table of caches once a rate is above 0.
PILOT = """
import asyncio, sys, time
from pathlib import Path
from winnowkv._top_app import FigureTable, TopApp
from winnowkv.top import Watch

async def watch():
    app = TopApp(Watch(Path(sys.argv[1])))
    async with app.run_test(size=(120, 50)) as pilot:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            caches, heads = (app.query_one(f"#{name}", FigureTable) for name in ("caches", "heads"))
            cells = [str(cell) for cell in caches.get_row_at(0)] if caches.row_count else ["-"]
            if cells[-1] not in ("-", "0.0"):
                print(heads.row_count, *cells)
                return
            await pilot.pause(.1)
    sys.exit("no rate")

asyncio.run(watch())
"""


def python(options, *arguments, status=0):
    done = subprocess.run([options.python, "-B", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"PYTHONPATH": str(PACKAGE)})
    expect(done.returncode == status, f"{arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def top(options, *arguments, status=0):
    return python(options, "-m", "winnowkv.top", "--once", *arguments, status=status)


def rows_of(text, first):
    """The table whose columns begin with these names, split into its cells."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.split()[:len(first)] == first:
            break
    rows = []
    for line in lines:
        if not line:
            break
        rows.append(line.split())
    return rows


def check_figures(text, cache, is_all_hot=True):
    """The tables are those of a report that is no longer written. Gives the rows of heads."""
    streams, heads = cache["of_streams"], cache["layers"] * cache["kv_heads"]
    total, *slots = rows_of(text, ["cache", "slot"])
    told = [[int(row[2].replace(",", "")), int(row[5].replace(",", ""))] for row in slots]
    expect(told == [[stream["tokens"], stream["evictions"]] for stream in streams], f"other slots: {told}")
    tokens = sum(stream["tokens"] for stream in streams)
    expect(total[2] == f"{tokens:,}" and total[5] == f"{cache['evictions']:,}", f"another total: {total}")
    rows = [[int(cell.replace(",", "")) for cell in row[:5]] for row in rows_of(text, ["cache", "layer"])]
    expect(len(rows) == heads and len({(row[1], row[2]) for row in rows}) == heads, f"other heads: {rows}")
    slots = sum(stream["resident_slots"] for stream in streams)
    expect(not is_all_hot or sum(row[3] for row in rows) == slots, f"other tokens: {rows}")
    return rows


def watch_terminal(server, options):
    """While slots answer, until the terminal has shown how many tokens a second that are."""
    ended = threading.Event()

    def talk():
        at = 0
        while not ended.is_set():
            at = (at + 100) % 5000
            server.complete(0, options.prose[at:at + 300], TOKENS)

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        shown = python(options, "-c", PILOT, server.host.report_path)
    finally:
        ended.set()
        thread.join()
    print(f"the terminal shows {shown}")
    return shown.split()


def serve(host, options, kv="winnow:budget=1/8"):
    arguments = ["-m", options.model, "-c", 1024, "-np", SLOTS, "-ub", 64, "--cache-ram", 0, "--ctx-checkpoints", 0,
                 "--no-kv-unified"]
    return Server(host, kv, *arguments, environment={"WINNOW_REPORT_EVERY": EVERY})


def answer_until(server, options, name):
    """Slots answer until the report has more than 0 of this. The plugin writes a report only while it computes, and not
    more often than EVERY, so a small model may have answered before the second one."""
    for turn in range(200):
        for slot in range(SLOTS):
            server.complete(slot, options.prose[10 * turn:10 * turn + 200 * (slot + 1)], TOKENS)
        if server.host.report_path.exists():
            cache = json.loads(server.host.report_path.read_text())["living"][0]
            if cache[name] > 0 and all(stream["tokens"] for stream in cache["of_streams"]):
                return cache
    raise llama_cpp.Failure(f"no report with {name}")


def check_totals(report, server):
    """Of a report from while the server ran, and of that from its end. A context that ended counts once: its cache
    counted its own steps."""
    counts = {name: report[name] for name in ("graphs", "attention_calls", "append_calls", "kernel_launches", "waits")}
    print(f"while it runs: {counts}")
    expect(all(counts.values()), f"a server that answers did nothing: {counts}")
    expect(sum(each["attention_calls"] for each in report["tensors"].values()) == counts["attention_calls"],
           f"other calls of tensors: {report['tensors']}")
    calls, steps = server.report["attention_calls"], sum(cache["steps"] for cache in server.report["caches"])
    print(f"at the end: {calls} calls, {steps} steps")
    expect(calls == steps, f"the report counts {calls} calls, the cache {steps} steps")
    expect(all(server.report[name] >= count for name, count in counts.items()), f"fewer at the end: {server.report}")


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--python", type=Path, required=True, help="Python with textual")
    options = parser.parse_args()
    options.prose = options.text.read_text(encoding="utf-8")
    options.model = random_models.make("plain", options.work)
    host = llama_cpp.Host(options)
    path = host.report_path
    expect("there is no file" in top(options, path, status=1), "a file that is missing is not said")
    with serve(host, options) as server:
        cache = answer_until(server, options, "evictions")
        text = top(options, path)
        print(text)
        living = json.loads(path.read_text())
        rows = check_figures(text, cache)
        expect(sum(row[4] for row in rows) > 0, f"no head has lost tokens: {rows}")
        expect(f"Process {server.process.pid} (llama-server): " in text, f"another process: {text}")
        named = top(options, server.process.pid)
        expect(named.splitlines()[1:] == text.splitlines()[1:], f"by its process it is another report:\n{named}")
        heads, *cells = watch_terminal(server, options)
        expect(int(heads) == len(rows_of(text, ["cache", "layer"])) and float(cells[-1].replace(",", "")) > 0,
               f"other figures: {heads}, {cells}")
    check_totals(living, server)
    path.write_text(json.dumps(server.report))  # which was taken away
    text = top(options, path)
    expect(f"Process {server.process.pid} has ended" in text, f"the end is not said: {text}")
    check_figures(text, server.report["caches"][0])
    check_in_place(host, options)
    check_recall(host, options)
    check_kill(host, options)


def check_in_place(host, options):
    """The report of caches in place is written while the server runs, too."""
    with serve(host, options, None) as server:
        server.complete(0, options.prose[:200], TOKENS)
        living = json.loads(host.report_path.read_text())
    told = [(report["attention_calls"], report["sdpa_calls"]) for report in (living, server.report)]
    print(f"in place, calls while it runs and at the end: {told}")
    expect(0 < told[0][0] <= told[1][0] and all(calls == sdpa for calls, sdpa in told), f"other calls: {told}")


def check_recall(host, options):
    """Picks and misses are there, and every head holds every token."""
    with serve(host, options, llama_cpp.recall_of_few(options)) as server:
        cache = answer_until(server, options, "picks")
        text = top(options, host.report_path)
    print(text)
    total, *_ = rows_of(text, ["cache", "slot"])
    expect([int(cell.replace(",", "")) for cell in total[6:8]] == [cache["picks"], cache["misses"]], f"picks: {total}")
    expect({row[4] for row in check_figures(text, cache, is_all_hot=False)} == {0}, "a head has lost tokens")


def check_kill(host, options):
    try:
        with serve(host, options) as server:
            answer_until(server, options, "evictions")
            server.process.kill()
            server.process.wait()
            text = top(options, host.report_path)
            print(text.splitlines()[0])
            expect(f"Process {server.process.pid} is not here: it was killed" in text, f"it is not said: {text}")
    except llama_cpp.Failure as failure:
        expect("ended with -9" in str(failure), str(failure))


llama_cpp.main(test)
