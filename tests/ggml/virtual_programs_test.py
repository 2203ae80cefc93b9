"""Random programs over llama.cpp's memory, in place and over virtual caches that hold all: decodes of one sequence and
of several in a batch, tails, middles, beginnings and whole sequences that are removed, copies, shifts, attention both
ways. Eight families of small random models have to give the same logits, as `programs` compares them, from as many
virtual caches as the family has, and none that stays in place. An encoder has no cache, and its attention stays with
llama.cpp: its embeddings are bit for bit those without Winnow.
"""

import re
from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

FAMILIES = ("plain", "windows", "chunked", "hybrid", "latent", "uneven", "alibi", "sinks", "encoder")
FEWEST = 100  # tokens of a program, on average: fewer, and most of what it does was refused


def check(family, count, report, error):
    """Half of the attention was in place, the other half over virtual caches: all that a program has."""
    expect(report is not None, f"{family}: the plugin was not called: it wrote no report")
    expect(report["in_place"] == [], f"{family}: caches that stayed in place: {report['in_place']}")
    caches, wanted = report["caches"], random_models.caches(family)
    expect(len(caches) == wanted * count,
           f"{family}: {len(caches)} virtual caches in {count} programs, each has {wanted}")
    calls = report["attention_calls"]
    if wanted == 0:
        expect(calls == 0, f"{family}: {calls} attention calls, expected none without a cache")
        expect(error == 0, f"{family}: an error of {error}, expected the bits that there are without Winnow")
        return
    expect(calls == 2 * report["sdpa_calls"] > 0, f"{family}: {report['sdpa_calls']} of {calls} calls were in place")
    layers = [counts["attention_calls"] for name, counts in report["tensors"].items()
              if name.startswith(llama_cpp.LAYER_PREFIX)]
    expect(len(layers) * count == sum(cache["layers"] for cache in caches) and len(set(layers)) == 1,
           f"{family}: the layers' attention calls: {layers}")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--program", type=Path, required=True, help="programs")
    parser.add_argument("--first", type=int, required=True, help="seed")
    parser.add_argument("--count", type=int, required=True, help="programs of each family")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    for family in options.families:
        model = random_models.make(family, options.work)
        out, _, report = host.run(options.program, model, options.first, options.count, winnow=True)
        print(f"{family}: {out.strip()}", flush=True)
        decoded = re.fullmatch(r"\d+ programs, (\d+) tokens decoded, largest error (\S+)", out.strip())
        expect(decoded and int(decoded[1]) >= FEWEST * options.count, f"{family}: {out}")
        check(family, options.count, report, float(decoded[2]))


llama_cpp.main(test)
