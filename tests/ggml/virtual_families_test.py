"""A family of models with WINNOW_KV: without a budget the perplexity and the text of the cache in place, and within one
a text, from no more tokens than the budget allows. The model is small and random, made here.
"""

import llama_cpp
import random_models
from llama_cpp import expect

CONTEXT = 512
BATCH = 64  # so small that a cache of a window's cells has to use them again
PROMPT = 260  # characters, of which most are a token
TOKENS = 64
CHUNKS = 2
SHARE = 8
TOLERANCE = 0.00005  # relative; in f32 instead of f16 the models' perplexities are others by 0.00002 to 0.0002
UNLIMITED = "none:k=f16,v=f16"


def perplexity(host, options, kv):
    arguments = ["-m", options.model, "-f", options.text, "-c", CONTEXT, "-b", CONTEXT, "-ub", BATCH, "-t", 1,
                 "-fa", "on", "--chunks", CHUNKS, "--no-warmup"]
    return llama_cpp.perplexity(host, arguments, llama_cpp.kv_environment(kv))


def generate(host, options, kv):
    return llama_cpp.complete(host, kv, options.model, TOKENS, CONTEXT, "-f", options.prompt, "-ub", BATCH,
                              "--no-warmup")


def caches_of(options, report):
    caches = llama_cpp.virtual_caches(report)
    wanted = random_models.caches(options.family)
    expect(len(caches) == wanted, f"expected {wanted} virtual caches: {caches}")
    return caches


def compare(options, what, run):
    expected, report = run(None)
    llama_cpp.expect_in_place(report)
    found, report = run(UNLIMITED)
    for cache in caches_of(options, report):
        print(f"{what}: {cache['name']}, {cache['layers']} layers, {cache['kv_heads']} heads, {cache['cells']} cells, "
              f"{cache['tokens_seen']} tokens seen, {cache['tokens']} resident")
        expect(cache["evictions"] == 0, f"there were evictions: {cache}")
        llama_cpp.expect_all_resident(cache)
    return expected, found


def keep_budget(host, options, kv):
    text, report = generate(host, options, kv)
    caches = caches_of(options, report)
    llama_cpp.expect_shares(caches, SHARE)
    for cache in caches:
        print(f"{kv}: {cache['name']}, at most {max(cache['resident_of_layers']) / cache['kv_heads']:.1f} a head "
              f"of {cache['cells']} cells, {cache['evictions']} evictions")
    print(text)
    expect(len(text) >= TOKENS, f"{len(text)} characters are no {TOKENS} tokens: {text}")


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--family", choices=random_models.FAMILIES, required=True)
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    options.model = random_models.make(options.family, options.work)
    options.prompt = llama_cpp.prompt_file(options, options.text.read_text(encoding="utf-8")[:PROMPT])
    expected, found = compare(options, "perplexity", lambda kv: perplexity(host, options, kv))
    print(f"perplexity in place {expected}, virtual {found}")
    expect(abs(found - expected) <= TOLERANCE * expected, f"perplexity {found} instead of {expected}")
    expected, found = compare(options, "text", lambda kv: generate(host, options, kv))
    print(found)
    llama_cpp.expect_same_text(found, expected)
    for kv in (f"window:budget=1/{SHARE},k=f16,v=f16", f"winnow:budget=1/{SHARE}"):
        keep_budget(host, options, kv)


llama_cpp.main(test)
