"""The logits of a model in torch under kvpress's presses."""

import contextlib
import importlib.metadata
import logging
import time

import torch_model  # before transformers, which reads the variables that it sets

import kvpress
import torch
import transformers

import rows
from torch_model import Outcome, Refused, compared


def versions():
    """Of all that makes the numbers."""
    return {name: importlib.metadata.version(name) for name in ("kvpress", "torch", "transformers")}


def _held(cache, more=0):
    """Bytes in f16 of what a cache holds, and of so many more tokens."""
    return sum(kept.numel() // kept.shape[-2] * (kept.shape[-2] + more) * rows.BYTES
               for layer in cache.layers for kept in (layer.keys, layer.values))


def _lengths(cache):
    """Tokens that the layers hold."""
    return {layer.keys.shape[-2] for layer in cache.layers}


class Model(torch_model.Model):
    def why_not(self):
        """Why kvpress compresses nothing of this model; None if it does."""
        supported = kvpress.presses.base_press.SUPPORTED_MODELS
        if isinstance(self.model, supported):
            return None
        return (f"kvpress supports {', '.join(known.__name__ for known in supported)}; this model is "
                f"{type(self.model).__name__}")

    @torch.inference_mode()
    def run(self, row, base):
        """A row over the context of a base; Refused says why it gives no result."""
        cache = transformers.DynamicCache(config=self.model.config)
        prompt, rest = base.tokens[None, :base.first_scored], base.tokens[None, base.first_scored:]
        begin = time.monotonic()
        with _press(row, base.first_scored)(self.model) if row.press else contextlib.nullcontext():
            with _reasons(row):
                self.model(prompt, past_key_values=cache, logits_to_keep=1)
            after_prompt = at_most = _held(cache)
            if row.press:
                _expect("after the prompt", _lengths(cache), row.kept(base.first_scored))
            middle = time.monotonic()
            logits, longest, position = [], 0, base.first_scored
            for step in rest.split(1 if row.mode == "decode" else rest.shape[1], 1):
                # What is appended is there, and is attended to, before a press takes something away.
                more = step.shape[1]
                at_most = max(at_most, _held(cache, more))
                longest = max(longest, max(_lengths(cache)) + more)
                with _reasons(row):  # the positions are those of the text, whatever the cache holds
                    logits.append(self.model(step, past_key_values=cache, position_ids=torch.arange(
                        position, position + more)[None]).logits[0])
                position += more
        end = time.monotonic()
        if row.mode == "decode" and row.press:
            _expect("at most", {longest}, min(row.keep, row.kept(base.first_scored) + rest.shape[1]))
        return Outcome(compared(logits, base), end - begin, end - middle, after_prompt, at_most)


def load(path, threads):
    """The model of a GGUF file."""
    logging.getLogger("kvpress").setLevel(logging.ERROR)
    return Model(torch_model.load(path, threads, "sdpa"))


def _expect(when, lengths, expected):
    """Refuses a row whose press was not active."""
    if lengths != {expected}:
        raise Refused(f"its layers held {', '.join(map(str, sorted(lengths)))} tokens {when}, expected {expected}")


@contextlib.contextmanager
def _reasons(row):
    """What a press cannot do becomes the reason why its row is refused."""
    try:
        yield
    except Exception as error:
        if not row.press:
            raise
        text = " ".join(str(error).split())
        raise Refused(f"kvpress fails: {type(error).__name__}{': ' if text else ''}{text}") from error


def _press(row, prompt):
    """kvpress's object for a row, which compresses a prompt of so many tokens."""
    settings = dict(row.settings)
    kept = row.kept(prompt)
    # Half a token more, since kvpress rounds down; decoding, it looks for the ratio by itself.
    ratio = max(0.0, 1 - (kept + 0.5) / prompt) if kept < prompt else 0.0
    try:
        make = getattr(kvpress, row.kind)
        press = make(compression_ratio=ratio, **settings)
        if row.mode == "decode":
            press = kvpress.PrefillDecodingPress(press, kvpress.DecodingPress(
                make(**settings), compression_interval=row.interval, target_size=row.target))
    except (TypeError, AssertionError, AttributeError) as error:
        raise Refused(f"kvpress takes no such press: {type(error).__name__}: {error}") from error
    return press
