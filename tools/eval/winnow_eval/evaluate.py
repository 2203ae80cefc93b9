"""One evaluation from checked options to a results.json: probes, then what is missing, then all together."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from winnow_eval import Failure, configs, conversation, divergence, needle, store, text, weights
from winnow_eval.host import Host, find_plugin, find_programs
from winnow_eval.progress import Progress

FORMAT = 2
FORMATS = (1, FORMAT)  # that can be shown; 1 has no modes: all of it was measured in batches


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
    needle: bool
    needle_contexts: list
    needle_trials: int
    conversations: int
    conversation_context: int
    generation: bool
    fresh: bool

    def command(self):
        """This command for a reader: files by their names alone."""
        made = ["winnow", "eval", "--model", self.model.name, "--text", self.text.name,
                "--contexts", ",".join(map(str, self.contexts)), "--mode", ",".join(self.modes),
                "--count", str(self.count), "--part", self.part]
        made += ["--until-decided", f"{self.sigmas:g}"] if self.sigmas else []
        made += [word for path in self.files for word in ("--configs", path.name)]
        made += ["--weights", self.weights, "--batch", str(self.batch), "--ubatch", str(self.ubatch),
                 "--threads", str(self.threads)]
        if self.needle:
            made += ["--needle-contexts", ",".join(map(str, self.needle_contexts)),
                     "--needle-trials", str(self.needle_trials)]
        else:
            made += ["--no-needle"]
        if self.conversations:
            made += ["--conversations", str(self.conversations), "--conversation-context",
                     str(self.conversation_context)]
        return made + ([] if self.generation else ["--no-generation"]) + self.strings


def _field(reader, name):
    field = reader.get_field(name)
    return None if field is None else field.contents()


def _trained_context(path):
    """The context that the model was trained on, or None."""
    reader = weights.read(path)
    if reader.get_field("tokenizer.ggml.tokens") is None:
        raise Failure(f"--model: {path} has no tokenizer: not a language model")
    return _field(reader, f"{_field(reader, 'general.architecture')}.context_length")


def _make_host(options):
    programs = find_programs(options.programs)
    wanted = [*(["llama-completion"] if options.needle or options.conversations else []),
              *(["llama-bench"] if options.generation else [])]
    missing = [name for name in wanted if not (programs / name).is_file()]
    if missing:
        raise Failure(f"no {', '.join(missing)} in {programs}; build these targets of llama.cpp"
                      ", or leave out what needs them with --no-needle or --no-generation")
    return Host(programs, find_plugin(options.plugin, options.plugin_folders), options.model, options.batch,
                options.ubatch, options.threads, options.device)


def _plan(made, kept, part, identity, options, rows):
    """What there is to do; fails where the text is too short, or llama.cpp or the plugin cannot."""
    with divergence.probing(made, part) as process:
        divergence.check_length(process.tokens, options.contexts, options.count)
        report = divergence.probe(made, process, configs.BASE)
        made.found_device = {key: report[key] for key in ("device", "platform", "driver_version")}
        plan = divergence.Plan(divergence.Task(made, kept, part, identity, options.count), rows, options.contexts,
                               options.modes, options.generation, options.sigmas)
        for config in plan.configurations():
            divergence.probe(made, process, config)
    return plan


def _use_weights(made, options, kept, progress):
    """Lets the host run the model with the wanted weights; gives the bytes that a copy with them will take.

    The copy is made at the first run that needs it, and lies in the store until all is done.
    """
    if options.weights == "as-is":
        return 0
    copy = kept.base / f"{made.model_sha256[:20]}-f32.gguf"

    def make():
        if not copy.exists():
            progress.say(f"writing {options.model.name} with its weights in F32")
            weights.write_f32(options.model, copy)
        return copy

    made.use_copy(make)
    return 0 if copy.exists() else weights.f32_bytes(options.model)


def _check_room(folder, needed):
    """Fails if a folder has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Failure(f"--out: {folder} has no room for {needed / 1e9:.1f} GB of weights in F32, only for "
                      f"{free / 1e9:.1f} GB")


def _remarks(options, trained):
    """What can be measured, but says little."""
    for option, contexts in (("--contexts", options.contexts),
                             ("--needle-contexts", options.needle_contexts if options.needle else [])):
        for context in contexts:
            if trained and context > trained:
                yield f"note: {option}: the model was trained on contexts of {trained} tokens, {context} is beyond"


def evaluate(options, console):
    """Measures what is missing, keeps it, and gives results.json's content."""
    rows = configs.gather(options.strings, options.files)
    divergence.check_sizes(options.contexts, options.count)
    if options.needle:
        needle.plan(options.needle_contexts, options.needle_trials)
    trained = _trained_context(options.model)
    made = _make_host(options)
    made.weights = options.weights
    kept = store.Store(options.out)
    with kept.locked(), Progress(console) as progress:
        if options.fresh:
            kept.forget()
        kept.base.mkdir(exist_ok=True)
        for leftover in kept.base.glob("*.part"):
            leftover.unlink()
        for remark in _remarks(options, trained):
            progress.say(remark)
        part, identity = text.prepare(options.text, options.part, kept.base)
        plan = _plan(made, kept, part, identity, options, rows)
        if kept.kept:
            progress.say(f"{kept.kept} finished runs are kept from before")
        asked = (made, kept, [configs.NULL, *rows], configs.BASE, options.needle_contexts, options.needle_trials)
        talks = (options.conversation_context, options.conversations)
        work = plan.units() + (needle.units(*asked) if options.needle else 0) + conversation.units(
            [configs.BASE, *asked[2]], *talks)
        progress.expect(work)
        copy_bytes = _use_weights(made, options, kept, progress)
        _check_room(kept.folder, copy_bytes if work else 0)
        plan.run(progress)
        found = needle.run(*asked, progress) if options.needle else None
        talked = conversation.run(*asked[:4], *talks, progress) if options.conversations else None
        results = {"format": FORMAT, "command": options.command(),
                   "model": {"file": options.model.name, "sha256": made.model_sha256, "weights": options.weights},
                   "text": {"file": options.text.name, **identity},
                   "host": {"version": made.version, "batch": options.batch, "ubatch": options.ubatch,
                            "threads": options.threads},
                   "device": made.found_device, "base": configs.BASE.name, "rows": plan.finished(), "needle": found,
                   "conversation": talked}
        store.write_json(kept.folder / "results.json", results)
        shutil.rmtree(kept.base, ignore_errors=True)
    return results
