"""llama-server with two slots whose recall keeps rows in a file, in a control group that has less memory than all rows
would take: it answers as without a limit, though the group counts the page cache, too. The same server with all rows in
memory is killed there.
"""

import contextlib
import signal
import sys

import control_group
import llama_cpp
import random_models
import sized_models
from llama_cpp import expect
from llama_server import Server
from winnow_calibrate import memory

MIB = 1 << 20
SLOTS, CELLS = 2, 4096  # of both
CHARACTERS, MORE, TOKENS = 1600, 200, 8
SHAPE = sized_models.Shape("llama", 256, 24, 8, 8, 64, 256, len(random_models.vocabulary()[1]), is_tied=True)
BUDGET = "winnow:budget=1/16"
ENOUGH = 8 << 30
SPARE = 12 * MIB  # of the limit, beside what the process has: for the page cache, and for what comes and goes


def talk(server, options):
    """The answers of both slots in turns, and the most anonymous bytes that the process was seen to have."""
    text, answers, most = options.prose, [], 0
    for turn in range(2):
        for slot in range(SLOTS):
            prompt = text[slot * CHARACTERS:][:CHARACTERS + turn * MORE]
            answers.append(server.complete(slot, prompt, TOKENS)["content"])
            most = max(most, memory.of(server.process.pid, "RssAnon"))
    return answers, most


def made(host, options, kv, group):
    return Server(host, kv, "-m", options.model, "-c", CELLS, "-np", SLOTS, "-ub", 256, "--cache-ram", 0,
                  "--ctx-checkpoints", 0, "--no-kv-unified", group=group)


def serve(host, options, kv, group, is_again=False):
    """(answers, anonymous bytes, the cache's figures) of one server."""
    with made(host, options, kv, group) as server:
        answers, most = talk(server, options)
    cache = llama_cpp.virtual_cache(server.report)
    print(f"{kv}: {cache['tokens_seen']} tokens, {cache['cold_bytes'] / MIB:.1f} MiB of cold rows, "
          f"{cache['bytes_read'] / MIB:.1f} MiB read; {most / MIB:.1f} MiB anonymous, "
          f"the group had at most {group.peak() / MIB:.1f} MiB")
    if server.report["programs_built"] > 0 and not is_again:  # the compiler takes memory, too
        return serve(host, options, kv, group, is_again=True)
    return answers, most, cache


def expect_killed(host, options, kv, group):
    """It takes more than the group has."""
    server = made(host, options, kv, group)
    with contextlib.suppress(llama_cpp.Failure, OSError), server:
        talk(server, options)
    expect(server.process.returncode == -signal.SIGKILL,
           f"{kv} ended with {server.process.returncode} in the group, so that the limit shows nothing")
    print(f"{kv}: killed")


def test():
    options = llama_cpp.parser(__doc__, "text").parse_args()
    host = llama_cpp.Host(options)
    options.model = sized_models.written(SHAPE, options.work / "sized-recall.gguf")
    options.prose = options.text.read_text(encoding="utf-8")
    in_file, in_memory = f"{BUDGET},recall={options.work}", f"{BUDGET},recall=host"
    with control_group.limited(ENOUGH) as group:
        if group is None:
            print("SKIPPED: recall's file in a limited control group, because no control group can be made here")
            sys.exit(control_group.SKIPPED)
        expected, most, cache = serve(host, options, in_file, group)
        expect(cache["disk_bytes"] > 2 * SPARE, f"{cache['disk_bytes']} bytes on the disk would find room in {SPARE}")
        expect(cache["misses"] > 0 and cache["bytes_read"] > 0, "nothing came from the file")
    with control_group.limited(most + SPARE) as group:
        answers, _, _ = serve(host, options, in_file, group)
        expect(answers == expected, f"the answers differ\nwithout a limit: {expected}\nwith it:         {answers}")
        expect_killed(host, options, in_memory, group)


llama_cpp.main(test)
