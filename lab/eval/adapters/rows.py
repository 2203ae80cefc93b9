"""The file that an adapter writes for `winnow eval --with`, and the statistics in it: those of winnow eval."""

from pathlib import Path

from winnow_eval import Failure, divergence, given, others
from winnow_calibrate import storage

FORMAT, VERSION = "winnow-eval-rows", 1
BYTES = 2  # of an element of K or V, whichever type the tool computes with: f16, as the base of winnow eval has it
WINNOWS = ("kv_metadata_bytes", "attention_calls")  # parts of winnow eval's summary that other tools have not


def part(context, scores, kv_bytes, seconds, expected=None):
    """One context of a row, as winnow eval keeps them. scores: "nll", "nll_base", "kld" and "same_top" token by token,
    natural logarithms; kv_bytes: what the cache held at most."""
    expected = divergence.scored(context) if expected is None else expected
    for key, values in scores.items():
        if len(values) != expected:
            raise Failure(f"{key}: {len(values)} tokens of a context of {context} were scored, expected {expected}")
    means = {key: sum(values) / expected for key, values in scores.items()}
    return {"context": context, **means, "same_top": 100 * means["same_top"],
            "kld_of_tokens": [float(f"{value:.{divergence.DIGITS}g}") for value in scores["kld"]], "cells": context,
            "kv_bytes": kv_bytes, "kv_metadata_bytes": 0, "attention_calls": 0, "seconds": seconds}


def summary(parts):
    """The figures of a row from its contexts in their order."""
    made = {key: value for key, value in divergence.summary(parts).items() if key not in WINNOWS}
    return made | {"kld": max(0.0, made["kld"])}  # the control's is zero but for the last bits of a double


def command(name, words):
    """This command for a reader: files by their names alone."""
    return [name, *(Path(word).name if isinstance(word, Path) else str(word) for word in words)]


def checked(content):
    """The content of a file, which is as winnow eval expects it."""
    wrong = given.complaint(content, others.SCHEMA)
    if wrong is not None:
        raise Failure(wrong)
    return content


def write(path, tool, command, model, text=None, rows=(), tasks=(), remarks=()):
    """Writes the file; readers see the old one or the new one. tool: (name, version); model: (file, sha256);
    text: (file, identity as text.prepare gives it)."""
    content = {"format": FORMAT, "version": VERSION, "tool": dict(zip(("name", "version"), tool)),
               "command": list(command), "remarks": list(remarks), "model": dict(zip(("file", "sha256"), model)),
               "text": {"file": text[0], **text[1]} if text else None, "rows": list(rows), "tasks": list(tasks)}
    storage.write_json(path, checked(content))
    return content
