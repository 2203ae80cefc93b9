"""llama-server with WINNOW_KV and two slots, each with a stream of its own and both among the cells of one: talks that
go on from what is cached, and one that goes back. Without a budget the answers are those of the cache in place, and so
they are with recall where all pages are hot; within one there are answers, and the budget is kept, or pages picked.
With windows cells of one talk are used by the other. What each slot holds is told while the server runs.
"""

import json
import re

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


def arguments_of(options, way):
    return ["-m", options.model, "-c", CELLS, "-np", SLOTS, "-ub", 64, "--cache-ram", 0, "--ctx-checkpoints", 0,
            WAYS[way]]


def serve(host, options, way, kv):
    with Server(host, kv, *arguments_of(options, way)) as server:
        answers = talk(server, options)
    return answers, server.report


def compare(host, options, way):
    expected, report = serve(host, options, way, None)
    llama_cpp.expect_in_place(report)
    for kv in ("none:k=f16,v=f16", llama_cpp.recall_of_all(options)):
        answers, report = serve(host, options, way, kv)
        print(f"{way}, {kv}: {answers}")
        for cache in llama_cpp.virtual_caches(report):
            print(f"    {cache['streams']} streams of {cache['cells']} cells, {cache['tokens_seen']} tokens seen")
            expect(cache["streams"] == (SLOTS if way == "streams" else 1), f"the cache has {cache['streams']} streams")
        expect(answers == expected, f"{way}, {kv}: the answers differ\nin place: {expected}\nvirtual:  {answers}")


def keep_budget(host, options, way, kv):
    answers, report = serve(host, options, way, kv)
    print(f"{way}, {kv}: {answers}")
    for cache in llama_cpp.virtual_caches(report):
        print(f"    at most {max(cache['resident_of_layers']) / cache['kv_heads']:.1f} a head of {cache['cells']} "
              f"cells, {cache['evictions']} evictions")
    llama_cpp.expect_shares(llama_cpp.virtual_caches(report), SHARE)
    expect(all(len(answer) >= TOKENS for answer in answers), f"an answer is too short: {answers}")


def recall_few(host, options, way):
    """Pages are picked of what each slot has; windows keep all that they see."""
    answers, report = serve(host, options, way, llama_cpp.recall_of_few(options))
    print(f"{way}, few pages: {answers}")
    caches = llama_cpp.virtual_caches(report)
    most = max(cache["cells"] for cache in caches)
    llama_cpp.expect_picks([cache for cache in caches if cache["cells"] == most])
    expect(all(len(answer) >= TOKENS for answer in answers), f"an answer is too short: {answers}")


def streams_of(caches):
    return {cache["name"]: cache["of_streams"] for cache in caches}


def watch(host, options):
    """The report tells of each slot while the server runs, if WINNOW_REPORT_EVERY asks for it."""
    kv = f"winnow:budget=1/{SHARE}"
    seen = []
    with Server(host, kv, *arguments_of(options, "streams"), environment={"WINNOW_REPORT_EVERY": "1e-6"}) as server:
        for slot in range(SLOTS):
            timings = server.complete(slot, options.prose[:PROMPT * (slot + 1)], TOKENS)["timings"]
            seen.append(timings["prompt_n"] + timings["predicted_n"] - 1)  # the last one was never appended
        living = json.loads(host.report_path.read_text())["living"]
    expect(living, "the report has no living cache")
    for cache in living:
        print(f"    {cache['name']}: {cache['of_streams']} after {seen} tokens")
        expect(len(cache["of_streams"]) == SLOTS, f"{len(cache['of_streams'])} streams for {SLOTS} slots")
        heads = cache["layers"] * cache["kv_heads"]
        for stream, tokens in zip(cache["of_streams"], seen):
            expect(0 < stream["resident_slots"] <= tokens * heads and stream["bytes"] > 0, f"{stream} of {tokens}")
            if options.family not in WINDOWS:  # where tokens that a window has passed are no longer counted
                expect(stream["tokens"] == tokens, f"{stream} after {tokens} tokens")
                expect(stream["evictions"] == tokens * heads - stream["resident_slots"] > 0, f"{stream}, {heads} heads")
    ended = server.report
    expect(ended["living"] == [] and len(ended["caches"]) == len(living), "caches that ended are still alive")
    expect(streams_of(ended["caches"]) == streams_of(living), "the last report has other figures")


def tell_fullest(host, options, way):
    """The report has what there was of a long prompt, after a short one in its place."""
    with Server(host, "none", *arguments_of(options, way)) as server:
        timings = server.complete(0, options.prose[:2 * PROMPT], TOKENS)["timings"]
        server.complete(0, options.prose[-TURN:], TOKENS)
    longest = timings["prompt_n"] + timings["predicted_n"] - 1
    told = max(cache["tokens"] for cache in llama_cpp.virtual_caches(server.report))
    print(f"{way}: {told} tokens at the fullest, {longest} of a long prompt")
    expect(told >= longest, f"{way}: the report tells of {told} tokens")


def states(host, options, kv):
    """[(tokens, MiB)] of the states that llama-server kept in memory, as its log says."""
    arguments = ["-m", options.model, "-c", CELLS, "-np", 1, "-ub", 64, "--cache-ram", 64, "--ctx-checkpoints", 0,
                 "-lv", 5]
    with Server(host, kv, *arguments) as server:
        for begin in range(3):
            server.complete(None, options.prose[PROMPT * begin:PROMPT * (begin + 1)], TOKENS)
    found = re.findall(r"saving prompt with length (\d+), total state size = ([\d.]+) MiB", "".join(server.log))
    expect(found, server.failure("kept no state"))
    return found


def expect_states_of_one_size(host, options):
    """A budget does not make them smaller, which hosts/ggml/README.md says."""
    expected = states(host, options, None)
    for kv in ("none", f"winnow:budget=1/{SHARE}"):
        found = states(host, options, kv)
        print(f"    {kv}: states of {found} tokens and MiB")
        expect(found == expected, f"{kv}: states of {found}, in place {expected}")


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--family", choices=random_models.FAMILIES, required=True)
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    options.model = random_models.make(options.family, options.work)
    options.prose = options.text.read_text(encoding="utf-8")
    for way in WAYS:
        compare(host, options, way)
        for kv in (f"window:budget=1/{SHARE},k=f16,v=f16", f"winnow:budget=1/{SHARE}"):
            keep_budget(host, options, way, kv)
        recall_few(host, options, way)
        tell_fullest(host, options, way)
    watch(host, options)
    expect_states_of_one_size(host, options)


llama_cpp.main(test)
