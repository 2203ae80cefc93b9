"""Winnow's cache as the KV cache of transformers' models.

    from winnowkv.transformers import WinnowCache

    cache = WinnowCache(model, "winnow:budget=1/8", max_tokens=8192)
    model.generate(**inputs, cache=cache)        # past_key_values=cache before transformers named it cache

The module registers an attention function and a mask function with transformers, both named "winnow". WinnowCache has
the model use them. Importing this module imports torch and transformers.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch  # type: ignore[import-not-found, import-untyped, unused-ignore]
from transformers import AttentionInterface  # type: ignore[import-not-found, import-untyped, unused-ignore]
from transformers import AttentionMaskInterface
from transformers.cache_utils import Cache, CacheLayerMixin  # type: ignore[import-not-found, unused-ignore]
from transformers.masking_utils import causal_mask_function  # type: ignore[import-not-found, unused-ignore]
from transformers.masking_utils import sliding_window_causal_mask_function

from winnowkv._policy import Policy
from winnowkv._step import Entry
from winnowkv.context import Context, default_context
from winnowkv.description import Description
from winnowkv.errors import Error, InvalidArgument, Unsupported
from winnowkv.kv_cache import KvCache
from winnowkv.packed import row_bytes

NAME = "winnow"  # of the attention implementation
KEY_LAYER = re.compile(r"(^|\.)(k_proj|key|Wk|qkv_proj|query_key_value|Wqkv|c_attn)$")
LAYER_TYPES = ("full_attention", "sliding_attention")
MAGIC = b"winnowkv.transformers 1\n"  # at the beginning of a saved state; a line of JSON and those of rows follow
_SLIDING = sliding_window_causal_mask_function(1)
_OVERLAY = _SLIDING.__closure__[0].cell_contents[0]  # and_masks(overlay of the window, causal_mask_function)


class WinnowCache(Cache):  # type: ignore[misc, unused-ignore]
    """The KV cache of one model, for the batches that its forward calls bring. Each row of a batch is a sequence of
    `kv`, and padding is not stored.

    While it has no token it takes any batch. `kv` is made anew when a batch has more rows than `kv` has sequences.
    `rows` says which sequence each row is. copy.deepcopy() makes a second cache with the same tokens; to_bytes() and
    from_bytes() keep them for later."""

    _padding: Any
    _warns = True  # of a configuration that does not suit the model

    def __init__(self, model: Any, config: str = "winnow", *, max_tokens: int | None = None,
                 context: Context | None = None, sequences: int = 1,
                 resources: Mapping[str, bytes] | None = None, policy: Policy | None = None, policy_queries: int = 8,
                 policy_every: int = 1) -> None:
        """model: a decoder of transformers, in the host's memory. Its attention implementation becomes "winnow".
        config: policy, budget and formats, docs/policies.md: "winnow:budget=1/8,recall=host".
        max_tokens: the most tokens of a row, of which a budget of 1/8 is a share; None: the model's
        max_position_embeddings. context: where it computes; None: the default context. sequences: the most rows of a
        batch, where that is known before. The other arguments are those of KvCache.

        Raises Unsupported for a model that Winnow does not serve, and InvalidArgument where the configuration is
        refused."""
        if not hasattr(model, "set_attn_implementation"):
            raise InvalidArgument(f"model is of type {type(model).__name__}, expected a model of transformers")
        text = model.config.get_text_config(decoder=True)
        _check_model(model, text)
        heads = text.num_attention_heads
        self._arguments: dict[str, Any] = {
            "layers": text.num_hidden_layers, "q_heads": heads,
            "kv_heads": getattr(text, "num_key_value_heads", None) or heads,
            "head_size": getattr(text, "head_dim", None) or text.hidden_size // heads,
            "max_tokens": text.max_position_embeddings if max_tokens is None else max_tokens,
            "context": context or default_context(),
            "resources": resources, "policy": policy, "policy_queries": policy_queries, "policy_every": policy_every}
        self._config = config
        self.kv = self._make(sequences)
        described = self.kv.describe()
        self._needs_ranking = policy is None and described.policy == "external"
        super().__init__(layers=[_Layer(self, number) for number in range(text.num_hidden_layers)])
        self._start(sequences)
        if model.config._attn_implementation != NAME:
            model.set_attn_implementation(NAME)
        if not getattr(model, "_winnow_hook", None):
            model._winnow_hook = model.register_forward_pre_hook(_before_forward, with_kwargs=True)
        if self._warns and _has_few_key_bits(described, self._arguments["head_size"]) and _has_biased_keys(model):
            warnings.warn("the model adds a bias to its keys, and some of them are stored in fewer than 8 bits, which "
                          "may lose much of such keys; expected 8 bits for all keys, for example winnow:k=q8_0",
                          RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        """Gives the memory back. The model goes on to expect a WinnowCache: model.set_attn_implementation("sdpa")
        ends that."""
        self.kv.close()

    def __repr__(self) -> str:
        return f"<WinnowCache of {len(self.rows)} rows in {self.kv!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> WinnowCache:
        made: WinnowCache = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.rows = list(self.rows)
        made.kv = self._moved(self.kv.sequences)
        made.layers = [_Layer(made, layer.number, layer.length) for layer in self.layers]
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a WinnowCache is in memory of a device, and cannot be pickled; to_bytes() and from_bytes() "
                        "keep its tokens, and copy.deepcopy() makes a second one")

    def to_bytes(self) -> bytes:
        """All tokens, and which columns of the batch are padding, for from_bytes()."""
        columns = self.get_seq_length()
        for layer in self.layers:
            if layer.length != columns or layer.is_waiting:
                raise Error(f"layer {layer.number} has {layer.length} columns, expected {columns}: an earlier forward "
                            f"call failed; call cache.reset(), or crop to the columns of all layers")
        states = [self.kv.to_bytes(sequence) for sequence in self.rows]
        padding = None if self._padding is None else self._padding[:, :columns].int().tolist()
        header = {"columns": columns, "padding": padding, "bytes": [len(state) for state in states]}
        return MAGIC + json.dumps(header).encode() + b"\n" + b"".join(states)

    def from_bytes(self, data: Any) -> None:
        """Replaces all tokens by those of the cache that to_bytes() was called on. Model, configuration and max_tokens
        have to be those of that cache. After an error there is no token. Raises InvalidArgument."""
        content = bytes(memoryview(data))
        head, newline, rest = content[len(MAGIC):].partition(b"\n")
        if not content.startswith(MAGIC) or not newline:
            raise InvalidArgument("data is no state of a WinnowCache, expected what cache.to_bytes() gave; that of "
                                  "cache.kv.to_bytes() has tokens without the padding and columns of a batch")
        header = json.loads(head)
        sizes = header["bytes"]
        if len(rest) != sum(sizes):
            raise InvalidArgument(f"data has {len(rest)} bytes of tokens, expected {sum(sizes)}")
        self.reset()
        if len(sizes) > self.kv.sequences:
            self.kv.close()
            self.kv = self._make(len(sizes))
        try:
            for sequence, size in enumerate(sizes):
                self.kv.from_bytes(rest[:size], sequence)
                rest = rest[size:]
        except BaseException:
            self.reset()
            raise
        self._start(len(sizes))
        self._padding = None if header["padding"] is None else torch.tensor(header["padding"], dtype=torch.bool)
        for layer in self.layers:
            layer.length = header["columns"]

    # ---- What transformers calls ------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forgets all tokens."""
        self.kv.reset()
        self._start(self.kv.sequences)

    def crop(self, tokens: int) -> None:
        """crop(-n) removes the last n tokens of each row; crop(n) leaves the first n, for older transformers."""
        length = self.get_seq_length()
        left = max(0, length + tokens) if tokens <= 0 else min(length, tokens)
        if any(layer.length > left or layer.is_waiting for layer in self.layers):
            for row, sequence in enumerate(self.rows):
                self.kv.truncate(self._stored(row, left), sequence)
            for layer in self.layers:
                layer.length, layer.is_waiting = min(layer.length, left), False

    def reorder_cache(self, beam_idx: Any) -> None:
        """Row i becomes a copy of row beam_idx[i]."""
        self._select(beam_idx.tolist())

    def batch_select_indices(self, indices: Any) -> None:
        """Keeps these rows: their numbers, or a bool for each row."""
        indices = torch.as_tensor(indices)
        self._select((indices.nonzero()[:, 0] if indices.dtype == torch.bool else indices).tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row becomes so many rows."""
        self._select([row for row in range(len(self.rows)) for _ in range(repeats)])

    # ---- Rows and sequences -----------------------------------------------------------------------------------

    def _make(self, sequences: int) -> KvCache:
        return KvCache(self._config, sequences=sequences, **self._arguments)

    def _start(self, rows: int) -> None:
        """Without tokens."""
        self.rows = list(range(rows))
        self._padding = None  # the last attention mask with a 0 in it, bool [batch, columns]
        self._drafts = 0  # of the forward call that runs, at its end
        for layer in self.layers:
            layer.length, layer.is_waiting = 0, False

    def _moved(self, sequences: int) -> KvCache:
        """Another KvCache with the same tokens."""
        made = self._make(sequences)
        if self.get_seq_length():
            for sequence in self.rows:
                made.from_bytes(self.kv.to_bytes(sequence), sequence)
        return made

    def _take_batch(self, rows: int) -> None:
        """Before the first token. Raises InvalidArgument after it."""
        if self.get_seq_length() or any(layer.length for layer in self.layers):
            raise InvalidArgument(f"the forward call has a batch of {rows}, and the cache holds {len(self.rows)} rows, "
                                  f"expected as many; for another batch call cache.reset(), or take a cache of its own")
        if rows > self.kv.sequences:
            self.kv.close()
            self.kv = self._make(rows)
        self.rows = list(range(rows))

    def _select(self, sources: list[int]) -> None:
        """Row i becomes what row sources[i] is. The first row with a source takes its sequence, others a copy."""
        if len(sources) > self.kv.sequences:
            old, self.kv = self.kv, self._moved(len(sources))
            old.close()
        held, kept = set(self.rows), {self.rows[source] for source in sources}
        free = [sequence for sequence in range(self.kv.sequences) if sequence not in kept]
        rows: list[int] = []
        for source in sources:
            sequence = self.rows[source]
            if sequence not in rows:
                rows.append(sequence)
            else:
                rows.append(free.pop(0))
                self.kv.copy(sequence, rows[-1])
        for sequence in held.intersection(free):
            self.kv.remove(sequence=sequence)
        self.rows = rows
        if self._padding is not None:
            self._padding = self._padding[sources]

    def _check_tokens(self) -> None:
        """Before a forward call. Raises InvalidArgument where another than this class changed `kv`."""
        for row, sequence in enumerate(self.rows):
            held, known = self.kv.next_position(0, sequence), self._stored(row, self.get_seq_length())
            if held != known:
                raise InvalidArgument(f"cache.kv has {held} tokens of row {row}, expected {known} as in the forward "
                                      f"calls: load states with cache.from_bytes, take tokens back with cache.crop, "
                                      f"and call cache.reset() now")

    def _look_for_ranking(self) -> None:
        """Warns once where tokens are evicted that neither a policy nor the host ranks."""
        if self.kv.policy is not None or self.kv.has_importance_of_host:
            self._needs_ranking = False
        elif self.kv.stats().evictions:
            self._needs_ranking = False
            warnings.warn(f"{self._config!r} evicts by what a policy says, and there is none, so that the oldest "
                          f"tokens go first; expected policy=f, a function of (scores, importance), or "
                          f"cache.kv.set_importance", RuntimeWarning, stacklevel=2)

    def _stored(self, row: int, columns: int) -> int:
        """How many of the row's first columns are tokens, and no padding."""
        if self._padding is None:
            return columns
        known = self._padding[row, :columns]
        return int(known.sum()) + columns - len(known)


class _Layer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """What transformers sees of a layer. `update` marks the keys, so that the attention function finds the layer."""

    is_sliding = False  # its masks are those of full attention; the attention function applies the window
    is_croppable = True
    supports_early_init = False

    def __init__(self, cache: WinnowCache, number: int, length: int = 0) -> None:
        super().__init__()
        self.cache, self.number, self.length = cache, number, length  # length: columns of the batch, padding included
        self.is_initialized = True
        self.is_waiting = False  # for the attention function to be called

    def __repr__(self) -> str:
        return f"<layer {self.number}: {self.length} columns>"

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        pass

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        if self.is_waiting:
            raise Error(f"the last forward call did not compute attention with Winnow in layer {self.number}: the "
                        f"cache is that of another model, whose attention implementation is not \"{NAME}\", or the "
                        f"call failed; make a WinnowCache of this model, or call cache.reset()")
        self.is_waiting = True
        key_states.winnow_layer = self
        return key_states, value_states

    def get_seq_length(self, *_: Any) -> int:
        return self.length

    def get_mask_sizes(self, queries: Any) -> tuple[int, int]:
        count: int = queries if isinstance(queries, int) else queries.shape[0]  # cache_position in older transformers
        return self.length + count, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name in older transformers


# ---- Attention ------------------------------------------------------------------------------------------------------


class _Mask:
    """What a forward call's mask says, for all layers that share it."""

    def __init__(self, window: int, columns: int, attention_mask: Any) -> None:
        self.window, self.columns = window, columns
        self._attention_mask = attention_mask  # bool [batch, columns], or None
        self._cache: WinnowCache | None = None
        self._rows: dict[str, Any] = {}
        self.is_whole = True  # each row of the batch has a token in each column of the call

    def rows(self, cache: WinnowCache, batch: int, count: int) -> dict[str, Any]:
        """Arguments of KvCache.step: which of the call's columns are tokens of which sequence. Empty where none is."""
        if self._cache is not cache:
            self._cache, self._rows = cache, self._find_rows(cache, batch, count)
        return self._rows

    def _find_rows(self, cache: WinnowCache, batch: int, count: int) -> dict[str, Any]:
        if batch != len(cache.rows):
            cache._take_batch(batch)
        mask, begin, drafts = self._attention_mask, self.columns - count, min(cache._drafts, count)
        if mask is not None:
            if tuple(mask.shape) != (batch, self.columns):
                raise InvalidArgument(f"attention_mask has the shape {list(mask.shape)}, expected [{batch}, "
                                      f"{self.columns}]: a column for each token, those in the cache included")
            before = mask[:, :begin].sum(1).tolist()
            stored = [cache._stored(row, begin) for row in range(batch)]
            if before != stored:
                raise InvalidArgument(f"attention_mask has {before} ones in the columns of earlier calls, expected "
                                      f"{stored} as in those calls: hand over the whole mask each time, or call "
                                      f"cache.reset()")
            if not bool(mask.all()):
                cache._padding = mask
                return self._padded_rows(cache, mask[:, begin:], drafts)
        if batch == 1:
            return {"sequence": cache.rows[0], "drafts": drafts}
        return {"entries": [Entry(sequence, row, drafts=drafts) for row, sequence in enumerate(cache.rows)]}

    def _padded_rows(self, cache: WinnowCache, mask: Any, drafts: int) -> dict[str, Any]:
        entries = []
        for row, sequence in enumerate(cache.rows):
            columns = mask[row].nonzero()[:, 0].tolist()
            if not columns:
                continue
            if columns[-1] - columns[0] != len(columns) - 1:
                raise Unsupported(f"attention_mask has padding between the tokens of row {row} in one forward call; "
                                  f"put it before or after them, or make a call for each part")
            entries.append(Entry(sequence, row, columns[0], len(columns), min(drafts, len(columns))))
        self.is_whole = bool(mask.all())
        return {"entries": entries} if entries else {}


def _mask(*, kv_length: int, mask_function: Any, attention_mask: Any = None, **_: Any) -> Any:
    """The mask function: no mask but what `_attention` needs to know, on an empty tensor. Raises Unsupported."""
    window = 0
    if mask_function is not causal_mask_function:
        window = _window_of(mask_function)
    tensor = torch.empty((1, 1, 0, 0))
    tensor.winnow_mask = _Mask(window, int(kv_length), attention_mask)
    return tensor


def _window_of(mask_function: Any) -> int:
    """Raises Unsupported where the function is not that of a causal mask with a window."""
    if getattr(mask_function, "__code__", None) is _SLIDING.__code__:
        parts = mask_function.__closure__[0].cell_contents
        if len(parts) == 2 and parts[0].__code__ is _OVERLAY.__code__ and parts[1] is causal_mask_function:
            return int(parts[0].__closure__[0].cell_contents)
    raise Unsupported("the model asks for a mask that is neither causal nor causal with a window (chunks, "
                      "bidirectional blocks as of images, packed sequences), expected one of these; "
                      'model.set_attn_implementation("sdpa") and transformers\' own cache serve it')


def _attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None,
               dropout: float = 0.0, softcap: float | None = None, s_aux: Any = None, is_causal: bool | None = None,
               **_: Any) -> tuple[Any, None]:
    """The attention function. Raises Unsupported, InvalidArgument, and what KvCache.step does."""
    layer: _Layer | None = getattr(key, "winnow_layer", None)
    if layer is None:
        raise InvalidArgument(f'attention implementation "{NAME}" was called without a WinnowCache (another cache, or '
                              f"none), expected cache=WinnowCache(model, ...); model.set_attn_implementation(\"sdpa\") "
                              f"takes the model back to transformers' own caches")
    if dropout or module.training:
        raise Unsupported("the model is in training, which Winnow does not serve; call model.eval()")
    if is_causal is False or getattr(module, "is_causal", True) is False:
        raise Unsupported(f'the attention of layer {layer.number} is not causal; model.set_attn_implementation("sdpa")')
    mask: _Mask | None = getattr(attention_mask, "winnow_mask", None)
    if mask is None:
        given = "none" if attention_mask is None else f"one of the shape {list(attention_mask.shape)}"
        raise Unsupported(f"the layers got {given} as a mask, expected what Winnow's mask function made; hand over an "
                          f"attention_mask [batch, tokens] of ones and zeros, not a 4D mask")
    batch, _heads, count, _size = query.shape
    cache = layer.cache
    if layer.number == 0:
        cache._check_tokens()
    rows = mask.rows(cache, batch, count)
    _check_shapes(layer, mask, query, key, value)
    make = torch.empty if mask.is_whole else torch.zeros
    out = make((batch, count, query.shape[1], value.shape[3]), dtype=query.dtype)
    if rows:
        cache.kv.step(layer.number, key, value, query, out=out.transpose(1, 2), scale=scaling, softcap=softcap or None,
                      window=mask.window or None, sinks=s_aux, **rows)
    layer.length += count
    layer.is_waiting = False
    if cache._needs_ranking and layer.number == len(cache.layers) - 1:
        cache._look_for_ranking()
    return out, None


def _before_forward(model: Any, _: Any, arguments: dict[str, Any]) -> None:
    """Tells the cache how many of a call's tokens are drafts: assisted generation and prompt lookup ask for the logits
    of all of them and of the token before."""
    cache = arguments.get("cache")
    if cache is None:
        cache = arguments.get("past_key_values")
    if isinstance(cache, WinnowCache):
        if arguments.get("output_attentions"):
            raise Unsupported("output_attentions is set, and Winnow keeps no attention weights; cache.kv.step(..., "
                              "scores=True) and a policy get the logits")
        kept = arguments.get("logits_to_keep")
        cache._drafts = kept - 1 if isinstance(kept, int) and kept > 1 else 0


# ---- What is refused ------------------------------------------------------------------------------------------------


def _check_model(model: Any, text: Any) -> None:
    """Raises Unsupported for a model that Winnow does not serve."""
    name, instead = type(model).__name__, "use transformers' own cache"
    if model.config.is_encoder_decoder:
        raise Unsupported(f"{name} is an encoder with a decoder, expected a decoder alone; {instead}")
    if not getattr(model, "_supports_attention_backend", False):
        raise Unsupported(f"{name} takes no attention function of others (_supports_attention_backend is not set); "
                          f"{instead}")
    types: Sequence[str] = getattr(text, "layer_types", None) or ()
    for other in types:
        if other not in LAYER_TYPES:
            raise Unsupported(f"{name} has layers of the type {other}, expected {' and '.join(LAYER_TYPES)}; {instead}")
    if getattr(text, "num_kv_shared_layers", 0):
        raise Unsupported(f"{name} has layers that share keys and values with others; {instead}")
    if model.device.type != "cpu":
        raise Unsupported(f'{name} is on the device {model.device}, expected the host\'s memory; model.to("cpu")')


def _has_biased_keys(model: Any) -> bool:
    """Whether an attention of the decoder, which knows its number, adds a bias to its keys, as Qwen2's do."""
    for attention in model.modules():
        if hasattr(attention, "layer_idx"):
            for name, layer in attention.named_modules():
                bias = getattr(layer, "bias", None) if KEY_LAYER.search(name) else None
                if (bias() if callable(bias) else bias) is not None:  # a method in layers that torch has quantized
                    return True
    return False


def _has_few_key_bits(described: Description, head_size: int) -> bool:
    """Whether some keys are stored in fewer than 8 bits."""
    types = {segment.k_type for segment in described.segments if segment.tokens}
    types.update(re.findall(r"[:,]k_(?:fine|coarse)=(\w+)", described.config))
    return any(row_bytes(name, head_size) < head_size for name in types)


def _check_shapes(layer: _Layer, mask: _Mask, query: Any, key: Any, value: Any) -> None:
    """Raises InvalidArgument where the call does not fit the cache."""
    batch, heads, count, size = query.shape
    if layer.length + count != mask.columns:
        raise InvalidArgument(f"layer {layer.number} has {layer.length} columns, expected {mask.columns - count}: an "
                              f"earlier forward call failed; call cache.reset(), or crop to the columns of all layers")
    if not layer.is_waiting:
        raise Unsupported(f"layer {layer.number} attends twice to the keys of one update; use transformers' own cache")
    arguments = layer.cache._arguments
    expected = [batch, arguments["kv_heads"], count, arguments["head_size"]]
    if (heads, size) != (arguments["q_heads"], expected[3]) or not list(key.shape) == list(value.shape) == expected:
        raise InvalidArgument(f"layer {layer.number} has queries {list(query.shape)}, keys {list(key.shape)} and "
                              f"values {list(value.shape)}, expected {arguments['q_heads']} query heads and "
                              f"{expected[1]} KV heads of {expected[3]}, as in the configuration of the cache's model: "
                              f"give each model a cache of its own; where heads differ between layers or between keys "
                              f"and values, use transformers' own cache")


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
