"""The command line of `winnow eval`."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from winnow_calibrate import storage, text
from winnow_calibrate.options import (BATCH, DEVICE, KINDS_OF_WEIGHTS, LLAMA_CPP, PLUGIN, THREADS, WEIGHTS,
                                      console_for_output, one_of, or_all, plugin_folders, run_app)
from winnow_calibrate.progress import say
from winnow_eval import Failure, configs, divergence, others, tasks
from winnow_eval.evaluate import FORMAT, Options, evaluate

HELP = """What a configuration of the KV cache costs in quality, measured on a model through llama.cpp.

Each CONFIGURATION is compared with the full f16 cache by KL divergence and perplexity, token by token, as a prompt is
read and as text is generated. Finished contexts are kept in --out, and the same command goes on where it was
interrupted. Without configurations the baselines are measured: llama.cpp's own f16, q8_0, q5_1 and q4_0 caches."""

UBATCH = 512


def numbers(option, given):
    """The positive numbers of a list like 512,2048."""
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise Failure(f"{option}: \"{given}\", expected token counts like 512,2048")
    found = [int(part) for part in parts]
    if len(set(found)) != len(found):
        raise Failure(f"{option}: \"{given}\" has a number twice")
    return found


def modes(given):
    """The modes of a list like batch,decode, in their order."""
    parts = [part.strip() for part in given.split(",")]
    for part in parts:
        one_of("--mode", part, divergence.MODES)
    return [mode for mode in divergence.MODES if mode in parts]


def names_of_tasks(given):
    """The tasks of a list like needle,lookup."""
    names = {"all": list(tasks.TASKS), "none": []}.get(given)
    return list(dict.fromkeys(part.strip() for part in given.split(","))) if names is None else names


def read_results(path):
    """A results.json, or the one of a folder."""
    path = path / "results.json" if path.is_dir() else path
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"--from: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise Failure(f"--from: {path} is not JSON: {error}") from error
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise Failure(f"--from: {path} is not a results.json of format {FORMAT}")
    return results


def render(results, folder, console, has_pictures):
    """The tables on the terminal, and the files: CSV, Markdown, pictures."""
    from winnow_eval import report, table

    table.show(results, console)
    paths = report.write(results, folder)
    if has_pictures:
        from winnow_eval import plots  # matplotlib takes a second to load

        paths += plots.draw(results, folder)
    for path in paths:
        say(console, f"wrote {path}")


@contextlib.contextmanager
def kept_when_interrupted(name, what, out):
    """Ends the program with status 130 where somebody interrupts it, and says what is not lost."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"{name}: interrupted; {what} are kept in {out}, the same command goes on", file=sys.stderr)
        raise SystemExit(130) from None


def measure(
    strings: Annotated[list[str] | None, typer.Argument(metavar="CONFIGURATION...", help="see --list-configs")] = None,
    model: Annotated[Path | None, typer.Option(metavar="FILE.gguf", help="the model")] = None,
    text_file: Annotated[Path | None, typer.Option("--text", metavar="FILE",
                                                           help="the text to measure on, UTF-8")] = None,
    files: Annotated[list[Path] | None, typer.Option("--configs", metavar="FILE.toml",
                                                     help="configurations, a file or a name of --list-configs; may be "
                                                     "repeated")] = None,
    contexts: Annotated[str | None, typer.Option(metavar="N,...", help="context lengths in tokens (default those of "
                                                 "--configs, else 512,2048)")] = None,
    count: Annotated[int, typer.Option(metavar="N", help="contexts of each length")] = 16,
    mode: Annotated[str, typer.Option(metavar="batch,decode", help="how a policy's cache takes what is scored of a "
                                      "context, its second half or last 2048 tokens: in batches, as a prompt is read, "
                                      "or token by token, as text is generated")] = "batch,decode",
    until_decided: Annotated[float | None, typer.Option(min=0.0, metavar="SIGMAS", help="after 8 contexts measure no "
                                                        "more of a configuration that differs by so many standard "
                                                        "errors from each other one")] = None,
    part: Annotated[str, typer.Option(metavar="all|first|second", help="all of the text or a half, so that "
                                      "choosing and judging use different contexts")] = "all",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="folder of results; finished runs in it are kept "
                                             "(default winnow-eval; with --from, that folder)")] = None,
    weights: WEIGHTS = "f32",
    batch: BATCH = 512,
    ubatch: Annotated[int | None, typer.Option(min=1, metavar="N", help="tokens of a micro-batch, llama.cpp's -ub "
                                               f"(default {UBATCH}, or --batch if that is less)")] = None,
    threads: THREADS = None,
    llama_cpp: LLAMA_CPP = None,
    plugin: PLUGIN = None,
    device: DEVICE = None,
    task_names: Annotated[str, typer.Option("--tasks", metavar="NAME,...", help="questions about facts of long texts: "
                                            f"{', '.join(tasks.TASKS)}, all or none; see --list-tasks")] = "needle",
    task_contexts: Annotated[str, typer.Option(metavar="N,...", help="their context lengths")] = "512,1024,2048",
    task_trials: Annotated[int, typer.Option(metavar="N", help="how many of each task, over all lengths and "
                                             "depths")] = 45,
    generation: Annotated[bool, typer.Option(help="measure the speed of generation")] = True,
    pictures: Annotated[bool, typer.Option(help="draw the results, too")] = True,
    fresh: Annotated[bool, typer.Option("--fresh", help="forget the runs that --out keeps")] = False,
    from_results: Annotated[Path | None, typer.Option("--from", metavar="DIR", help="only show kept results again: a "
                                                      "folder or a results.json")] = None,
    with_files: Annotated[list[Path] | None, typer.Option("--with", metavar="FILE.json", help="rows that another tool "
                                                          "measured, beside these (lab/eval/rows.schema.json); may "
                                                          "be repeated")] = None,
    list_configs: Annotated[bool, typer.Option("--list-configs", help="how configurations are written, and the "
                                               "baselines")] = False,
    list_tasks: Annotated[bool, typer.Option("--list-tasks", help="what is asked in each task")] = False,
):
    console = console_for_output()
    if list_configs:
        names = [f"  {config}" for config in (configs.CONTROL, *configs.load(configs.DEFAULTS_FILE)[1:])]
        print("\n".join([configs.GRAMMAR, "The baselines:", "", *names]))
        return
    if list_tasks:
        print("\n".join(f"{task.name:13} {task.meaning}" for task in tasks.TASKS.values()))
        return
    if from_results is not None:
        if model or text_file or strings or files:
            raise Failure("--from: shows kept results, and takes no --model, --text or configurations")
        folder = out or (from_results if from_results.is_dir() else from_results.parent)
        results = read_results(from_results)
        if with_files:
            results = others.add(results, with_files)
            storage.write_json(folder / "results.json", results)
        render(results, folder, console, pictures)
        return
    out = out or Path("winnow-eval")
    for option, given in (("--model", model), ("--text", text_file)):
        if given is None:
            raise Failure(f"{option}: missing; expected a file (see winnow eval --help)")
        if not given.is_file():
            raise Failure(f"{option}: no file {given}")
    ubatch = ubatch or min(UBATCH, batch)
    if batch < ubatch:
        raise Failure(f"--ubatch: {ubatch}, expected at most --batch, which is {batch}")
    options = Options(
        model=model, text=text_file, strings=strings or [], files=files or [],
        contexts=numbers("--contexts", contexts) if contexts else configs.contexts_of(files or []) or [512, 2048],
        modes=modes(mode), count=count, sigmas=until_decided, part=one_of("--part", part, text.PARTS), out=out,
        weights=one_of("--weights", weights, KINDS_OF_WEIGHTS), batch=batch, ubatch=ubatch,
        threads=or_all(threads), programs=llama_cpp, plugin=plugin, plugin_folders=plugin_folders(), device=device,
        tasks=names_of_tasks(task_names), task_contexts=numbers("--task-contexts", task_contexts),
        task_trials=task_trials, generation=generation, fresh=fresh, others=with_files or [])
    with kept_when_interrupted("winnow eval", "finished runs", out):
        render(evaluate(options, console), out, console, pictures)


def main():
    run_app("winnow eval", HELP, measure)
