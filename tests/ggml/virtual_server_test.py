"""llama-server with WINNOW_KV and two slots, each with a stream of its own and both among the cells of one: talks that
go on from what is cached, and one that goes back. Without a budget the answers are those of the cache in place; within
one there are answers, and the budget is kept. With windows cells of one talk are used by the other.
"""

from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect
from llama_server import Server

CELLS = 1024  # of all slots
SLOTS = 2
PROMPT = 200  # characters
TURN = 60
TOKENS = 24
SHARE = 8
WINDOWS = ("windows",)  # families whose talks cannot go on once the other has used the cells of their window
WAYS = {"streams": "--no-kv-unified", "unified": "--kv-unified"}


def talk(server, options):
    """All answers, in the order of the requests; fails where a prefix was not taken from the cache."""
    text = options.prose
    parts = [text[PROMPT * i:PROMPT * (i + 1)] for i in range(2 * SLOTS)]
    opening, more = parts[:SLOTS], parts[SLOTS:]
    first = server.complete_together(opening, TOKENS)
    turns = [opening[slot] + first[slot]["content"] + more[slot][:TURN] for slot in range(SLOTS)]
    second = server.complete_together(turns, TOKENS)
    back = server.complete(0, opening[0][:PROMPT // 2] + more[0], TOKENS)
    if options.family not in WINDOWS:
        for answer in second:
            expect_reuse(answer, PROMPT // 2)  # most characters are a token
        expect_reuse(back, PROMPT // 4)
    return [answer["content"] for answer in [*first, *second, back]]


def expect_reuse(answer, least):
    timings = answer["timings"]
    print(f"    {timings['cache_n']} tokens from the cache, {timings['prompt_n']} new")
    expect(timings["cache_n"] >= least, f"only {timings['cache_n']} tokens came from the cache: {timings}")


def serve(host, options, way, kv):
    arguments = ["-m", options.model, "-c", CELLS, "-np", SLOTS, "-ub", 64, "--cache-ram", 0, "--ctx-checkpoints", 0,
                 WAYS[way]]
    with Server(host, kv, *arguments) as server:
        answers = talk(server, options)
    return answers, server.report


def compare(host, options, way):
    expected, report = serve(host, options, way, None)
    llama_cpp.expect_in_place(report)
    answers, report = serve(host, options, way, "none:k=f16,v=f16")
    print(f"{way}: {answers}")
    for cache in llama_cpp.virtual_caches(report):
        print(f"    {cache['streams']} streams of {cache['cells']} cells, {cache['tokens_seen']} tokens seen")
        expect(cache["streams"] == (SLOTS if way == "streams" else 1), f"the cache has {cache['streams']} streams")
    expect(answers == expected, f"{way}: the answers differ\nin place: {expected}\nvirtual:  {answers}")


def keep_budget(host, options, way, kv):
    answers, report = serve(host, options, way, kv)
    print(f"{way}, {kv}: {answers}")
    for cache in llama_cpp.virtual_caches(report):
        print(f"    at most {max(cache['resident_of_layers']) / cache['kv_heads']:.1f} a head of {cache['cells']} "
              f"cells, {cache['evictions']} evictions")
    llama_cpp.expect_shares(llama_cpp.virtual_caches(report), SHARE)
    expect(all(len(answer) >= TOKENS for answer in answers), f"an answer is too short: {answers}")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--family", choices=random_models.FAMILIES, required=True)
    parser.add_argument("--text", type=Path, required=True)
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    options.model = random_models.make(options.family, options.work)
    options.prose = options.text.read_text(encoding="utf-8")
    for way in WAYS:
        compare(host, options, way)
        for kv in (f"window:budget=1/{SHARE},k=f16,v=f16", f"winnow:budget=1/{SHARE}"):
            keep_budget(host, options, way, kv)


llama_cpp.main(test)
