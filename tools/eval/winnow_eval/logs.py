"""What llama.cpp's programs print, read into numbers."""

import math
import re
import statistics

import gguf

from winnow_eval import Failure
from winnow_eval.host import essence

MIB = 2**20
NUMBER = r"(-?[\d.]+|-?nan|-?inf)"
# chunk, perplexity, ln(PPL(Q)/PPL(base)), KL divergence, change of p, same top token; mean ± error over all so far
CHUNK = re.compile(rf"^ *(\d+) +{NUMBER} ± +{NUMBER} +{NUMBER} ± +{NUMBER} +{NUMBER} ± +{NUMBER} +"
                   rf"{NUMBER} ± +{NUMBER} % +{NUMBER} ± +{NUMBER} %$", re.M)
BASE_CHUNK = re.compile(rf"\[(\d+)\]{NUMBER},")  # the perplexity over all so far
CACHE = re.compile(r"size = +[\d.]+ MiB \( *(\d+) cells, +(\d+) layers, +\d+/(\d+) seqs\), "
                   r"K \((\w+)\): +([\d.]+) MiB, V \((\w+)\): +([\d.]+) MiB")


def mean_and_error(values):
    """The mean of values and its standard error."""
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def each(means):
    """The values whose running means these are."""
    return [number * mean - (number - 1) * before
            for number, (before, mean) in enumerate(zip([0.0, *means], means), start=1)]


def _summary(printed, label):
    match = re.search(rf"^{label} *: +{NUMBER}", printed, re.M)
    if match is None:
        raise Failure(f"llama-perplexity printed no line \"{label}\"")
    return float(match[1])


def _expect_all(chunks, contexts, whole, printed):
    if [int(chunk[0]) for chunk in chunks] != list(range(1, contexts + 1)) or not whole:
        raise Failure(f"llama-perplexity ended after {len(chunks)} of {contexts} contexts:\n{essence(printed)}")


def running_perplexity(printed, contexts):
    """After each context the perplexity over all so far, of a plain run over so many contexts."""
    chunks = BASE_CHUNK.findall(printed)
    _expect_all(chunks, contexts, True, printed)
    found = [float(ppl) for _, ppl in chunks]
    if not all(math.isfinite(ppl) and ppl > 0 for ppl in found):
        raise Failure(f"llama-perplexity gave numbers that are not finite: {found}")
    return found


def divergence(printed, contexts, base_running):
    """What a run with --kl-divergence over so many contexts gives; fails unless all of it is there and finite.

    base_running: running_perplexity of the base. The ratios that llama-perplexity prints itself are not of it: they
    take the base from its kept logits, which end at e^-16 of the largest, so that even the base has lost against them.
    """
    chunks = CHUNK.findall(printed)
    _expect_all(chunks, contexts, "Same top p" in printed, printed)
    running = [float(chunk[1]) for chunk in chunks]
    if not all(math.isfinite(ppl) and ppl > 0 for ppl in running):
        raise Failure(f"llama-perplexity gave numbers that are not finite: perplexities {running}")
    # Few decimals are printed, of the mean over all contexts so far: a late context is known less exactly.
    ln_ratios = [math.log(ppl / base) for ppl, base in zip(running, base_running, strict=True)]
    ln_ratio, kld, same_top = map(each, (ln_ratios, *([float(chunk[column]) for chunk in chunks] for column in (5, 9))))
    ratio = running[-1] / base_running[-1]
    found = {
        "ppl": _summary(printed, r"Mean PPL\(Q\)"),
        "ppl_base": base_running[-1],
        "ppl_increase_percent": 100 * (ratio - 1),
        "ppl_increase_se": 100 * ratio * mean_and_error(ln_ratio)[1],
        "kld": _summary(printed, r"Mean +KLD"),
        "kld_se": mean_and_error(kld)[1],
        "kld_p99": _summary(printed, r"99\.0% +KLD"),
        "same_top_percent": _summary(printed, r"Same top p"),
        "same_top_se": mean_and_error(same_top)[1],
    }
    if not all(math.isfinite(value) for value in [*found.values(), *ln_ratio, *kld, *same_top]):
        raise Failure(f"llama-perplexity gave numbers that are not finite: {found}")
    per_context = {"ln_ratio": ln_ratio, "kld": kld, "same_top": same_top}
    return found | {"ppl_running": running, "ppl_base_running": list(base_running), "per_context": {
        key: [round(value, 6) for value in values] for key, values in per_context.items()}}


def _bytes(mib, cells, layers, cache_type):
    """The size that was printed with two decimals: a whole number of blocks in each cell of each layer."""
    block = cells * layers * gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[cache_type.upper()]][1]
    exact = round(float(mib) * MIB / block) * block
    # Small caches have several such numbers within the rounding; layers may differ in size.
    unambiguous = block > 0.01 * MIB and abs(exact - float(mib) * MIB) <= 0.0051 * MIB
    return exact if unambiguous else round(float(mib) * MIB)


def cache(log):
    """{"bytes", "cells", "layers"} of the KV cache that llama.cpp made; several caches are added up."""
    found = CACHE.findall(log)
    if not found:
        raise Failure(f"llama.cpp's log says no size of a KV cache:\n{essence(log)}")
    size, layers = 0, 0
    for cells, of_layers, sequences, k_type, k_mib, v_type, v_mib in found:
        rows = int(cells) * int(sequences)
        size += _bytes(k_mib, rows, int(of_layers), k_type) + _bytes(v_mib, rows, int(of_layers), v_type)
        layers += int(of_layers)
    return {"bytes": size, "cells": max(int(cells) * int(sequences) for cells, _, sequences, *_ in found),
            "layers": layers}


def prompt_speed(log):
    """Tokens per second of the prompt, from llama.cpp's own clock."""
    match = re.search(r"prompt eval time = +([\d.]+) ms / +(\d+) tokens", log)
    if match is None or float(match[1]) <= 0:
        raise Failure(f"llama.cpp's log says no prompt eval time:\n{essence(log)}")
    return 1000 * int(match[2]) / float(match[1])
