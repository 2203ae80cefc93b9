"""A draft and a target model in one llama-server with WINNOW_KV: drafts are appended and, where they are rejected,
taken back. Without a budget the text is the cache's in place, with drafts and without (but for the last draft's tokens,
which older servers leave out), and so it is with recall where all pages are hot. Within one both caches keep it; with
recall of few pages they pick.
"""

import llama_cpp
import random_models
from llama_cpp import expect
from llama_server import Server, with_draft

CONTEXT = 512
PROMPT = 200  # characters
TOKENS = 64
TOKEN = 2  # characters, at most
DRAFT = 6
BUDGET = 64


def complete(host, options, kv, is_drafted):
    """(text, report)"""
    arguments = ["-m", options.model, "-c", CONTEXT, "-np", 1, "-ub", 64, "--cache-ram", 0, "--ctx-checkpoints", 0]
    if is_drafted:
        arguments += with_draft(host, options.draft, DRAFT)
    with Server(host, kv, *arguments) as server:
        answer = server.complete(0, options.prompt, TOKENS)
    timings = answer["timings"]
    print(f"{kv or 'in place'}: {answer['content']}")
    if is_drafted:
        print(f"    {timings['draft_n']} tokens drafted, {timings['draft_n_accepted']} accepted")
        expect(0 < timings["draft_n_accepted"] < timings["draft_n"], f"none was accepted, or none rejected: {timings}")
    return answer["content"], server.report


def expect_length(text):
    expect(len(text) >= TOKENS - DRAFT, f"{len(text)} characters are no {TOKENS} tokens: {text}")


def caches_of(report):
    expect(report is not None and len(report["caches"]) == 2, f"expected two caches: {report}")
    expect(report["sdpa_calls"] == 0, "there were calls in place")
    return report["caches"]


def test():
    options = llama_cpp.parser(__doc__, "text").parse_args()
    host = llama_cpp.Host(options)
    options.model = random_models.make("plain", options.work)
    options.draft = random_models.make("draft", options.work)
    options.prompt = options.text.read_text(encoding="utf-8")[:PROMPT]
    whole, report = complete(host, options, None, False)
    llama_cpp.expect_in_place(report)
    expected, report = complete(host, options, None, True)
    llama_cpp.expect_in_place(report)
    expect(whole.startswith(expected) and len(whole) - len(expected) <= DRAFT * TOKEN,
           f"with drafts the text is another\nwithout: {whole}\nwith:    {expected}")
    for kv in ("none:k=f16,v=f16", llama_cpp.recall_of_all(options)):
        text, report = complete(host, options, kv, True)
        llama_cpp.expect_same_text(text, expected)
        for cache in caches_of(report):
            print(f"{cache['tokens_seen']} tokens seen, at most {cache['tokens']} resident")
            expect(cache["tokens_seen"] > cache["tokens"], f"nothing was taken back: {cache}")
            if kv.startswith("none"):
                llama_cpp.expect_all_resident(cache)
    for kv in (f"window:budget={BUDGET},k=f16,v=f16", f"winnow:budget={BUDGET}"):
        text, report = complete(host, options, kv, True)
        expect_length(text)
        for cache in caches_of(report):
            llama_cpp.expect_budget(cache, BUDGET)
    text, report = complete(host, options, llama_cpp.recall_of_few(options), True)
    expect_length(text)
    llama_cpp.expect_picks(caches_of(report))


llama_cpp.main(test)
