"""Answers of OpenVINO GenAI for `winnow eval --with`: needles in a haystack, memory and speed.

    launch.py openvino --model FILE.gguf --llama-cpp DIR [CONFIGURATION...]
"""

import contextlib
import re
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

import llama_tokens
import openvino_answers
import options
import rows
from openvino_answers import BLOCK, Refused
from winnow_eval import Failure, cli, store, tasks
from winnow_calibrate import storage
from winnow_calibrate.progress import Progress, say

HELP = """Whether OpenVINO GenAI still finds a fact of a long text through its caches, and what that takes.

A CONFIGURATION is the type of the cache, f16, u8 or u4, and how many tokens an eviction leaves, as f16,evict=1/4 or
u8,evict=512; all types are taken, alone and with evict=1/4, if none is given. The questions are those of winnow eval's
needle, on the same tokens; those count that the full f16 cache answers. Answers are kept in --out, and the same command
goes on where it was interrupted. DIR/openvino.json is for winnow eval --with."""
TASK = "needle"
TYPES = {"f16": 1, "u8": 0.7, "u4": 0.45}  # of the cache, and the share of f16's bytes that it takes at most
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
METHOD = 2  # how a result follows from what the pipeline gives; results of another one are not found again
FILE = "openvino.json"
NO_LOGITS = ("openvino-genai's pipelines give tokens and at most the probability of one token at a position, not the "
             "logits that a divergence needs")
REMARKS = ("all is computed in float32, without quantized activations, so that the cache alone makes the difference; "
           "another --property gives OpenVINO's usual speed",
           "an eviction begins when the whole prompt with its question has been read and the first tokens of the "
           "answer were given: these see the full cache, what is kept is chosen by the question, and memory is that of "
           "the whole prompt; winnow eval's policies keep their budget all the time, and choose without the question")


@dataclass(frozen=True)
class Config:
    """A type of the cache, and what an eviction leaves of it: "" for all, tokens, or a share of the context."""

    type: str
    evict: str = ""

    @property
    def name(self):
        return f"openvino:{self.type}" + (f",evict={self.evict}" if self.evict else "")

    def evicted(self, context):
        """The tokens that an eviction leaves in a context, in whole blocks; None without one."""
        share = Fraction(self.evict or 1) * (context if "/" in self.evict else 1)
        return int(share) // BLOCK * BLOCK if self.evict else None

    def why_not(self, contexts):
        """Why it cannot run in one of these lengths; None if it can."""
        short = [context for context in contexts if self.evict and self.evicted(context) <= 2 * BLOCK]
        return (f"an eviction leaves at least {3 * BLOCK} tokens: {BLOCK} at the beginning, {BLOCK} at the end and "
                f"{BLOCK} between; {self.evict} of a context of {short[0]} is less") if short else None


BASE = Config("f16")
DEFAULTS = tuple(Config(kind, evict) for evict in ("", "1/4") for kind in TYPES)


def parse(given):
    """The Config of a CONFIGURATION."""
    match = re.fullmatch(r"(\w+)(?:,evict=([1-9]\d*(?:/[1-9]\d*)?))?", given)
    if not match or match[1] not in TYPES:
        raise Failure(f"CONFIGURATION: \"{given}\", expected {', '.join(TYPES)}, or one of them with the tokens that "
                      "an eviction leaves as f16,evict=512 or u8,evict=1/4")
    return Config(match[1], match[2] or "")


def parse_property(given):
    """(name, value) of a --property."""
    name, equals, value = given.partition("=")
    if not equals or not re.fullmatch(r"[A-Z_]+", name):
        raise Failure(f"--property: \"{given}\", expected one of OpenVINO's as DYNAMIC_QUANTIZATION_GROUP_SIZE=32")
    return name, value


class Asking:
    """The configurations, and their answers as far as they are known.

    vocabulary: llama_tokens.Tokens; start: makes the process of a configuration, as openvino_answers.Answers does.
    """

    def __init__(self, kept, vocabulary, start, identity, model, properties):
        self.kept, self.vocabulary, self.start, self.identity = kept, vocabulary, start, identity
        self.model, self.properties = model, properties
        self.answers = {}  # of (configuration, trial's name)
        self.refused = {}  # reasons of configurations
        self.tokens = {}

    def prompt(self, trial):
        """The tokens of a trial's text and question."""
        if trial.id not in self.tokens:
            text, question, _ = trial.turns[0]
            self.tokens[trial.id] = self.vocabulary.of(text + question)
        return self.tokens[trial.id]

    def _identity(self, config, trial):
        return self.identity | {"method": METHOD, "config": config.name, "evict": config.evicted(trial.context),
                                "properties": self.properties, "trial": asdict(trial), "tokens": self.prompt(trial)}

    def _settings(self, config, context, generate):
        properties = self.properties | {"KV_CACHE_PRECISION": config.type}
        return {"model": str(self.model), "properties": properties, "evict": config.evicted(context),
                "tokens": context + tasks.ROOM + generate}

    def find(self, config, trial):
        """An answer that was given before, or None."""
        if (config, trial.id) not in self.answers:
            kept = self.kept.get(TASK, self._identity(config, trial))
            if kept is None:
                return None
            self.answers[config, trial.id] = kept
        return self.answers[config, trial.id]

    def knows(self, trial):
        """Whether the full cache has answered a question right."""
        answer = self.answers.get((BASE, trial.id))
        return answer is not None and all(answer["found"])

    def ask(self, config, trials, progress):
        """Asks trials of one length, in one process, which starts when it is first needed."""
        with contextlib.ExitStack() as stack:
            process = None
            try:
                for trial in trials:
                    if self.find(config, trial) is not None:
                        continue
                    with progress.step(f"{config.name}: {trial.id}", trial.context):
                        if process is None:
                            process = stack.enter_context(
                                self.start(self._settings(config, trial.context, trial.generate)))
                            process.answer(self.prompt(trial)[:BLOCK], 2)  # the first request takes longer
                        found = process.answer(self.prompt(trial), trial.generate)
                    self._put(config, trial, found)
            except Refused as refused:
                self.refused[config] = str(refused)

    def _expect(self, config, evicted, found):
        """Refuses a configuration that did something else."""
        if evicted and found["resident_at_last"] > evicted + BLOCK:
            raise Refused(f"its cache still had {found['resident_at_last']} tokens after the last one of an answer, "
                          f"expected at most {evicted + BLOCK}: nothing was evicted")
        full = next((answer for (other, _), answer in self.answers.items() if other == BASE), found)
        share = found["cache_bytes_per_token"] / full["cache_bytes_per_token"]
        if share > TYPES[config.type]:
            raise Refused(f"its cache takes {share:.2f} of the bytes of f16, expected at most {TYPES[config.type]} of "
                          f"{config.type}")

    def _put(self, config, trial, found):
        self._expect(config, config.evicted(trial.context), found)
        ends = self.vocabulary.eog(found["tokens"])
        said = found["tokens"][:ends.index(True)] if True in ends else found["tokens"]
        text = self.vocabulary.text_of(said)
        answer = found | {"text": text, "found": tasks.TASKS[TASK].found(text, trial.answers[0]),
                          "prompt_tokens": len(self.prompt(trial))}
        self.kept.put(TASK, self._identity(config, trial), answer)
        self.answers[config, trial.id] = answer


def run(asking, configs, contexts, trials, progress):
    """Asks the full cache, then each configuration what it knows; gives the "tasks" of the file."""
    task = tasks.TASKS[TASK]
    depths, number = tasks.plan(task, contexts, trials)
    sample = task.sample(tasks.CALIBRATION)
    length = len(sample) / len(asking.vocabulary.of(sample))
    cells = {(context, depth): [task.make(context, depth, one, length) for one in range(tasks.CANDIDATES * number)]
             for context in contexts for depth in depths}
    wanted = [trial for candidates in cells.values() for trial in candidates[:number]]
    progress.expect(sum(trial.context for config in {BASE, *configs} for trial in wanted
                        if asking.find(config, trial) is None))
    if asking.kept.kept:
        progress.say(f"{asking.kept.kept} answers are kept from before")

    def known(cell):
        return [trial for trial in cells[cell] if asking.knows(trial)]

    def candidates(context):
        """Questions of a length until the full cache has answered enough of each depth."""
        for cell in cells:
            for trial in cells[cell] if cell[0] == context else ():
                if len(known(cell)) >= number:
                    break
                yield trial

    for context in contexts:
        if BASE not in asking.refused:
            asking.ask(BASE, candidates(context), progress)
    counted = {context: [trial for cell in cells if cell[0] == context for trial in known(cell)[:number]]
               for context in contexts}
    for config in configs:
        reason = config.why_not(contexts) or (
            asking.refused.get(BASE) and f"the full cache gives no answers: {asking.refused[BASE]}")
        if reason and config != BASE:
            asking.refused[config] = reason
        for context in contexts if config != BASE else ():
            if config not in asking.refused:
                asking.ask(config, counted[context], progress)
    return [_result(asking, config, [trial for some in counted.values() for trial in some]) for config in configs]


def _result(asking, config, trials):
    """A configuration in the "tasks" of the file."""
    head = {"task": TASK, "name": config.name}
    if config in asking.refused:
        return head | {"refused": asking.refused[config]}
    if not trials:
        return head | {"refused": "the full cache answers none of the questions, so that none counts"}
    answers = [asking.answers[config, trial.id] for trial in trials]
    total = {key: sum(answer[key] for answer in answers)
             for key in ("prompt_tokens", "prompt_seconds", "generation_seconds")}
    generated = sum(len(answer["tokens"]) - 1 for answer in answers)  # the first comes with the prompt
    right = {trial.id: all(answer["found"]) for trial, answer in zip(trials, answers)}
    cells = {context: [right[trial.id] for trial in trials if trial.context == context]
             for context in sorted({trial.context for trial in trials})}
    return head | {"retrieved": sum(right.values()), "trials": len(trials),
                   "by_context": [{"context": context, "retrieved": sum(cell), "trials": len(cell)}
                                  for context, cell in cells.items()],
                   "peak_bytes": max(answer["peak_bytes"] for answer in answers),
                   "cache_bytes_at_most": max(answer["resident_at_most"] * answer["cache_bytes_per_token"]
                                              for answer in answers),
                   "prompt_tokens_per_second": total["prompt_tokens"] / total["prompt_seconds"],
                   "generation_tokens_per_second": generated / total["generation_seconds"],
                   "answers": {trial.id: answer["text"] for trial, answer in zip(trials, answers)}}


def measure(
    strings: Annotated[list[str] | None, typer.Argument(metavar="CONFIGURATION...", help="see above")] = None,
    model: Annotated[Path | None, typer.Option(metavar="FILE.gguf", help="the model")] = None,
    contexts: Annotated[str, typer.Option("--task-contexts", metavar="N,...", help="context "
                                          "lengths")] = "512,1024,2048",
    trials: Annotated[int, typer.Option("--task-trials", metavar="N", help="how many questions, over all lengths and "
                                        "depths")] = 45,
    properties: Annotated[list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="one of OpenVINO's, "
                                                         "of its CPU; may be repeated")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder of results; answers in it are "
                                      "kept")] = Path("winnow-openvino"),
    threads: cli.THREADS = None,
    llama_cpp: options.LLAMA_CPP = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="forget the answers that --out keeps")] = False,
):
    llama_cpp = options.llama_cpp_folder(llama_cpp)
    options.check_given(llama_cpp, model=model)
    lengths = cli.numbers("--task-contexts", contexts)
    tasks.check([TASK], lengths, trials)
    configs = [parse(given) for given in strings] if strings else list(DEFAULTS)
    if len(set(configs)) < len(configs):
        raise Failure("CONFIGURATION: one is given twice")
    chosen = EXACT | dict(parse_property(given) for given in properties or [])
    chosen["INFERENCE_NUM_THREADS"] = str(cli.or_all(threads))
    llama_tokens.find_library(llama_cpp)
    kept = store.Store(out)
    console = cli.console_for_output()
    with cli.kept_when_interrupted("openvino", "answers", out):
        with kept.locked(), Progress(console) as progress, llama_tokens.Tokens(llama_cpp, model) as vocabulary:
            if fresh:
                kept.forget()
            version, sha256 = openvino_answers.version(), storage.sha256_of(model)
            identity = {"model": sha256, "version": version}
            asking = Asking(kept, vocabulary, openvino_answers.Answers, identity, model.resolve(), chosen)
            found = run(asking, configs, lengths, trials, progress)
            words = ["--model", model, "--task-contexts", contexts, "--task-trials", trials,
                     *(word for given in properties or [] for word in ("--property", given)), *(strings or [])]
            refused = [{"name": "openvino", "context": context, "mode": mode, "refused": NO_LOGITS}
                       for context in lengths[-1:] for mode in ("batch", "decode")]
            made = rows.write(out / FILE, ("openvino-genai", version), rows.command("openvino_tasks.py", words),
                              (model.name, sha256), rows=refused, tasks=found, remarks=REMARKS)
    for one in made["tasks"]:
        said = one.get("refused") or (
            f"{one['retrieved']}/{one['trials']}, {one['peak_bytes'] / 2 ** 20:.0f} MiB, prompt "
            f"{one['prompt_tokens_per_second']:.1f} tokens/s, generation {one['generation_tokens_per_second']:.1f}")
        say(console, f"{one['name']}: {said}")
    say(console, f"wrote {out / FILE}")


if __name__ == "__main__":
    cli.run_app("openvino", HELP, measure)
