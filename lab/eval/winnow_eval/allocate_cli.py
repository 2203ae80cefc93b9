"""The command line of `winnow allocate`."""

from pathlib import Path
from typing import Annotated

import typer

from winnow_calibrate import text
from winnow_calibrate.host import Host, find_plugin, find_programs
from winnow_calibrate.options import (BATCH, CONTEXT, DEVICE, KINDS_OF_WEIGHTS, LLAMA_CPP, MODEL, PART, PLUGIN, TEXT,
                                      THREADS, WEIGHTS, console_for_output, one_of, or_all, plugin_folders, run_app)
from winnow_eval import Failure, allocate, allocate_plots, configs, divergence
from winnow_eval.cli import kept_when_interrupted
from winnow_eval.evaluate import Options, evaluate

HELP = """Which layers of a model, or which of their KV heads, are worth more bits, and which bear fewer: measures what
each adds to the loss where its keys, or its values, are stored coarser, and fills the two lists of layers and heads
that a configuration may have.

Prints a configuration of the policy winnow for each share of the bytes that it usually takes, and writes
allocation.json to --out, with the sensitivity of each layer or head, and a picture of both. --from takes the
sensitivities of such a file, measured before or written by hand, and measures nothing. Choose on one half of a text and
judge on the other: winnow eval --part second."""


def shape_of(options):
    """Layers, KV heads and head size of the cache that the policy gets; keys and values are taken to be of one size."""
    host = Host(find_programs(options.programs), find_plugin(options.plugin, options.plugin_folders), options.model,
                options.batch, options.ubatch, options.threads, options.device)
    with divergence.probing(host) as process:
        length = divergence.ends(divergence.lengths(options.contexts, False))[0]
        report = divergence.probe(process, configs.gather([allocate.POLICY], [])[0], length)
    cache = next(cache for cache in report["caches"] if cache["policy"] == allocate.POLICY)
    elements = cache["original_bytes"] / (2 * cache["tokens"] * cache["layers"] * cache["kv_heads"])
    return {"layers": cache["layers"], "kv_heads": cache["kv_heads"], "head_size": int(elements) // 2}


def measured(options, by, console):
    """What allocation.json has of what is measured."""
    shape = shape_of(options)
    if by == "heads" and shape["kv_heads"] == 1:
        console.print("note: --by heads: the layers have one KV head each; it goes on by layers")
        by = "layers"
    if by == "heads":
        allocate.expect_listed(shape, "--by heads")
    options.strings = allocate.rows(shape, by)
    return allocate.measured_of(evaluate(options, console), shape, by)


def given(path, by):
    """The same of a file; fails where that is not by what was asked for."""
    found = allocate.read(path)
    its = allocate.by_of(found)
    if by is not None and by != its and found["shape"]["kv_heads"] > 1:
        raise Failure(f"--by {by}: --from has sensitivities of {its} ({path})")
    return found


def run(model: MODEL = None, text_file: TEXT = None, context: CONTEXT = 1024,
        count: Annotated[int, typer.Option(min=2, metavar="N", help="how many contexts")] = 2, part: PART = "first",
        by: Annotated[str, typer.Option(metavar="|".join(allocate.BY), help="what is measured apart and gets formats "
                                        "of its own: each layer, which is the default, or each of its KV heads")] =
        None,
        shares: Annotated[str, typer.Option(metavar="X,...", help="of the bytes that the policy usually takes, what a "
                                            "configuration may take")] = "1,1.05",
        from_file: Annotated[Path, typer.Option("--from", metavar="FILE", help="an allocation.json, whose "
                                                "sensitivities are taken; nothing is measured")] = None,
        out: Annotated[Path, typer.Option(metavar="DIR", help="folder of what is written, and of finished runs")] =
        Path("winnow-allocate"),
        weights: WEIGHTS = "f32", batch: BATCH = 512, threads: THREADS = None, llama_cpp: LLAMA_CPP = None,
        plugin: PLUGIN = None, device: DEVICE = None):
    wanted = allocate.expect_shares(shares)
    by = by and one_of("--by", by, allocate.BY)
    if from_file is not None:
        found = given(from_file, by)
    else:
        for option, value in (("--model", model), ("--text", text_file)):
            if value is None:
                raise Failure(f"{option}: missing; expected a file, or --from with what was measured before")
        options = Options(
            model=model, text=text_file, strings=[], files=[], contexts=[context], modes=["decode"], count=count,
            sigmas=None, part=one_of("--part", part, text.PARTS), out=out,
            weights=one_of("--weights", weights, KINDS_OF_WEIGHTS), batch=batch, ubatch=batch, threads=or_all(threads),
            programs=llama_cpp, plugin=plugin, plugin_folders=plugin_folders(), device=device, tasks=[],
            task_contexts=[], task_trials=1, generation=False, fresh=False, others=[])
        with kept_when_interrupted("winnow allocate", "finished runs", out):
            found = measured(options, by or "layers", console_for_output())
    path, made = allocate.report(found, wanted, out)
    usual = made["usual_bytes_per_token"]
    print(f"{allocate.POLICY}: {usual:,} bytes a token, a divergence of {made['kld']:.5f}")
    for each in made["allocations"]:
        print(f"{each['configuration']}: {each['bytes_per_token'] / usual - 1:+.1%} of the bytes, "
              f"{each['predicted_kld']:.5f} predicted")
    for each in (path, *allocate_plots.draw(made, out)):
        print(f"wrote {each}")
    if all(each["configuration"] == allocate.POLICY for each in made["allocations"]):
        advice = "other --shares" if from_file else "more contexts say more: --count, --context"
        unit = "KV head" if allocate.by_of(made) == "heads" else "layer"
        raise Failure(f"no {unit} is worth other formats by these sensitivities ({advice})")


def main():
    run_app("winnow allocate", HELP, run)
