"""WINNOW_DECODE_FROM: a cache that takes the tokens of a batch one at a time holds, layer by layer and head by head,
what it holds where llama.cpp hands them over one at a time, and the perplexity is that one's. Without the variable
other tokens are evicted.
"""

import llama_cpp
import random_models
from llama_cpp import expect

CONTEXT = 256
BATCH = 64
FROM = 100  # in the middle of a batch
CHUNKS = 2
TOLERANCE = 0.00005  # relative; ggml multiplies matrices of one column in another order
CONFIGS = ("h2o:budget=64,k=f16,v=f16", "winnow:budget=1/4", "window:budget=40,k=f16,v=f16", "none:k=f16,v=f16")


def perplexity(host, options, kv, batch, decode_from=None):
    arguments = ["-m", options.model, "-f", options.text, "-c", CONTEXT, "-b", batch, "-ub", min(batch, BATCH),
                 "--chunks", CHUNKS, "-fa", "on", "-t", 1, "--no-warmup"]
    environment = {"WINNOW_KV": kv, "WINNOW_REPORT_WITH": "resident"}
    if decode_from is not None:
        environment["WINNOW_DECODE_FROM"] = str(decode_from)
    value, report = llama_cpp.perplexity(host, arguments, environment)
    return value, llama_cpp.virtual_caches(report)


def residents(caches):
    return [cache["resident"] for cache in caches]


def compare(host, options, kv):
    expected, one_by_one = perplexity(host, options, kv, 1)
    found, decoded = perplexity(host, options, kv, BATCH, 0)
    tokens = CHUNKS * CONTEXT
    print(f"{options.family}, {kv}: perplexity {expected:.4f} token by token, {found:.4f} decoded from 0; "
          f"{[cache['evictions'] for cache in decoded]} evictions")
    for cache in decoded:
        expect(cache["decoded"] == cache["tokens_seen"] == tokens, f"not all were decoded: {cache}")
    for cache in one_by_one:
        expect(cache["decoded"] == 0, f"decoded without WINNOW_DECODE_FROM: {cache}")
    expect(residents(decoded) == residents(one_by_one), "other tokens are resident")
    expect(abs(found - expected) <= TOLERANCE * expected, f"perplexity {found} instead of {expected}")

    _, later = perplexity(host, options, kv, BATCH, FROM)
    for cache in later:
        expect(cache["decoded"] == CHUNKS * (CONTEXT - FROM), f"other tokens than from {FROM} on: {cache['decoded']}")
    _, beside = perplexity(host, options, kv, CHUNKS * CONTEXT, FROM)  # a stream for each
    for cache in beside:
        expect(cache["streams"] == CHUNKS, f"not two streams: {cache}")
        expect(cache["decoded"] == CHUNKS * (CONTEXT - FROM), f"of two streams: {cache['decoded']}")
    return decoded


def test():
    options = llama_cpp.parser(__doc__, "text").parse_args()
    host = llama_cpp.Host(options)
    for options.family in ("plain", "windows"):
        options.model = random_models.make(options.family, options.work)
        for kv in CONFIGS[:1] if options.family == "windows" else CONFIGS:
            decoded = compare(host, options, kv)
            if kv == CONFIGS[0]:
                _, at_once = perplexity(host, options, kv, BATCH)
                expect(residents(at_once) != residents(decoded), f"{kv}: the same tokens in batches of {BATCH}")


llama_cpp.main(test)
