"""llama-perplexity gives the same number on ggml's CPU backend and on Winnow, and Winnow computed every layer.

Once in batches as prompts are taken, two sequences at a time, and, over fewer tokens, in steps of a few tokens as
generation takes them.

A quantized cache moves the probabilities of the next token. By how much is measured as their mean divergence
(Kullback's and Leibler's) from those over an f16 cache, which Winnow must not make larger than ggml's CPU backend does:
that one rounds queries to 8 bits as well, Winnow does not. Perplexity tells less: codes flip with the last bit of a
key, and two exact orders of arithmetic differ in it by as much as a cache of 8 bits costs.
"""

import math
import re

import llama_cpp
from llama_cpp import expect

TOLERANCE = 0.003  # relative; rounding in another order gives less than a tenth of it
CONTEXT = 512
PACKED_CACHES = ("q8_0", "q4_0")
PACKED_CHUNKS = 2  # of a full run three times as many
# How many standard errors the two mean divergences may be apart by chance. Theirs, over tokens, are added as squares;
# since both means are over the same tokens, that is more than the error of the difference.
CHANCE = 3
RESOLUTION = 0.25  # there have to be so many tokens that chance is less than this of the divergence
# Tokens of a quarter of the text, and of a full run, which takes it twice; over fewer, it would say little about the
# model.
FEWEST_SCORED, FEWEST_OF_ALL = 500, 4000


def packed_chunks(options):
    return PACKED_CHUNKS * (3 if options.all else 1)


def run(host, options, *arguments, batch, chunks, winnow, cache="f16"):
    """(output, chunks, layers, report)"""
    arguments = ["-m", options.model, "-f", options.text, "-c", CONTEXT, "-b", 2 * CONTEXT, "-ub", batch, "-fa", "on",
                 "-t", 1, "--no-warmup", "-lv", 4, "-ctk", cache, "-ctv", cache, *arguments]
    if chunks:
        arguments += ["--chunks", chunks]
    if winnow:
        arguments += llama_cpp.DEVICE
    out, err, report = host.run("llama-perplexity", *arguments, winnow=winnow)
    text = out + err
    counted = re.search(r"(?:computing|calculating perplexity) over (\d+) chunks", text)
    layers = re.search(r"n_layer += (\d+)", text)
    expect(counted and layers, f"llama-perplexity gave no result:\n{text[-2000:]}")
    return text, int(counted[1]), int(layers[1]), report


def perplexity(host, options, batch, chunks, winnow):
    """(perplexity, chunks, layers, report)"""
    text, counted, layers, report = run(host, options, batch=batch, chunks=chunks, winnow=winnow)
    return llama_cpp.final_perplexity(text), counted, layers, report


def divergence(host, options, base, winnow, cache):
    """(mean over tokens, its standard error, chunks, layers, report)"""
    text, chunks, layers, report = run(host, options, "--kl-divergence", "--kl-divergence-base", base, batch=CONTEXT,
                                       chunks=packed_chunks(options), winnow=winnow, cache=cache)
    number = re.search(r"Mean +KLD: +(\S+) ± +(\S+)", text)
    expect(number, f"llama-perplexity gave no divergence:\n{text[-2000:]}")
    return float(number[1]), float(number[2]), chunks, layers, report


def expect_calls(report, layers, chunks, batch, cache="f16"):
    """(attention, append) calls of each layer; fails unless Winnow computed all of them, on caches of this type."""
    seen, attention, appends = llama_cpp.calls_per_layer(report)
    expect(seen == layers, f"the plugin saw {seen} layers of {layers}")
    wanted = chunks * (CONTEXT // batch)
    expect(attention == wanted and appends == wanted,
           f"{attention} attention and {appends} append calls per layer for {wanted} micro-batches")
    expect(report["tokens_appended"] == layers * chunks * CONTEXT,
           f"{report['tokens_appended']} tokens appended for {chunks * CONTEXT} tokens in {layers} layers")
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


def compare_packed(host, options, base, cache):
    expected, expected_error, _, _, _ = divergence(host, options, base, winnow=False, cache=cache)
    value, error, chunks, layers, report = divergence(host, options, base, winnow=True, cache=cache)
    attention, appends = expect_calls(report, layers, chunks, CONTEXT, cache)
    chance = CHANCE * math.hypot(error, expected_error)
    print(f"{cache} caches: {chunks} chunks of {CONTEXT} tokens, divergence from f16 caches on the CPU "
          f"{expected:.6f} +- {expected_error:.6f}, with Winnow on {report['device']} ({report['platform']}) "
          f"{value:.6f} +- {error:.6f}; {layers} layers, {attention} attention and {appends} append calls each")
    expect(chance <= RESOLUTION * expected, f"by chance they may differ by {chance:.6f}: too much to tell anything")
    expect(value <= expected + chance, f"the divergence with {cache} caches is {value:.6f}, ggml's CPU backend's is "
           f"{expected:.6f}, and by chance it may be {chance:.6f} more")


def compare_all_packed(host, options):
    base = options.work / "perplexity-base.bin"
    try:
        run(host, options, "--kl-divergence-base", base, batch=CONTEXT, chunks=packed_chunks(options),
            winnow=False)
        for cache in PACKED_CACHES:
            compare_packed(host, options, base, cache)
    finally:
        base.unlink(missing_ok=True)  # 25 MB for a chunk


def test():
    parser = llama_cpp.parser(__doc__, "model", "text")
    parser.add_argument("--packed", action="store_true", help="quantized caches, over fewer tokens")
    parser.add_argument("--all", action="store_true", help="twice as many tokens")
    options = parser.parse_args()
    if options.all:
        # The text twice: half of a chunk is scored, and the second time chunks begin elsewhere in it.
        prose = options.text.read_text(encoding="utf-8")
        options.text = options.work / "perplexity.txt"
        options.text.write_text(f"{prose}\n\n{prose}", encoding="utf-8")
    host = llama_cpp.Host(options)
    if options.packed:
        compare_all_packed(host, options)
        return
    compare(host, options, batch=256, chunks=None if options.all else 2,
            fewest_scored=FEWEST_OF_ALL if options.all else FEWEST_SCORED)
    compare(host, options, batch=4, chunks=1, fewest_scored=1)


llama_cpp.main(test)
