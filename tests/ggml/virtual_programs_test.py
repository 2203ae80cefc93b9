"""Random programs over llama.cpp's memory, in place and over virtual caches that hold all: decodes of one sequence and
of several in a batch, tails, middles, beginnings and whole sequences that are removed, copies, shifts, attention both
ways, and in some programs states of a sequence or of all that are saved and put back. Nine families of small random
models have to give the same logits, as `programs` compares them, from as many virtual caches as the family has, and
none that stays in place. An encoder has no cache, and its attention stays with llama.cpp: its embeddings are bit for
bit those without Winnow.
"""

import re
from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

FAMILIES = ("plain", "windows", "chunked", "hybrid", "latent", "uneven", "alibi", "sinks", "encoder")
FEWEST = 100  # tokens of a program, on average: fewer, and most of what it does was refused
FEWEST_RESTORED = 20  # tokens of states that a program with states puts back, on average
MOST_REFUSED = .05  # of the programs with states: they ended where the plugin had dropped tokens for a state


def check(family, count, report, error, refused):
    """Half of the attention was in place, the other half over virtual caches: all that a program has, unless the last
    decode of a program was refused."""
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
    in_place = report["sdpa_calls"]
    expect(in_place > 0 and (calls == 2 * in_place or refused), f"{family}: {in_place} of {calls} calls were in place")
    layers = [counts["attention_calls"] for name, counts in report["tensors"].items()
              if name.startswith(llama_cpp.LAYER_PREFIX)]
    expect(len(layers) * count == sum(cache["layers"] for cache in caches) and (len(set(layers)) == 1 or refused),
           f"{family}: the layers' attention calls: {layers}")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--program", type=Path, required=True, help="programs")
    seeds = {"nargs": 2, "type": int, "required": True, "metavar": ("SEED", "COUNT")}
    parser.add_argument("--without-states", **seeds, help="first seed and number of programs of each family")
    parser.add_argument("--with-states", **seeds, help="the same of programs with states")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    for family in options.families:
        model = random_models.make(family, options.work)
        out, _, report, _ = llama_cpp.run_states(host, family, options.program, model, *options.without_states,
                                                 *options.with_states)
        print(f"{family}: {out.strip()}", flush=True)
        found = re.fullmatch(r"\d+ programs, (\d+) tokens decoded, largest error (\S+), (\d+) refused", out.strip())
        count = options.without_states[1] + options.with_states[1]
        expect(found and int(found[1]) >= FEWEST * count, f"{family}: {out}")
        error, refused = float(found[2]), int(found[3])
        check(family, count, report, error, refused)
        with_states = options.with_states[1]
        expect(refused <= MOST_REFUSED * with_states, f"{family}: {refused} of {with_states} programs refused")
        restored = sum(cache["restored"] for cache in report["caches"])
        expect(restored >= FEWEST_RESTORED * with_states or not report["caches"],
               f"{family}: {restored} tokens of states were put back in {with_states} programs")


llama_cpp.main(test)
