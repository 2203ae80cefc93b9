"""The logits of a model in torch whose cache is Winnow's, with a policy that is a function in Python."""

import contextlib
import importlib.metadata
import inspect
import time
import traceback
from pathlib import Path

import torch_model  # before transformers, which reads the variables that it sets

import torch
import winnowkv
from winnowkv.transformers import WinnowCache

from torch_model import Outcome, Refused, compared
from winnow_eval import Failure

FULL_CACHE = "eager"  # the attention of the base; sdpa has no softcap (Gemma 2) and no sinks (GPT-OSS)
LEAST = 32  # tokens, of the cache that is made to ask whether Winnow serves a model


class Policy:
    """The function of a row, which counts its calls. What it raises is for its author: the program ends."""

    def __init__(self, row):
        self._row, self.calls = row, 0

    def __call__(self, scores, importance):
        self.calls += 1
        try:
            return self._row.function(scores, importance)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [each for each in frames if Path(each.filename).name == self._row.policy.partition(":")[0]]
            frame = (own or frames)[-1]
            raise Failure(f"{self._row.policy}: {type(error).__name__} in line {frame.lineno} of {frame.filename}: "
                          f"{error}") from error


class Model(torch_model.Model):
    def __init__(self, model, context):
        super().__init__(model)
        self._context = context
        # The argument's name since transformers 5.24, and before.
        names = inspect.signature(model.forward).parameters
        self._argument = "cache" if "cache" in names else "past_key_values"

    def why_not(self):
        """Why Winnow does not serve this model; None if it does."""
        try:
            WinnowCache(self.model, "none", max_tokens=LEAST, context=self._context).close()
        except winnowkv.Unsupported as error:
            return str(error)
        return None

    def base(self, tokens, first_scored):
        self.model.set_attn_implementation(FULL_CACHE)
        return super().base(tokens, first_scored)

    @torch.inference_mode()
    def run(self, row, base):
        """A row over the context of a base; Refused says why it gives no result."""
        policy = Policy(row) if row.function else None
        with _reasons(row), contextlib.closing(WinnowCache(
                self.model, row.config, max_tokens=len(base.tokens), context=self._context, policy=policy,
                policy_queries=row.queries)) as cache:
            steps, held, logits = 0, [], []
            prompt, rest = base.tokens[None, :base.first_scored], base.tokens[None, base.first_scored:]
            begin = time.monotonic()
            chunk = min(row.chunk, cache.kv.safe_step_tokens) if policy else row.chunk
            for step in prompt.split(chunk, 1):
                self.model(step, logits_to_keep=1, **{self._argument: cache})
                held.append(_held(cache))
                steps += 1
            after_prompt, middle = held[-1], time.monotonic()
            for step in rest.split(1 if row.mode == "decode" else chunk, 1):
                logits.append(self.model(step, **{self._argument: cache}).logits[0])
                held.append(_held(cache))
                steps += 1
            end = time.monotonic()
            if policy and policy.calls != steps:
                raise Failure(f"{row.name}: the policy was called {policy.calls} times in {steps} steps")
            if policy and not cache.kv.stats().evictions:
                raise Refused(f"nothing of {len(base.tokens)} tokens is evicted, so the policy decides nothing")
        return Outcome(compared(logits, base), end - begin, end - middle, after_prompt, max(held))


def _held(cache):
    """Bytes that winnow eval counts for a policy's cache: keys, values, and what recall asks by."""
    stats = cache.kv.stats()
    return stats.k_bytes + stats.v_bytes + stats.dense_k_bytes + stats.dense_v_bytes + stats.signature_bytes


@contextlib.contextmanager
def _reasons(row):
    """What Winnow says of a configuration, or of what a policy returned, is for its author."""
    try:
        yield
    except winnowkv.Error as error:
        raise Failure(f"{row.name}: {error}") from error


def versions(context, package, backend):
    """Of all that makes the numbers. package, backend: digests of the Python package and of the backend."""
    info = context.info
    return {"winnowkv": f"{context.version} in Python", "package": package, "backend": backend,
            "device": f"{info.name} ({info.platform}, {info.driver_version})",
            **{name: importlib.metadata.version(name) for name in ("torch", "transformers")}}


def load(path, threads, context):
    """The model of a GGUF file."""
    return Model(torch_model.load(path, threads, FULL_CACHE), context)
