"""Another release of llama.cpp than that of the other tests generates the text of ggml's CPU backend in place and from
a virtual cache without a budget, all attention in Winnow, and keeps to a budget.

The program is llama-simple, the smallest that there is, which takes the best token each time and all devices; or
llama-completion, since there are releases whose llama-simple does not look for the plugin.
"""

import json

import llama_cpp
from llama_cpp import expect

PROMPT = "The keeper climbed the stairs of the lighthouse, lit the lamp and"
TOKENS = 80
CELLS = 256  # llama-simple takes as many as there are tokens
SHARE = 4
FEWEST_WORDS = 20


def generate(host, options, winnow, kv=None):
    """(the text after the prompt, the plugin's report)."""
    command = ["llama-simple", "-m", options.model, "-n", TOKENS, PROMPT]
    if (options.llama_cpp / "llama-completion").exists():
        command = ["llama-completion", "-m", options.model, "-n", TOKENS, "-p", PROMPT, "-c", CELLS, "--temp", 0,
                   "-no-cnv", "--no-warmup", *(llama_cpp.DEVICE if winnow else ())]
    out, _, report = host.run(*command, winnow=winnow, environment=llama_cpp.kv_environment(kv))
    _, found, text = out.partition(PROMPT)
    expect(found, f"the prompt is not in what was printed: {out}")
    expect(len(text.split()) >= FEWEST_WORDS, f"this is not a text: {text}")
    return text, report


def test():
    parser = llama_cpp.parser(__doc__, "model")
    parser.add_argument("--ggml", required=True, help="the version that the release's ggml has to be")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    expected, report = generate(host, options, winnow=False)
    expect(report is None, "the plugin was called without being asked for")
    print(f"ggml's CPU backend: {json.dumps(expected)}")

    text, report = generate(host, options, winnow=True)
    layers, attention, appends = llama_cpp.calls_per_layer(report)
    expect(report["ggml_version"] == options.ggml, f"the ggml is {report['ggml_version']}, not {options.ggml}")
    llama_cpp.expect_in_place(report)
    # The prompt is one batch, and every token but the last is decoded.
    expect(attention == appends == TOKENS, f"{attention} attention and {appends} append calls for {TOKENS} tokens")
    expect(text == expected, f"the texts differ\nCPU:    {expected}\nWinnow: {text}")
    print(f"ggml {options.ggml} in place: {layers} layers, {attention} attention calls each, the same text")

    text, report = generate(host, options, winnow=True, kv="none:k=f16,v=f16")
    full = llama_cpp.virtual_cache(report)
    llama_cpp.expect_all_resident(full)
    llama_cpp.expect_same_text(text, expected)
    print(f"virtual: {full['tokens']} tokens in {full['bytes']} bytes, the same text")

    kv = f"winnow:budget=1/{SHARE}"
    text, report = generate(host, options, winnow=True, kv=kv)
    cache = llama_cpp.virtual_cache(report)
    llama_cpp.expect_budget(cache, cache["cells"] // SHARE)
    expect(cache["bytes"] < full["bytes"], f"{cache['bytes']} bytes, without a budget {full['bytes']}")
    print(f"{kv}: {cache['evictions']} evictions, {cache['bytes']} bytes: {json.dumps(text)}")


llama_cpp.main(test)
