"""The command line of `winnow profile`."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from winnow_eval import Failure, divergence, profile, text, weights
from winnow_eval.cli import (BATCH, DEVICE, LLAMA_CPP, PLUGIN, THREADS, console_for_output, one_of, or_all,
                             plugin_folders, run_app)
from winnow_eval.host import Host, find_plugin, find_programs
from winnow_eval.progress import Progress

HELP = """How spread out a model's attention is: entropy, concentration and variance of each layer and head, on a text,
and how much of it the newest tokens get.

Writes tables and pictures to --out, and profile.txt, by which the policy adaptive_budget divides a budget among the
layers: WINNOW_KV="adaptive_budget:budget=1/4,profile_file=profile.txt"."""


def measure(
    model: Annotated[Path, typer.Option(metavar="FILE.gguf", exists=True, dir_okay=False, help="the model")],
    text_file: Annotated[Path, typer.Option("--text", metavar="FILE", exists=True, dir_okay=False,
                                            help="the text to read, UTF-8")],
    context: Annotated[int, typer.Option(metavar="N", help="context length in tokens")] = 2048,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="how many contexts")] = 4,
    part: Annotated[str, typer.Option(metavar="all|first|second", help="all of the text or a half, so that profiling "
                                      "and judging use different contexts")] = "first",
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder of what is written")] = Path("winnow-profile"),
    as_is: Annotated[bool, typer.Option("--weights-as-is", help="do not dequantize the weights before")] = False,
    batch: BATCH = 512,
    threads: THREADS = None,
    llama_cpp: LLAMA_CPP = None,
    plugin: PLUGIN = None,
    device: DEVICE = None,
):
    if context < profile.FEWEST:
        raise Failure(f"--context: {context}, expected at least {profile.FEWEST}")
    one_of("--part", part, text.PARTS)
    host = Host(find_programs(llama_cpp), find_plugin(plugin, plugin_folders()), model, batch, batch, or_all(threads),
                device)
    with tempfile.TemporaryDirectory(prefix="winnow-profile-") as work, Progress(console_for_output()) as progress:
        source, identity = text.prepare(text_file, part, Path(work))
        with divergence.probing(host, source) as process:
            divergence.check_length(process.tokens, [context], count)
        if not as_is:
            copy = Path(work) / "model-f32.gguf"
            progress.say(f"writing {model.name} with its weights in F32")
            weights.write_f32(model, copy)
            host.use_copy(lambda: copy)
        progress.expect(context * count)
        with progress.step(f"attention of {count} contexts of {context} tokens", context * count) as advance:
            layers = profile.record(host, source, context, count, advance)
        setting = {"model": model.name, "sha256": host.model_sha256, "weights": "as-is" if as_is else "f32",
                   "text": text_file.name, **{f"text_{key}": value for key, value in identity.items()},
                   "context": context, "contexts": count}
        found = {"format": profile.FORMAT, "setting": setting, "layers": layers}
        from winnow_eval import profile_plots  # matplotlib takes a second to load

        for path in [*profile.write(found, out), *profile_plots.draw(found, out)]:
            progress.say(f"wrote {path}")
        progress.say("the newest 50 tokens hold {:.0%} of the attention, the newest 100 {:.0%}".format(
            *profile.newest(found)))


def main():
    run_app("winnow profile", HELP, measure)
