"""What llama.cpp's process takes, plain and with Winnow: memory as the system counts it, and tokens per second.

A row is a kind of cache, a table a length of context. The prompt is a long log that fills a share of the context. With
--sized the model has the shape of a real one and random weights: memory and time are true, what it writes is not.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

import logbook
import parts
import processes
from parts import Failure, say
from processes import MIB, Kind

sys.path.append(str(parts.SOURCE / "tests" / "ggml"))
import environment  # noqa: E402  of tools/calibrate, as processes has it on the path
import sized_models  # noqa: E402

KV_STRINGS = ("winnow", "winnow:budget=1/2", "winnow:budget=1/4", "winnow:budget=1/8")
PLAIN_TYPES = ("f16", "f16,fa=off", "q8_0", "q4_0")
PLACED_TYPES = ("f16", "q8_0")
PICTURES = (".svg", ".png")
SAMPLE_DAYS = (4, 10)  # of the log, to see how many tokens a day has
SAMPLE_CELLS = 2048  # that these fit into with any tokens


def arguments():
    parser = argparse.ArgumentParser(prog="ci/compare", description=__doc__)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", type=Path, metavar="FILE.gguf", help="default SmolLM2-135M")
    model.add_argument("--sized", choices=sorted(sized_models.SHAPES), help="random weights in the shape of this model")
    parser.add_argument("--contexts", type=int, nargs="+", default=[8192], metavar="N", help="cells (default 8192)")
    parser.add_argument("--fill", type=float, default=.75, metavar="SHARE",
                        help="share of the context that the prompt has (default .75)")
    parser.add_argument("--tokens", type=int, default=32, metavar="N", help="tokens to generate (default 32)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads of llama.cpp (default 2)")
    parser.add_argument("--runs", type=int, default=1, metavar="N",
                        help="runs of each kind, in turns; the best counts (default 1)")
    parser.add_argument("--plain", nargs="*", default=PLAIN_TYPES, metavar="TYPE",
                        help="cache types of plain llama.cpp, and fa=off for attention that is not its flash attention "
                             f"(default {' '.join(PLAIN_TYPES)})")
    parser.add_argument("--in-place", nargs="*", default=PLACED_TYPES, metavar="TYPE",
                        help=f"cache types over which Winnow attends in place (default {' '.join(PLACED_TYPES)})")
    parser.add_argument("--kv", nargs="*", default=KV_STRINGS, metavar="STRING",
                        help=f"caches of Winnow's, docs/policies.md (default {' '.join(KV_STRINGS)})")
    parser.add_argument("--owners", action="store_true",
                        help="also whose the memory is, when it is most; asking slows the process down")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it there, too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it over the contexts, as .svg or .png")
    options = parser.parse_args()
    processes.check_options(parser, options, tokens=2, threads=1, runs=1)
    if not 0 < options.fill < 1:
        parser.error(f"--fill: {options.fill}, expected a share between 0 and 1")
    if min(options.contexts) < 512:
        parser.error(f"--contexts: {min(options.contexts)}, expected at least 512")
    for context in options.contexts:
        if options.fill * context + options.tokens > context:
            parser.error(f"--fill: {options.fill} of {context} cells leaves no room for --tokens {options.tokens}")
    if options.plot and options.plot.suffix not in PICTURES:
        parser.error(f"--plot: {options.plot}, expected a name that ends in {' or '.join(PICTURES)}")
    for path in (options.json, options.plot):
        if path and not path.absolute().parent.is_dir():
            parser.error(f"{path}: no folder {path.absolute().parent}")
    for name in options.plain:
        if not re.fullmatch(r"\w+(,fa=(on|off))?", name):
            parser.error(f"--plain: {name}, expected a cache type, and perhaps ,fa=on or ,fa=off after it")
    if not (options.plain or options.in_place or options.kv):
        parser.error("--plain, --in-place and --kv: all empty, expected something to run")
    return options


def plain_kind(name):
    """Of llama.cpp alone: a type, and perhaps ",fa=off"."""
    cache_type, _, flash = name.partition(",fa=")
    return Kind(f"llama.cpp, {name}", cache_type, flash or ("on" if cache_type != "f16" else None))


def kinds_of(options, plugin):
    return ([plain_kind(name) for name in options.plain] +
            [Kind(f"in place, {name}", name, "on", plugin) for name in options.in_place] +
            [Kind(kv, plugin=plugin, kv=kv) for kv in options.kv])


def measure(options, context, kinds, program, model, first_model):
    """[(kind, its best run)] at one length of context; first_model has the tokens and the kernels of the model."""
    shared = ["-c", context, "-t", options.threads]
    with tempfile.TemporaryDirectory() as folder:
        prompt = Path(folder) / "prompt.txt"

        def write(days):
            prompt.write_text(logbook.text(days), encoding="utf-8")

        lengths = []
        for days in SAMPLE_DAYS:
            write(days)
            sample = processes.run(kinds[0], program, ["-f", prompt, "-n", 2, "-c", SAMPLE_CELLS], first_model)
            lengths.append(sample.prompt_tokens)
        short, long = lengths
        if short >= long:
            raise Failure(f"llama.cpp timed {short} and {long} tokens of prompts that are not of one length")
        first, last = SAMPLE_DAYS
        write(max(1, int(first + (options.fill * context - short) * (last - first) / (long - short))))
        return processes.in_turns(kinds, program, ["-f", prompt, "--ignore-eos", *shared], model, options.tokens,
                                  options.runs, options.owners, first_model)


def show(context, results, has_owners):
    print(f"\n{context} cells, {results[0][1].prompt_tokens} tokens of prompt\n")
    print("| cache | process, MiB | cache, MiB | scratch, MiB | prompt, tokens/s | generation, tokens/s |")
    print("|---|---|---|---|---|---|")
    for kind, run in results:
        scratch = f"{run.scratch_bytes / MIB:.1f}" if kind.kv is not None else "-"
        print(f"| {kind.name} | {run.peak / MIB:.0f} | {run.cache_bytes / MIB:.1f} | {scratch} | "
              f"{run.prompt_speed:.1f} | {run.speed:.1f} |")
    if not has_owners:
        return
    owners = sorted({owner for _, run in results for owner in run.owners})
    print(f"\n| resident, MiB | {' | '.join(owners)} | sum |\n|---|{'---|' * len(owners)}---|")
    for kind, run in results:
        cells = " | ".join(f"{run.owners[owner] / MIB:.1f}" for owner in owners)
        print(f"| {kind.name} | {cells} | {run.owners.total() / MIB:.0f} |")
    sys.stdout.flush()


def to_json(context, kind, run):
    return {"context": context, "kind": kind.name, "prompt_tokens": run.prompt_tokens, "peak_bytes": run.peak,
            "cache_bytes": run.cache_bytes, "scratch_bytes": run.scratch_bytes,
            "prompt_tokens_per_second": run.prompt_speed, "tokens_per_second": run.speed, "owners": dict(run.owners)}


def draw(rows, path, title):
    """Draws it with matplotlib, which is in the environment of `winnow calibrate`."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(rows, file)
        file.flush()
        parts.run([environment.own_python(), "-B", parts.SOURCE / "ci" / "compare_plot.py", path, title, file.name])


def main():
    options = arguments()
    parts.setup("quickstart")
    if options.plot:
        environment.own_python()  # which may have to install it, and had better fail now
    if options.sized:
        folder = parts.CACHE / "sized-models"
        folder.mkdir(parents=True, exist_ok=True)
        model, first_model = (make(options.sized, folder) for make in (sized_models.make, sized_models.make_thin))
    else:
        model = first_model = options.model or parts.model()
    program, plugin = processes.build()
    kinds = kinds_of(options, plugin)
    rows = []
    for context in options.contexts:
        say(f"{context} cells")
        results = measure(options, context, kinds, program, model, first_model)
        show(context, results, options.owners)
        rows += [to_json(context, kind, run) for kind, run in results]
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if options.plot:
        draw(rows, options.plot, f"{options.sized or model.stem}, the prompt fills {options.fill:.0%} of the context")


if __name__ == "__main__":
    parts.run_main("ci/compare", main)
