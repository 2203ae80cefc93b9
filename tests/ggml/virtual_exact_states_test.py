"""States of one sequence over virtual caches, by a program that links llama.cpp: a sequence is saved, removed and put
back, into the same context, into another one, or beside another sequence; also with tokens whose rows are zero, and
kept on the device. What comes after it is what a context gives that was not interrupted, and it is the same bytes when
it is saved again.

Bit for bit, but for sliding windows: of these llama.cpp leaves out the tokens that left the window, so that the sums of
attention have another order, as they have in place. Beside another sequence packed rows come to other places.
"""

from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

FULL = "none:k=f16,v=f16"
STRINGS = (FULL, "winnow", "winnow:budget=1/4")
BESIDE = ("beside", "both, fresh")  # the uses in which a state comes beside another sequence
TOGETHER = "both, pending"  # the use in which both come together, into cells that may be others
USES = {"both": 18, "host": 15}  # by where states may lie
ROUNDING = 0.002  # of a logit, in f32 sums of another order; in place there are differences of 0.0008


def run(host, options, model, kv):
    """{use: (bytes that differ, largest difference of a logit, tokens)}"""
    out, _, report, where = llama_cpp.run_states(host, model.stem, options.program, model, options.text,
                                                 environment=llama_cpp.kv_environment(kv))
    if kv:
        expect(report["caches"] and report["sdpa_calls"] == 0, f"a cache is in place: {report['caches']}")
        expect(any(cache["restored"] > 0 for cache in report["caches"]), "nothing was restored")
    else:
        llama_cpp.expect_in_place(report)
    lines = dict(line.split(": ") for line in out.splitlines())
    expect(len(lines) == USES[where], f"the program's output is {out}")
    found = {}
    for use, values in lines.items():
        if values.startswith("not tested, "):
            llama_cpp.not_tested(use, values.removeprefix("not tested, "))
            continue
        differing, largest, *tokens = values.split()
        found[use] = int(differing), float(largest), tokens
    return found


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--program", type=Path, required=True, help="states")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    for family in ("plain", "windows"):
        model = random_models.make(family, options.work)
        in_place = run(host, options, model, None)
        for kv in STRINGS:
            for use, (differing, largest, tokens) in run(host, options, model, kv).items():
                what = f"{family}, {kv}, {use}"
                print(f"{what}: {differing} bytes differ, logits by {largest:g}")
                expect(differing == 0, f"{what}: {differing} bytes are others when the state is saved again")
                if kv == FULL:
                    expect(tokens == in_place[use][2], f"{what}: the tokens are {tokens}, in place {in_place[use][2]}")
                most = ROUNDING if family == "windows" or use in (*BESIDE, TOGETHER) else 0
                expect(largest <= most or (use in BESIDE and kv != FULL),
                       f"{what}: logits are others by {largest}, expected at most {most}")


llama_cpp.main(test)
