"""What an adapter measures with a model in torch: rows over contexts of a text, each against the model's full cache."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import llama_tokens
import options
import rows
from winnow_eval import Failure, cli, divergence, store
from winnow_calibrate import storage, text
from winnow_calibrate.progress import Progress, say

SAME = 1e-6  # mean divergence of the control run, which sums the same numbers in another order
METHOD = 1  # how a result follows from what the model gives; results of another one are not found again
TOKEN_BY_TOKEN = 12  # times as long as in one piece


@dataclass
class Task:
    """What the command lines have in common. Fails for what cannot be measured, before anything is loaded."""

    model: Path
    text: Path
    lengths: str  # of contexts, and below modes, as the command line has them
    count: int
    mode: str
    part: str
    out: Path
    threads: int | None
    llama_cpp: Path | None
    fresh: bool
    most_scored: int = divergence.MOST_SCORED  # last tokens of a context that count
    least_count: int = 2  # of contexts

    def __post_init__(self):
        self.llama_cpp = options.llama_cpp_folder(self.llama_cpp)
        options.check_given(self.llama_cpp, model=self.model, text=self.text)
        cli.one_of("--part", self.part, text.PARTS)
        self.contexts, self.modes = cli.numbers("--contexts", self.lengths), cli.modes(self.mode)
        divergence.check_sizes(self.contexts, self.count, self.most_scored, self.least_count)
        self.threads = cli.or_all(self.threads)

    @property
    def words(self):
        """The command line that says the same."""
        return ["--model", self.model, "--text", self.text, "--part", self.part, "--contexts", self.lengths, "--count",
                self.count]


class Plan:
    """What is to be measured, and what of it is kept already.

    tool: its name, under which results are kept. contexts: {length: (rows, [tokens of each context])}; identity: of all
    that determines a result but the row and the tokens. A row has `name`, `mode`, `is_control`, `identity` (a dict of
    what determines its result beside name and mode), and why_not(prompt), which says why a context with such a prompt
    says nothing of it; None if it does.
    """

    def __init__(self, tool, kept, contexts, identity, most_scored=divergence.MOST_SCORED):
        self.tool, self.kept, self.contexts, self.identity = tool, kept, contexts, identity
        self.most_scored = most_scored
        self.parts, self.refused = {}, {}  # of (context, row): parts in their order; a reason
        for context, (found, tokens) in contexts.items():
            for row in found:
                reason = row.why_not(divergence.first_scored(context, self.most_scored))
                if reason:
                    self.refused[context, row] = reason
                self.parts[context, row] = [kept.get(tool, self._identity(row, some)) for some in tokens]

    def _identity(self, row, tokens):
        return self.identity | {"method": METHOD, "row": row.name, "mode": row.mode, "tokens": tokens} | row.identity

    def missing(self, context, index):
        """The rows that have no result of a context."""
        return [row for row in self.contexts[context][0]
                if self.parts[context, row][index] is None and (context, row) not in self.refused]

    def units(self):
        """About how much work is left, in tokens of a prompt."""
        total = 0
        for context, (_, tokens) in self.contexts.items():
            for index in range(len(tokens)):
                missing = self.missing(context, index)
                prompt = divergence.first_scored(context, self.most_scored)
                total += sum(_units(row, context, prompt) for row in missing) + (context if missing else 0)
        return total

    def run(self, load, refusal, progress):
        """Measures what is missing. load: gives the model; refusal: the exception that says why a row has no result."""
        if not self.units():
            return
        model = load()
        reason = model.why_not()
        for context, (found, tokens) in self.contexts.items():
            for row in found if reason else []:  # nor is there anything to control
                self.refused.setdefault((context, row), reason)
            for index, some in enumerate(tokens):
                missing = self.missing(context, index)
                if not missing:
                    continue
                label = f"context {index + 1} of {len(tokens)}, {context} tokens"
                with progress.step(f"{label}: base", context):
                    base = model.base(some, divergence.first_scored(context, self.most_scored))
                for row in missing:
                    with progress.step(f"{label}: {row.name}, {row.mode}",
                                       _units(row, context, divergence.first_scored(context, self.most_scored))):
                        self._measure(model, refusal, base, context, index, row)

    def _measure(self, model, refusal, base, context, index, row):
        try:
            outcome = model.run(row, base)
        except refusal as refused:
            self.refused[context, row] = str(refused)
            return
        scores = outcome.scores | {"nll_base": base.nll}
        part = rows.part(context, scores, outcome.resident_at_most, outcome.seconds,
                         divergence.scored(context, self.most_scored))
        if row.is_control and not abs(part["kld"]) < SAME:
            raise Failure(f"{row.name}, {row.mode}: the full cache differs from the base by {part['kld']:.3g}, "
                          f"expected less than {SAME:g}; no result of this model and tool is to be trusted")
        part |= {"kv_bytes_after_prompt": outcome.held_after_prompt, "scored_seconds": outcome.scored_seconds}
        self.kept.put(self.tool, self._identity(row, self.contexts[context][1][index]), part)
        self.parts[context, row][index] = part

    def finished(self):
        """The rows of the file."""
        made = []
        for (context, row), parts in self.parts.items():
            head = {"name": row.name, "context": context, "mode": row.mode}
            if (context, row) in self.refused:
                made.append(head | {"refused": self.refused[context, row]})
                continue
            after_prompt = max(part["kv_bytes_after_prompt"] for part in parts)
            figures = rows.summary(parts) | {"kv_bytes_after_prompt": after_prompt}
            if row.mode == "decode":
                tokens = (context - divergence.first_scored(context, self.most_scored)) * len(parts)
                figures["generation_tokens_per_second"] = tokens / sum(part["scored_seconds"] for part in parts)
            made.append(head | figures)
        return made


def _error(value):
    return "" if value is None else f" ± {value:.2g}"


def _units(row, context, prompt):
    return prompt + (context - prompt) * (TOKEN_BY_TOKEN if row.mode == "decode" else 1)


def contexts_of(tokens, bos, context, count):
    """The tokens of each context, cut as winnow-measure does."""
    cut = [tokens[index * context:(index + 1) * context] for index in range(count)]
    return [[bos, *some[1:]] for some in cut] if bos is not None else cut


def measure(task, tool, planned, start, words, remarks):
    """Measures rows, and writes them to a file that is named for the tool. planned: {context: rows}; start(): imports
    what takes seconds, of which errors in the command need none, and returns (versions of all that makes the numbers,
    the tool's own first; load(path, threads); refusal), see Plan.run; words: of the command beside those of the task;
    remarks(versions): what a reader has to know."""
    llama_tokens.find_library(task.llama_cpp)
    kept = store.Store(task.out)
    console = cli.console_for_output()
    with cli.kept_when_interrupted(tool, "finished contexts", task.out):
        with kept.locked(), Progress(console) as progress:
            if task.fresh:
                kept.forget()
            kept.base.mkdir(exist_ok=True)
            prepared, identity = text.prepare(task.text, task.part, kept.base)
            with llama_tokens.Tokens(task.llama_cpp, task.model) as vocabulary:
                tokens, bos = vocabulary.of(prepared.read_bytes().decode()), vocabulary.bos
            divergence.check_length(len(tokens), task.contexts, task.count)
            versions, load, refusal = start()
            sha256 = storage.sha256_of(task.model)
            cut = {context: (found, contexts_of(tokens, bos, context, task.count))
                   for context, found in planned.items()}
            plan = Plan(tool, kept, cut, {"model": sha256, "versions": versions}, task.most_scored)
            if kept.kept:
                progress.say(f"{kept.kept} finished contexts are kept from before")
            progress.expect(plan.units())
            plan.run(lambda: load(task.model, task.threads), refusal, progress)
            path = task.out / f"{tool}.json"
            made = rows.write(path, next(iter(versions.items())),
                              rows.command(f"{tool}_rows.py", [*task.words, *words]), (task.model.name, sha256),
                              (task.text.name, identity), plan.finished(), remarks=remarks(versions))
            shutil.rmtree(kept.base, ignore_errors=True)
    for row in made["rows"]:
        said = row.get("refused") or (f"mean KLD {row['kld']:.4g}{_error(row['kld_se'])}, perplexity {row['ppl']:.4g} "
                                      f"(base {row['ppl_base']:.4g}), {row['kv_bytes_per_token']:.0f} bytes/token")
        say(console, f"{row['name']}, context {row['context']}, {row['mode']}: {said}")
    say(console, f"wrote {path}")
