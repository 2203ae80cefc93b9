"""Rows of kvpress for `winnow eval --with`: what its presses cost, by the logits of a model in torch.

    launch.py kvpress --model FILE.gguf --text FILE --llama-cpp DIR [PRESS...]
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

import options
import torch_plan
from winnow_eval import Failure, cli

HELP = """What presses of kvpress cost in quality, by the logits of a GGUF model in torch on the CPU.

A PRESS is one of expected-attention, keydiff, lagkv, tova and snapkv, which are all taken if none is given; with
settings of kvpress's as snapkv:window_size=32. Finished contexts are kept in --out, and the same command goes on where
it was interrupted. DIR/kvpress.json is for winnow eval --with."""
PRESSES = {"expected-attention": "ExpectedAttentionPress", "keydiff": "KeyDiffPress", "lagkv": "LagKVPress",
           "tova": "TOVAPress", "snapkv": "SnapKVPress"}
NO_PRESS = "none"


@dataclass(frozen=True)
class Row:
    """A press, or none, in one mode at one size."""

    press: str  # "" for none
    settings: tuple  # of kvpress's, as pairs
    mode: str
    keep: int  # tokens: of the prompt in batches; of all that the cache holds at most, decoding
    interval: int  # tokens from one compression to the next, decoding
    identity = {}  # the name says all

    @property
    def is_control(self):
        return not self.press

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


def start():
    import kvpress_torch

    return kvpress_torch.versions(), kvpress_torch.load, kvpress_torch.Refused


def measure(
    presses: Annotated[list[str] | None, typer.Argument(metavar="PRESS...", help="see above")] = None,
    model: options.MODEL = None,
    text_file: options.TEXT = None,
    contexts: options.CONTEXTS = "2048",
    count: options.COUNT = 8,
    mode: Annotated[str, typer.Option(metavar="batch,decode", help="how the second half of a context, which is scored, "
                                      "comes: in one piece after the prompt was compressed, or token by token")] =
        "batch,decode",
    keep: Annotated[str, typer.Option(metavar="N|N/N,...", help="tokens, or shares of the context: those that are left "
                                      "of the prompt (batch), or that the cache holds at most (decode)")] = "1/4",
    interval: Annotated[int | None, typer.Option(min=1, metavar="N", help="tokens between two compressions while "
                                                 "decoding (default a quarter of --keep)")] = None,
    part: options.PART = "all",
    out: options.OUT = Path("winnow-kvpress"),
    threads: cli.THREADS = None,
    llama_cpp: options.LLAMA_CPP = None,
    fresh: options.FRESH = False,
):
    task = torch_plan.Task(model, text_file, contexts, count, mode, part, out, threads, llama_cpp, fresh)
    parsed = [parse_press(given) for given in presses or PRESSES]
    plans = {context: planned(parsed, keep, interval, task.modes, context) for context in task.contexts}
    words = ["--mode", ",".join(task.modes), "--keep", keep,
             *(["--interval", interval] if interval else []), *(presses or [])]
    torch_plan.measure(task, "kvpress", plans, start, words,
                       lambda versions: remarks(task.modes, versions["torch"]))


if __name__ == "__main__":
    cli.run_app("kvpress", HELP, measure)
