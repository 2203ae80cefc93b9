"""A model of a GGUF file in torch, the logits of its full cache, and how others differ from them.

All is computed in float32 on the CPU, with the weights dequantized, as `winnow eval` does by default.
"""

import contextlib
import os
from dataclasses import dataclass

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}  # nothing is fetched

import torch  # noqa: E402
import transformers  # noqa: E402

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
    seconds: float  # of the model with its cache
    scored_seconds: float  # those of the second half
    held_after_prompt: int  # bytes of K and V
    resident_at_most: int  # bytes of K and V


def scores(logits, following, base=None):
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


def load(path, threads, attention):
    """The model of a GGUF file. attention: the implementation of transformers that computes it, as "sdpa"."""
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(open(os.devnull, "w")):  # bars that are drawn whatever is asked for
            return transformers.AutoModelForCausalLM.from_pretrained(
                path.resolve().parent, gguf_file=path.name, dtype=torch.float32, attn_implementation=attention).eval()
    except Exception as error:  # whatever it is, it is of this file
        raise Failure(f"--model: transformers cannot load {path.name}: {type(error).__name__}: {error}") from error


class Model:
    """A model of transformers, and what its full cache gives."""

    def __init__(self, model):
        self.model = model

    @torch.inference_mode()
    def base(self, tokens, first_scored):
        """The full cache: all tokens in one pass."""
        tokens = torch.tensor(tokens)
        logits = self.model(tokens[None], use_cache=False, logits_to_keep=len(tokens) - first_scored).logits[0, :-1]
        return Base(tokens, first_scored, logits, scores(logits, tokens[first_scored + 1:])["nll"])


def compared(logits, base):
    """What a row's logits, from the first scored token on, differ from those of the base by."""
    found = scores(torch.cat(logits)[:-1], base.tokens[base.first_scored + 1:], base.logits)
    if not all(value == value for value in found["kld"]):
        raise Refused("its logits are not numbers (NaN)")
    return found
