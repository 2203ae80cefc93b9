"""Rules in WINNOW_KV: a draft and a target model in one llama-server, of which the draft's cache alone has a budget.
The text is the target's own, and each cache says which configuration it has. A cache that no rule fits stays in place.
"""

import llama_cpp
import random_models
from llama_cpp import expect
from llama_server import Server, with_draft

CONTEXT = 512
PROMPT = 200  # characters
TOKENS = 48
GUESSES = 4
BUDGET = 64
DRAFT_HEAD = 128  # the target's heads have 64


def complete(host, options, kv):
    """(text, report)"""
    arguments = ["-m", options.model, "-c", CONTEXT, "-np", 1, "-ub", 64, "--cache-ram", 0, "--ctx-checkpoints", 0,
                 *with_draft(host, options.draft, GUESSES)]
    with Server(host, kv, *arguments) as server:
        text = server.complete(0, options.prompt, TOKENS)["content"]
    expect(server.report is not None, "the plugin was not called: it wrote no report")
    return text, server.report


def test():
    options = llama_cpp.parser(__doc__, "text").parse_args()
    host = llama_cpp.Host(options)
    options.model = random_models.make("plain", options.work)
    options.draft = random_models.make("grouped", options.work)
    options.prompt = options.text.read_text(encoding="utf-8")[:PROMPT]
    expected, report = complete(host, options, None)
    llama_cpp.expect_in_place(report)

    kv = f"[head_size={DRAFT_HEAD}]window:budget={BUDGET},k=f16,v=f16;none:k=f16,v=f16"
    text, report = complete(host, options, kv)
    llama_cpp.expect_same_text(text, expected, kv)
    caches = {cache["policy"]: cache for cache in report["caches"]}
    expect(sorted(caches) == ["none", "window"] and report["in_place"] == [], f"other caches: {report['caches']}")
    print(f"{kv}: the draft's cache had {caches['window']['tokens']} tokens, the target's {caches['none']['tokens']}")
    llama_cpp.expect_budget(caches["window"], BUDGET)
    expect(caches["window"]["kv_heads"] == 2, f"the budget is not the draft's: {caches['window']}")
    llama_cpp.expect_all_resident(caches["none"])

    text, report = complete(host, options, "[head_size=64]none:k=f16,v=f16;[layers=99]winnow")
    llama_cpp.expect_same_text(text, expected, "rules that fit one cache")
    expect(len(report["caches"]) == len(report["in_place"]) == 1, f"not one in place: {report}")
    reason = report["in_place"][0]["reason"]
    print(f"in place: {reason}")
    expect("no rule" in reason and f"kv_heads=2,head_size={DRAFT_HEAD},cells={CONTEXT}" in reason, reason)


llama_cpp.main(test)
