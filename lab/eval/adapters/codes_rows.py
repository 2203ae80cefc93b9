"""Rows of codes for keys and values that Winnow does not have, beside those that it has, for `winnow eval --with`.

    launch.py codes --model FILE.gguf --text FILE --llama-cpp DIR [--rows NAME] [ROW...]
"""

import functools
import hashlib
import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import codes
import llama_tokens
import options
import torch_plan
from named_codes import CONTROL, PRESETS, Maker
from policy_rows import find_backend, open_context
from winnow_calibrate import storage
from winnow_eval import Failure, cli

HELP = """Measures what codes of keys and values cost in quality, with a GGUF model in torch on the CPU.

A ROW is a list of key=value, as k=spectral3,v=turbo3,center=model; lab/eval/adapters/README.md lists the keys, and
--rows names lists of rows. Finished contexts are kept in --out, and the same command goes on where it was interrupted.
DIR/codes.json is for winnow eval --with."""
CALIBRATION = sorted((Path(__file__).resolve().parents[1] / "calibration").glob("*.txt"))
CALIBRATION_CONTEXT = 2048
STATISTICS = 2  # how statistics follow from the texts; kept ones of another number are made again


class Calibration:
    """The statistics of a model and of texts, made once and kept in --out."""

    def __init__(self, model, texts, out, llama_cpp):
        self._model, self._texts, self._out, self._llama_cpp = model, texts, out, llama_cpp
        self.identity = {"model": storage.sha256_of(model), "texts": storage.sha256_of(*texts), "method": STATISTICS,
                         "context": CALIBRATION_CONTEXT}

    def heads(self, loaded, heads_of, say):
        """Of a loaded model. heads_of: codes_torch.heads_of."""
        name = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:12]
        path = self._out / f"statistics-{name}.npz"
        if not path.is_file():
            temporary = path.with_suffix(".part.npz")
            np.savez(temporary, **loaded.calibrate(self._contexts(), say))
            temporary.replace(path)
        with np.load(path) as kept:
            return heads_of({name: kept[name] for name in kept.files}, loaded.frequencies)

    def _contexts(self):
        text = "\n\n".join(path.read_text(encoding="utf-8") for path in self._texts)
        with llama_tokens.Tokens(self._llama_cpp, self._model) as vocabulary:
            tokens, bos = vocabulary.of(text), vocabulary.bos
        count = len(tokens) // CALIBRATION_CONTEXT
        if not count:
            raise Failure(f"--calibrate-with: {len(tokens)} tokens, expected at least {CALIBRATION_CONTEXT}")
        return torch_plan.contexts_of(tokens, bos, CALIBRATION_CONTEXT, count)


def measure(
    given: Annotated[list[str] | None, typer.Argument(metavar="ROW...", help="see above")] = None,
    model: options.MODEL = None,
    text_file: options.TEXT = None,
    names: Annotated[list[str] | None, typer.Option("--rows", metavar="NAME", help=f"rows: {', '.join(PRESETS)}; may "
                                                    "be repeated")] = None,
    contexts: options.CONTEXTS = "2048",
    count: options.COUNT = 8,
    scored: Annotated[int, typer.Option(min=1, metavar="N", help="last tokens of a context that are decoded and "
                                        "scored, at most half of it")] = 512,
    part: options.PART = "second",
    calibrate_with: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="a text to calibrate on; may be "
                                                              "repeated (default: those of lab/eval/calibration)"
                                                              )] = None,
    out: options.OUT = Path("winnow-codes"),
    threads: cli.THREADS = None,
    backend: options.BACKEND = None,
    device: cli.DEVICE = None,
    llama_cpp: options.LLAMA_CPP = None,
    fresh: options.FRESH = False,
):
    task = torch_plan.Task(model, text_file, contexts, count, "decode", part, out, threads, llama_cpp, fresh, scored,
                           least_count=1)
    wanted = list(given or [])
    for name in names or ([] if given else ["rule"]):
        if name not in PRESETS:
            raise Failure(f"--rows: \"{name}\", expected {', '.join(PRESETS)}")
        wanted += PRESETS[name]
    wanted = list(dict.fromkeys([CONTROL, *wanted]))
    texts = calibrate_with or CALIBRATION
    for each in texts:
        options.check_given(task.llama_cpp, **{"calibrate-with": each})
        if each.samefile(text_file):
            raise Failure(f"--calibrate-with: {each} is the text of --text, expected others")
    library_path = find_backend(backend)
    context = open_context(library_path, device, task.threads)
    out.mkdir(parents=True, exist_ok=True)
    calibration = Calibration(model, texts, out, task.llama_cpp)
    head_size, longest = options.shape_of(model)
    maker = Maker(functools.cache(lambda: codes.Library(out)), context, head_size, longest,
                  {"backend": storage.sha256_of(library_path), "calibrated": calibration.identity, "scored": scored})
    planned = {length: [maker.row(name, length) for name in wanted] for length in task.contexts}

    def start():
        import codes_torch

        def load(path, threads):
            loaded = codes_torch.load(path, threads)
            if loaded.why_not() is None:
                loaded.heads = calibration.heads(loaded, codes_torch.heads_of, print)
            return loaded

        return codes_torch.versions(), load, codes_torch.Refused

    words = ["--scored", scored, *(word for each in calibrate_with or () for word in ("--calibrate-with", each)),
             *wanted[1:]]
    torch_plan.measure(task, "codes", planned, start, words, lambda versions: remarks(scored, texts, versions))


def remarks(scored, texts, versions):
    return [f"computed by torch {versions['torch']} in float32 on the CPU, weights dequantized; the base is torch's "
            "full cache, not rounded to f16",
            f"a prompt's rows are those of the full cache, and are packed; the last {scored} tokens are decoded, and "
            "each reads sinks and the newest tokens as they are and the others packed",
            f"calibrated on {', '.join(path.name for path in texts)}",
            "bytes are of all rows packed, of sinks and window in f16, and of the model's constants for one sequence"]


if __name__ == "__main__":
    cli.run_app("codes", HELP, measure)
