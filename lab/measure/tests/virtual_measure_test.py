"""winnow-measure, by which `winnow eval` compares: the base has the perplexity that llama-perplexity prints; a virtual
cache with everything in f16 is the base in every mode, token by token, also of a model with sliding windows, whose
second cache is a smaller one; and a cache whose heads all read the keys, or the values, of the first one, or the rows
of each other, is seen to be wrong in every mode. What is decoded inside of batches is what comes of tokens that
llama.cpp hands over one by one, all of them or from a position on; and two runs are the same to the last digit. Its
answers are what llama-completion writes, also where a virtual cache decodes the question, and a second turn goes on
where the first ended.
"""

import math
import os
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "ggml"), str(ROOT / "lab" / "eval")]

import llama_cpp  # noqa: E402
import random_models  # noqa: E402
from llama_cpp import expect  # noqa: E402
from winnow_eval import Failure, configs, measure  # noqa: E402
from winnow_calibrate.host import Host  # noqa: E402

CONTEXTS = {"grouped": 256, "windows": 512}  # with windows, so long that a window's cache is smaller
COUNT, BATCH = 2, 64
CELLS, GENERATED = 1024, 24  # of a dialogue
SAME, OTHER = 1e-6, 1e-3  # KL divergences: of what is computed in another order, of what is wrong
TOLERANCE = 0.00005  # relative, of a perplexity
DENSE = configs.parse("none:k=f16,v=f16")
# Nats, of each token, since ggml multiplies matrices of one column in another order. Where rows are rounded when they
# are stored, what differs in its last bit may be rounded otherwise: so the full f16 cache differs from itself by 3e-4.
EXACT, ROUNDED = 1e-5, 5e-4
EVICTING = {configs.parse(text): alone for text, alone in (
    ("h2o:budget=1/4,k=f32,v=f32", EXACT), ("winnow:budget=1/4,k=f32,v=f32", EXACT),
    ("h2o:budget=1/4", ROUNDED), ("winnow:budget=1/4", ROUNDED))}
RECALLING = [configs.parse(text) for text in ("winnow:budget=1/4,recall=host,k=f32,v=f32",
                                              "winnow:budget=1/4,recall=host")]
DEFECTS = ("keys_of_the_first_head", "values_of_the_first_head", "rows_of_swapped_heads")


def run_all(options, environment, device):
    """(nll of the base, {mode: divergences}) over all contexts, token by token."""
    context = CONTEXTS[options.family]
    half = context // 2
    host = Host(options.llama_cpp, options.plugin, options.model, BATCH, BATCH, 1, device)
    host.environment |= environment
    nll, kld = [], {"cpu": [], "batch": [], "decode": []}
    with measure.Measure(host, options.model) as process:
        process.read(options.text, context, half)
        for index in range(COUNT):
            nll += process.run(configs.BASE, index, base=True).nll
            kld["cpu"] += process.run(configs.CONTROL, index).kld
            for mode, decode_from in (("batch", None), ("decode", half)):
                measured = process.run(DENSE, index, decode_from=decode_from)
                caches = llama_cpp.virtual_caches(measured.run.report)
                cells = [cache["cells"] for cache in caches]
                expect(max(cells) == context and (min(cells) < context) == (options.family == "windows"),
                       f"caches of {cells} cells")
                for cache in caches:
                    expect(cache["decoded"] == (half if decode_from else 0), f"{mode}: {cache['decoded']}")
                kld[mode] += measured.kld
    expect(len(nll) == COUNT * (half - 1), f"{len(nll)} tokens were scored")
    return nll, kld


def compare(options):
    """With the base, and with what llama-perplexity prints."""
    nll, kld = run_all(options, {}, "Portable Computing Language")
    command = ["-m", options.model, "-f", options.text, "-c", CONTEXTS[options.family], "-b", BATCH, "-ub", BATCH,
               "--chunks", COUNT, "-fa", "on", "-t", 1, "--no-warmup"]
    expected, _ = llama_cpp.perplexity(llama_cpp.Host(options), command)
    found = math.exp(statistics.fmean(nll))
    print(f"{options.family}: perplexity {found:.5f}, llama-perplexity {expected}; largest divergences "
          f"{ {mode: max(values) for mode, values in kld.items()} }")
    expect(abs(found - expected) <= TOLERANCE * expected, f"perplexity {found}, llama-perplexity has {expected}")
    for mode, values in kld.items():
        expect(0 <= statistics.fmean(values) and max(values) <= SAME,
               f"{mode}: divergence {max(values)} of a token, of the same cache")


def measured(options, config, batch, decode_from=None, first_alone=None, threads=1):
    """A configuration over the contexts: (nll, divergences), token by token."""
    host = Host(options.llama_cpp, options.plugin, options.model, batch, batch, threads, "Portable Computing Language")
    context, found = CONTEXTS[options.family], ([], [])
    with measure.Measure(host, options.model) as process:
        process.read(options.text, context, context // 2, first_alone)
        for index in range(COUNT):
            process.run(configs.BASE, index, base=True)
            one = process.run(config, index, decode_from=decode_from)
            for cache in llama_cpp.virtual_caches(one.run.report):
                if config in RECALLING:
                    expect(cache["picks"] > 0 and cache["evictions"] == 0, f"{config}: {cache}")
                else:
                    expect(cache["evictions"] > 0, f"{config}: no eviction, {cache}")
                decoded = 0 if decode_from is None else context - decode_from
                expect(cache["decoded"] == decoded, f"{config}: {cache['decoded']} decoded, expected {decoded}")
            found[0].extend(one.nll)
            found[1].extend(one.kld)
    return found


def decode(options):
    """Against tokens that llama.cpp hands over one by one, all of them and from the middle on."""
    half = CONTEXTS[options.family] // 2
    # Of rounded rows a last bit may decide which page is picked.
    for config, tolerance in [*EVICTING.items(), (RECALLING[0], EXACT)]:
        at_once, _ = measured(options, config, BATCH)
        for where, (alone, _), (decoded, _) in (
                ("from 0", measured(options, config, 1), measured(options, config, BATCH, decode_from=0)),
                (f"from {half}", measured(options, config, BATCH, first_alone=half),
                 measured(options, config, BATCH, decode_from=half))):
            expect(len(alone) == len(decoded) == COUNT * (half - 1), f"{len(alone)} and {len(decoded)} tokens scored")
            most, other = (max(abs(one - its) for one, its in zip(alone, found)) for found in (decoded, at_once))
            print(f"{config}, decoded {where}: at most {most:.2g} nats from tokens one by one; in batches {other:.2g}")
            expect(most <= tolerance, f"{config}, decoded {where}: {most} nats from tokens that came one by one")
            if where == "from 0":  # from the middle on, passes go on in the rhythm that batches have
                expect(other > 100 * tolerance, f"{config}: batches are decoded, {other} nats from tokens one by one")


def repeat(options):
    """With threads, which share the work differently each time."""
    for config in [*EVICTING, *RECALLING]:
        first, second = (measured(options, config, BATCH, decode_from=CONTEXTS[options.family] // 2, threads=2)
                         for _ in range(2))
        expect(first == second, f"{config}: two runs differ")


def dialogue(*turns, **more):
    """A question about a text, or more of them."""
    return {"turns": [{"text": text, "question": question, "prefix": ""} for text, question in turns], "cells": CELLS,
            "generate": GENERATED, "until": "", "chat": False, "decode": True, "find": []} | more


def texts(options):
    """One process takes a text in one length after another; a request that is refused leaves none."""
    host = Host(options.llama_cpp, options.plugin, options.model, BATCH, BATCH, 1, "Portable Computing Language")
    long, short = 2 * CONTEXTS[options.family], 32  # shorter than a batch

    def nll(process, context):
        process.read(options.text, context, context // 2)
        return process.run(configs.BASE, 1, base=True).nll

    with measure.Measure(host, options.model) as process:
        first, second, again = nll(process, long), nll(process, short), nll(process, long)
        expect(len(first) == long // 2 - 1 and len(second) == short // 2 - 1, f"{len(first)} and {len(second)} scored")
        expect(first == again, "a length in between changes a context")
        for words, text, sizes in ((f"cannot read {options.work}", options.work / "none.txt", (32, 16)),
                                   ("contexts of 1 tokens, expected 2 to", options.text, (1, 0)),
                                   ("scored from position 32, expected 0 to 31", options.text, (32, 32))):
            expect_failure(words, lambda: process.read(text, *sizes))
            expect_failure("there is no text", lambda: process.run(configs.BASE, 0, base=True))
        process.read(options.text, short, short // 2)
        expect_failure("no base of context 0", lambda: process.run(DENSE, 0))
        process.let_go()
        expect_failure("there is no text", lambda: process.run(DENSE, 0))


def expect_failure(words, what):
    try:
        what()
    except Failure as failure:
        expect(words in str(failure), f"a failure does not say \"{words}\": {failure}")
    else:
        raise llama_cpp.Failure(f"no failure that says \"{words}\"")


def expect_refused(process, words, **more):
    expect_failure(words, lambda: process.answer(configs.BASE, dialogue(("Some text.", " A question?"), **more)))


def converse(options):
    """Answers are those of llama-completion; the refused questions leave a process that goes on."""
    prose = options.text.read_text(encoding="utf-8")
    text, question, fact, between, last = prose[:600], prose[600:650], prose[100:120], prose[650:700], prose[700:720]
    host = Host(options.llama_cpp, options.plugin, options.model, BATCH, BATCH, 1, "Portable Computing Language")

    def complete(device, environment):
        """What llama-completion writes with the same arithmetic: near ties fall otherwise with another."""
        out, _, _ = llama_cpp.Host(options).run(
            "llama-completion", "-m", options.model, "-p", text + question, "-n", GENERATED, "--temp", 0, "-no-cnv",
            "--no-display-prompt", "-c", CELLS, "-b", BATCH, "-ub", BATCH, "-t", 1, "-fa", "on", "-dev", device,
            winnow=device == "Winnow", environment=environment)
        return out.strip()

    with measure.Measure(host, options.model) as process:
        asked = dialogue((text, question), find=[fact])
        for config in (configs.BASE, configs.CONTROL, DENSE):
            answered = process.answer(config, asked)
            environment = {"WINNOW_KV": config.kv, "WINNOW_DECODE_FROM": str(answered.question)} if config.kv else {}
            expected = complete("none" if config == configs.CONTROL else "Winnow", environment)
            llama_cpp.expect_same_text(answered.texts[0].strip(), expected, f"{config}")
            if config == configs.BASE:
                plain = expected
            if options.family == "grouped":  # the other model's text has near ties
                llama_cpp.expect_same_text(expected, plain, f"{config}")
            expect(process.count_tokens(text + question) == answered.prompt_tokens, "other tokens")
            expect(answered.evaluated == answered.prompt_tokens + GENERATED - 1, f"{answered.evaluated} tokens")
            (positions,) = answered.found
            expect(positions == list(range(positions[0], positions[-1] + 1)) and 2 <= len(positions) <= len(fact),
                   f"the fact is at {positions}")
            where = answered.question
            expect(positions[-1] < where < answered.prompt_tokens, f"the question is at {where}")
            for cache in llama_cpp.virtual_caches(answered.run.report) if config.kv else ():
                expect(cache["decoded"] == answered.evaluated - answered.question, f"{cache['decoded']} decoded")
        turns = dialogue((text, question), (between, last))
        first, second = process.answer(DENSE, turns).texts
        expect(first == process.answer(DENSE, asked).texts[0], "the first turn depends on the second")
        in_place = process.answer(configs.BASE, turns).texts
        if in_place[0] == first:
            expect(in_place[1] == second, "decoding changes a turn")
        else:
            expect(options.family == "windows", f"in place \"{in_place[0]}\", decoded \"{first}\"")
            print(f"{options.family}: a near tie in the first turn; the second is not compared with that in place")
        stopped = process.answer(configs.BASE, dialogue((text, question), until=first[3])).texts[0]
        least = first[:first.index(first[3]) + 1]  # a token may have a character more
        expect(stopped in (least, first[:len(least) + 1]), f"\"{stopped}\" of \"{first}\", until \"{first[3]}\"")
        expect_refused(process, f"answer of {GENERATED} do not fit in 8 cells", cells=8)
        expect_refused(process, "\"nowhere\" is not in the prompt", find=["nowhere"])
        expect_refused(process, "the model has no chat template", chat=True)
        expect_refused(process, "it has no turns", turns=[])
        expect_refused(process, "no dialogue", generate="many")
        expect(process.answer(configs.BASE, turns).texts == in_place, "a refusal changed what comes after it")
    print(f"{options.family}: \"{first}\", then \"{second}\"")


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--measure", required=True, help="winnow-measure")
    parser.add_argument("--broken", type=Path, required=True, help="libwinnow_broken.so")
    options = parser.parse_args()
    os.environ["WINNOW_EVAL_MEASURE"] = options.measure
    for options.family in CONTEXTS:
        options.model = random_models.make(options.family, options.work)
        compare(options)
        texts(options)
        converse(options)

    options.family = "grouped"
    options.model = random_models.make(options.family, options.work)
    decode(options)
    repeat(options)
    for defect in ("none", *DEFECTS):
        _, kld = run_all(options, {"WINNOW_BACKEND": str(options.broken), "WINNOW_DEFECT": defect}, None)
        means = {mode: statistics.fmean(values) for mode, values in kld.items()}
        print(f"{defect}: {means}")
        for mode in ("batch", "decode"):
            expect((means[mode] >= OTHER) == (defect in DEFECTS), f"{defect}, {mode}: divergence {means[mode]}")


llama_cpp.main(test)
