"""Compares configurations of the cache on a text: how much each changes what a model says, and in how many bytes.

    from winnowkv.compare import compare, plot

    table = compare(model, text, ["winnow", "winnow:budget=1/4", "winnow:budget=1/8"], tokenizer=tokenizer)
    plot(table).savefig("loss.svg")

`pip install "winnowkv[compare]"` installs what this module imports: torch, transformers, pandas, tqdm and matplotlib.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from winnowkv._arrays import whole
from winnowkv.description import CacheStats
from winnowkv.errors import Error, InvalidArgument
from winnowkv.kv_cache import KvCache

try:
    import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import torch  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from matplotlib import pyplot  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from tqdm import tqdm  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from transformers import DynamicCache  # type: ignore[import-not-found, import-untyped, unused-ignore]

    from winnowkv.transformers import WinnowCache
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(f"{missing.name} is not installed, expected it for winnowkv.compare; pip install "
                              '"winnowkv[compare]"', name=missing.name) from missing

CHUNK = 512  # tokens of a forward call
BLOCK = 64  # rows of logits that are compared at a time
LEAST_KLD = 1e-6  # in the picture, whose axis is logarithmic
LOSSES = {"kld": ("kld_se", "mean KL divergence (nats)"),
          "increase_percent": ("increase_se", "increase of perplexity (%)")}


def compare(model: Any, text: Any, configs: Sequence[str] | Mapping[str, Any], *, tokenizer: Any = None,
            context_tokens: int = 1024, contexts: int = 4, mode: str = "decode",
            progress: bool = True) -> pandas.DataFrame:
    """Cuts a text into contexts, has the model read each of them with each configuration, and compares the logits of
    its second half with those that the full cache gives: transformers' eager attention and its default cache.

    model: a decoder of transformers, in the host's memory. text: a str, which `tokenizer` makes tokens of, or token
    ids [tokens]. configs: configurations (docs/policies.md), or {name: configuration}; in the place of one there may be
    a dict of arguments of WinnowCache: {"tova": dict(config="external:budget=1/4", policy=tova)}. One policy object
    serves all contexts.
    context_tokens: the length of a context, of which a budget of 1/4 is a share. contexts: how many, from the text's
    beginning. mode: "decode": the first half comes as a prompt, and each token of the second half is stored and
    attends before the next one comes; under a policy in Python the whole model runs token by token, otherwise each
    layer. "batch": all comes as a prompt.

    Returns a row for each configuration, indexed by name:
    family: the configuration without its budget, for all that differ in the budget alone; where others have the same,
    the name of the first of them. bytes_per_token: all bytes of the cache at a context's end, over
    context_tokens. share_of_f16: the same over what all tokens take in F16. perplexity, and its increase_percent over
    the full cache's, with increase_se. kld, kld_se, kld_99: mean KL divergence in nats, and its 99th percentile over
    tokens. same_top_percent: how often the most likely token is the full cache's. tokens_per_second: of reading
    contexts, without the first of several, in which kernels are compiled. steps: calls of KvCache.step for a context,
    over all layers. Standard errors are of differences over contexts, nan with one context. table.attrs has
    base_perplexity, that of the full cache, and the other arguments.

    Raises InvalidArgument for what it does not take; where a configuration fails, the error names it."""
    named = _arguments(configs)
    ids = _contexts(model, text, tokenizer, context_tokens, contexts)
    if mode not in ("decode", "batch"):
        raise InvalidArgument(f'mode is {mode!r}, expected "decode" or "batch"')
    if model.training:
        raise InvalidArgument("model is in training, expected one after model.eval()")
    attention, hook = model.config._attn_implementation, getattr(model, "_winnow_hook", None)
    base_nll: list[float] = []
    runs: dict[str, list[_Run]] = {name: [] for name in named}
    try:
        with torch.no_grad(), tqdm(total=ids.numel() * (1 + len(named)), unit="token", disable=not progress) as bar:
            for name, arguments in named.items():  # what cannot be made is said before anything is measured
                with _naming(name):
                    _Cache(model, **{"max_tokens": ids.shape[1]} | arguments).close()
            for context in ids:
                bar.set_description("full cache")
                base = _full_cache(model, context, bar)
                base_nll.append(float(_compared(base, base, context[len(context) // 2 + 1:])[0].mean()))
                for name, arguments in named.items():
                    bar.set_description(name)
                    with _naming(name):
                        runs[name].append(_run(model, context, arguments, mode, base, bar))
    finally:
        model.set_attn_implementation(attention)
        if hook is None and getattr(model, "_winnow_hook", None) is not None:
            model._winnow_hook.remove()
            del model._winnow_hook
    families = _families(named)
    table = pandas.DataFrame([{"family": families[name]} | _row(base_nll, runs[name]) for name in named],
                             index=pandas.Index(named, name="configuration"))
    table.attrs = {"base_perplexity": math.exp(statistics.fmean(base_nll)), "context_tokens": ids.shape[1],
                   "contexts": len(ids), "mode": mode}
    return table


def plot(table: pandas.DataFrame, loss: str = "kld") -> Any:
    """The picture of what compare() returned, a matplotlib Figure: the loss over bytes, each with a bar of one standard
    error. A line joins configurations that differ in their budget alone. loss: "kld" or "increase_percent"."""
    if loss not in LOSSES:
        raise InvalidArgument(f"loss is {loss!r}, expected {' or '.join(LOSSES)}")
    error, label = LOSSES[loss]
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for family, members in table.sort_values("bytes_per_token").groupby("family", sort=False):
        values = members[loss].clip(lower=LEAST_KLD) if loss == "kld" else members[loss]
        axes.errorbar(members.bytes_per_token, values, members[error], marker="o", markersize=4, capsize=2,
                      label=family)
        for name, size, value in zip(members.index, members.bytes_per_token, values):
            text = name.removeprefix(family).lstrip(":,")  # the legend has the family
            axes.annotate(text, (size, value), xytext=(4, 4), textcoords="offset points", fontsize=7)
    axes.margins(x=0.12)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if loss == "kld":
        axes.set_yscale("log", nonpositive="clip")
    axes.set_xlabel("KV cache (bytes per token)")
    axes.set_ylabel(label)
    if table.attrs:  # which a table that was read from a file lacks
        title = "{contexts} contexts of {context_tokens} tokens, mode {mode}".format(**table.attrs)
        axes.set_title(title, fontsize=9)
    axes.legend(fontsize=8)
    pyplot.close(figure)  # a notebook shows what is returned, and would show it twice
    return figure


# ---- Arguments ------------------------------------------------------------------------------------------------------


def _arguments(configs: Any) -> dict[str, dict[str, Any]]:
    """The arguments of WinnowCache by name. Raises InvalidArgument."""
    if isinstance(configs, (list, tuple)) and all(isinstance(each, str) for each in configs):
        configs = {each: each for each in configs}
    if not isinstance(configs, Mapping) or not configs:
        raise InvalidArgument(f"configs is {configs!r}, expected one configuration at least: a list of strings, or a "
                              f"dict {{name: string or dict of arguments of WinnowCache}}")
    for name, given in configs.items():
        if not isinstance(name, str) or not isinstance(given, (str, Mapping)):
            raise InvalidArgument(f"configs[{name!r}] is {given!r}, expected a string, or a dict of arguments of "
                                  f"WinnowCache, with a string as its name")
    return {name: {"config": given} if isinstance(given, str) else dict(given) for name, given in configs.items()}


def _contexts(model: Any, text: Any, tokenizer: Any, context_tokens: int, contexts: int) -> Any:
    """Token ids [contexts, context_tokens]; each context begins as the tokenizer begins a text. Raises
    InvalidArgument."""
    context_tokens = whole(context_tokens, "context_tokens", 4,
                           model.config.get_text_config(decoder=True).max_position_embeddings)
    contexts, begin = whole(contexts, "contexts", 1), []
    if isinstance(text, str):
        if tokenizer is None:
            raise InvalidArgument("text is a str and tokenizer is None, expected the model's tokenizer, or token ids")
        text = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        first = list(tokenizer("a")["input_ids"][:1])
        begin = first if first == [tokenizer.bos_token_id] else []
    try:
        ids = torch.as_tensor(text)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgument(f"text is of type {type(text).__name__}, expected a str, or token ids [tokens]") from None
    ids = ids[0] if ids.dim() == 2 and len(ids) == 1 else ids
    if ids.dim() != 1 or ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise InvalidArgument(f"text has the shape {list(ids.shape)} and the type {ids.dtype}, expected a str, or "
                              f"token ids [tokens] of whole numbers")
    length, words = context_tokens - len(begin), model.get_input_embeddings().num_embeddings
    if len(ids) < contexts * length:
        raise InvalidArgument(f"text has {len(ids)} tokens, expected {contexts * length} for contexts={contexts} of "
                              f"context_tokens={context_tokens}")
    ids = ids[:contexts * length].to(torch.int64).reshape(contexts, length)
    if ids.min() < 0 or ids.max() >= words:
        raise InvalidArgument(f"text has token ids of {int(ids.min())} to {int(ids.max())}, expected 0 to {words - 1}")
    return torch.cat([torch.tensor(begin, dtype=torch.int64).expand(contexts, len(begin)), ids], 1)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Errors name the configuration."""
    try:
        yield
    except Error as error:
        raise type(error)(f'configuration "{name}": {error}') from error
    except Exception as error:
        raise Error(f'configuration "{name}": {type(error).__name__}: {error}') from error


# ---- Measuring ------------------------------------------------------------------------------------------------------


class _TokenSteps(KvCache):
    """Makes a step of each token, as generation does, while `one_by_one` is set. The rest of the model computes the
    tokens of a forward call together."""

    one_by_one = False

    def step(self, layer: int, k: Any = None, v: Any = None, q: Any = None, *, out: Any = None, **options: Any) -> Any:
        if not self.one_by_one:
            return super().step(layer, k, v, q, out=out, **options)
        for at in range(k.shape[2]):
            token = slice(at, at + 1)
            super().step(layer, k[:, :, token], v[:, :, token], q[:, :, token], out=out[:, :, token], **options)
        return out


class _Cache(WinnowCache):
    kv: _TokenSteps
    _warns = False  # the table has the loss

    def _make(self, sequences: int) -> _TokenSteps:
        return _TokenSteps(self._config, sequences=sequences, **self._arguments)


class _Run(NamedTuple):
    """A configuration on a context."""

    nll: float  # mean over scored tokens
    kld: Any  # of each scored token, F64
    same_top: float
    seconds: float
    stats: CacheStats


def _read(model: Any, cache: Any, tokens: Any, chunk: int, is_scored: bool, bar: Any) -> Iterator[tuple[Any, float]]:
    """Yields the logits of each forward call, where they are scored those of all tokens, and the seconds it took."""
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    for part in tokens.split(chunk):
        start = time.perf_counter()
        logits = model(part[None], **{name: cache}, use_cache=True, logits_to_keep=0 if is_scored else 1).logits[0]
        seconds = time.perf_counter() - start
        bar.update(len(part))
        yield logits, seconds


def _full_cache(model: Any, context: Any, bar: Any) -> Any:
    """Logits of the second half. Older releases of transformers leave out Gemma 2's softcap under sdpa; newer ones
    refuse sdpa for Gemma 2 and GPT-OSS."""
    model.set_attn_implementation("eager")
    cache, half = DynamicCache(config=model.config), len(context) // 2
    for _ in _read(model, cache, context[:half], CHUNK, False, bar):
        pass
    return torch.cat([logits for logits, _ in _read(model, cache, context[half:], CHUNK, True, bar)])


def _run(model: Any, context: Any, arguments: dict[str, Any], mode: str, base: Any, bar: Any) -> _Run:
    has_policy, at = arguments.get("policy") is not None, len(context) // 2
    cache = _Cache(model, **{"max_tokens": len(context)} | arguments)
    chunk = min(CHUNK, cache.kv.safe_step_tokens) if has_policy else CHUNK
    try:
        seconds = sum(each for _, each in _read(model, cache, context[:at], chunk, False, bar))
        if mode == "decode":
            cache.kv.one_by_one = not has_policy
            chunk = 1 if has_policy else chunk
        found = []
        for logits, each in _read(model, cache, context[at:], chunk, True, bar):
            seconds += each
            found.append(_compared(base, logits, context[at + 1:at + 1 + len(logits)]))
            base, at = base[len(logits):], at + len(logits)
        lengths = {cache.kv.next_position(layer) for layer in range(cache.kv.layers)}
        if lengths != {len(context)}:
            raise Error(f"layers have {sorted(lengths)} tokens in Winnow, expected {len(context)} in each: the model "
                        f"does not hand all of its attention to the cache")
        nll, kld, same_top = torch.cat(found, 1)
        return _Run(float(nll.mean()), kld, float(same_top.mean()), seconds, cache.kv.stats())
    finally:
        cache.close()


def _compared(base: Any, logits: Any, targets: Any) -> Any:
    """[3, targets] in F64: negative log-likelihood of the target, divergence from the base, whether both have the same
    top token."""
    found = [torch.empty(3, 0, dtype=torch.float64)]
    for at in range(0, len(targets), BLOCK):
        rows = slice(at, min(at + BLOCK, len(targets)))
        p, q = (each[rows].double().log_softmax(1) for each in (base, logits))
        nll = -q.gather(1, targets[rows, None])[:, 0]
        found.append(torch.stack([nll, (p.exp() * (p - q)).sum(1), (p.argmax(1) == q.argmax(1)).double()]))
    return torch.cat(found, 1)


# ---- The table ------------------------------------------------------------------------------------------------------


def _mean(values: list[float]) -> tuple[float, float]:
    """With its standard error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.fmean(values), error


def _families(named: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By name, what the line of the picture is called that joins all whose arguments differ in the budget alone."""
    families: list[tuple[dict[str, Any], str, list[str]]] = []  # arguments without a budget, a label, names
    for name, arguments in named.items():
        config = re.sub(r"(?<=[:,])budget=[^,]*,?", "", arguments.get("config", "winnow")).rstrip(":,")
        key, policy = arguments | {"config": config}, arguments.get("policy")
        label = config if policy is None else f"{config} with {getattr(policy, '__name__', type(policy).__name__)}"
        names = next((names for other, _, names in families if other == key), None)
        if names is None:
            families.append((key, label, [name]))
        else:
            names.append(name)
    labels = [label for _, label, _ in families]
    return {name: label if labels.count(label) == 1 else names[0] for _, label, names in families for name in names}


def _row(base_nll: list[float], runs: list[_Run]) -> dict[str, Any]:
    ratio, ratio_error = _mean([run.nll - base for run, base in zip(runs, base_nll)])
    kld, kld_error = _mean([float(run.kld.mean()) for run in runs])
    stats = max((run.stats for run in runs), key=lambda each: each.bytes)
    seconds = statistics.fmean(run.seconds for run in runs[1:] or runs)  # kernels are compiled in the first context
    return {"bytes_per_token": stats.bytes / stats.tokens, "share_of_f16": stats.bytes / stats.original_bytes,
            "perplexity": math.exp(statistics.fmean(run.nll for run in runs)),
            "increase_percent": 100 * math.expm1(ratio), "increase_se": 100 * math.exp(ratio) * ratio_error,
            "kld": kld, "kld_se": kld_error, "kld_99": float(torch.cat([run.kld for run in runs]).quantile(0.99)),
            "same_top_percent": 100 * statistics.fmean(run.same_top for run in runs),
            "tokens_per_second": stats.tokens / seconds, "steps": stats.steps}
