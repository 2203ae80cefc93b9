"""One evaluation from checked options to a results.json: probes, then what is missing, then all together."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from winnow_calibrate import storage, text, weights
from winnow_calibrate.host import Host, expect_program, find_plugin, find_programs
from winnow_calibrate.progress import Progress
from winnow_eval import Failure, configs, divergence, measure, others, store, tasks

FORMAT = 4


@dataclass
class Options:
    """The command line, as given."""

    model: Path
    text: Path
    strings: list
    files: list
    contexts: list
    modes: list
    count: int
    sigmas: float | None
    part: str
    out: Path
    weights: str
    batch: int
    ubatch: int
    threads: int
    programs: Path | None
    plugin: Path | None
    plugin_folders: list
    device: str | None
    tasks: list
    task_contexts: list
    task_trials: int
    generation: bool
    fresh: bool
    others: list

    def command(self):
        """This command for a reader: files by their names alone."""
        made = ["winnow", "eval", "--model", self.model.name, "--text", self.text.name,
                "--contexts", ",".join(map(str, self.contexts)), "--mode", ",".join(self.modes),
                "--count", str(self.count), "--part", self.part]
        made += ["--until-decided", f"{self.sigmas:g}"] if self.sigmas is not None else []
        made += [word for path in self.files for word in ("--configs", path.name)]
        made += ["--weights", self.weights, "--batch", str(self.batch), "--ubatch", str(self.ubatch),
                 "--threads", str(self.threads)]
        made += ["--tasks", ",".join(self.tasks) or "none"]
        if self.tasks:
            made += ["--task-contexts", ",".join(map(str, self.task_contexts)), "--task-trials", str(self.task_trials)]
        made += [word for path in self.others for word in ("--with", path.name)]
        return made + ([] if self.generation else ["--no-generation"]) + self.strings


def _make_host(options):
    programs = find_programs(options.programs)
    if options.generation:
        expect_program(programs, "llama-bench", ", or leave out what needs it with --no-generation")
    return Host(programs, find_plugin(options.plugin, options.plugin_folders), options.model, options.batch,
                options.ubatch, options.threads, options.device)


def _plan(task, rows, asking, options, progress):
    """(what there is to compare, what work there is to ask, what cannot be asked and why); fails where the text is too
    short, or llama.cpp or the plugin cannot."""
    made = task.host
    with divergence.probing(made) as process:
        for remark in _remarks(options, process.trained_context):
            progress.say(remark)
        refused = _leave_out_chat(asking, process.no_chat, progress)
        ends = divergence.ends([*divergence.lengths(options.contexts, options.generation),
                                *tasks.lengths(asking.tasks, options.task_contexts)])
        divergence.check_length(divergence.count_tokens(process, task.text), options.contexts, options.count)
        report = [divergence.probe(process, configs.BASE, length) for length in ends][0]
        made.found_device = {key: report[key] for key in ("device", "platform", "driver_version")}
        virtual = next((config for config in rows if config.kv), None)
        if virtual:  # before results are looked for
            _note_caches_device(made, divergence.probe(process, virtual, ends[0]))
        plan = divergence.Plan(task, rows, options.contexts, options.modes, options.generation, options.sigmas)
        work = tasks.work_left(asking)
        compared = plan.configurations()
        for config in [config for config in plan.rows if config in compared or work[config.name]]:
            for length in ends[1:] if config == virtual else ends:
                divergence.probe(process, config, length)
    return plan, work, refused


def _note_caches_device(made, report):
    """Virtual caches may lie in the memory of another device than caches in place."""
    others = {cache["device"] for cache in report["caches"]} - {made.found_device["device"]}
    if others:
        made.found_device["virtual_caches"] = ", ".join(sorted(others))


def _leave_out_chat(asking, reason, progress):
    """What of the tasks cannot be asked, and why, as other tools say it; it is asked no more."""
    if not reason or "chat" not in asking.tasks:
        return []
    asking.tasks = [name for name in asking.tasks if name != "chat"]
    progress.say(f"note: --tasks chat: {reason}; it is left out")
    return [{"name": "all configurations", "what": "chat", "refused": reason}]


def _use_weights(made, options, kept, progress):
    """Lets the host run the model with the wanted weights.

    Their copy is made at the first run that needs it, if there is room, and lies in the store until all is done.
    """
    if options.weights == "as-is":
        return
    copy = kept.base / f"{made.model_sha256[:20]}-f32.gguf"

    def make():
        if not copy.exists():
            _check_room(kept.folder, weights.f32_bytes(options.model))
            progress.say(f"writing {options.model.name} with its weights in F32")
            weights.write_f32(options.model, copy)
        return copy

    made.use_copy(make)


def _check_room(folder, needed):
    """Fails if a folder has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Failure(f"--out: {folder} has no room for {needed / 1e9:.1f} GB of weights in F32, only for "
                      f"{free / 1e9:.1f} GB")


def _remarks(options, trained):
    """What can be measured, but says little."""
    for option, contexts in (("--contexts", options.contexts),
                             ("--task-contexts", options.task_contexts if options.tasks else [])):
        for context in contexts:
            if 0 < trained < context:
                yield f"note: {option}: the model was trained on contexts of {trained} tokens, {context} is beyond"


def evaluate(options, console):
    """Measures what is missing, keeps it, and gives results.json's content."""
    rows = configs.gather(options.strings, options.files)
    divergence.check_sizes(options.contexts, options.count)
    tasks.check(options.tasks, options.task_contexts, options.task_trials)
    others_of = [(path, others.read(path)) for path in options.others]
    weights.check_kind(options.model)
    made = _make_host(options)
    made.weights = options.weights
    kept = store.Store(options.out)
    with kept.locked(), Progress(console) as progress:
        if options.fresh:
            kept.forget()
        kept.base.mkdir(exist_ok=True)
        for leftover in kept.base.glob("*.part"):
            leftover.unlink()
        part, identity = text.prepare(options.text, options.part, kept.base)
        subject = {"model": {"file": options.model.name, "sha256": made.model_sha256, "weights": options.weights},
                   "text": {"file": options.text.name, **identity}}
        for path, found in others_of:  # before hours of measuring
            others.expect_the_same(path, found, subject)
        asking = tasks.Asking(made, kept, [configs.CONTROL, *rows], options.tasks, options.task_contexts,
                              options.task_trials)
        plan, work, refused = _plan(divergence.Task(made, kept, part, identity, options.count), rows, asking, options,
                                    progress)
        if kept.kept:
            progress.say(f"{kept.kept} finished runs are kept from before")
        progress.expect(plan.units() + sum(work.values()))
        _use_weights(made, options, kept, progress)
        with measure.Process(made) as process:
            plan.run(process, progress)
            found = tasks.run(asking, process, progress)
        results = {"format": FORMAT, "command": options.command(), **subject,
                   "host": {"version": made.version, "batch": options.batch, "ubatch": options.ubatch,
                            "threads": options.threads},
                   "device": made.found_device, "base": configs.BASE.name, "rows": plan.finished(), "tasks": found}
        results |= {"refused": refused} if refused else {}
        results = others.add(results, options.others) if options.others else results
        storage.write_json(kept.folder / "results.json", results)
        shutil.rmtree(kept.base, ignore_errors=True)
    return results
