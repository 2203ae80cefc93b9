"""Tasks: whether facts of a long text are still found through a configuration of the cache.

Only answers that the full cache gives count: what a small model cannot do says nothing about its cache. A policy's
cache decodes from the question on, as a user's question is answered: a policy that reads it in one piece with the text
could choose by it what to keep. Each answer is kept by itself, so that a further configuration asks only for its own.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from winnow_calibrate.host import Host, calls_per_layer, expect_virtual, read_profiles
from winnow_eval import Failure, haystack, identifiers, measure, resident
from winnow_eval.configs import BASE
from winnow_eval.store import Store

DEPTHS = 5
LEAST_CONTEXT = 128
CANDIDATES = 4  # questions that are tried for each one wanted, before a cell is left with fewer
ROOM = 64  # tokens that the context has beyond the text
CALIBRATION = 4000  # characters
UNCOUNTED = 1.0  # characters of a token, as long as nobody counted them
START_UNITS = 100  # making a context and generating take about as long as so many tokens of a prompt
METHOD = 1  # how a result follows from what the program tells; results of another one are not found again


def first_number(text):
    match = re.search(r"\d+", text)
    return match[0] if match else None


def _is_number(text, answers):
    """Whether the first number is the right one."""
    return [first_number(text) == answer for answer in answers]


def _has_all(text, answers):
    """Of each string whether it is there, as RULER counts."""
    return [answer in text for answer in answers]


def _goes_on(text, answers):
    """Whether an identifier is completed, and ends."""
    return [re.match(re.escape(answer) + r"(?!\w)", text) is not None for answer in answers]


def _filler(characters):
    return " ".join(haystack.filler(haystack.generator("calibration"), characters))


def _table(characters):
    text, _, _ = haystack.lookup(characters, 0, 0, 1).turns[0]
    return text


@dataclass(frozen=True)
class Task:
    """A kind of question, and what a right answer is."""

    name: str
    meaning: str
    # Of a Trial: (context, depth, number, characters of a token), without a depth if it has none. None: there is none.
    make: Callable
    has_depths: bool = False
    sample: Callable = _filler  # so many characters of its texts, of which tokens are counted
    found: Callable = _is_number  # (text, answers): which of them it has


TASKS = {task.name: task for task in (
    Task("needle", "a fact in filler, asked for at its end", haystack.needle, True),
    Task("chat", "the same as a user's question, in the model's own chat template", haystack.chat_needle, True),
    Task("lookup", "one of a table of keys and values (RULER's multi-key needles)", haystack.lookup, True, _table),
    Task("several", f"{haystack.VALUES} values of one key in filler, all asked for (RULER's multi-value)",
         haystack.several, found=_has_all),
    Task("code", "an identifier that stands far above is completed", identifiers.trial, sample=identifiers.sample,
         found=_goes_on),
    Task("conversation", f"{haystack.TURNS} facts of an opening, asked for turn by turn in one cache",
         haystack.conversation))}


@dataclass
class Asking:
    """What to ask: tasks over context lengths, and with what."""

    host: Host
    store: Store
    configs: list
    tasks: list  # names
    contexts: list
    trials: int  # of each task, at least, over all lengths and depths


def check(tasks, contexts, trials):
    """Fails for what cannot be asked, before anything is."""
    for name in tasks:
        if name not in TASKS:
            raise Failure(f"--tasks: \"{name}\", expected {', '.join(TASKS)} or none")
    for context in contexts if tasks else ():
        if context < LEAST_CONTEXT:
            raise Failure(f"--task-contexts: {context} tokens, expected at least {LEAST_CONTEXT}")
    if trials < 1:
        raise Failure(f"--task-trials: {trials}, expected at least 1")


def plan(task, contexts, trials):
    """(depths, trials of each cell): depths times contexts times trials of a cell are at least `trials`."""
    if task.name == "conversation":
        return [None], -(-trials // (len(contexts) * haystack.TURNS))
    if not task.has_depths:
        return [None], -(-trials // len(contexts))
    count = min(DEPTHS, max(1, trials // len(contexts)))
    depths = [number / (count - 1) for number in range(count)] if count > 1 else [0.5]
    return depths, -(-trials // (len(contexts) * count))


def _cells(trial):
    """Tokens of the context that a trial takes, with its answers."""
    return trial.context + ROOM + len(trial.turns) * trial.generate


def _dialogue(trial, config):
    """What winnow-measure is asked."""
    return {"turns": [{"text": text, "question": question, "prefix": prefix} for text, question, prefix in trial.turns],
            "cells": _cells(trial), "generate": trial.generate, "until": trial.until, "chat": trial.is_chat,
            "decode": bool(config.kv), "find": list(trial.facts) if config.kv else []}


def _watched(config):
    """The configuration, of a policy with a report that says what is resident."""
    return replace(config, environment=(*config.environment, resident.ENVIRONMENT)) if config.kv else config


def _identity(host, config, trial):
    return host.identity(config) | {"trial": asdict(trial), "method": METHOD, "measure": measure.identity()}


def _units(trial, config):
    """About how much work an answer is, in tokens of a prompt."""
    anew = 2 if config.kv and len(trial.turns) > 1 else 1
    return anew * (trial.context + START_UNITS)


def _expect(config, answered):
    """Fails unless Winnow computed all of it, and a policy decoded from the question on."""
    run = answered.run
    calls = calls_per_layer(run, config)
    if config.backend == "winnow" and calls != answered.micro_batches:
        raise Failure(f"{config}: Winnow attended {calls} times in each layer, expected {answered.micro_batches}")
    if not config.kv:
        return
    expect_virtual(run.report, config)
    expected = answered.evaluated - answered.question
    for cache in run.report["caches"]:
        if cache["decoded"] != expected:
            raise Failure(f"{config}: the cache of {cache['name']} took {cache['decoded']} tokens one at a time, "
                          f"expected {expected}: those of questions and those that were generated")


def _anew(trial, texts):
    """The last question of a conversation, with all that came before it as one text."""
    whole = trial.turns[0][0] + trial.turns[0][1]
    for text, (between, question, _) in zip(texts, trial.turns[1:-1]):
        whole += text + between + question
    between, question, _ = trial.turns[-1]
    return replace(trial, turns=((whole + texts[-2] + between, question, ""),), answers=trial.answers[-1:], facts=(),
                   context=trial.context + ROOM)


def ask(asking, task, process, config, trial):
    """What a configuration answers: {"texts", "found": of each turn and answer, "tokens"}; of a policy what it still
    has "resident", and of its conversation whether the last answer is "found_anew" where all is read as one prompt."""
    identity = _identity(asking.host, config, trial)
    kept = asking.store.get(task.name, identity)
    if kept is not None:
        return kept
    answered = process.get().answer(_watched(config), _dialogue(trial, config))
    _expect(config, answered)
    texts = answered.texts
    kept = {"texts": texts, "found": [task.found(text, answers) for text, answers in zip(texts, trial.answers)],
            "tokens": answered.prompt_tokens, **read_profiles(answered.run)}
    if config.kv:
        tokens = [token for tokens in answered.found for token in tokens]
        kept["resident"] = resident.counts(answered.run.report, tokens)
        if len(trial.turns) > 1:
            anew = _anew(trial, texts)
            again = process.get().answer(config, _dialogue(anew, config))
            _expect(config, again)
            kept["found_anew"] = task.found(again.texts[0], anew.answers[0])
    asking.store.put(task.name, identity, kept)
    return kept


def _calibration(host, task):
    return {"model": host.model_sha256, "host": host.version, "task": task.name, "text": task.sample(CALIBRATION),
            "measure": measure.identity()}


def characters_per_token(asking, task, process):
    """How long a token of a task's texts is for this model."""
    identity = _calibration(asking.host, task)
    kept = asking.store.get("tokens", identity)
    if kept is None:
        kept = {"characters": len(identity["text"]), "tokens": process.get().count_tokens(identity["text"])}
        asking.store.put("tokens", identity, kept)
    return kept["characters"] / kept["tokens"]


def _candidates(task, context, depth, number, length):
    """The trials of a cell, of which so many are wanted, in the order in which they are tried; less where no text of
    this length can be made."""
    for candidate in range(CANDIDATES * number):
        where = (context, depth) if task.has_depths else (context,)
        trial = task.make(*where, candidate, length)
        if trial is None:
            break
        yield trial


def _knows(answer):
    return any(any(found) for found in answer["found"])


def lengths(names, contexts):
    """[(tokens of a context, what takes it)] of the shortest and the longest trials of these tasks, as far as there
    are some."""
    found = []
    for task in map(TASKS.get, names):
        for context in sorted({min(contexts), max(contexts)}):
            for trial in _candidates(task, context, 0.5, 1, UNCOUNTED):
                cells = [_cells(trial)]
                if len(trial.turns) > 1:
                    cells.append(_cells(_anew(trial, [""] * len(trial.turns))))
                found += [(each, f"the task {task.name} of {context} tokens") for each in cells]
                break
    return found


def _foreseen(asking, task, length):
    """(trials that will count, those that the base is still to be asked) if the full cache knows all that it was not
    asked yet."""
    depths, number = plan(task, asking.contexts, asking.trials)
    counted, unknown = [], []
    for context in asking.contexts:
        for depth in depths:
            cell = []
            for trial in _candidates(task, context, depth, number, length):
                kept = asking.store.peek(task.name, _identity(asking.host, BASE, trial))
                unknown += [trial] if kept is None else []
                cell += [trial] if kept is None or _knows(kept) else []
                if len(cell) == number:
                    break
            counted += cell
    return counted, unknown


def work_left(asking):
    """{name of a configuration, or of the base: about how much work is left of it in run(), in tokens of a prompt}"""
    left = Counter()
    for name in asking.tasks:
        task = TASKS[name]
        kept = asking.store.peek("tokens", _calibration(asking.host, task))
        length = kept["characters"] / kept["tokens"] if kept else UNCOUNTED  # without it, no answer was kept either
        counted, unknown = _foreseen(asking, task, length)
        left[BASE.name] += sum(_units(trial, BASE) for trial in unknown)
        for config in asking.configs:
            if config.settings() != BASE.settings():  # the base is asked once
                left[config.name] += _config_units(asking, task, config, counted)
    return left


def _config_units(asking, task, config, trials):
    return sum(_units(trial, config) for trial in trials
               if asking.store.peek(task.name, _identity(asking.host, config, trial)) is None)


def _step(progress, label, work):
    """A step of the work, or nothing to be seen where all is kept."""
    return progress.step(label, work) if work else contextlib.nullcontext(lambda share: None)


def _full_cache(asking, task, process, length, progress):
    """[(trial, the full cache's answer)] of a task: of each cell until so many are known, or the candidates are used
    up."""
    depths, number = plan(task, asking.contexts, asking.trials)
    asked = []
    for context in asking.contexts:
        work = sum(_units(trial, BASE) for trial in _foreseen(replace(asking, contexts=[context],
                   trials=number * len(depths) * (haystack.TURNS if task.name == "conversation" else 1)),
                   task, length)[1])
        with _step(progress, f"{task.name}, full cache, context {context}", work) as advance:
            for done, depth in enumerate(depths, start=1):
                cell, known = [], 0
                for trial in _candidates(task, context, depth, number, length):
                    cell.append((trial, ask(asking, task, process, BASE, trial)))
                    known = sum(_knows(answer) for _, answer in cell)
                    if known == number:
                        break
                if known < number:
                    where = "" if depth is None else f"at depth {100 * depth:.0f}% "
                    more = "" if len(cell) == CANDIDATES * number else ", and no more can be made of this length"
                    progress.say(f"{task.name}: {where}of {context} tokens the full cache knows {known} of "
                                 f"{len(cell)} trials{more}; {number} were wanted")
                asked += cell
                advance(done / len(depths))
    return asked


def _flat(found):
    return [one for each in found for one in each]


def _answers(asking, task, process, config, known, progress):
    """({id: answer}, counts of what is resident over all of them) of one configuration, where "found" is of what the
    full cache finds alone."""
    answers, seen = {}, []
    work = _config_units(asking, task, config, [trial for trial, _ in known])
    with _step(progress, f"{task.name}, {config}", work) as advance:
        for done, (trial, full) in enumerate(known, start=1):
            answer = ask(asking, task, process, config, trial)
            kept = {"texts": answer["texts"],
                    "found": [[one for one, counts in zip(found, knows) if counts]
                              for found, knows in zip(answer["found"], full["found"])]}
            if "resident" in answer:
                seen.append(answer["resident"])
                kept["resident"] = resident.of_answer(answer["resident"])
            if "found_anew" in answer:
                kept["as_anew"] = answer["found_anew"] == answer["found"][-1]
            answers[trial.id] = kept
            advance(done / len(known))
    return answers, resident.total(seen)


def _run(asking, task, process, progress):
    length = characters_per_token(asking, task, process)
    asked = _full_cache(asking, task, process, length, progress)
    known = [(trial, answer) for trial, answer in asked if _knows(answer)]
    results = []
    for config in asking.configs:
        answers, resident = _answers(asking, task, process, config, known, progress)
        found = [one for answer in answers.values() for one in _flat(answer["found"])]
        results.append({"name": config.name, "config": config.settings(), "trials": len(found),
                        "retrieved": sum(found), "answers": answers} | ({"resident": resident} if resident else {}))
    return {"task": task.name, "meaning": task.meaning, "contexts": list(asking.contexts),
            "depths": plan(task, asking.contexts, asking.trials)[0], "results": results,
            "trials": [{"id": trial.id, "context": trial.context, "depth": trial.depth,
                        "questions": [question + prefix for _, question, prefix in trial.turns],
                        "answers": [list(answers) for answers in trial.answers], "tokens": answer["tokens"],
                        "full_cache_finds": answer["found"]} for trial, answer in asked]}


def run(asking, process, progress):
    """Asks all configurations what the full cache answers, in a measure.Process; gives the "tasks" of a
    results.json."""
    return [_run(asking, TASKS[name], process, progress) for name in asking.tasks]
