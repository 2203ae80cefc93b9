"""Perplexity and KL divergence of configurations against the full f16 cache, by llama-perplexity.

For each context length the base writes its logits to a file, and each configuration is compared with them in a process
of its own, with the same sizes of batches.
"""

import contextlib
import json
import shutil
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from winnow_eval import Failure, logs
from winnow_eval.configs import BASE, NULL
from winnow_eval.host import Host, calls_per_layer, expect_virtual, virtual_bytes
from winnow_eval.store import Store, write_json

FEWEST_SCORED = 100  # llama-perplexity prints no statistics of fewer tokens
GENERATED = 32  # tokens of a measurement of generation
GENERATION_RUNS = 2
PROBE_CONTEXT = 32
HEAD = struct.Struct("=8sIii")  # of a file of logits: magic, context, vocabulary, contexts
METHOD = 2  # how a result follows from what the programs print; results of another one are not found again
COMMON = ["--no-warmup", "-lv", "4"]  # 4: with the sizes of caches


@dataclass
class Task:
    """What to measure with: a host, a text, a number of contexts, and where to keep results."""

    host: Host
    store: Store
    text: Path
    text_identity: dict
    count: int


def scored(context):
    """Tokens of a context that count: llama-perplexity takes the first half as context only."""
    return context - context // 2 - 1


def micro_batches(host, context):
    """In how many steps llama.cpp takes a context, which is how often each layer attends."""
    batches = [min(host.batch, context - begin) for begin in range(0, context, host.batch)]
    return sum(-(-batch // host.ubatch) for batch in batches)


def logits_bytes(context, count, vocabulary):
    """The size of llama-perplexity's file of logits: a head, the tokens, 16 bits a word and 8 bytes for each row."""
    return HEAD.size + 4 * context * count + 2 * count * scored(context) * (2 * ((vocabulary + 1) // 2) + 4)


def check_sizes(contexts, count):
    """Fails for what cannot be measured, before anything is."""
    if count < 2:
        raise Failure(f"--count: {count}, expected at least 2, which a standard error needs")
    for context in contexts:
        if context < PROBE_CONTEXT:
            raise Failure(f"--contexts: {context}, expected at least {PROBE_CONTEXT}")
        if scored(context) * count < FEWEST_SCORED:
            raise Failure(f"--count: {count} contexts of {context} tokens have {scored(context) * count} scored "
                          f"tokens, expected at least {FEWEST_SCORED}")


def check_room(folder, needed):
    """Fails if a folder has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Failure(f"--out: {folder} has no room for {needed / 1e9:.1f} GB of logits and weights, only for "
                      f"{free / 1e9:.1f} GB")


def _head(path):
    """(magic, context, vocabulary, contexts) of a file of logits; None if even that is not there."""
    with open(path, "rb") as file:
        head = file.read(HEAD.size)
    return HEAD.unpack(head) if len(head) == HEAD.size else None


def _sizes(path, context, count):
    """(bytes that a file of logits has, bytes that it should have)"""
    head = _head(path)
    return path.stat().st_size, logits_bytes(context, count, head[2] if head else 0)


class _Enough(Exception):
    """What was to be learned of a run is known."""


def count_tokens(host, path):
    """How many tokens a text has for the model, in steps of PROBE_CONTEXT.

    llama-perplexity writes it into the head of a file of logits before it computes any.
    """
    with tempfile.TemporaryDirectory(prefix="winnow-eval-") as folder:
        logits = Path(folder) / "logits"

        def known():
            head = _head(logits)
            return head[3] * PROBE_CONTEXT if head else 0

        def on_output(_):
            if known():
                raise _Enough

        arguments = ["-f", path, "-c", PROBE_CONTEXT, "--kl-divergence-base", logits, *COMMON]
        with contextlib.suppress(_Enough):
            host.run_program("llama-perplexity", arguments, NULL, on_output, batch=PROBE_CONTEXT)
        return known()


def check_length(host, path, contexts, count):
    """Fails if a text is too short for so many contexts of one of these lengths."""
    tokens = count_tokens(host, path)
    for context in contexts:
        if tokens < context * count:
            raise Failure(f"--count: the text has {tokens // context} contexts of {context} tokens, {count} were "
                          "asked for; give a longer text, or fewer or shorter contexts")


def probe(host, config):
    """Runs a configuration over a few tokens; fails if llama.cpp or the plugin cannot, or does something else."""
    with tempfile.TemporaryDirectory(prefix="winnow-eval-") as folder:
        text = Path(folder) / "probe.txt"
        text.write_text("One two three four five six seven eight nine ten. " * 12)
        run = host.run_program("llama-perplexity", ["-f", text, "-c", PROBE_CONTEXT, "--chunks", 1, *COMMON], config,
                               batch=PROBE_CONTEXT)
    if config.kv:
        expect_virtual(run.report or {}, config)
    if config.kv and (run.report or {}).get("kv") != config.kv:
        raise Failure(f"{config}: the plugin does not carry out this policy; it reports "
                      f"{json.dumps((run.report or {}).get('kv'))} as what it did")
    found = logs.cache(run.stderr)
    expect_calls(run, config, found["layers"], -(-PROBE_CONTEXT // min(PROBE_CONTEXT, host.ubatch)))
    return run.report


def expect_calls(run, config, layers, expected):
    """Attention calls of each layer, which have to be as many as expected with Winnow."""
    calls = calls_per_layer(run, config, layers)
    if config.backend == "winnow" and calls != expected:
        raise Failure(f"{config}: {calls} attention calls of each layer for {expected} micro-batches; the result is "
                      "not of Winnow alone and is refused")
    return calls


def _base_identity(task, context):
    return task.host.identity(BASE) | {"text": task.text_identity, "context": context, "count": task.count}


def _row_identity(task, context, config):
    return {"base": _base_identity(task, context), "method": METHOD} | task.host.identity(config)


def _generation_identity(task, context, config):
    return task.host.identity(config) | {"context": context, "tokens": GENERATED, "runs": GENERATION_RUNS}


def write_base(task, context, path, advance):
    """Writes the logits of the base to a file; gives its perplexity after each context, over all so far."""
    temporary = path.with_suffix(".part")
    try:
        arguments = ["-f", task.text, "-c", context, "--chunks", task.count, "--kl-divergence-base", temporary, *COMMON]
        run = task.host.run_program("llama-perplexity", arguments, BASE,
                                    lambda printed: advance(printed.count(",") / task.count),
                                    batch=min(task.host.batch, context))
        if "Final estimate" not in run.stderr:
            raise Failure(f"llama-perplexity gave no result:\n{logs.essence(run.stdout + run.stderr)}")
        layers = logs.cache(run.stderr)["layers"]
        expect_calls(run, BASE, layers, task.count * micro_batches(task.host, context))
        running = logs.running_perplexity(run.stdout, task.count)
        size, expected = _sizes(temporary, context, task.count)
        if size != expected:  # llama-perplexity does not look whether it could write
            raise Failure(f"the base's logits in {path.parent} have {size} bytes, expected {expected}; "
                          "is the disk full?")
        temporary.rename(path)
        return running
    finally:
        temporary.unlink(missing_ok=True)


def compare(task, context, config, base, base_running, advance):
    """One configuration against the logits of the base and its perplexities."""
    arguments = ["-c", context, "--kl-divergence", "--kl-divergence-base", base, *COMMON]
    run = task.host.run_program("llama-perplexity", arguments, config,
                                lambda printed: advance(len(logs.CHUNK.findall(printed)) / task.count),
                                batch=min(task.host.batch, context))
    found = logs.divergence(run.stdout, task.count, base_running)
    cache = logs.cache(run.stderr)
    calls = expect_calls(run, config, cache["layers"], task.count * micro_batches(task.host, context))
    size, metadata = virtual_bytes(run, config) if config.kv else (cache["bytes"], 0)
    return {"context": context, "contexts": task.count, "scored_tokens": task.count * scored(context),
            "kv_bytes_per_token": size / cache["cells"], "kv_bytes": size, "kv_metadata_bytes": metadata, **found,
            "prompt_tokens_per_second": logs.prompt_speed(run.stderr), "peak_rss_bytes": run.peak_rss,
            "attention_calls": calls}


def generation(task, context, config):
    """Tokens per second of generation after so many tokens, by llama-bench.

    Between its runs llama-bench restores the state after those tokens, which a policy's cache cannot do: there each run
    is a process of its own.
    """
    if config.kv:
        speeds = [_bench(task, context, config, 1, "--no-warmup") for _ in range(GENERATION_RUNS)]
    else:
        speeds = [_bench(task, context, config, GENERATION_RUNS)]
    return {"generation_tokens_per_second": sum(speeds) / len(speeds)}


def _bench(task, context, config, runs, *more):
    arguments = ["-p", 0, "-n", GENERATED, "-d", context, "-r", runs, *more, "-o", "json"]
    run = task.host.run_program("llama-bench", arguments, config, batch=min(task.host.batch, context))
    try:
        (result,) = json.loads(run.stdout)
        speed = float(result["avg_ts"])
    except (ValueError, KeyError) as error:
        raise Failure(f"llama-bench gave no result: {error}\n{logs.essence(run.stdout + run.stderr)}") from error
    if calls_per_layer(run, config) < (GENERATED * runs if config.backend == "winnow" else 0):
        raise Failure(f"{config}: fewer attention calls than generated tokens in llama-bench; the result is refused")
    return speed


class Plan:
    """What is to be measured, what of it is kept already, and how much work the rest is."""

    def __init__(self, task, rows, contexts, with_generation):
        self.task, self.contexts = task, contexts
        self.rows = [NULL, *rows]
        self.with_generation = with_generation
        self.results = {}  # (context, name of the configuration): finished
        self.speeds = {}
        for context in contexts:
            for config in self.rows:
                kept = task.store.get("kld", _row_identity(task, context, config))
                if kept is not None:
                    self.results[context, config.name] = kept
                if with_generation:
                    kept = task.store.get("generation", _generation_identity(task, context, config))
                    if kept is not None:
                        self.speeds[context, config.name] = kept

    def missing(self, context):
        return [config for config in self.rows if (context, config.name) not in self.results]

    def missing_speeds(self, context):
        return [config for config in self.rows
                if self.with_generation and (context, config.name) not in self.speeds]

    def configurations(self):
        """Those of which anything is missing."""
        return [config for config in self.rows
                if any(config in [*self.missing(context), *self.missing_speeds(context)] for context in self.contexts)]

    def units(self):
        """The work that is left, in tokens."""
        total = 0
        for context in self.contexts:
            rows = len(self.missing(context))
            bases = 1 if rows and self._base_kept(context) is None else 0
            total += (rows + bases) * context * self.task.count
            total += len(self.missing_speeds(context)) * self._generation_units(context)
        return total

    def room(self, vocabulary):
        """How many bytes of logits are still to be written and kept at a time."""
        return max((logits_bytes(context, self.task.count, vocabulary) for context in self.contexts
                    if self.missing(context) and self._base_kept(context) is None), default=0)

    def _base_files(self, context):
        """(logits, what they are of and the perplexities that belong to them)"""
        path = self.task.store.base / f"{context}.kld"
        return path, path.with_suffix(".json")

    def _base_kept(self, context):
        """The perplexities of the base whose logits are there, or None."""
        path, mark = self._base_files(context)
        if not path.exists() or not mark.exists() or len(set(_sizes(path, context, self.task.count))) > 1:
            return None
        kept = json.loads(mark.read_text(encoding="utf-8"))
        return kept["ppl"] if kept.get("identity") == self._base_mark(context) else None

    def _base_mark(self, context):
        # As it is when read again: lists instead of tuples.
        return json.loads(json.dumps(_base_identity(self.task, context)))

    def _generation_units(self, context):
        return context + 8 * GENERATED * GENERATION_RUNS

    def run(self, progress):
        for context in self.contexts:
            self._compare_all(context, progress)
            for config in self.missing_speeds(context):
                with progress.step(f"generation, {config}, context {context}", self._generation_units(context)):
                    self.speeds[context, config.name] = generation(self.task, context, config)
                self.task.store.put("generation", _generation_identity(self.task, context, config),
                                    self.speeds[context, config.name])

    def _compare_all(self, context, progress):
        task, missing = self.task, self.missing(context)
        if not missing:
            return
        work = context * task.count
        base, mark = self._base_files(context)
        base_running = self._base_kept(context)
        if base_running is None:
            mark.unlink(missing_ok=True)
            with progress.step(f"base, context {context}", work) as advance:
                base_running = write_base(task, context, base, advance)
            write_json(mark, {"identity": self._base_mark(context), "ppl": base_running})
        for config in missing:
            with progress.step(f"{config}, context {context}", work) as advance:
                result = compare(task, context, config, base, base_running, advance)
                task.store.put("kld", _row_identity(task, context, config), result)
            self.results[context, config.name] = result
        base.unlink()  # gigabytes
        mark.unlink()

    def finished(self):
        """The rows of results.json."""
        speeds = {key: speed["generation_tokens_per_second"] for key, speed in self.speeds.items()}
        return [{"name": config.name, "role": "control" if config is NULL else "row", "config": config.settings(),
                 **self.results[context, config.name],
                 "generation_tokens_per_second": speeds.get((context, config.name))}
                for context in self.contexts for config in self.rows]
