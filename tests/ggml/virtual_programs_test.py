"""Random programs over llama.cpp's memory, in place and over virtual caches that hold all: decodes of one sequence and
of several in a batch, tails, middles, beginnings and whole sequences that are removed, copies, shifts, attention both
ways. Nine families of small random models have to give the same logits, as `programs` compares them.
"""

import re
from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

FAMILIES = ("plain", "windows", "chunked", "hybrid", "latent", "uneven", "alibi", "sinks", "encoder")
FEWEST = 100  # tokens of a program, on average: fewer, and most of what it does was refused


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
        out, _, _ = host.run(options.program, model, options.first, options.count, winnow=True)
        print(f"{family}: {out.strip()}", flush=True)
        decoded = re.fullmatch(r"\d+ programs, (\d+) tokens decoded, largest error \S+", out.strip())
        expect(decoded and int(decoded[1]) >= FEWEST * options.count, f"{family}: {out}")


llama_cpp.main(test)
