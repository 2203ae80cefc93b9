"""KL divergence and perplexity of configurations against the full f16 cache, by winnow-measure.

For each context of the text the base runs first, and every configuration is compared with its logits, all in one
process. Each finished context of a configuration is kept by itself.
"""

import itertools
import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy

from winnow_calibrate import logs
from winnow_calibrate.host import (Host, calls_per_layer, expect_virtual, micro_batches, read_profiles,
                                   virtual_bytes)
from winnow_eval import Failure, measure
from winnow_eval.configs import BASE, CONTROL
from winnow_eval.store import Store

FEWEST_SCORED = 100  # tokens that a 99th percentile needs
MOST_SCORED = 2048  # positions of a context, since the base keeps a row of logits for each
FEWEST_DECIDED = 8  # contexts before a difference counts as decided
GENERATED = 32  # tokens of a measurement of generation
GENERATION_RUNS = 2
LEAST_CONTEXT = 32  # tokens
PADDING = 256  # llama.cpp makes contexts of a multiple of so many tokens
# What a configuration is probed with, as winnow-measure takes it: some thirty tokens, and one that it generates.
PROBE = {"turns": [{"text": "The ferry leaves at noon, when the bells of both churches have rung, and comes back "
                            "before dark. Whoever misses it has to wait for", "question": " the", "prefix": ""}],
         "generate": 2, "until": "", "chat": False, "decode": False, "find": []}
DIGITS = 6  # of a token's divergence that is kept
METHOD = 4  # how a result follows from what the programs tell; results of another one are not found again
MODES = ("batch", "decode")


@dataclass
class Task:
    """What to measure with: a host, a text, a number of contexts, and where to keep results."""

    host: Host
    store: Store
    text: Path
    text_identity: dict
    count: int


@dataclass(frozen=True)
class Setting:
    """A length of context and a mode: what a table is of."""

    context: int
    mode: str

    def decode_from(self, config):
        """The position from which a configuration takes tokens one at a time; None for none.

        A cache without a policy holds the same, and is the same to attend to, whichever way its tokens come.
        """
        return first_scored(self.context) if self.mode == "decode" and config.kv else None


def first_scored(context, most=MOST_SCORED):
    """The first position whose next token counts: the first half of a context, or all but its last `most` tokens,
    is context only."""
    return max(context // 2, context - most)


def scored(context, most=MOST_SCORED):
    """Tokens of a context that count."""
    return context - first_scored(context, most) - 1


def check_sizes(contexts, count, most=MOST_SCORED, least=2):
    """Fails for what cannot be measured, before anything is. least: contexts; a standard error needs 2."""
    if count < least:
        reason = ", which a standard error needs" if least == 2 else ""
        raise Failure(f"--count: {count}, expected at least {least}{reason}")
    for context in contexts:
        if context < LEAST_CONTEXT:
            raise Failure(f"--contexts: {context}, expected at least {LEAST_CONTEXT}")
        if scored(context, most) * count < FEWEST_SCORED:
            raise Failure(f"--count: {count} contexts of {context} tokens have {scored(context, most) * count} scored "
                          f"tokens, expected at least {FEWEST_SCORED}")


def check_length(tokens, contexts, count):
    """Fails if a text of so many tokens is too short for so many contexts of one of these lengths."""
    for context in contexts:
        if tokens < context * count:
            raise Failure(f"--count: the text has {tokens // context} contexts of {context} tokens, {count} were "
                          "asked for; give a longer text, or fewer or shorter contexts")


def lengths(contexts, with_generation):
    """[(tokens of a context, what takes it)] of all that compares and generates."""
    found = [(context, f"--contexts {context}") for context in contexts]
    if with_generation:
        found += [(context + GENERATED, f"generation after {context} tokens") for context in contexts]
    return found


def ends(found):
    """Of [(tokens of a context, what takes it)] the shortest and the longest, as llama.cpp makes them; one where these
    are the same."""
    found = [(-(-tokens // PADDING) * PADDING, what) for tokens, what in found]
    by_length = {tokens: (tokens, what) for tokens, what in reversed(found)}  # of the same length, the first
    return [by_length[tokens] for tokens in sorted({min(by_length), max(by_length)})]


def probing(host):
    """The process in which configurations are probed: with the file that was given, whatever its weights."""
    return measure.Measure(host, host.original)


def count_tokens(process, text):
    """How many tokens a text has."""
    tokens = process.read(text, LEAST_CONTEXT, 0)
    process.let_go()
    return tokens


def probe(process, config, length):
    """Runs a configuration over a few tokens, in a context of a length out of ends(); fails if llama.cpp or the plugin
    cannot, or does something else."""
    tokens, what = length
    try:
        return _probe(process, config, tokens)
    except Failure as failure:
        raise Failure(f"{failure}\nIt was tried in a context of {tokens} tokens, which {what} takes") from failure


def _probe(process, config, tokens):
    answered = process.answer(config, PROBE | {"cells": tokens})
    run = answered.run
    if config.kv:
        expect_virtual(run.report, config)
        if run.report.get("kv") != config.kv:
            raise Failure(f"{config}: the plugin does not carry out this policy; it reports "
                          f"{json.dumps(run.report.get('kv'))} as what it did")
    found = logs.cache(run.stderr)
    expect_calls(run, config, found["layers"], answered.micro_batches)
    return run.report


def expect_calls(run, config, layers, expected):
    """Attention calls of each layer, which have to be as many as expected with Winnow."""
    calls = calls_per_layer(run, config, layers)
    if config.backend == "winnow" and calls != expected:
        raise Failure(f"{config}: {calls} attention calls of each layer for {expected} micro-batches; the result is "
                      "not of Winnow alone and is refused")
    return calls


def expect_decoded(run, config, context, decode_from):
    """Fails unless each cache took the tokens from there on, and no others, one at a time."""
    expected = 0 if decode_from is None else context - decode_from
    for cache in run.report["caches"] if config.kv else ():
        if cache["decoded"] != expected:
            raise Failure(f"{config}: the cache of {cache['name']} took {cache['decoded']} of {context} tokens one at "
                          f"a time, expected {expected}")


def compare(host, process, setting, config, index, base_nll):
    """One configuration against the base's logits of context number `index`."""
    context, decode_from = setting.context, setting.decode_from(config)
    measured = process.run(config, index, decode_from=decode_from)
    run = measured.run
    cache = logs.cache(run.stderr)
    calls = expect_calls(run, config, cache["layers"], micro_batches(host, context))
    expect_decoded(run, config, context, decode_from)
    size, metadata = virtual_bytes(run, config) if config.kv else (cache["bytes"], 0)
    tokens = scored(context)
    if not len(measured.nll) == len(measured.kld) == len(measured.same_top) == tokens:
        raise Failure(f"{config}: {len(measured.kld)} tokens were scored, expected {tokens}")
    found = {"kld": statistics.fmean(measured.kld), "nll": statistics.fmean(measured.nll),
             "nll_base": statistics.fmean(base_nll), "same_top": 100 * statistics.fmean(measured.same_top)}
    return {"context": context, **found, "kld_of_tokens": [float(f"{value:.{DIGITS}g}") for value in measured.kld],
            "cells": cache["cells"], "kv_bytes": size, "kv_metadata_bytes": metadata, "attention_calls": calls,
            "seconds": run.seconds, **_told(run, config)}


def _told(run, config):
    """What a policy's caches tell: the "family" of its string, the "files" that it names, and recall's picks."""
    if not config.kv:
        return {}
    caches = run.report["caches"]
    picks, misses = (sum(cache.get(key, 0) for cache in caches) for key in ("picks", "misses"))
    recalled = {"picks": picks, "misses": misses} if picks else {}
    return {"family": caches[-1]["family"], **read_profiles(run), **recalled}


def _told_of_row(parts):
    """What of that stands in a row of results.json."""
    told = {key: parts[0][key] for key in ("family", "files") if key in parts[0]}
    if all("picks" in part for part in parts):  # pages that came into the hot slots
        told["misses_percent"] = 100 * sum(part["misses"] for part in parts) / sum(part["picks"] for part in parts)
    return told


def mean_and_error(values):
    """The mean of values and its standard error; None of one value."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return statistics.fmean(values), error


def summary(parts):
    """A row of results.json, from its contexts in their order."""
    context = parts[0]["context"]
    kld, same_top, nll, nll_base = ([part[key] for part in parts] for key in ("kld", "same_top", "nll", "nll_base"))
    ln_ratio = [one - base for one, base in zip(nll, nll_base)]
    ratio, ratio_error = mean_and_error(ln_ratio)
    sizes = [max(part[key] for part in parts) for key in ("kv_bytes", "kv_metadata_bytes")]
    return {"context": context, "contexts": len(parts),
            "scored_tokens": sum(len(part["kld_of_tokens"]) for part in parts),
            "kv_bytes_per_token": sizes[0] / parts[0]["cells"], "kv_bytes": sizes[0], "kv_metadata_bytes": sizes[1],
            "ppl": math.exp(statistics.fmean(nll)), "ppl_base": math.exp(statistics.fmean(nll_base)),
            "ppl_increase_percent": 100 * math.expm1(ratio),
            "ppl_increase_se": None if ratio_error is None else 100 * math.exp(ratio) * ratio_error,
            "kld": statistics.fmean(kld), "kld_se": mean_and_error(kld)[1],
            "kld_p99": float(numpy.percentile(numpy.concatenate([part["kld_of_tokens"] for part in parts]), 99)),
            "same_top_percent": statistics.fmean(same_top), "same_top_se": mean_and_error(same_top)[1],
            "prompt_tokens_per_second": context * len(parts) / sum(part["seconds"] for part in parts),
            "attention_calls": sum(part["attention_calls"] for part in parts),
            "per_context": {"ln_ratio": ln_ratio, "kld": kld, "same_top": same_top}}


def is_decided(one, other, sigmas):
    """Whether the mean divergences of two configurations differ by so many standard errors, context by context."""
    if len(one) < FEWEST_DECIDED or len(other) < FEWEST_DECIDED:
        return False
    mean, error = mean_and_error([mine["kld"] - its["kld"] for mine, its in zip(one, other)])
    return abs(mean) > sigmas * error


def generation(task, context, config):
    """Tokens per second of generation after so many tokens, by llama-bench.

    Between its runs llama-bench restores the state after those tokens, which a policy's cache cannot do: there each run
    is a process of its own.
    """
    if config.kv:
        benches = [_bench(task, context, config, 1, "--no-warmup") for _ in range(GENERATION_RUNS)]
    else:
        benches = [_bench(task, context, config, GENERATION_RUNS)]
    _, run = benches[0]
    return {"generation_tokens_per_second": statistics.fmean(speed for speed, _ in benches), **read_profiles(run)}


def _bench(task, context, config, runs, *more):
    """(tokens per second, Run)"""
    arguments = ["-p", 0, "-n", GENERATED, "-d", context, "-r", runs, *more, "-o", "json"]
    run = task.host.run_program("llama-bench", arguments, config, batch=min(task.host.batch, context))
    try:
        (result,) = json.loads(run.stdout)
        speed = float(result["avg_ts"])
    except (ValueError, KeyError) as error:
        raise Failure(f"llama-bench gave no result: {error}\n{logs.essence(run.stdout + run.stderr)}") from error
    if calls_per_layer(run, config) < (GENERATED * runs if config.backend == "winnow" else 0):
        raise Failure(f"{config}: fewer attention calls than generated tokens in llama-bench; the result is refused")
    return speed, run


def _part_identity(task, setting, index, config):
    text = task.text_identity | {"context": setting.context, "index": index}
    return {"base": task.host.identity(BASE), "text": text, "method": METHOD, "measure": measure.identity(),
            "decode_from": setting.decode_from(config)} | task.host.identity(config)


def _generation_identity(task, context, config):
    return task.host.identity(config) | {"context": context, "tokens": GENERATED, "runs": GENERATION_RUNS}


class Plan:
    """What is to be measured, what of it is kept already, and how much work the rest is.

    sigmas: by how many standard errors a configuration has to differ from each other one until it is measured on no
    further context; None: all contexts are measured.
    """

    def __init__(self, task, rows, contexts, modes, with_generation, sigmas=None):
        self.task, self.sigmas = task, sigmas
        self.contexts = contexts
        self.settings = [Setting(context, mode) for context in contexts for mode in modes]
        self.rows = [CONTROL, *rows]
        self.with_generation = with_generation
        self.parts = {}  # (setting, name of the configuration): finished contexts, from the first on
        self.speeds = {}
        for setting in self.settings:
            for config in self.rows:
                same = next((one for one in self.settings if one.context == setting.context
                             and one.decode_from(config) == setting.decode_from(config)), setting)
                kept = self.parts.get((same, config.name))
                self.parts[setting, config.name] = self._kept_parts(setting, config) if kept is None else list(kept)
        for context in contexts if with_generation else ():
            for config in self.rows:
                kept = task.store.get("generation", _generation_identity(task, context, config))
                if kept is not None:
                    self.speeds[context, config.name] = kept

    def _kept_parts(self, setting, config):
        kept = []
        for index in range(self.task.count):
            part = self.task.store.get("kld", _part_identity(self.task, setting, index, config))
            if part is None:
                break
            kept.append(part)
        return kept

    def _is_decided(self, setting, config):
        mine, others = self.parts[setting, config.name], [other for other in self.rows if other is not config]
        return self.sigmas is not None and all(
            is_decided(mine, self.parts[setting, other.name], self.sigmas) for other in others)

    def missing(self, context, index):
        """[(setting, configuration)] that have no result of a context of this length; a cache without a policy has
        one for all modes."""
        found = {}
        for setting in self.settings:
            for config in self.rows:
                is_next = len(self.parts[setting, config.name]) == index
                if setting.context == context and is_next and not self._is_decided(setting, config):
                    found.setdefault((config.name, setting.decode_from(config)), (setting, config))
        return list(found.values())

    def missing_speeds(self, context):
        return [config for config in self.rows
                if self.with_generation and (context, config.name) not in self.speeds]

    def configurations(self):
        """Those of which anything is missing."""
        names = {config.name for context in self.contexts for index in range(self.task.count)
                 for _, config in self.missing(context, index)}
        names |= {config.name for context in self.contexts for config in self.missing_speeds(context)}
        return [config for config in self.rows if config.name in names]

    def units(self):
        """The most work that is left, in tokens."""
        total = 0
        for context in self.contexts:
            undecided = [(setting, config) for setting in self.settings for config in self.rows
                         if setting.context == context and not self._is_decided(setting, config)]
            for index in range(self.task.count):
                runs = {(config.name, setting.decode_from(config)) for setting, config in undecided
                        if len(self.parts[setting, config.name]) <= index}
                total += context * (len(runs) + (1 if runs else 0))
            total += len(self.missing_speeds(context)) * self._generation_units(context)
        return total

    def _generation_units(self, context):
        return context + 8 * GENERATED * GENERATION_RUNS

    def run(self, process, progress):
        """Measures what is missing, in a measure.Process."""
        for context in self.contexts:
            self._compare_all(context, process, progress)
            for config in self.missing_speeds(context):
                with progress.step(f"generation, {config}, context {context}", self._generation_units(context)):
                    self.speeds[context, config.name] = generation(self.task, context, config)
                self.task.store.put("generation", _generation_identity(self.task, context, config),
                                    self.speeds[context, config.name])

    def _compare_all(self, context, process, progress):
        has_text = False
        for index in range(self.task.count):
            missing = self.missing(context, index)
            if missing and not has_text:
                process.get().read(self.task.text, context, first_scored(context))
                has_text = True
            if missing:
                self._compare(context, index, missing, process.get(), progress)
        if has_text:
            process.get().let_go()

    def _compare(self, context, index, missing, process, progress):
        """All that is missing of one context."""
        host, before = self.task.host, self.units()
        label = f"context {index + 1} of {self.task.count}, {context} tokens"
        with progress.step(f"{label}: base", context):
            measured = process.run(BASE, index, base=True)
            expect_calls(measured.run, BASE, logs.cache(measured.run.stderr)["layers"], micro_batches(host, context))
        for setting, config in missing:
            mode = "" if setting.decode_from(config) is None else ", decoded"
            with progress.step(f"{label}: {config}{mode}", context):
                self._put(setting, index, config, compare(host, process, setting, config, index, measured.nll))
        # What is decided by now need not be done any more.
        progress.expect(self.units() + context * (1 + len(missing)) - before)

    def _put(self, setting, index, config, part):
        self.task.store.put("kld", _part_identity(self.task, setting, index, config), part)
        for other in self.settings:
            same = other.context == setting.context and other.decode_from(config) == setting.decode_from(config)
            if same:
                self.parts[other, config.name].append(part)

    def finished(self):
        """The rows of results.json."""
        speeds = {key: speed["generation_tokens_per_second"] for key, speed in self.speeds.items()}
        rows = []
        for setting, config in itertools.product(self.settings, self.rows):
            parts = self.parts[setting, config.name]
            rows.append({"name": config.name, "role": "control" if config is CONTROL else "row",
                         "config": config.settings(), "mode": setting.mode, **_told_of_row(parts), **summary(parts),
                         "generation_tokens_per_second": speeds.get((setting.context, config.name))})
        return rows
