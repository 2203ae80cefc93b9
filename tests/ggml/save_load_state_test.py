"""llama.cpp's own test of states, test-save-load-state, over virtual caches: a state that is loaded, into the same
sequence or another, gives the logits of the run that was not interrupted, and is the same bytes when it is saved again.

Its last part turns flash attention off, which virtual caches refuse; the program is built with it on.
"""

from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

CONTEXT = 256
PARTS = 9
# Within a budget the residual window is given: without one, a sequence that is put back beside
# others has its first tokens packed.
LIMITED = ("winnow:budget=80,residual=32", "h2o:budget=80,residual=32")
QUICK = ("winnow", LIMITED[0])
ALL = (*QUICK, "none", "none:k=q8_0,v=q8_0", "winnow:k=turbo4,v=turbo3", LIMITED[1])


def check(host, options, model, kv, sequences):
    """sequences: 1 shares a stream with those that come, 2 have streams of their own."""
    what = f"{model.name}, {kv}, {sequences}"
    out, err, report = host.run(options.program, "-m", model, "-c", CONTEXT * sequences, "-t", 1, "-fa", "on", "-dev",
                                "Winnow", "-np", sequences, winnow=True, environment={"WINNOW_KV": kv})
    text = out + err
    begun = text.count("=== Test ")
    print(f"{what}: {begun} parts, {text.count('PASS')} said that they passed")
    expect(begun == PARTS, f"{what}: not all parts ran\n{text[-3000:]}")
    expect(report is not None, f"{what}: the plugin was not called: it wrote no report")
    caches = report["caches"]
    expect(caches and report["attention_calls"] > 0 and report["sdpa_calls"] == 0, f"{what}: in place: {report}")
    restored = sum(cache["restored"] for cache in caches)
    expect(restored > 3 * 99, f"{what}: only {restored} tokens were restored")
    expect(kv not in LIMITED or any(cache["evictions"] > 0 for cache in caches), f"{what}: nothing was evicted")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--program", type=Path, required=True, help="llama.cpp's test")
    parser.add_argument("--model", type=Path, help="a real model, beside the random one")
    parser.add_argument("--all", action="store_true", help="all configurations")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    small = random_models.make("plain", options.work)
    for kv in ALL if options.all else QUICK:
        for sequences in (1, 2) if options.all else (1,):
            check(host, options, small, kv, sequences)
        if options.model:
            check(host, options, options.model, kv, 1)


llama_cpp.main(test)
