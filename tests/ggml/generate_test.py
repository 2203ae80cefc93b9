"""llama.cpp generates the same text on ggml's CPU backend and on Winnow, for each type of cache; with quantized caches
a text, and all attention in Winnow. llama-bench measures it.
"""

import json
import os

import llama_cpp
from llama_cpp import expect

PROMPT = "The keeper climbed the stairs of the lighthouse, lit the lamp and"
TOKENS = 32
# Types of keys and values. llama.cpp hands f32 caches to attention as an f16 copy; the appends stay in f32.
CACHES = (("f16", "f16"), ("bf16", "bf16"), ("f32", "f32"), ("f16", "bf16"))
# Here ggml's CPU backend rounds the queries to 8 bits too, so the texts part: after how many words at the earliest.
# With 4 bits it may be at once, so that there is nothing to compare; how good they are is the perplexity's to say.
PACKED_CACHES = {("q8_0", "q8_0"): 2}
UNCOMPARED_CACHES = (("q4_0", "q4_0"), ("q8_0", "q4_0"))
FEWEST_WORDS = 10


def generate(host, options, types, winnow):
    arguments = ["-m", options.model, "-p", PROMPT, "-n", TOKENS, "--temp", 0, "--seed", 1, "-no-cnv",
                 "--no-display-prompt", "-c", 256, "-t", 2, "-fa", "on", "--no-warmup", "-ctk", types[0],
                 "-ctv", types[1]]
    if winnow:
        arguments += llama_cpp.DEVICE
    out, _, report = host.run("llama-completion", *arguments, winnow=winnow)
    return out.strip(), report


def compare_text(host, options, types):
    text, report = generate(host, options, types, winnow=True)
    layers, attention, appends = llama_cpp.calls_per_layer(report)
    stored = {name[:len("cache_k")]: counts["type"] for name, counts in report["tensors"].items()}
    expect(stored == {"cache_k": types[0], "cache_v": types[1]}, f"the caches are {stored}, wanted are {types}")
    print(f"cache {types[0]}/{types[1]}: {layers} layers, {attention} attention and {appends} append calls each: "
          f"{json.dumps(text)}")
    # The prompt is one batch, and every token but the last is decoded.
    expect(attention == TOKENS and appends == TOKENS, f"expected {TOKENS} calls of each kind per layer")
    expect(len(text.split()) >= FEWEST_WORDS, f"this is not a text: {text}")
    if types in UNCOMPARED_CACHES:
        print("not compared with the CPU backend's text")
        return
    expected, _ = generate(host, options, types, winnow=False)
    if types in PACKED_CACHES:
        same = os.path.commonprefix([expected.split(), text.split()])
        print(f"the first {len(same)} words are the CPU backend's, whose text is {json.dumps(expected)}")
        expect(len(same) >= PACKED_CACHES[types], f"the texts differ\nCPU:    {expected}\nWinnow: {text}")
    else:
        expect(text == expected, f"the texts differ\nCPU:    {expected}\nWinnow: {text}")


def compare_bench(host, options):
    out, _, report = host.run("llama-bench", "-m", options.model, "-p", 64, "-n", 16, "-r", 1, "-t", 2, "-fa", 1,
                              "-o", "json", winnow=True)  # which takes all devices
    tests = json.loads(out)
    layers, attention, _ = llama_cpp.calls_per_layer(report)
    expect(len(tests) == 2, f"llama-bench made {len(tests)} measurements")
    # Each of the two warms up once; the prompt is one batch, a generated token one step.
    print(f"llama-bench: {layers} layers, {attention} attention calls each")
    expect(attention >= 1 + 16, f"{attention} attention calls per layer for a prompt and 16 tokens")


def test():
    options = llama_cpp.parser(__doc__, "model").parse_args()
    host = llama_cpp.Host(options)
    for types in (*CACHES, *PACKED_CACHES, *UNCOMPARED_CACHES):
        compare_text(host, options, types)
    compare_bench(host, options)


llama_cpp.main(test)
