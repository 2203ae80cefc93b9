"""WINNOW_TRACE: every launch of a kernel and every graph is in the file, one after the other, in place and virtual."""

import json

import llama_cpp
from llama_cpp import expect

TOKENS = 6
CLOCKS_DIFFER = 1e6  # microseconds: what a driver's clock and the host's may be apart, at most


def traced(host, options, kv, path):
    out, err, report = host.run("llama-completion", *llama_cpp.completion(options.model, TOKENS, 256), "-p",
                                "The lamp is lit.", *llama_cpp.DEVICE, winnow=True,
                                environment=llama_cpp.kv_environment(kv) | {"WINNOW_TRACE": str(path)})
    return report, json.loads(path.read_text(encoding="utf-8"))


def check(host, options, kv, wanted):
    report, events = traced(host, options, kv, options.work / "trace.json")
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    of_tracks = {name: [event for event in events if event["ph"] == "X" and tracks[event["tid"]] == name]
                 for name in tracks.values()}
    graphs = of_tracks.pop("graphs")
    kernels = [event for name, its in of_tracks.items() if name.startswith("kernels") for event in its]
    expect(len(graphs) == report["graphs"], f"{len(graphs)} graphs, the report has {report['graphs']}")
    expect(len(kernels) == report["kernel_launches"] > 0,
           f"{len(kernels)} kernels, the report has {report['kernel_launches']}")
    names = {event["name"] for event in kernels}
    expect(wanted <= names, f"no {wanted - names} among {names}")
    for its in (graphs, *of_tracks.values()):
        begins = [event["ts"] for event in its]
        expect(begins == sorted(begins) and all(event["dur"] >= 0 for event in its), "out of order")
    begin, end = graphs[0]["ts"] - CLOCKS_DIFFER, graphs[-1]["ts"] + graphs[-1]["dur"] + CLOCKS_DIFFER
    outside = [event for event in kernels if not begin <= event["ts"] <= event["ts"] + event["dur"] <= end]
    expect(not outside, f"kernels that no graph can have launched: {outside[:3]}")
    attention = [event for event in kernels if event["name"].startswith("sdpa")]
    expect(all(event["args"]["bytes"] > 0 for event in attention), "an attention of no bytes")
    calls = report["attention_calls"]
    expect(len(attention) >= calls > 0, f"{len(attention)} attentions in {calls} calls")
    print(f"{kv or 'in place'}: {len(kernels)} launches of {', '.join(sorted(names))} in {len(graphs)} graphs")


def check_refusal(host, options):
    """A file that cannot be written ends the program, and a full disk is told of."""
    path = options.work / "no folder" / "trace.json"
    _, err, _ = host.run("llama-completion", *llama_cpp.completion(options.model, TOKENS, 256), "-p", "A",
                         *llama_cpp.DEVICE, winnow=True, status=1, environment={"WINNOW_TRACE": str(path)})
    expect(f"WINNOW_TRACE: cannot write {path}: No such file" in err,
           f"a missing folder, and nobody says so:\n{err[-2000:]}")
    _, err, _ = host.run("llama-completion", *llama_cpp.completion(options.model, TOKENS, 256), "-p", "A",
                         *llama_cpp.DEVICE, winnow=True, environment={"WINNOW_TRACE": "/dev/full"})
    expect("WINNOW_TRACE: not all could be written" in err, f"a full disk, and nobody says so:\n{err[-2000:]}")


def test():
    options = llama_cpp.parser(__doc__, "model").parse_args()
    host = llama_cpp.Host(options)
    check(host, options, "", {"kv_append"})
    check(host, options, "winnow:budget=64", set())
    check_refusal(host, options)


llama_cpp.main(test)
