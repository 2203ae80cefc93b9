"""Programs of llama.cpp's that decode several sequences in one batch: llama-parallel (clients that share a system
prompt or each have their own, in one stream or several), llama-lookahead (drafts of its own in sequences that are
copied and removed) and llama-batched-bench, which writes no text but numbers of tokens.

In place and with `none:k=f16,v=f16` they write the same; so they do without Winnow, up to tokens of the random model
that are as good as equally likely. There flash attention is off: it adds up values in f16, and less exactly in older
versions. With `winnow` there is a text.
"""

import json
import os
import re

import llama_cpp
import random_models
from llama_cpp import expect

EXACT = "none:k=f16,v=f16"
KINDS = (None, EXACT, "winnow")
SAME = .85  # of the text, before it parts from that without Winnow
CLIENTS = 4
SEQUENCES = 8
TOKENS = 24
BATCHES = (1, 2, 4)
BENCH_PROMPT = 64
BENCH_TOKENS = 16


def parallel(*arguments):
    def run(host, options, winnow, kv):
        out, err, report = start(host, "llama-parallel", winnow, kv, "-m", options.model, "-np", CLIENTS, "-ns",
                                 SEQUENCES, "-n", TOKENS, "-c", 8192, "-s", 1, "--temp", 0, *arguments)
        texts = re.findall(r"Client +\d+, seq +(\d+)/.*?Response: (.*?)\x1b\[0m", out + err, re.S)
        expect(len(texts) == SEQUENCES, f"{len(texts)} of {SEQUENCES} answers:\n{(out + err)[-3000:]}")
        return [text for _, text in sorted(texts, key=lambda answer: int(answer[0]))], report

    return run


def lookahead(host, options, winnow, kv):
    out, _, report = start(host, "llama-lookahead", winnow, kv, "-m", options.model, "-f", options.prompt, "-n", 48,
                           "-c", 4096, "--temp", 0)
    return [out], report


def batched_bench(host, options, winnow, kv):
    out, _, report = start(host, "llama-batched-bench", winnow, kv, "-m", options.model, "-c", 2048, "-npp",
                           BENCH_PROMPT, "-ntg", BENCH_TOKENS, "-npl", ",".join(map(str, BATCHES)), "--output-format",
                           "jsonl")
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    tokens = [row["n_kv"] for row in rows]
    expected = [sequences * (BENCH_PROMPT + BENCH_TOKENS) for sequences in BATCHES]
    expect(tokens == expected, f"{tokens} tokens, expected {expected} for {BATCHES} sequences: {rows}")
    expect(all(row["speed_tg"] > 0 for row in rows), f"nothing was timed: {rows}")
    least = random_models.LAYERS * sum(1 + BENCH_TOKENS for _ in BATCHES)  # a prompt's and each token's
    expect(not winnow or report["attention_calls"] >= least, f"fewer than {least} attention calls: {report}")
    return [f"{number} tokens" for number in tokens], report


USES = {
    "llama-parallel": parallel(),
    "llama-parallel, one stream": parallel("-kvu"),
    "llama-parallel, shared prompt": parallel("-kvu", "-pps"),
    "llama-lookahead": lookahead,
    "llama-batched-bench": batched_bench,
}


def start(host, program, winnow, kv, *arguments):
    more = ("-fa", "on", *llama_cpp.DEVICE) if winnow else ("-fa", "off")
    return host.run(program, *arguments, "-t", 1, *more, winnow=winnow, environment=llama_cpp.kv_environment(kv))


def same_share(found, expected):
    """The share of the characters that are the same from the beginning of each text on."""
    same = sum(len(os.path.commonprefix(pair)) for pair in zip(found, expected, strict=True))
    return same / sum(map(len, expected))


def check(host, options, name, use):
    expected = None
    for kv in KINDS:
        what = f"{name}, {kv or 'in place'}"
        texts, report = use(host, options, True, kv)
        (llama_cpp.virtual_caches if kv else llama_cpp.expect_in_place)(report)
        print(f"{what}: {report['attention_calls']} attention calls: {texts}")
        expect(report["attention_calls"] > 0, f"{what}: no attention in Winnow: {report}")
        expected = expected or texts
        expect(texts == expected or kv == "winnow",
               f"{what}: the texts differ\nin place: {expected}\nfound:    {texts}")
        expect(all(map(len, texts)), f"{what}: a text is empty: {texts}")
    texts, _ = use(host, options, False, None)
    share = same_share(expected, texts)
    print(f"{name}, without Winnow: {share:.0%} of it in place as well: {texts}")
    expect(share >= SAME, f"{name}: without Winnow the texts differ\nfound:    {texts}\nin place: {expected}")


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--use", choices=USES, nargs="*", default=list(USES), help="by default all")
    options = parser.parse_args()
    options.prompt = llama_cpp.prompt_file(options, options.text.read_text(encoding="utf-8")[:200])
    options.model = random_models.make("plain", options.work)
    host = llama_cpp.Host(options)
    for name in options.use:
        check(host, options, name, USES[name])


llama_cpp.main(test)
