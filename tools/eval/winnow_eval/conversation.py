"""A conversation whose prefix is reused: facts of the opening are asked for turn by turn, in one growing cache.

What a cache evicted in an early turn is not read again. So each answer says what the opening is still good for after
the turns before it; and the whole so far, read anew as one prompt, says whether going on cost anything beside that.
"""

import tempfile
from pathlib import Path

from winnow_eval import Failure, haystack, resident, needle
from winnow_eval.host import calls_per_layer

TURNS = 4
BREAK = "\n\n"  # before each turn of the user; llama.cpp prints it, so it tells one answer from the next
END = "."  # of an answer


def _identity(host, config, conversation):
    decoded = {"decoded": "from the first question on"} if config.kv else {}
    return host.identity(config) | {"conversation": conversation.id, "generated": needle.GENERATED,
                                    "text": [conversation.opening, *conversation.turns]} | decoded


def _complete(host, store, config, prompt, question, size, turns=()):
    """(answers, Run) of a prompt that ends with a question, and the turns after it, in one process.

    A policy's cache decodes from the question on.
    """
    watched, more = config, ()
    if config.kv:
        watched, _ = needle.decoded_from(host, store, resident.watched(config), prompt, question, size)
        more = resident.ARGUMENTS
    interactive = ["-i", "--simple-io", "--in-prefix", BREAK] if turns else []
    generated = size if turns else needle.GENERATED  # llama.cpp counts what is typed as generated
    with tempfile.TemporaryDirectory(prefix="winnow-conversation-") as folder:
        path = Path(folder) / "prompt.txt"
        path.write_text(prompt, encoding="utf-8")
        run = host.run_program("llama-completion", [
            "-f", path, "-n", generated, "-c", size, "--temp", 0, "--seed", 1, "-no-cnv", "--no-display-prompt",
            "--no-warmup", "--perf", "-r", END, *interactive, *more], watched,
            typed="".join(f"{turn}\n" for turn in turns))
    calls_per_layer(run, watched)
    if config.kv:
        taken = {cache["decoded"] for cache in run.report["caches"]}
        if min(taken) <= needle.single_steps(run):  # nothing of a question
            raise Failure(f"{config}: {taken} tokens were taken one at a time, expected those of questions, too")
    answers = [answer.partition(END)[0] for answer in run.stdout.split(BREAK)]
    return answers[:1 + len(turns)], run


def _opening_resident(run, conversation):
    """The share of the opening's tokens that a head holds at the end, over layers and heads."""
    tokens = resident.tokens_of(conversation.opening, run.stdout + run.stderr)
    found = resident.counts(run.report, tokens)
    heads = [count for layer in found["layers"] for count in layer]
    return sum(heads) / len(heads) / found["tokens"]


def ask(host, store, config, conversation):
    """{"texts", "correct" for each turn; of a policy "fresh", the last answer without reuse, and "resident"}"""
    identity = _identity(host, config, conversation)
    kept = store.get("conversation", identity)
    if kept is not None:
        return kept
    size = conversation.context + 2 * needle.ROOM
    opening, questions = conversation.opening, conversation.questions
    texts, run = _complete(host, store, config, opening, questions[0], size, conversation.turns)
    texts += [""] * (1 + len(conversation.turns) - len(texts))
    kept = {"texts": texts, "correct": [needle.first_number(text) == answer
                                        for text, answer in zip(texts, conversation.answers)]}
    if config.kv:
        whole = opening
        for text, turn in zip(texts, conversation.turns):
            whole += text + END + BREAK + turn
        (fresh, *_), _ = _complete(host, store, config, whole, questions[-1], size)
        kept |= {"fresh": fresh, "fresh_correct": needle.first_number(fresh) == conversation.answers[-1],
                 "resident": _opening_resident(run, conversation)}
    store.put("conversation", identity, kept)
    return kept


def conversations(host, store, context, count):
    length = needle.characters_per_token(host, store)
    return [haystack.conversation(context, number, TURNS, length) for number in range(count)]


def units(configs, context, count):
    """About how much work run() is, in tokens of a prompt, if nothing is kept."""
    return count * sum((2 if config.kv else 1) * (context + needle.START_UNITS) for config in configs)


def run(host, store, configs, base, context, count, progress):
    """The "conversation" of a results.json; only turns that the full cache (`base`) answers count."""
    asked = conversations(host, store, context, count)
    with progress.step("conversations, full cache", units([base], context, count)) as advance:
        known = []
        for done, one in enumerate(asked, start=1):
            known.append(ask(host, store, base, one)["correct"])
            advance(done / count)
    results = []
    for config in configs:
        with progress.step(f"conversations, {config}", units([config], context, count)) as advance:
            answers = []
            for done, one in enumerate(asked, start=1):
                answers.append(ask(host, store, config, one))
                advance(done / count)
        results.append(_summary(config, answers, known))
    return {"context": context, "conversations": count, "turns": TURNS,
            "full_cache_answers": sum(map(sum, known)), "results": results}


def _summary(config, answers, known):
    turns = [sum(answer["correct"][turn] for answer, right in zip(answers, known) if right[turn])
             for turn in range(TURNS)]
    found = {"name": config.name, "config": config.settings(), "retrieved": turns,
             "trials": [sum(right[turn] for right in known) for turn in range(TURNS)]}
    if config.kv:
        found |= {"resident": sum(answer["resident"] for answer in answers) / len(answers),
                  "same_as_fresh": sum(answer["fresh_correct"] == answer["correct"][-1] for answer in answers)}
    return found
