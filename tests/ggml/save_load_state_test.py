"""llama.cpp's own test of states, test-save-load-state, over virtual caches: a state that is loaded, into the same
sequence or another, gives the logits of the run that was not interrupted, and is the same bytes when it is saved again.

Virtual caches refuse two things that its last parts ask for, and the program is built without them: flash attention is
always on, and under WINNOW_KV quantized cache types are F16. The source says which parts there are.
"""

import re
from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

CONTEXT = 256
PROMPT = 700  # characters
# What models whose layers see no more than a window or a chunk are given. RING: a prompt so long that windows use their
# cells again and the cells of a state are no single range. ROOM: one that is not. EDGE: tokens of two chunks.
RING, ROOM, EDGE = "ring", "room", "edge"
ARGUMENTS = {RING: ("-c", 1024, "-b", 1000, "-ub", 64), ROOM: ("-c", 2048, "-b", 1000, "-ub", 512),
             EDGE: ("-c", 9216, "-b", 8300, "-ub", 512)}
FAMILIES = {"windows": (RING, ROOM), "sinks": (RING, ROOM), "chunked": (ROOM, EDGE)}
WINDOWS_KV = (None, "none:k=f16,v=f16", "winnow")  # None: in place
# Within a budget the residual window is given: without one, a sequence that is put back beside
# others has its first tokens packed.
LIMITED = ("winnow:budget=80,residual=32", "h2o:budget=80,residual=32")
QUICK = ("winnow", LIMITED[0])
ALL = (*QUICK, "none", "none:k=q8_0,v=q8_0", "winnow:k=turbo4,v=turbo3", LIMITED[1])


def run(host, options, what, model, kv, *arguments):
    """The report of a run whose parts all passed."""
    out, err, report = host.run(options.program, "-m", model, "-t", 1, "-fa", "on", "-dev", "Winnow", *arguments,
                                winnow=True, environment=llama_cpp.kv_environment(kv))
    text = out + err
    begun = [int(number) for number in re.findall("=== Test ([0-9]+)", text)]
    print(f"{what}: {len(begun)} parts, {text.count('PASS')} said that they passed")
    expect(begun == options.parts, f"{what}: parts {begun} ran, expected {options.parts}\n{text[-3000:]}")
    expect(report is not None, f"{what}: the plugin was not called: it wrote no report")
    return report


def arguments_of(options, name):
    # Without a prompt the program makes one of as many random tokens as a batch may have.
    prompt = () if name == EDGE else ("-p", options.text.read_text(encoding="utf-8")[:PROMPT])
    return *ARGUMENTS[name], *prompt


def passes_without_winnow(host, options, model, name):
    """Older llama.cpp abort where the cells of a window's state are no single range, or read it wrongly."""
    with host.start(options.program, "-m", model, "-t", 1, "-fa", "on", *arguments_of(options, name),
                    winnow=False) as process:
        return process.wait() == 0


def check_windows(host, options, model, kv, name):
    what = f"{model.name}, {kv}, {name}"
    report = run(host, options, what, model, kv, *arguments_of(options, name))
    if kv:
        expect(len(report["caches"]) > 2 and report["sdpa_calls"] == 0, f"{what}: in place: {report}")
    else:
        llama_cpp.expect_in_place(report, what)


def check(host, options, model, kv, sequences):
    """sequences: 1 shares a stream with those that come, 2 have streams of their own."""
    what = f"{model.name}, {kv}, {sequences}"
    report = run(host, options, what, model, kv, "-c", CONTEXT * sequences, "-np", sequences)
    caches = report["caches"]
    expect(caches and report["attention_calls"] > 0 and report["sdpa_calls"] == 0, f"{what}: in place: {report}")
    restored = sum(cache["restored"] for cache in caches)
    expect(restored > 3 * 99, f"{what}: only {restored} tokens were restored")
    expect(kv not in LIMITED or any(cache["evictions"] > 0 for cache in caches), f"{what}: nothing was evicted")


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--program", type=Path, required=True, help="llama.cpp's test")
    parser.add_argument("--source", type=Path, required=True, help="its source")
    parser.add_argument("--model", type=Path, help="a real model, beside the random one")
    parser.add_argument("--all", action="store_true", help="all configurations, and prompts of thousands of tokens")
    options = parser.parse_args()
    numbers = map(int, re.findall("Test ([0-9]+)", options.source.read_text(encoding="utf-8")))
    options.parts = list(range(1, max(numbers) + 1))
    host = llama_cpp.Host(options)
    for family, names in FAMILIES.items():
        model = random_models.make(family, options.work)
        for name in names:
            if name == EDGE and not options.all:
                print(f"{model.name}: not {EDGE}, which takes some seconds for each configuration and is part of --all")
                continue
            if not passes_without_winnow(host, options, model, name):
                llama_cpp.not_tested(f"{name} of {family}", "llama.cpp's test fails without Winnow, too")
                continue
            for kv in WINDOWS_KV:
                check_windows(host, options, model, kv, name)
    small = random_models.make("plain", options.work)
    for kv in ALL if options.all else QUICK:
        for sequences in (1, 2) if options.all else (1,):
            check(host, options, small, kv, sequences)
        if options.model:
            check(host, options, options.model, kv, 1)


llama_cpp.main(test)
