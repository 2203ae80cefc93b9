"""winnow-measure, by which `winnow eval` compares: the base has the perplexity that llama-perplexity prints; a virtual
cache with everything in f16 is the base in every mode, token by token, also of a model with sliding windows, whose
second cache is a smaller one; and a cache whose heads all read the keys of the first one is seen to be wrong in every
mode.
"""

import math
import os
import statistics
import sys
from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools" / "eval"))

from winnow_eval import configs, measure  # noqa: E402
from winnow_eval.host import Host  # noqa: E402

CONTEXTS = {"grouped": 256, "windows": 512}  # with windows, so long that a window's cache is smaller
COUNT, BATCH = 2, 64
SAME, OTHER = 1e-6, 1e-3  # KL divergences: of what is computed in another order, of what is wrong
TOLERANCE = 0.00005  # relative, of a perplexity
DENSE = configs.parse("none:k=f16,v=f16")
DEFECT = "keys_of_the_first_head"


def run_all(options, environment, device):
    """(nll of the base, {mode: divergences}) over all contexts, token by token."""
    context = CONTEXTS[options.family]
    half = context // 2
    host = Host(options.llama_cpp, options.plugin, options.model, BATCH, BATCH, 1, device)
    host.environment |= environment
    nll, kld = [], {"cpu": [], "batch": [], "decode": []}
    with measure.Measure(host, options.model, options.text, context, half) as process:
        for index in range(COUNT):
            nll += process.run(configs.BASE, index, base=True).nll
            kld["cpu"] += process.run(configs.NULL, index).kld
            for mode, decode_from in (("batch", None), ("decode", half)):
                measured = process.run(DENSE, index, decode_from=decode_from)
                caches = llama_cpp.virtual_caches(measured.run.report)
                cells = [cache["cells"] for cache in caches]
                expect(max(cells) == context and (min(cells) < context) == (options.family == "windows"),
                       f"caches of {cells} cells")
                for cache in caches:
                    expect(cache["decoded"] == (half if decode_from else 0), f"{mode}: {cache['decoded']}")
                kld[mode] += measured.kld
    expect(len(nll) == COUNT * (half - 1), f"{len(nll)} tokens were scored")
    return nll, kld


def compare(options):
    """With the base, and with what llama-perplexity prints."""
    nll, kld = run_all(options, {}, "Portable Computing Language")
    command = ["-m", options.model, "-f", options.text, "-c", CONTEXTS[options.family], "-b", BATCH, "-ub", BATCH,
               "--chunks", COUNT, "-fa", "on", "-t", 1, "--no-warmup", "-dev", "Winnow"]
    expected, _ = llama_cpp.perplexity(llama_cpp.Host(options), command)
    found = math.exp(statistics.fmean(nll))
    print(f"{options.family}: perplexity {found:.5f}, llama-perplexity {expected}; largest divergences "
          f"{ {mode: max(values) for mode, values in kld.items()} }")
    expect(abs(found - expected) <= TOLERANCE * expected, f"perplexity {found}, llama-perplexity has {expected}")
    for mode, values in kld.items():
        mean = statistics.fmean(values)
        expect(0 <= mean <= SAME, f"{mode}: divergence {mean} of the same cache")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--measure", required=True, help="winnow-measure")
    parser.add_argument("--broken", type=Path, required=True, help="libwinnow_broken.so")
    parser.add_argument("--text", type=Path, required=True)
    options = parser.parse_args()
    os.environ["WINNOW_EVAL_MEASURE"] = options.measure
    for options.family in CONTEXTS:
        options.model = random_models.make(options.family, options.work)
        compare(options)

    options.family = "grouped"
    options.model = random_models.make(options.family, options.work)
    for defect in ("none", DEFECT):
        _, kld = run_all(options, {"WINNOW_BACKEND": str(options.broken), "WINNOW_DEFECT": defect}, None)
        means = {mode: statistics.fmean(values) for mode, values in kld.items()}
        print(f"{defect}: {means}")
        for mode in ("batch", "decode"):
            expect((means[mode] >= OTHER) == (defect == DEFECT), f"{defect}, {mode}: divergence {means[mode]}")


llama_cpp.main(test)
