"""The needle test: whether a fact planted in a long text is still found through a configuration of the cache.

Only questions that the full cache answers count: what a small model cannot do says nothing about its cache. Each
answer is kept by itself, so that a further configuration asks only for its own.
"""

import contextlib
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from winnow_eval import Failure, haystack, resident
from winnow_eval.configs import Config
from winnow_eval.host import calls_per_layer

DEPTHS = 5
LEAST_CONTEXT = 128
CANDIDATES = 4  # questions that are tried for each one wanted, before a cell is left with fewer
GENERATED = 12  # tokens: the answer and what shows that it has ended
ROOM = 64  # tokens that the context has beyond the text
CALIBRATION = 4000  # characters
START_UNITS = 200  # starting a process and generating take about as long as so many tokens of a prompt


def plan(contexts, trials):
    """(depths, trials of each cell): depths times contexts times trials of a cell are at least `trials`."""
    for context in contexts:
        if context < LEAST_CONTEXT:
            raise Failure(f"needle contexts: {context} tokens, expected at least {LEAST_CONTEXT}")
    if trials < 1:
        raise Failure(f"needle trials: {trials}, expected at least 1")
    count = min(DEPTHS, max(1, trials // len(contexts)))
    depths = [number / (count - 1) for number in range(count)] if count > 1 else [0.5]
    return depths, -(-trials // (len(contexts) * count))


def _units(context, trials):
    return trials * (context + START_UNITS)


def _identity(host, config, trial):
    watched = {"resident": True, "decoded": "from the question on"} if config.kv else {}
    return host.identity(config) | {"trial": trial.id, "prompt": trial.prompt, "generated": GENERATED} | watched


def _kept(host, store, config, trial):
    return store.peek("needle", _identity(host, config, trial))


def _candidates(context, depth, number, length):
    """The trials of a cell, of which so many are wanted, in the order in which they are tried."""
    return (haystack.trial(context, depth, candidate, length) for candidate in range(CANDIDATES * number))


def _foreseen(host, store, base, context, depth, number, length):
    """(trials of a cell that will count, how many are still to be asked) if the full cache knows all that it was not
    asked yet."""
    counted, unknown = [], 0
    for trial in _candidates(context, depth, number, length):
        kept = _kept(host, store, base, trial)
        unknown += kept is None
        if kept is None or kept["correct"]:
            counted.append(trial)
        if len(counted) == number:
            break
    return counted, unknown


def _full_cache_units(host, store, base, context, depths, number, length):
    return _units(context, sum(_foreseen(host, store, base, context, depth, number, length)[1] for depth in depths))


def _answers_units(host, store, config, trials):
    return sum(_units(trial.context, 1) for trial in trials if _kept(host, store, config, trial) is None)


def units(host, store, configs, base, contexts, trials):
    """About how much work is left of run(), in tokens of a prompt."""
    depths, number = plan(contexts, trials)
    kept = store.peek("tokens", _calibration(host))
    length = kept["characters"] / kept["tokens"] if kept else 1.0  # without it, no answer was kept either
    counted = [trial for context in contexts for depth in depths
               for trial in _foreseen(host, store, base, context, depth, number, length)[0]]
    others = [config for config in configs if config.settings() != base.settings()]  # the base is asked once
    return (sum(_full_cache_units(host, store, base, context, depths, number, length) for context in contexts)
            + sum(_answers_units(host, store, config, counted) for config in others))


def complete(host, config, prompt, size, generated, *arguments):
    """A greedy continuation of a text by llama-completion."""
    with tempfile.TemporaryDirectory(prefix="winnow-needle-") as folder:
        path = Path(folder) / "prompt.txt"
        path.write_text(prompt, encoding="utf-8")
        return host.run_program("llama-completion", [
            "-f", path, "-n", generated, "-c", size, "--temp", 0, "--seed", 1, "-no-cnv", "--no-display-prompt",
            "--no-warmup", "--perf", *arguments], config)


def _calibration(host):
    return {"model": host.model_sha256, "host": host.version, "characters": CALIBRATION}


def _count_tokens(host, text, size):
    """How many tokens a text has for this model, which fit into `size`; asked without evaluating anything."""
    run = complete(host, Config("cpu", "cpu"), text, size, 0, "--verbose-prompt")
    match = re.search(r"number of tokens in prompt = (\d+)", run.stdout + run.stderr)
    if match is None:
        raise Failure("llama-completion did not say how many tokens a text has; it printed:\n" + run.stderr[-1000:])
    return int(match[1])


def characters_per_token(host, store):
    """How long a token of the filler is for this model."""
    identity = _calibration(host)
    kept = store.get("tokens", identity)
    if kept is None:
        text = " ".join(haystack.filler(haystack.generator("calibration"), CALIBRATION))
        kept = {"characters": len(text), "tokens": _count_tokens(host, text, CALIBRATION + ROOM)}
        store.put("tokens", identity, kept)
    return kept["characters"] / kept["tokens"]


def decoded_from(host, store, config, prompt, question, size):
    """The configuration with its cache decoding from the question at the end of the prompt on, and that position.

    A question is what a user waits for: a policy that reads it in one piece with the text could choose by it what to
    keep.
    """
    before = prompt[:len(prompt) - len(question)].rstrip()
    identity = {"model": host.model_sha256, "host": host.version, "text": before}
    kept = store.peek("question", identity)
    if kept is None:
        kept = {"tokens": _count_tokens(host, before, size)}
        store.put("question", identity, kept)
    position = kept["tokens"]
    return replace(config, environment=(*config.environment, ("WINNOW_DECODE_FROM", str(position)))), position


def expect_decoded(config, run, expected):
    """Fails unless each cache took so many tokens one at a time: those of questions and those that were generated."""
    for cache in run.report["caches"]:
        if cache["decoded"] != expected:
            raise Failure(f"{config}: the cache of {cache['name']} took {cache['decoded']} tokens one at a time, "
                          f"expected {expected}")


def first_number(text):
    match = re.search(r"\d+", text)
    return match[0] if match else None


def single_steps(run):
    """How many tokens llama.cpp evaluated one at a time."""
    found = re.search(r" eval time = +[\d.]+ ms / +(\d+) runs", run.stderr)
    if found is None:
        raise Failure(f"llama-completion gave no times; it printed:\n{run.stderr[-1000:]}")
    return int(found[1])


def evaluations(host, run):
    """(tokens of the prompt, micro-batches that llama.cpp evaluated in all), from its log."""
    prompt = re.search(r"prompt eval time = +[\d.]+ ms / +(\d+) tokens", run.stderr)
    if prompt is None:
        raise Failure(f"llama-completion gave no times; it printed:\n{run.stderr[-1000:]}")
    tokens = int(prompt[1])
    whole, rest = divmod(tokens, host.batch)
    batches = whole * -(-host.batch // host.ubatch) + -(-rest // host.ubatch)
    return tokens, batches + single_steps(run)


def ask(host, store, config, trial):
    """What a configuration answers: {"text", "correct", "tokens"}, and of a policy what it still "resident"."""
    identity = _identity(host, config, trial)
    kept = store.get("needle", identity)
    if kept is None:
        size, watched, more = trial.context + ROOM, config, ()
        if config.kv:
            watched, position = decoded_from(host, store, resident.watched(config), trial.prompt, trial.question, size)
            more = resident.ARGUMENTS
        run = complete(host, watched, trial.prompt, size, GENERATED, *more)
        tokens, expected = evaluations(host, run)
        if config.kv:
            expect_decoded(config, run, tokens - position + single_steps(run))
        calls = calls_per_layer(run, config)
        if config.backend == "winnow" and calls != expected:
            raise Failure(f"{config}: Winnow attended {calls} times in each layer, expected {expected}")
        text = run.stdout.strip()
        kept = {"text": text, "correct": first_number(text) == trial.answer, "tokens": tokens}
        if config.kv:
            kept["resident"] = resident.counts(run.report, resident.tokens_of(trial.fact, run.stdout + run.stderr))
        store.put("needle", identity, kept)
    return kept


def _cell(host, store, base, context, depth, number, length):
    """[(trial, the full cache's answer)] until so many are right, or the candidates are used up."""
    asked = []
    for trial in _candidates(context, depth, number, length):
        asked.append((trial, ask(host, store, base, trial)))
        if sum(answer["correct"] for _, answer in asked) == number:
            break
    return asked


def _step(progress, label, work):
    """A step of the work, or nothing to be seen where all is kept."""
    return progress.step(label, work) if work else contextlib.nullcontext(lambda share: None)


def _full_cache(host, store, base, context, depths, number, length, progress):
    """[(trial, the full cache's answer)] of one context length."""
    asked, short = [], []
    work = _full_cache_units(host, store, base, context, depths, number, length)
    with _step(progress, f"needle, full cache, context {context}", work) as advance:
        for done, depth in enumerate(depths, start=1):
            cell = _cell(host, store, base, context, depth, number, length)
            right = sum(answer["correct"] for _, answer in cell)
            if right < number:
                short.append(f"needle: at depth {100 * depth:.0f}% of {context} tokens the full cache answers "
                             f"{right} of {len(cell)} questions; {number} were wanted")
            asked += cell
            advance(done / len(depths))
    for line in short:
        progress.say(line)
    return asked


def _answers(host, store, config, trials, progress):
    """{id: {"text", "correct"}} of one configuration, of a policy with "resident"."""
    answers = {}
    with _step(progress, f"needle, {config}", _answers_units(host, store, config, trials)) as advance:
        for done, trial in enumerate(trials, start=1):
            answer = ask(host, store, config, trial)
            answers[trial.id] = {key: answer[key] for key in ("text", "correct", "resident") if key in answer}
            advance(done / len(trials))
    return answers


def run(host, store, configs, base, contexts, trials, progress):
    """Asks all configurations what the full cache (`base`) answers; gives the "needle" of a results.json."""
    depths, number = plan(contexts, trials)
    length = characters_per_token(host, store)
    asked = [pair for context in contexts
             for pair in _full_cache(host, store, base, context, depths, number, length, progress)]
    counted = [trial for trial, answer in asked if answer["correct"]]
    results = []
    for config in configs:
        answers = _answers(host, store, config, counted, progress)
        results.append({"name": config.name, "config": config.settings(), "trials": len(counted),
                        "retrieved": sum(answer["correct"] for answer in answers.values()), "answers": answers})
    return {"contexts": list(contexts), "depths": depths, "results": results,
            "trials": [{"id": trial.id, "context": trial.context, "depth": trial.depth, "question": trial.question,
                        "answer": trial.answer, "tokens": answer["tokens"], "full_cache_answers": answer["correct"]}
                       for trial, answer in asked]}
