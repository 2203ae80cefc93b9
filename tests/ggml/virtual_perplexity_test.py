"""llama-perplexity over virtual caches, two sequences at a time: each in a stream of its own, and both among the cells
of one. Without a budget the number is that of the cache in place; within one it is another, the same in two runs, and
the budget is kept.
"""

import llama_cpp
from llama_cpp import expect

CONTEXT = 256
CHUNKS = 2
TOLERANCE = 0.0005  # relative; the same products, added up in another order
STREAMS = {"streams": [], "unified": ["--kv-unified"]}


def perplexity(host, options, arguments, kv):
    command = ["-m", options.model, "-f", options.text, "-c", CONTEXT, "-b", CHUNKS * CONTEXT, "-ub", CHUNKS * CONTEXT,
               "--chunks", CHUNKS, "-fa", "on", "-t", 1, *arguments]
    return llama_cpp.perplexity(host, command, llama_cpp.kv_environment(kv))


def compare(host, options, name, arguments):
    expected, _ = perplexity(host, options, arguments, None)
    value, report = perplexity(host, options, arguments, "none:k=f16,v=f16")
    cache = llama_cpp.virtual_cache(report)
    print(f"{name}: in place {expected:.4f}, virtual {value:.4f}; {cache['streams']} streams of {cache['cells']} "
          f"cells, {cache['tokens']} tokens held of {cache['tokens_seen']}")
    expect(cache["streams"] == (1 if arguments else CHUNKS), f"the cache has {cache['streams']} streams")
    expect(cache["tokens"] == CHUNKS * CONTEXT, f"the cache held {cache['tokens']} tokens of {CHUNKS} chunks")
    expect(abs(value - expected) <= TOLERANCE * expected, f"{name}: perplexity {value} instead of {expected}")
    first, report = perplexity(host, options, arguments, "window:budget=1/4")
    second, _ = perplexity(host, options, arguments, "window:budget=1/4")
    cache = llama_cpp.virtual_cache(report)
    print(f"{name}: {first:.4f} and {second:.4f} within a quarter, {cache['evictions']} evictions")
    llama_cpp.expect_budget(cache, cache["cells"] // 4)
    expect(first == second, f"{name}: two runs gave {first} and {second}")
    expect(abs(first - expected) > TOLERANCE * expected, f"{name}: the budget made no difference")


def test():
    options = llama_cpp.parser(__doc__, "model", "text").parse_args()
    host = llama_cpp.Host(options)
    for name, arguments in STREAMS.items():
        compare(host, options, name, arguments)


llama_cpp.main(test)
