"""A GPU with memory of its own. PoCL's threaded device pretends to be one, by a layer of the ICD loader, so that a
process has two devices: virtual caches lie in that memory, and keys, values, queries and outputs are copied to it and
back; caches in place stay with the CPU, which reaches the host's memory.
"""

import json

import llama_cpp
from llama_cpp import expect

PROMPT = "The keeper climbed the stairs of the lighthouse, lit the lamp and"
CONTEXT = 256
TOKENS = 40
DISCRETE = "pthread"  # what the layer says it of, and no other of PoCL's devices
# What is handed over in a step: q, k, v, cells, mask and out; under recall also for picking pages. Nothing grows with
# the cache.
MOST_COPIES = {"none:k=f16,v=f16": 6, "winnow:budget=1/4": 6, "winnow:budget=1/4,recall=host": 9}
LEAST_COPIES = 4


class Discrete(llama_cpp.Host):
    """Where no device is named and the layer is in between."""

    def __init__(self, options):
        super().__init__(options)
        del self.drivers["WINNOW_DEVICE"]
        self.drivers["OPENCL_LAYERS"] = str(options.layer)


def generate(host, model, kv):
    return llama_cpp.complete(host, kv, model, TOKENS, CONTEXT, "-p", PROMPT)


def expect_device(name, is_discrete, what):
    expect(name.startswith(DISCRETE) == is_discrete, f"{what}: computed by {name}")


def stay_in_place(host, model, expected):
    text, report = generate(host, model, None)
    llama_cpp.expect_in_place(report)
    expect_device(report["device"], False, "in place")
    expect(report["host_copies"] == 0, f"in place: {report['host_copies']} copies")
    llama_cpp.expect_same_text(text, expected, "in place")


def lie_on_the_device(host, model, kv, expected):
    text, report = generate(host, model, kv)
    cache = llama_cpp.virtual_cache(report)
    expect_device(cache["device"], True, kv)
    expect_device(report["device"], False, f"in place beside {kv}")
    copies = report["host_copies"] / cache["steps"]
    print(f"{kv}: {cache['steps']} steps, {copies:.2f} copies each, on {cache['device']}: {json.dumps(text)}")
    expect(LEAST_COPIES <= copies <= MOST_COPIES[kv], f"{kv}: {copies:.2f} copies for a step")
    llama_cpp.expect_same_text(text, expected, kv)


def test():
    parser = llama_cpp.parser(__doc__, "model")
    parser.add_argument("--layer", required=True, help="the layer's library")
    options = parser.parse_args()
    usual, discrete = llama_cpp.Host(options), Discrete(options)
    expected, report = generate(usual, options.model, None)
    expect_device(report["device"], False, "without the layer")
    stay_in_place(discrete, options.model, expected)
    for kv in MOST_COPIES:
        text, report = generate(usual, options.model, kv)
        expect_device(llama_cpp.virtual_cache(report)["device"], False, f"{kv} without the layer")
        lie_on_the_device(discrete, options.model, kv, text)


llama_cpp.main(test)
