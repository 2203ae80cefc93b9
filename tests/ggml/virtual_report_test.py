"""What WINNOW_REPORT_WITH adds to the report: the tokens that each head holds, and a profile of the attention, which
then divides a budget among the layers.
"""

import math

import llama_cpp
from llama_cpp import expect

CONTEXT = 256
BUDGET = 64
SINKS = 4
NUMBERS = ("entropy", "concentration", "variance")


def run(host, options, kv, asked, status=0):
    out, err, report = host.run("llama-perplexity", "-m", options.model, "-f", options.text, "-c", CONTEXT, "-b",
                                CONTEXT, "--chunks", 1, "-fa", "on", "-t", 1, "-dev", "Winnow", winnow=True,
                                status=status, environment={"WINNOW_KV": kv, "WINNOW_REPORT_WITH": asked})
    return out + err, report


def check_resident(host, options):
    _, report = run(host, options, f"window:budget={BUDGET}", "resident")
    cache = llama_cpp.virtual_cache(report)
    expect("profile" not in cache, "a profile that was not asked for")
    heads = [head for stream in cache["resident"] for layer in stream for head in layer]
    expect(len(heads) == cache["streams"] * cache["layers"] * cache["kv_heads"], f"{len(heads)} lists of cells")
    for cells in heads:
        newest = list(range(CONTEXT - (len(cells) - SINKS), CONTEXT))
        expect(len(cells) <= BUDGET and cells == [*range(SINKS), *newest], f"a window of {BUDGET} holds {cells}")
    print(f"window:budget={BUDGET}: {len(heads)} heads hold sinks and the newest, the first {len(heads[0])} tokens")


def measure(host, options):
    """The profile of the attention: [(layer, [its three numbers])]"""
    _, report = run(host, options, "none", "profile")
    cache = llama_cpp.virtual_cache(report)
    expect("resident" not in cache, "cells that were not asked for")
    expect(len(cache["profile"]) == cache["layers"], f"{len(cache['profile'])} layers in the profile")
    layers = []
    for layer in cache["profile"]:
        expect(0 < layer["queries"] < CONTEXT, f"{layer['queries']} queries")
        expect(all(0 < each < math.log(CONTEXT) for each in layer["entropy"]), f"entropies of {layer}")
        expect(all(0.1 < each <= 1.000001 for each in layer["concentration"]), f"concentrations of {layer}")
        expect(all(0 < each < 0.25 for each in layer["variance"]), f"variances of {layer}")
        expect(all(0 < each <= 1.000001 for each in layer["newest_50"] + layer["newest_100"]),
               f"shares of the newest tokens of {layer}")  # each over the queries that see more tokens
        layers.append((layer["name"], [sum(layer[key]) / len(layer[key]) for key in NUMBERS]))
    return layers


def write(path, layers):
    path.write_text("".join(f"{name} {' '.join(map(str, numbers))}\n" for name, numbers in layers), encoding="utf-8")


def check_profile(host, options):
    layers = measure(host, options)
    path = options.work / "attention-profile.txt"
    kv = f"adaptive_budget:budget={BUDGET},policy=window,profile_file={path}"
    write(path, layers)
    _, report = run(host, options, kv, "")
    cache = llama_cpp.virtual_cache(report)
    named = cache["policy"], cache["profile_file"]
    expect(named == ("adaptive_budget", str(path)), f"the report names {named}")
    live = [count // cache["kv_heads"] for count in cache["resident_of_layers"]]
    print(f"{kv}: layers hold {min(live)} to {max(live)} tokens, {sum(live) / len(live):.1f} on average")
    expect(sum(live) <= BUDGET * len(live), f"more than the budget: {live}")
    expect(max(live) > BUDGET > min(live), f"the budget is not divided: {live}")
    write(path, layers[:-1])
    text, _ = run(host, options, kv, "", status=None)
    expect(f"none that is called {layers[-1][0]}" in text, f"a layer is missing, and nobody says so:\n{text[-2000:]}")
    path.unlink()
    text, _ = run(host, options, kv, "", status=1)
    expect("profile_file: cannot read" in text, f"the file is missing, and nobody says so:\n{text[-2000:]}")


def test():
    options = llama_cpp.parser(__doc__, "model", "text").parse_args()
    host = llama_cpp.Host(options)
    check_resident(host, options)
    check_profile(host, options)


llama_cpp.main(test)
