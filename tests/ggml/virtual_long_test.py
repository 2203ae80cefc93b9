"""A prompt many times as long as WINNOW_KV's budget, and thousands of tokens after it: the budget is kept, and what the
cache holds stays small.
"""

import llama_cpp
import random_models
from llama_cpp import expect

CONTEXT = 8192
PROMPT = 3000  # characters, of which most are a token
TOKENS = 4000
BUDGET = 128
BATCH = 64
LEAST = 0.5  # tokens for a character
SAVED = 0.95  # of the full cache, at its peak
KV = (f"window:budget={BUDGET},k=f16,v=f16", f"winnow:budget={BUDGET}")


def test():
    options = llama_cpp.parser(__doc__, "text").parse_args()
    host = llama_cpp.Host(options)
    model = random_models.make("plain", options.work)
    prompt = llama_cpp.prompt_file(options, options.text.read_text(encoding="utf-8")[:PROMPT])
    for kv in KV:
        out, report = llama_cpp.complete(host, kv, model, TOKENS, CONTEXT, "-f", prompt, "-ub", BATCH)
        cache = llama_cpp.virtual_cache(report)
        print(f"{kv}: {cache['tokens_seen']} tokens seen, {cache['evictions']} evictions, at most "
              f"{cache['peak_bytes']} bytes of {cache['full_bytes']}")
        expect(cache["tokens_seen"] >= PROMPT * LEAST + TOKENS, f"only {cache['tokens_seen']} tokens were seen")
        expect(len(out.strip()) >= TOKENS, f"{len(out)} characters are no {TOKENS} tokens")
        llama_cpp.expect_budget(cache, BUDGET)
        least = (cache["tokens_seen"] - BUDGET) * cache["layers"] * cache["kv_heads"]
        expect(cache["evictions"] >= least, f"{cache['evictions']} evictions, expected at least {least}")
        expect(cache["peak_bytes"] <= (1 - SAVED) * cache["full_bytes"],
               f"{cache['peak_bytes']} bytes at its peak, of {cache['full_bytes']}")


llama_cpp.main(test)
