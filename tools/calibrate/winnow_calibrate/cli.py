"""The command lines of `winnow profile` and `winnow calibrate`."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from winnow_calibrate import Failure, codebooks, networks, profile, text, weights
from winnow_calibrate.host import Host, expect_program, find_plugin, find_programs
from winnow_calibrate.options import (BATCH, CONTEXT, DEVICE, KINDS_OF_WEIGHTS, LLAMA_CPP, MODEL, PART, PLUGIN, TEXT,
                                      THREADS, WEIGHTS, console_for_output, one_of, or_all, plugin_folders, run_app)
from winnow_calibrate.progress import Progress

HELP = """How spread out a model's attention is: entropy, concentration and variance of each layer and head, on a text,
and how much of it the newest tokens get.

Writes tables and pictures to --out, and profile.txt, by which the policy adaptive_budget divides a budget among the
layers: WINNOW_KV="adaptive_budget:budget=1/4,profile_file=profile.txt"."""


CALIBRATE_HELP = """What `winnow profile` finds out of a model, networks trained on the same attention, which predict
how much of it a token is going to get, and codebooks of its keys.

Writes network.json to --out, by which the policy learned ranks tokens:
WINNOW_KV="learned:budget=1/4,network_file=network.json", and codebooks.bin, by which recall makes signatures of codes:
WINNOW_KV="winnow:budget=1/16,recall=host,signature=codes,codebook_file=codebooks.bin"."""

COUNT = Annotated[int, typer.Option(min=1, metavar="N", help="how many contexts")]
OUT = Annotated[Path, typer.Option(metavar="DIR", help="folder of what is written")]


def make_folder(out):
    """The folder of what is written, before anything is computed; fails where nothing can be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise Failure(f"--out: cannot write to {out}, expected a folder: {error.strerror}") from error


def run(host, text_file, context, count, part, out, kind, trains):
    """Records, and writes what there is to write; kind: of the weights; trains: networks and codebooks, too."""
    fewest = networks.CONTEXT if trains else profile.FEWEST
    if context < fewest:
        raise Failure(f"--context: {context}, expected at least {fewest}")
    if trains and context * count < codebooks.PAGE * codebooks.FEWEST:
        raise Failure(f"--context times --count: {context * count} tokens, expected at least "
                      f"{codebooks.PAGE * codebooks.FEWEST} for codebooks")
    one_of("--part", part, text.PARTS)
    one_of("--weights", kind, KINDS_OF_WEIGHTS)
    make_folder(out)
    with tempfile.TemporaryDirectory(prefix="winnow-profile-") as work, Progress(console_for_output()) as progress:
        source, identity = text.prepare(text_file, part, Path(work))
        model = host.model
        if kind == "f32":
            copy = Path(work) / "model-f32.gguf"
            progress.say(f"writing {model.name} with its weights in F32")
            weights.write_f32(model, copy)
            host.use_copy(lambda: copy)
        training = context * count // 4 if trains else 0
        rows = Path(work) / "rows"
        progress.expect(context * count + 3 * training)
        with progress.step(f"attention of {count} contexts of {context} tokens", context * count) as advance:
            layers = profile.record(host, source, context, count, advance,
                                    profile.with_samples(rows) if trains else profile.CONFIG)
        setting = {"model": model.name, "sha256": host.model_sha256, "weights": kind,
                   "text": text_file.name, **{f"text_{key}": value for key, value in identity.items()},
                   "context": context, "contexts": count}
        written = []
        if trains:
            with progress.step("training networks", training) as advance:
                trained = networks.calibrate(layers, advance)
            written.append(networks.write(trained, setting, out))
            progress.say("rank correlation with the attention that came, on samples held out: " +
                         ", ".join(f"{value:.3f} by {name}" for name, value in trained["rank_correlation"].items()))
            for layer in layers:
                del layer["samples"]
            with progress.step("training codebooks", 2 * training) as advance:
                try:
                    data, left_out = codebooks.train(codebooks.read(rows, context), advance)
                    written.append(codebooks.write(data, out))
                    said = f"codebooks leave out {left_out:.1%} of the scores' spread over pages"
                except codebooks.Unsuited as why:
                    said = f"no codebooks: {why}"
            progress.say(said)
        found = {"format": profile.FORMAT, "setting": setting, "layers": layers}
        from winnow_calibrate import profile_plots  # matplotlib takes a second to load

        for path in [*written, *profile.write(found, out), *profile_plots.draw(found, out)]:
            progress.say(f"wrote {path}")
        progress.say("the newest 50 tokens hold {:.0%} of the attention, the newest 100 {:.0%}".format(
            *profile.newest(found)))


def host_of(model, batch, threads, llama_cpp, plugin, device):
    programs = find_programs(llama_cpp)
    expect_program(programs, profile.PROGRAM)
    return Host(programs, find_plugin(plugin, plugin_folders()), model, batch, batch, or_all(threads), device)


def measure(model: MODEL, text_file: TEXT, context: CONTEXT = 2048, count: COUNT = 4, part: PART = "first",
            out: OUT = Path("winnow-profile"), weights: WEIGHTS = "f32", batch: BATCH = 512, threads: THREADS = None,
            llama_cpp: LLAMA_CPP = None, plugin: PLUGIN = None, device: DEVICE = None):
    run(host_of(model, batch, threads, llama_cpp, plugin, device), text_file, context, count, part, out, weights, False)


def calibrate(model: MODEL, text_file: TEXT, context: CONTEXT = 2048, count: COUNT = 4, part: PART = "first",
              out: OUT = Path("winnow-calibrate"), weights: WEIGHTS = "f32", batch: BATCH = 512,
              threads: THREADS = None, llama_cpp: LLAMA_CPP = None, plugin: PLUGIN = None, device: DEVICE = None):
    run(host_of(model, batch, threads, llama_cpp, plugin, device), text_file, context, count, part, out, weights, True)


def main(name):
    if name == "calibrate":
        run_app("winnow calibrate", CALIBRATE_HELP, calibrate)
    else:
        run_app("winnow profile", HELP, measure)
