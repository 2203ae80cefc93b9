"""llama-bench with WINNOW_KV: prompts and generation with warm-up and repetitions, over caches of Winnow's only."""

import llama_cpp
import random_models
from llama_cpp import expect

PROMPT, TOKENS, REPETITIONS = 192, 96, 3
BUDGET = 64


def bench(host, model, kv):
    found, report = llama_cpp.bench(host, kv, "-m", model, "-p", PROMPT, "-n", TOKENS, "-r", REPETITIONS, "-ub", 64,
                                    "-t", 1)
    tests = {(each["n_prompt"], each["n_gen"]): each for each in found}
    expect(set(tests) == {(PROMPT, 0), (0, TOKENS)}, f"the tests were {sorted(tests)}")
    for each in tests.values():
        expect(len(each["samples_ts"]) == REPETITIONS and min(each["samples_ts"]) > 0, f"no rates: {each}")
    return {name: each["avg_ts"] for name, each in tests.items()}, report


def test():
    options = llama_cpp.parser(__doc__).parse_args()
    host = llama_cpp.Host(options)
    model = random_models.make("plain", options.work)
    for kv, has_budget in (("none:k=f16,v=f16", False), (f"winnow:budget={BUDGET}", True)):
        rates, report = bench(host, model, kv)
        print(f"{kv}: {rates[PROMPT, 0]:.0f} tokens/s of a prompt, {rates[0, TOKENS]:.0f} tokens/s generated")
        expect(report is not None and report["sdpa_calls"] == 0, f"there were calls in place: {report}")
        caches = report["caches"]
        expect(len(caches) == 2, f"expected a cache for each of the two tests: {caches}")
        for cache, least in zip(caches, (PROMPT * (REPETITIONS + 1), TOKENS * REPETITIONS + 1)):  # with the warm-ups
            expect(cache["tokens_seen"] >= least, f"{cache['tokens_seen']} tokens seen, expected at least {least}")
            if has_budget:
                llama_cpp.expect_budget(cache, BUDGET)


llama_cpp.main(test)
