"""With WINNOW_KV llama.cpp generates from a cache of Winnow's: without a budget the text that the cache in place gives,
and within one a text, from no more tokens than the budget allows.
"""

import json

import llama_cpp
from llama_cpp import expect

PROMPT = "The keeper climbed the stairs of the lighthouse, lit the lamp and"
CONTEXT = 256
TOKENS = 80
BUDGET = CONTEXT // 4
LONGER = 4  # than a budget's worth of words the text has to be at least a quarter


def generate(host, options, kv):
    return llama_cpp.complete(host, kv, options.model, TOKENS, CONTEXT, "-p", PROMPT)


def compare_unlimited(host, options):
    expected, report = generate(host, options, None)
    llama_cpp.expect_in_place(report)
    text, report = generate(host, options, "none:k=f16,v=f16")
    cache = llama_cpp.virtual_cache(report)
    print(f"{cache['config']}: {cache['layers']} layers, {cache['tokens_seen']} tokens seen, {cache['tokens']} kept, "
          f"{cache['bytes']} bytes: {json.dumps(text)}")
    expect(cache["tokens_seen"] > TOKENS, f"{cache['tokens_seen']} tokens seen for {TOKENS} and a prompt")
    llama_cpp.expect_all_resident(cache)
    expect(cache["evictions"] == 0, f"there were evictions: {cache}")
    llama_cpp.expect_same_text(text, expected)
    return cache


def keep_budget(host, options, kv, full):
    text, report = generate(host, options, kv)
    cache = llama_cpp.virtual_cache(report)
    print(f"{kv}: at most {max(cache['resident_of_layers']) / cache['kv_heads']:.1f} a head, {cache['evictions']} "
          f"evictions, {cache['bytes']} bytes: {json.dumps(text)}")
    expect(cache["tokens_seen"] == full["tokens_seen"], "it saw other tokens")
    llama_cpp.expect_budget(cache, BUDGET)
    expect(cache["bytes"] < full["bytes"], f"{cache['bytes']} bytes, without a budget {full['bytes']}")
    expect(len(text.split()) >= BUDGET // LONGER, f"this is not a text: {text}")


def test():
    options = llama_cpp.parser(__doc__, "model").parse_args()
    host = llama_cpp.Host(options)
    full = compare_unlimited(host, options)
    for kv in ("window:budget=1/4", "winnow:budget=1/4"):
        keep_budget(host, options, kv, full)


llama_cpp.main(test)
