"""A model in torch, its logits under kvpress's presses, and how they differ from those of the full cache.

All is computed in float32 on the CPU, with the weights of a GGUF file dequantized, as `winnow eval` does by default.
"""

import contextlib
import importlib.metadata
import logging
import os
import time
from dataclasses import dataclass

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}  # nothing is fetched

import kvpress  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import rows  # noqa: E402
from winnow_eval import Failure  # noqa: E402

SCORED_AT_ONCE = 64  # tokens whose probabilities are doubles at the same time


class Refused(Exception):
    """Why a row cannot be measured."""


@dataclass
class Base:
    """The full cache over one context: what rows are compared with."""

    tokens: torch.Tensor
    first_scored: int
    logits: torch.Tensor  # [scored token][word]
    nll: list


@dataclass
class Outcome:
    """A row over one context."""

    scores: dict  # "nll", "kld", "same_top" of each scored token
    seconds: float  # of the model and the press
    scored_seconds: float  # those of the second half
    held_after_prompt: int  # bytes in f16
    resident_at_most: int


def versions():
    """Of all that makes the numbers."""
    return {name: importlib.metadata.version(name) for name in ("kvpress", "torch", "transformers")}


def _scores(logits, following, base=None):
    """Of each row of logits -ln of the probability of the token that came; with a base's logits the divergence from it
    and whether the likeliest token is the same. In double."""
    found = {"nll": []} if base is None else {"nll": [], "kld": [], "same_top": []}
    for begin in range(0, len(logits), SCORED_AT_ONCE):
        some = slice(begin, begin + SCORED_AT_ONCE)
        ln_q = torch.log_softmax(logits[some].double(), -1)
        found["nll"] += (-ln_q.gather(-1, following[some, None])[:, 0]).tolist()
        if base is not None:
            ln_p = torch.log_softmax(base[some].double(), -1)
            found["kld"] += (ln_p.exp() * (ln_p - ln_q)).sum(-1).tolist()
            found["same_top"] += (logits[some].argmax(-1) == base[some].argmax(-1)).int().tolist()
    return found


def _held(cache, more=0):
    """Bytes in f16 of what a cache holds, and of so many more tokens."""
    return sum(kept.numel() // kept.shape[-2] * (kept.shape[-2] + more) * rows.BYTES
               for layer in cache.layers for kept in (layer.keys, layer.values))


def _lengths(cache):
    """Tokens that the layers hold."""
    return {layer.keys.shape[-2] for layer in cache.layers}


class Model:
    """The model of a GGUF file."""

    def __init__(self, path, threads):
        torch.set_num_threads(threads)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        logging.getLogger("kvpress").setLevel(logging.ERROR)
        try:
            with contextlib.redirect_stderr(open(os.devnull, "w")):  # bars that are drawn whatever is asked for
                self.model = transformers.AutoModelForCausalLM.from_pretrained(
                    path.resolve().parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="sdpa").eval()
        except Exception as error:  # whatever it is, it is of this file
            raise Failure(f"--model: transformers cannot load {path.name}: {type(error).__name__}: {error}") from error
        self.vocabulary = self.model.config.vocab_size

    def why_not(self):
        """Why kvpress compresses nothing of this model; None if it does."""
        supported = kvpress.presses.base_press.SUPPORTED_MODELS
        if isinstance(self.model, supported):
            return None
        return (f"kvpress supports {', '.join(known.__name__ for known in supported)}; this model is "
                f"{type(self.model).__name__}")

    @torch.inference_mode()
    def base(self, tokens, first_scored):
        """The full cache: all tokens in one pass."""
        tokens = torch.tensor(tokens)
        logits = self.model(tokens[None], use_cache=False, logits_to_keep=len(tokens) - first_scored).logits[0, :-1]
        return Base(tokens, first_scored, logits, _scores(logits, tokens[first_scored + 1:])["nll"])

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
        scores = _scores(torch.cat(logits)[:-1], base.tokens[base.first_scored + 1:], base.logits)
        if not all(value == value for value in scores["kld"]):
            raise Refused("its logits are not numbers (NaN)")
        return Outcome(scores, end - begin, end - middle, after_prompt, at_most)


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
