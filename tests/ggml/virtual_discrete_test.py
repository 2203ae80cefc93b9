"""A GPU with memory of its own. PoCL's threaded device pretends to be one, by a layer of the ICD loader, so that a
process has two devices: virtual caches lie in that memory, and keys, values, queries and outputs are copied to it and
back; caches in place stay with the CPU, which reaches the host's memory. Where there is no such CPU there is no cache
in place, unless WINNOW_DEVICE wants one.
"""

import json

import llama_cpp
import random_models
from llama_cpp import expect

PROMPT = "The keeper climbed the stairs of the lighthouse, lit the lamp and"
CONTEXT = 256
TOKENS = 40
FEWER = 20
SAME = 8  # characters of a text for whose attention ggml computes in part, which rounds in another way
UNLIMITED = "none:k=f16,v=f16"
# How often a step of one token sends something to the device, and fetches something: what a launch needs goes over in
# one copy, and its output comes back.
COPIES = {UNLIMITED: (1, 1), "winnow:budget=1/4": (2, 1), "winnow:budget=1/4,recall=host": (2, 1)}
# Of the model with windows, of whose layers every other has one.
TWO_CACHES = 512
CELLS = (TWO_CACHES, 256)  # of either cache
ALONE = {"WINNOW_LAYER_ALONE": "1"}  # no other device


def generate(host, model, kv, tokens=TOKENS, context=CONTEXT, environment=None, status=0):
    """(text, log, report)"""
    arguments = llama_cpp.completion(model, tokens, context, "-p", PROMPT, "-ub", 64)
    out, err, report = host.run("llama-completion", *arguments, *llama_cpp.DEVICE, winnow=True, status=status,
                                environment=llama_cpp.kv_environment(kv) | (environment or {}))
    return out.strip(), err, report


def expect_on_cpu(name, what):
    expect(not llama_cpp.is_discrete(name), f"{what}: computed by {name}")


def expect_calls(report, devices):
    """Exactly these devices launched kernels: is_discrete of their names."""
    launches = {llama_cpp.is_discrete(each["name"]): each["kernel_launches"] for each in report["devices"]}
    expect(sorted(launches) == sorted(devices) and min(launches.values()) > 0, f"the devices: {report['devices']}")
    for key in ("kernel_launches", "host_copies", "waits"):
        total = sum(each[key] for each in report["devices"])
        expect(total == report[key], f"{key}: {total} of devices, {report[key]} in all")
    for each in report["devices"]:
        expect(each["waits"] > 0, f"nobody waited for {each}")
        expect((each["host_copies"] > 0) == llama_cpp.is_discrete(each["name"]), f"copies: {each}")


def stay_in_place(host, options, expected):
    text, _, report = generate(host, options.model, None)
    llama_cpp.expect_in_place(report)
    llama_cpp.expect_device(options, report)
    expect_calls(report, [False])
    llama_cpp.expect_same_text(text, expected, "in place")


def hand_over(host, options, kv, tokens):
    """(text, [steps, waits, copies] as the report counts them, [waits, sent, fetched] as the layer does)"""
    counts = options.work / "counts.txt"
    text, _, report = generate(host, options.model, kv, tokens, environment={"WINNOW_LAYER_COUNTS": str(counts)})
    cache = llama_cpp.virtual_cache(report)
    llama_cpp.expect_device(options, report)
    expect_calls(report, [True])
    seen = [int(number) for number in counts.read_text().split()]
    return text, [cache["steps"], report["waits"], report["host_copies"]], seen


def lie_on_the_device(host, options, kv, expected):
    """Beginning and end are the same whether many tokens are generated or few."""
    _, fewer, fewer_seen = hand_over(host, options, kv, FEWER)
    text, more, more_seen = hand_over(host, options, kv, TOKENS)
    steps, waits, copies = (after - before for before, after in zip(fewer, more))
    seen_waits, sent, fetched = (after - before for before, after in zip(fewer_seen, more_seen))
    print(f"{kv}: {steps} steps, {waits} waits and {copies} copies, of which {sent} sent and {fetched} fetched: "
          f"{json.dumps(text)}")
    expect(steps > 0 and waits == steps, f"{kv}: {waits} waits for {steps} steps")
    expect(seen_waits == waits, f"{kv}: the report has {waits} waits, the layer saw {seen_waits}")
    expect((sent, fetched) == tuple(each * steps for each in COPIES[kv]), f"{kv}: {sent} sent, {fetched} fetched")
    expect(copies == sent + fetched, f"{kv}: the report has {copies} copies, the layer saw {sent} and {fetched}")
    llama_cpp.expect_same_text(text, expected, kv)


def use_both(host, options, usual):
    """Of two caches the one that the rule fits is the GPU's, and the other one the CPU's."""
    model = random_models.make("windows", options.work)
    expected, _, report = generate(usual, model, None, context=TWO_CACHES)
    llama_cpp.expect_in_place(report)
    for cells in CELLS:
        kv = f"[cells={cells}]{UNLIMITED}"
        text, _, report = generate(host, model, kv, context=TWO_CACHES)
        print(f"{kv}: {report['devices']}: {json.dumps(text)}")
        llama_cpp.expect_same_text(text, expected, kv)
        llama_cpp.expect_device(options, report)
        expect(len(report["caches"]) == len(report["in_place"]) == 1, f"{kv}: not one cache of each kind: {report}")
        (cache,) = report["caches"]
        expect(cache["cells"] == cells, f"{kv}: another cache is virtual: {cache}")
        expect_calls(report, [False, True])
        calls = report["attention_calls"]
        expect(report["sdpa_calls"] == cache["steps"] == calls / 2,
               f"{kv}: of {calls} attentions {report['sdpa_calls']} in place, {cache['steps']} steps: {report}")
        # ggml computes the attention of the other one.
        text, _, report = generate(host, model, kv, context=TWO_CACHES, environment=ALONE)
        expect_calls(report, [True])
        expect(report["attention_calls"] == report["caches"][0]["steps"],
               f"{kv}: a GPU alone copies a cache that stays in place: {report}")
        expect(text[:SAME] == expected[:SAME] and len(text) >= TOKENS, f"{kv}, a GPU alone: {text}, before {expected}")


def refuse(host, options, expected):
    """A GPU alone copies no cache in place unless it is named, and has virtual ones."""
    out, err, report = generate(host, options.model, None, environment=ALONE, status=1)
    line = next((line for line in err.splitlines() if "no context" in line), None)
    expect(line and all(part in line for part in (llama_cpp.DISCRETE, "WINNOW_KV", "WINNOW_DEVICE", "PoCL")),
           f"in place on a GPU alone, not refused: {line}, {report}\n{out}\n{err[-3000:]}")
    print(line)
    text, err, report = generate(host, options.model, None, environment=ALONE | {"WINNOW_DEVICE": "gpu"})
    llama_cpp.expect_in_place(report)
    expect_calls(report, [True])
    expect("the whole cache is copied at every call" in err, f"nobody warns of copies:\n{err[-3000:]}")
    llama_cpp.expect_same_text(text, expected, "in place on a GPU that is named")
    text, err, report = generate(host, options.model, UNLIMITED, environment=ALONE)
    llama_cpp.virtual_cache(report)
    expect_calls(report, [True])
    llama_cpp.expect_same_text(text, expected, "virtual on a GPU alone")


def test():
    options = llama_cpp.parser(__doc__, "model").parse_args()
    expect(options.layer, "--layer is missing")
    usual, discrete = llama_cpp.Host(options, takes_layer=False), llama_cpp.Host(options)
    expected, _, report = generate(usual, options.model, None)
    expect_on_cpu(report["device"], "without the layer")
    stay_in_place(discrete, options, expected)
    refuse(discrete, options, expected)
    use_both(discrete, options, usual)
    for kv in COPIES:
        text, _, report = generate(usual, options.model, kv)
        expect_on_cpu(llama_cpp.virtual_cache(report)["device"], f"{kv} without the layer")
        lie_on_the_device(discrete, options, kv, text)


llama_cpp.main(test)
