"""Rows of kvpress for `winnow eval --with`: what its presses cost, by the logits of a model in torch.

    launch.py kvpress --model FILE.gguf --text FILE --llama-cpp DIR [PRESS...]
"""

import re
import shutil
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

import llama_tokens
import options
import rows
from winnow_eval import Failure, cli, divergence, store, text
from winnow_eval.progress import Progress, say

HELP = """What presses of kvpress cost in quality, by the logits of a GGUF model in torch on the CPU.

A PRESS is one of expected-attention, keydiff, lagkv, tova and snapkv, which are all taken if none is given; with
settings of kvpress's as snapkv:window_size=32. Finished contexts are kept in --out, and the same command goes on where
it was interrupted. DIR/kvpress.json is for winnow eval --with."""
PRESSES = {"expected-attention": "ExpectedAttentionPress", "keydiff": "KeyDiffPress", "lagkv": "LagKVPress",
           "tova": "TOVAPress", "snapkv": "SnapKVPress"}
NO_PRESS = "none"
SAME = 1e-6  # mean divergence of the control run, which sums the same numbers in another order
METHOD = 1  # how a result follows from what the model gives; results of another one are not found again
TOKEN_BY_TOKEN = 12  # times as long as in one piece
FILE = "kvpress.json"


@dataclass(frozen=True)
class Row:
    """A press, or none, in one mode at one size."""

    press: str  # "" for none
    settings: tuple  # of kvpress's, as pairs
    mode: str
    keep: int  # tokens: of the prompt in batches; of all that the cache holds at most, decoding
    interval: int  # tokens from one compression to the next, decoding

    @property
    def kind(self):
        return PRESSES[self.press]

    @property
    def target(self):
        """Tokens that a compression leaves while decoding."""
        return self.keep - self.interval

    def kept(self, prompt):
        """Tokens that are left of a prompt."""
        return prompt if not self.press else min(prompt, self.target if self.mode == "decode" else self.keep)

    @property
    def name(self):
        words = [self.press or NO_PRESS, *(f"{key}={value}" for key, value in self.settings)]
        if self.press:
            words += [f"keep={self.keep}", *([f"interval={self.interval}"] if self.mode == "decode" else [])]
        return f"kvpress:{','.join(words)}"

    def why_not(self, prompt):
        """Why a context with such a prompt says nothing of this row; None if it does."""
        if self.press and self.mode == "decode" and (self.target < 1 or self.interval < 1):
            return f"a cache of {self.keep} tokens at most has no room for an interval of {self.interval}"
        if self.press and self.mode == "batch" and self.keep >= prompt:
            return f"nothing of a prompt of {prompt} tokens is compressed, since {self.keep} are kept"
        return None


def parse_press(given):
    """(name, settings) of a PRESS of the command line."""
    name, colon, rest = given.partition(":")
    cli.one_of("PRESS", name, PRESSES)
    settings = []
    for word in rest.split(",") if colon else []:
        match = re.fullmatch(r"(\w+)=(true|false|\d+|\d*\.\d+)", word)
        if not match or match[1] == "compression_ratio":
            raise Failure(f"PRESS: \"{given}\", \"{word}\", expected a setting of kvpress's {PRESSES[name]} as "
                          "window_size=32 (--keep gives the ratio)")
        value = {"true": True, "false": False}.get(match[2])
        settings.append((match[1], (float if "." in match[2] else int)(match[2]) if value is None else value))
    return name, tuple(settings)


def parse_keep(given, context):
    """The tokens of a list like 1/4,512 in a context."""
    found = []
    for word in given.split(","):
        if not re.fullmatch(r"\s*([1-9]\d*|[1-9]\d*/[1-9]\d*)\s*", word):
            raise Failure(f"--keep: \"{given}\", expected tokens or shares of the context like 512,1/4")
        share = Fraction(word.strip())
        found.append(int(share if "/" not in word else share * context))
        if not 1 <= found[-1] <= context:
            raise Failure(f"--keep: \"{word.strip()}\" is {found[-1]} of a context of {context} tokens")
    if len(set(found)) < len(found):
        raise Failure(f"--keep: \"{given}\" has the same twice in a context of {context} tokens")
    return found


def planned(presses, keep, interval, modes, context):
    """The rows of a context length, the control run first. interval: None is a quarter of what is kept."""
    made = []
    for mode in modes:
        made.append(Row("", (), mode, context, 0))
        for press, settings in presses:
            for size in parse_keep(keep, context):
                pause = (interval or size // 4) if mode == "decode" else 0
                made.append(Row(press, settings, mode, size, pause))
    names = [(row.name, row.mode) for row in made]
    if len(set(names)) < len(names):
        raise Failure(f"PRESS: {next(name for name in names if names.count(name) > 1)[0]} is given twice")
    return made


class Plan:
    """What is to be measured, and what of it is kept already.

    contexts: {length: (rows, [tokens of each context])}; identity: of all that determines a result but the row and the
    tokens.
    """

    def __init__(self, kept, contexts, identity):
        self.kept, self.contexts, self.identity = kept, contexts, identity
        self.parts, self.refused = {}, {}  # of (context, row): parts in their order; a reason
        for context, (found, tokens) in contexts.items():
            for row in found:
                reason = row.why_not(divergence.first_scored(context))
                if reason:
                    self.refused[context, row] = reason
                self.parts[context, row] = [kept.get("kvpress", self._identity(row, some)) for some in tokens]

    def _identity(self, row, tokens):
        return self.identity | {"method": METHOD, "row": row.name, "mode": row.mode, "tokens": tokens}

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
                total += sum(_units(row, context) for row in missing) + (context if missing else 0)
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
                    base = model.base(some, divergence.first_scored(context))
                for row in missing:
                    with progress.step(f"{label}: {row.name}, {row.mode}", _units(row, context)):
                        self._measure(model, refusal, base, context, index, row)

    def _measure(self, model, refusal, base, context, index, row):
        try:
            outcome = model.run(row, base)
        except refusal as refused:
            self.refused[context, row] = str(refused)
            return
        scores = outcome.scores | {"nll_base": base.nll}
        part = rows.part(context, scores, outcome.resident_at_most, outcome.seconds)
        if not row.press and not abs(part["kld"]) < SAME:
            raise Failure(f"{row.name}, {row.mode}: the full cache differs from the base by {part['kld']:.3g}, "
                          f"expected less than {SAME:g}; no result of this model and tool is to be trusted")
        part |= {"kv_bytes_after_prompt": outcome.held_after_prompt, "scored_seconds": outcome.scored_seconds}
        self.kept.put("kvpress", self._identity(row, self.contexts[context][1][index]), part)
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
                tokens = (context - divergence.first_scored(context)) * len(parts)
                figures["generation_tokens_per_second"] = tokens / sum(part["scored_seconds"] for part in parts)
            made.append(head | figures)
        return made


def _units(row, context):
    prompt = divergence.first_scored(context)
    return prompt + (context - prompt) * (TOKEN_BY_TOKEN if row.mode == "decode" else 1)


def contexts_of(tokens, bos, context, count):
    """The tokens of each context, cut as winnow-measure does."""
    cut = [tokens[index * context:(index + 1) * context] for index in range(count)]
    return [[bos, *some[1:]] for some in cut] if bos is not None else cut


def remarks(modes, torch_version):
    made = [f"computed by torch {torch_version} in float32 on the CPU, weights dequantized; kv_bytes are counted in "
            "f16, whose rounding of the cache is left out"]
    if "batch" in modes:
        made.append("in batches, a press compresses the prompt, once; the second half of a context is appended to what "
                    "is kept and stays, and kv_bytes count it (kv_bytes_after_prompt is without it)")
    if "decode" in modes:
        made.append("decoded, a press compresses the prompt, and the cache again after each interval tokens, to keep - "
                    "interval tokens, by kvpress's PrefillDecodingPress: keep is what the cache holds at most")
    return made


def measure(
    presses: Annotated[list[str] | None, typer.Argument(metavar="PRESS...", help="see above")] = None,
    model: Annotated[Path | None, typer.Option(metavar="FILE.gguf", help="the model")] = None,
    text_file: Annotated[Path | None, typer.Option("--text", metavar="FILE", help="the text to measure on, "
                                                   "UTF-8")] = None,
    contexts: Annotated[str, typer.Option(metavar="N,...", help="context lengths in tokens")] = "2048",
    count: Annotated[int, typer.Option(metavar="N", help="contexts of each length")] = 8,
    mode: Annotated[str, typer.Option(metavar="batch,decode", help="how the second half of a context, which is scored, "
                                      "comes: in one piece after the prompt was compressed, or token by token")] =
        "batch,decode",
    keep: Annotated[str, typer.Option(metavar="N|N/N,...", help="tokens, or shares of the context: those that are left "
                                      "of the prompt (batch), or that the cache holds at most (decode)")] = "1/4",
    interval: Annotated[int | None, typer.Option(min=1, metavar="N", help="tokens between two compressions while "
                                                 "decoding (default a quarter of --keep)")] = None,
    part: Annotated[str, typer.Option(metavar="all|first|second", help="all of the text or a half, as winnow eval "
                                      "takes it")] = "all",
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder of results; finished contexts in it are "
                                      "kept")] = Path("winnow-kvpress"),
    threads: cli.THREADS = None,
    llama_cpp: options.LLAMA_CPP = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="forget the contexts that --out keeps")] = False,
):
    llama_cpp = options.llama_cpp_folder(llama_cpp)
    options.check_given(llama_cpp, model=model, text=text_file)
    cli.one_of("--part", part, text.PARTS)
    lengths, modes = cli.numbers("--contexts", contexts), cli.modes(mode)
    divergence.check_sizes(lengths, count)
    parsed = [parse_press(given) for given in presses or PRESSES]
    plans = {context: planned(parsed, keep, interval, modes, context) for context in lengths}
    llama_tokens.find_library(llama_cpp)
    kept = store.Store(out)
    console = cli.console_for_output()
    with cli.kept_when_interrupted("kvpress", "finished contexts", out):
        with kept.locked(), Progress(console) as progress:
            if fresh:
                kept.forget()
            kept.base.mkdir(exist_ok=True)
            prepared, identity = text.prepare(text_file, part, kept.base)
            with llama_tokens.Tokens(llama_cpp, model) as vocabulary:
                tokens, bos = vocabulary.of(prepared.read_bytes().decode()), vocabulary.bos
            divergence.check_length(len(tokens), lengths, count)
            import kvpress_torch  # some seconds, of which errors in the command need none

            versions = kvpress_torch.versions()
            sha256 = store.sha256_of(model)
            cut = {context: (found, contexts_of(tokens, bos, context, count)) for context, found in plans.items()}
            plan = Plan(kept, cut, {"model": sha256, "versions": versions})
            if kept.kept:
                progress.say(f"{kept.kept} finished contexts are kept from before")
            progress.expect(plan.units())
            plan.run(lambda: kvpress_torch.Model(model, cli.or_all(threads)),
                     kvpress_torch.Refused, progress)
            words = ["--model", model, "--text", text_file, "--part", part, "--contexts", contexts, "--count", count,
                     "--mode", ",".join(modes), "--keep", keep,
                     *(["--interval", interval] if interval else []), *(presses or [])]
            made = rows.write(out / FILE, ("kvpress", versions["kvpress"]), rows.command("kvpress_rows.py", words),
                              (model.name, sha256), (text_file.name, identity), plan.finished(),
                              remarks=remarks(modes, versions["torch"]))
            shutil.rmtree(kept.base, ignore_errors=True)
    for row in made["rows"]:
        said = row.get("refused") or (f"mean KLD {row['kld']:.4g} ± {row['kld_se']:.2g}, perplexity {row['ppl']:.4g} "
                                      f"(base {row['ppl_base']:.4g}), {row['kv_bytes_per_token']:.0f} bytes/token")
        say(console, f"{row['name']}, context {row['context']}, {row['mode']}: {said}")
    say(console, f"wrote {out / FILE}")


if __name__ == "__main__":
    cli.run_app("kvpress", HELP, measure)
