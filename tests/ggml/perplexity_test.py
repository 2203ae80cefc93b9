"""llama-perplexity gives the same number on ggml's CPU backend and on Winnow, and Winnow computed every layer.

Once in batches as prompts are taken, two sequences at a time, and, over fewer tokens, in steps of a few tokens as
generation takes them. With quantized caches the number is at least as good as the CPU backend's: that one rounds
queries to 8 bits as well, Winnow does not.
"""

import re
from pathlib import Path

import llama_cpp
from llama_cpp import expect

TOLERANCE = 0.003  # relative; rounding in another order gives less than a tenth of it
CONTEXT = 512
# Types of caches, and by how much, relative, the perplexity may be above the CPU backend's by chance: codes that flip
# with the last bit of a key make two exact orders of arithmetic differ by .03% and .6% over these tokens.
PACKED_CACHES = {"q8_0": 0.001, "q4_0": 0.005}
PACKED_CHUNKS = 4
FEWEST_SCORED = 4000  # tokens; over fewer, the text would say little about the model


def perplexity(host, options, batch, chunks, winnow, cache="f16"):
    """(perplexity, chunks, layers, report)"""
    arguments = ["-m", options.model, "-f", options.text, "-c", CONTEXT, "-b", 2 * CONTEXT, "-ub", batch, "-fa", "on",
                 "-t", 2, "--no-warmup", "-lv", 4, "-ctk", cache, "-ctv", cache]
    if chunks:
        arguments += ["--chunks", chunks]
    if winnow:
        arguments += ["-dev", "Winnow"]
    out, err, report = host.run("llama-perplexity", *arguments, winnow=winnow)
    text = out + err
    number = re.search(r"Final estimate: PPL = ([\d.]+)", text)
    counted = re.search(r"calculating perplexity over (\d+) chunks", text)
    layers = re.search(r"n_layer += (\d+)", text)
    expect(number and counted and layers, f"llama-perplexity gave no result:\n{text[-2000:]}")
    return float(number[1]), int(counted[1]), int(layers[1]), report


def expect_calls(report, layers, chunks, batch, cache="f16"):
    """(attention, append) calls of each layer; fails unless Winnow computed all of them, on caches of this type."""
    seen, attention, appends = llama_cpp.calls_per_layer(report)
    expect(seen == layers, f"the plugin saw {seen} layers of {layers}")
    wanted = chunks * (CONTEXT // batch)
    expect(attention == wanted and appends == wanted,
           f"{attention} attention and {appends} append calls per layer for {wanted} micro-batches")
    expect(report["rows_appended"] == layers * chunks * CONTEXT,
           f"{report['rows_appended']} rows appended for {chunks * CONTEXT} tokens in {layers} layers")
    types = {counts["type"] for counts in report["tensors"].values()}
    expect(types == {cache}, f"the caches are of {types}, wanted is {cache}")
    return attention, appends


def compare(host, options, batch, chunks, fewest_scored):
    expected, _, _, _ = perplexity(host, options, batch, chunks, winnow=False)
    value, chunks, layers, report = perplexity(host, options, batch, chunks, winnow=True)
    difference = abs(value - expected) / expected
    scored = chunks * (CONTEXT - CONTEXT // 2 - 1)  # llama-perplexity takes the first half of a chunk as context
    attention, appends = expect_calls(report, layers, chunks, batch)
    print(f"micro-batches of {batch}: {chunks} chunks of {CONTEXT} tokens, {scored} scored, CPU {expected:.4f}, "
          f"Winnow on {report['device']} ({report['platform']}) {value:.4f}, difference {100 * difference:.4f}%; "
          f"{layers} layers, {attention} attention and {appends} append calls each")
    expect(scored >= fewest_scored, f"{scored} tokens were scored, wanted are at least {fewest_scored}")
    expect(difference <= TOLERANCE, f"perplexity differs by {100 * difference:.3f}%")


def compare_packed(host, options, cache, chance):
    expected, _, _, _ = perplexity(host, options, CONTEXT, PACKED_CHUNKS, winnow=False, cache=cache)
    value, chunks, layers, report = perplexity(host, options, CONTEXT, PACKED_CHUNKS, winnow=True, cache=cache)
    attention, appends = expect_calls(report, layers, chunks, CONTEXT, cache)
    print(f"{cache} caches: {chunks} chunks of {CONTEXT} tokens, CPU {expected:.4f}, Winnow on {report['device']} "
          f"({report['platform']}) {value:.4f}, {100 * (value - expected) / expected:+.4f}%; {layers} layers, "
          f"{attention} attention and {appends} append calls each")
    expect(value <= expected * (1 + chance),
           f"perplexity with {cache} caches is {value}, ggml's CPU backend's {expected}")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--model", required=True, help="GGUF file, weights in F32")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--packed", action="store_true", help="quantized caches, over fewer tokens")
    options = parser.parse_args()
    # Twice: half of a chunk is scored, and the second time chunks begin elsewhere in the text.
    prose = options.text.read_text(encoding="utf-8")
    options.text = options.work / "perplexity.txt"
    options.text.write_text(f"{prose}\n\n{prose}", encoding="utf-8")
    host = llama_cpp.Host(options)
    if options.packed:
        for cache, chance in PACKED_CACHES.items():
            compare_packed(host, options, cache, chance)
        return
    compare(host, options, batch=256, chunks=None, fewest_scored=FEWEST_SCORED)
    compare(host, options, batch=4, chunks=1, fewest_scored=1)


llama_cpp.main(test)
