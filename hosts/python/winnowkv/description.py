"""What a configuration means for a cache of one shape, what it takes, and what a cache holds."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import byref, cast, c_char_p, create_string_buffer
from typing import Any, NamedTuple, Union

from winnowkv import _abi
from winnowkv._arrays import is_single, text, whole
from winnowkv._library import TYPE_NAMES
from winnowkv.context import Context, Core, default_context
from winnowkv.errors import InvalidArgument


class CacheStats(NamedTuple):
    """What a cache, or one sequence of it, holds. Bytes count the memory in use, whole chunks of it."""

    bytes: int  # all of the following up to state_bytes, and signature_bytes
    k_bytes: int  # packed keys with their scales and norms
    v_bytes: int
    dense_k_bytes: int  # keys of sinks and residual window
    dense_v_bytes: int
    slot_map_bytes: int
    importance_bytes: int
    state_bytes: int  # means, sums and counts of the heads
    scratch_bytes: int  # what the steps of all layers share; not in bytes
    peak_bytes: int  # the most that bytes and scratch_bytes were together since the cache was made or reset
    original_bytes: int  # the same tokens, evicted ones too, in F16
    budget_bytes: int  # what bytes may become for each sequence
    tokens: int  # appended and not removed, evicted ones too: of the longest layer, over all sequences
    resident_slots: int  # over layers and KV heads
    evictions: int  # tokens, over layers and KV heads
    shortfall: int  # tokens that should have been evicted, and were protected
    eviction_passes: int  # over layers
    steps: int
    signature_bytes: int  # recall: signatures of all pages
    cold_bytes: int  # recall: all packed rows; not in bytes
    picks: int  # recall: pages that queries picked
    misses: int  # recall: of them those that were not hot
    disk_bytes: int  # recall=FOLDER: space reserved in the file
    bytes_read: int  # recall=FOLDER: read from the file
    wait_ns: int  # recall=FOLDER: time spent waiting for reads
    codebook_bytes: int  # constants of the model; not in bytes


class Segment(NamedTuple):
    """How many tokens of a KV head a segment has, and how it stores them."""

    tokens: int
    k_type: str
    v_type: str


class WantedResource(NamedTuple):
    """What a configuration wants of the model: KvCache(resources={name: bytes}) hands it over."""

    name: str
    is_needed: bool
    path: str  # of the file that the configuration names for it; "" for none


class Description(NamedTuple):
    """What a configuration means for a cache of one shape. Counts are tokens of a KV head."""

    config: str  # the canonical string
    storage_config: str  # which stores rows in the same way and evicts nothing
    policy: str
    k_type: str  # of the packed segment
    v_type: str
    sink: int  # first tokens of a sequence, which are never evicted
    residual: int  # newest tokens that are dense
    cadence: int  # from one eviction pass to the next
    budget_tokens: int  # sinks and residual window included, of the layer with most
    evicts: bool
    keeps_importance: bool
    segments: tuple[Segment, ...]  # the dense one, then the packed ones
    resources: tuple[WantedResource, ...]


class LayerShape(NamedTuple):
    """The heads of a layer and the elements of their rows, for a model whose layers are unlike."""

    q_heads: int
    kv_heads: int
    head_size: int
    v_head_size: int | None = None  # None: head_size


Layers = Union[int, Sequence[LayerShape]]


def layer_shapes(layers: Layers, q_heads: int | None, kv_heads: int | None, head_size: int | None,
                 v_head_size: int | None) -> list[LayerShape]:
    """The shape of each layer. Raises InvalidArgument where it is said twice, or not at all."""
    if is_single(layers):
        if q_heads is None or head_size is None:
            raise InvalidArgument("q_heads or head_size is None, expected both, or a LayerShape for each of the layers")
        q_heads = whole(q_heads, "q_heads")
        return whole(layers, "layers", 1, (1 << 31) - 1) * [LayerShape(
            q_heads, q_heads if kv_heads is None else whole(kv_heads, "kv_heads"), whole(head_size, "head_size"),
            None if v_head_size is None else whole(v_head_size, "v_head_size"))]
    if any(each is not None for each in (q_heads, kv_heads, head_size, v_head_size)):
        raise InvalidArgument("layers has the shape of each layer, expected no q_heads, kv_heads, head_size and "
                              "v_head_size beside it")
    if not isinstance(layers, Sequence) or isinstance(layers, (str, bytes)):
        raise InvalidArgument(f"layers is {layers!r}, expected how many, or a LayerShape for each")
    for at, shape in enumerate(layers):
        if not isinstance(shape, LayerShape):
            raise InvalidArgument(f"layers[{at}] is {shape!r}, expected a LayerShape")
    return list(layers)


def cache_desc(config: str, layers: Layers, q_heads: int | None, kv_heads: int | None, head_size: int | None,
               v_head_size: int | None, max_tokens: int, sequences: int = 1, cells: int = 0,
               resources: Mapping[str, bytes] | None = None) -> _abi.CacheDesc:
    """The struct of these arguments. Raises InvalidArgument."""
    shapes = layer_shapes(layers, q_heads, kv_heads, head_size, v_head_size)
    if is_single(layers):
        one = shapes[0]
        fields: dict[str, Any] = {"layers": len(shapes), "q_num_heads": one.q_heads, "kv_num_heads": one.kv_heads,
                                  "head_size": one.head_size, "v_head_size": one.v_head_size or 0}
    else:
        each = [_abi.LayerShape(**{c_name: whole(getattr(shape, name) or 0, f"layers[{at}].{name}")
                                   for c_name, name in (("q_num_heads", "q_heads"), ("kv_num_heads", "kv_heads"),
                                                        ("head_size", "head_size"), ("v_head_size", "v_head_size"))})
                for at, shape in enumerate(shapes)]
        fields = {"layers": len(each), "layer_shapes": (_abi.LayerShape * len(each))(*each),
                  "layer_shape_stride": ctypes.sizeof(_abi.LayerShape)}
    given = [_resource(name, data) for name, data in (resources or {}).items()]
    return _abi.CacheDesc(config=text(config, "config"), context=whole(max_tokens, "max_tokens", 1),
                          max_sequences=whole(sequences, "sequences"), cells=whole(cells, "cells"),
                          resources=(_abi.Resource * len(given))(*given) if given else None,
                          resource_count=len(given), resource_stride=ctypes.sizeof(_abi.Resource) if given else 0,
                          **fields)


def _resource(name: str, data: Any) -> _abi.Resource:
    try:
        content = bytes(memoryview(data))
    except TypeError:
        raise InvalidArgument(f"resources[{name!r}] is {type(data).__name__}, expected bytes") from None
    return _abi.Resource(name=text(name, "a name of resources"), data=content, size=len(content))


def stats_of(raw: _abi.CacheStats) -> CacheStats:
    return CacheStats(*(getattr(raw, name) for name in CacheStats._fields))


def _described(core: Core, desc: _abi.CacheDesc, room: int, count: int) -> tuple[_abi.CacheInfo, int, int]:
    """An info whose strings and arrays have this room, and how much they need."""
    wanted = [_abi.WantedResource(path=cast(create_string_buffer(room), c_char_p), path_size=room)
              for _ in range(count)]
    info = _abi.CacheInfo(
        config=cast(create_string_buffer(room), c_char_p), config_size=room,
        storage_config=cast(create_string_buffer(room), c_char_p), storage_config_size=room,
        resources=(_abi.WantedResource * count)(*wanted), resource_capacity=count,
        resource_stride=ctypes.sizeof(_abi.WantedResource),
        segments=(_abi.CacheSegment * count)(*(_abi.CacheSegment() for _ in range(count))), segment_capacity=count,
        segment_stride=ctypes.sizeof(_abi.CacheSegment))
    with core:
        core.check(core.library.cache_functions["describe"](core.open(), byref(desc), byref(info)))
    paths = [info.resources[at].path_size for at in range(min(count, info.resource_count))]
    return (info, max(info.config_size, info.storage_config_size, *paths, 1),
            max(info.resource_count, info.segment_count))


def describe_desc(core: Core, desc: _abi.CacheDesc) -> Description:
    """Raises Error where the configuration is refused."""
    room, count = 1024, 8
    info, needed, more = _described(core, desc, room, count)
    while needed > room or more > count:
        room, count = max(room, needed), max(count, more)
        info, needed, more = _described(core, desc, room, count)

    def string(value: bytes | None) -> str:
        return (value or b"").decode(errors="replace")

    segments = tuple(Segment(each.tokens, TYPE_NAMES.get(each.k_type, str(each.k_type)),
                             TYPE_NAMES.get(each.v_type, str(each.v_type)))
                     for each in info.segments[:info.segment_count])
    resources = tuple(WantedResource(string(each.name), bool(each.is_needed), string(each.path))
                      for each in info.resources[:info.resource_count])
    return Description(string(info.config), string(info.storage_config), string(info.policy),
                       TYPE_NAMES.get(info.k_type, str(info.k_type)), TYPE_NAMES.get(info.v_type, str(info.v_type)),
                       info.sink, info.residual, info.cadence, info.budget_tokens,
                       bool(info.properties & _abi.CACHE_EVICTS),
                       bool(info.properties & _abi.CACHE_KEEPS_IMPORTANCE), segments, resources)


def estimate_desc(core: Core, desc: _abi.CacheDesc, tokens: int) -> CacheStats:
    """Raises Error where the configuration is refused."""
    raw, count = _abi.CacheStats(), whole(tokens, "tokens")
    with core:
        core.check(core.library.cache_functions["estimate"](core.open(), byref(desc), count, byref(raw)))
    return stats_of(raw)


def describe(config: str = "winnow", *, layers: Layers, q_heads: int | None = None, kv_heads: int | None = None,
             head_size: int | None = None, v_head_size: int | None = None, max_tokens: int,
             context: Context | None = None) -> Description:
    """What a configuration means for a cache of this shape, which is not made; arguments as those of KvCache. Resources
    may lack. Raises InvalidArgument with the reason where the configuration is refused."""
    desc = cache_desc(config, layers, q_heads, kv_heads, head_size, v_head_size, max_tokens)
    return describe_desc((context or default_context())._core, desc)


def estimate(config: str = "winnow", tokens: int | None = None, *, layers: Layers, q_heads: int | None = None,
             kv_heads: int | None = None, head_size: int | None = None, v_head_size: int | None = None, max_tokens: int,
             resources: Mapping[str, bytes] | None = None, context: Context | None = None) -> CacheStats:
    """What a cache of this shape would take with so many tokens of one sequence (None: max_tokens), without
    making one. Counts of evictions and steps are 0. Raises InvalidArgument."""
    desc = cache_desc(config, layers, q_heads, kv_heads, head_size, v_head_size, max_tokens, resources=resources)
    return estimate_desc((context or default_context())._core, desc, max_tokens if tokens is None else tokens)
