"""Several sequences over virtual caches, by a program that links llama.cpp: tails that are taken back, cells that are
used again, sequences that are copied within a stream and into another, two contexts at once, states of several
sequences, parts of states and damaged ones, states over what lives, attention both ways.

Without a budget all tokens are those that a cache in place gives, with recall, too, where all pages are hot; within one
the budget is kept, and recall picks. With a layer all that happens on a GPU with memory of its own, and nothing is
recalled.
"""

from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

OVER = "states over beginnings"  # whose first token is -1 where a virtual cache had to drop a sequence
USES = ("reuse", "clear", "rollback", "streams", "unified", "contexts", "states", "shifted states", "broken states",
        "damaged states", OVER, "both ways")
CONTEXTS = 15  # of all uses together
SHARE = 8


def run(host, options, kv):
    """({use: tokens}, report); what was picked is in the log."""
    out, log, report = host.run(options.program, options.model, options.text, winnow=True,
                              environment=llama_cpp.kv_environment(kv))
    lines = dict(line.split(":", 1) for line in out.splitlines())
    expect(tuple(lines) == USES, f"the program's output is {out}")
    expect(("a sequence needs cell" in log) == bool(kv), f"the log is {log}")
    expect(("of the pages that were picked were not hot" in log) == ("recall=" in (kv or "")), f"the log is {log}")
    llama_cpp.expect_device(options, report)
    return {use: tokens.split() for use, tokens in lines.items()}, report


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--program", type=Path, required=True, help="sequences")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    options.model = random_models.make("plain", options.work)
    expected, report = run(host, options, None)
    llama_cpp.expect_in_place(report)
    for kv in ("none:k=f16,v=f16", *([] if options.layer else [llama_cpp.recall_of_all(options)])):
        found, report = run(host, options, kv)
        expect(len(report["caches"]) == CONTEXTS and report["sdpa_calls"] == 0, f"the caches are {report['caches']}")
        for use in USES:
            print(f"{kv}, {use}: {' '.join(found[use])}")
            if use == OVER and found[use][0] == "-1":
                found[use][0] = expected[use][0]
            expect(found[use] == expected[use], f"{kv}, {use}: in place {expected[use]}, virtual {found[use]}")
    found, report = run(host, options, f"window:budget=1/{SHARE}")
    expect(len(report["caches"]) == CONTEXTS, f"the caches are {report['caches']}")
    for cache in report["caches"]:
        llama_cpp.expect_budget(cache, cache["cells"] // SHARE)
    print(f"within an eighth: {[cache['evictions'] for cache in report['caches']]} evictions in {CONTEXTS} contexts")
    if options.layer:
        return
    recalled, report = run(host, options, llama_cpp.recall_of_few(options))
    expect(len(report["caches"]) == CONTEXTS, f"the caches are {report['caches']}")
    llama_cpp.expect_picks(report["caches"])
    expect(recalled != expected, "what was picked are all pages")


llama_cpp.main(test)
