"""The package without numpy: its structs against the layout of the C headers, caches over plain buffers, states, and
the example of a policy.

    cache_test.py PATH_OF_A_BACKEND PATH_OF_LAYOUT_H
"""

import array
import ctypes
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import external_policy
import winnowkv
from winnowkv import Context, Entry, Experts, KvCache, LayerShape, _abi

STRUCTS = {"winnow_host_info": _abi.HostInfo, "winnow_device_info": _abi.DeviceInfo,
           "winnow_context_desc": _abi.ContextDesc, "winnow_stats": _abi.Stats, "winnow_buffer_desc": _abi.BufferDesc,
           "winnow_tensor": _abi.Tensor, "winnow_sdpa_desc": _abi.SdpaDesc, "winnow_kv_append_desc": _abi.KvAppendDesc,
           "winnow_kv_requantize_desc": _abi.KvRequantizeDesc, "winnow_kv_dequantize_desc": _abi.KvDequantizeDesc,
           "winnow_hadamard_desc": _abi.HadamardDesc, "winnow_resource": _abi.Resource,
           "winnow_layer_shape": _abi.LayerShape, "winnow_cache_desc": _abi.CacheDesc,
           "winnow_cache_entry": _abi.CacheEntry,
           "winnow_cache_step_desc": _abi.CacheStepDesc, "winnow_cache_rows_desc": _abi.CacheRowsDesc,
           "winnow_cache_state_desc": _abi.CacheStateDesc, "winnow_cache_stats": _abi.CacheStats,
           "winnow_cache_tokens": _abi.CacheTokens, "winnow_wanted_resource": _abi.WantedResource,
           "winnow_cache_segment": _abi.CacheSegment, "winnow_cache_info": _abi.CacheInfo,
           "winnow_api": _abi.Api, "winnow_cache_api": _abi.CacheApi}
SHAPE = {"layers": 1, "q_heads": 4, "kv_heads": 2, "head_size": 16, "max_tokens": 64}


def check_layout(text):
    """Every field is there, and lies where C has it."""
    for name, its in STRUCTS.items():
        expected = dict(re.findall(rf"LAYOUT_AT\({name}, (\w+), (\d+)\)", text))
        has = {field[0]: str(getattr(its, field[0]).offset) for field in its._fields_}
        assert has == expected, f"{name}: {sorted(set(has.items()) ^ set(expected.items()))}"
        size = re.search(rf"LAYOUT_SIZE\({name}, (\d+)\)", text)[1]
        assert ctypes.sizeof(its) == int(size), f"{name} has {ctypes.sizeof(its)} bytes, expected {size}"
    assert {field for field, _ in _abi.CacheStats._fields_[2:]} == set(winnowkv.CacheStats._fields)
    assert {field for field, _ in _abi.Stats._fields_[2:]} == set(winnowkv.ContextStats._fields)


def check_numbers(folder):
    """Versions, types, statuses, norms and operations have the numbers of the headers."""
    header, caches = ((folder / name).read_text(encoding="utf-8") for name in ("winnow.h", "winnow_cache.h"))
    for text, name, version in ((header, "API", _abi.VERSION), (caches, "CACHE", _abi.CACHE_VERSION)):
        major, minor = re.search(rf"WINNOW_{name}_VERSION WINNOW_MAKE_VERSION\((\d+), (\d+)\)", text).groups()
        assert version == int(major) << 16 | int(minor), f"{name}: the header has {major}.{minor}"
    numbers = {name: int(value, 0) for name, value in re.findall(r"#define WINNOW_(\w+) (0x[\da-f]+|\d+)u?\b", header)}
    for prefix, names in (("TYPE", _abi.TYPES), ("NORM", _abi.NORMS), ("SCORES", _abi.SCORES),
                          ("CAPABILITY", _abi.CAPABILITIES), ("OPERATION", _abi.OPERATIONS), ("LOG", _abi.LOG_LEVELS)):
        expected = {name.removeprefix(f"{prefix}_").lower(): number for name, number in numbers.items()
                    if name.startswith(f"{prefix}_") and not name.endswith(("VENDOR", "SCORES_NONE"))}
        assert names == expected, f"{prefix}: {set(names.items()) ^ set(expected.items())}"
    statuses = {number for name, number in numbers.items() if name.startswith("ERROR_")}
    assert {each.status for each in winnowkv.Error.__subclasses__()} == statuses


def expect_error(words, call, kind=winnowkv.Error):
    try:
        call()
    except kind as error:
        assert words in str(error), f"{error}: says nothing of {words}"
        return
    raise AssertionError(f"{words}: no error")


def rows(heads, tokens=1, size=16):
    """0, 1, 2, ... as [heads, tokens, size], a ctypes array of arrays."""
    kind = ctypes.c_float * size * tokens * heads
    return kind.from_buffer(array.array("f", range(heads * tokens * size)))


def check_cache(context):
    """Importance is as it was set, also by a policy that has no sense; and what is wrong is refused."""
    half, whole = rows(2), rows(4)
    with KvCache("external:budget=32,sink=0,residual=0,cadence=1,recent=1", **SHAPE, context=context) as cache:
        for position in range(40):
            out = cache.step(0, half, half, whole)
            cache.set_importance(0, 1, {position: 5.0 if position % 2 else float("nan"), 63: 1.0})
        assert out.shape == (4, 1, 16) and out.format == "f"
        kept = cache.positions(0, 1)
        assert len(kept) == 32 and [p for p in range(40) if p not in kept] == list(range(0, 16, 2)), kept
        assert list(cache.positions(0, 0)) == list(range(8, 40)), "the head without importance is no window"
        assert [value == 5 for value in cache.importance(0, 1)] == [position % 2 == 1 for position in kept]
        expect_error("positions[0]", lambda: cache.set_importance(0, 0, {64: 1.0}), winnowkv.InvalidArgument)
        expect_error("head", lambda: cache.set_importance(0, 2, {0: 1.0}), ValueError)
        expect_error("expected 2", lambda: cache.set_importance(0, 0, [1.0], [2, 3]))
        expect_error("k.shape[1]", lambda: cache.step(0, whole, half, whole))
        expect_error("k is of type list", lambda: cache.step(0, [1.0], half, whole), TypeError)
        expect_error("k is of the format '<d'", lambda: cache.step(0, (ctypes.c_double * 16 * 1 * 2)(), half))
        expect_error("out may not be written",
                     lambda: cache.step(0, half, half, whole, out=memoryview(bytes(out)).cast("f", (4, 1, 16))))
        expect_error("out is in memory", lambda: cache.step(0, half, half, whole, out=Elsewhere()))
        # numpy may be there, and is asked for nothing.
        k, v = cache.read(0, [38, 0], library="memoryview")
        assert k.tolist()[1][0] == list(half[1][0]) and v.shape == (2, 2, 16)
        assert all(number != number for number in v.tolist()[1][1]), "position 0 is gone"
    expect_error("the cache is closed", lambda: cache.positions(0, 0))
    with KvCache("window:budget=32", **SHAPE, context=context) as cache:
        cache.reserve(40)
        for _ in range(40):
            cache.step(0, half, half, whole)
        assert cache.next_position(0) == 40
        expect_error("no importance", lambda: cache.set_importance(0, 0, {0: 1.0}))
        expect_error("no importance", lambda: cache.importance(0, 0))
        expect_error("no importance", lambda: setattr(cache, "policy", external_policy.tova))
    expect_error("no policy", lambda: KvCache("nonsense", **SHAPE, context=context))
    divided = "adaptive_budget:budget=32,policy=window,residual=0"
    KvCache(divided, resources={"profile": struct.pack("<3d", 1, .5, 2)}, **SHAPE, context=context).close()
    expect_error("size is 8", lambda: KvCache(divided, resources={"profile": bytes(8)}, **SHAPE, context=context))


class Elsewhere:
    """An array on a GPU."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        raise BufferError


def check_unlike_layers(context):
    """Each layer takes and gives rows of its own shape."""
    shapes = [LayerShape(4, 2, 16), LayerShape(3, 1, 32, 64)]
    with KvCache("none:k=f32,v=f32", layers=shapes, max_tokens=64, context=context) as cache:
        for layer, (heads, kv_heads, size, v_size) in enumerate([(4, 2, 16, 16), (3, 1, 32, 64)]):
            v = rows(kv_heads, 1, v_size)
            out, scores = cache.step(layer, rows(kv_heads, 1, size), v, rows(heads, 1, size), scores=True)
            assert out.tolist()[0][0] == list(range(v_size)) and out.shape == (heads, 1, v_size)
            assert scores.shape == (heads, 1, 1)
            assert cache.read(layer, [0], library="memoryview")[1].tolist()[0][0] == list(v[0][0])
        assert "4/2 heads of 16 or 3/1 heads of 32/64" in repr(cache), cache
        assert list(cache.positions(0, 1)) == list(cache.positions(1, 0)) == [0]
        expect_error("head", lambda: cache.positions(1, 1))
        expect_error("layer is 2", lambda: cache.read(2, [0]))
    assert winnowkv.estimate(layers=shapes, max_tokens=64, context=context).bytes > 0
    expect_error("several shapes", lambda: KvCache("external:budget=32", layers=shapes, max_tokens=64, context=context,
                                                   policy=external_policy.tova))
    expect_error("expected no q_heads", lambda: KvCache(layers=shapes, q_heads=4, max_tokens=64, context=context))
    expect_error("expected both", lambda: KvCache(layers=2, max_tokens=64, context=context))


def check_experts(context):
    """Tokens of experts that few tokens go to are gone before the budget is full, but for the newest; others stay."""
    experts = Experts(4, inactive=0.5)
    assert experts.importance({0: [0, 1], 1: [0, 0]}) == {0: (2 + 1) / 2, 1: 2}, "of shares 2, 1, 1/2 and 1/2"
    assert experts.counts == [3, 1, 0, 0]
    experts = Experts(2, inactive=1)
    assert experts.importance({7: [0, 0], 8: [1]}) == {7: 1.2, 8: -1}, "0.8 of the average is less than 1"
    told = "experts=8,inactive=1/2,evict_inactive=on,k=f16,v=f16"
    for config in f"moe:budget=1/1,recent=32,{told}", f"decay:window=32,decay_lambda=0,{told}":
        with KvCache(config, **SHAPE | {"max_tokens": 160}, context=context) as cache:
            half, whole, experts = rows(2), rows(4), Experts(8, 0.5)
            rare = [position for position in range(160) if position % 16 == 8]
            for position in range(160):
                cache.step(0, half, half, whole)
                chosen = [6, 7] if position in rare else [position % 6, (position + 1) % 6]
                cache.set_importance(0, None, experts.importance({position: chosen}))
            kept = set(cache.positions(0, 1))
            assert kept >= set(range(160)) - set(rare), f"others are gone: {set(range(160)) - set(rare) - kept}"
            assert not kept & {position for position in rare[1:] if position < 96}, f"are there: {kept & set(rare)}"


def check_states(context):
    """A sequence goes through bytes and through a file into others; what is no saved cache is refused."""
    half, whole = rows(2, 5), rows(4, 5)
    with KvCache("h2o:budget=32", **SHAPE, sequences=3, context=context) as cache, \
            tempfile.TemporaryDirectory() as folder:
        for _ in range(12):
            cache.step(0, half, half, whole, sequence=1)
        saved, path = cache.to_bytes(1), Path(folder) / "cache"
        cache.from_bytes(saved, 0)
        cache.save(path, 1)
        assert path.read_bytes() == saved
        cache.load(path, 2)
        for sequence in 0, 2:
            assert cache.tokens(0, 1, sequence) == cache.tokens(0, 1, 1)
        expect_error("1 sequences, expected 3", lambda: cache.from_bytes(saved))
        expect_error("checksum", lambda: cache.from_bytes(saved[:-1] + bytes([saved[-1] ^ 1]), 0))
        expect_error("cut short", lambda: cache.from_bytes(b"x", 0))
        expect_error("size is 0", lambda: cache.from_bytes(b"", 0))
        expect_error("nothing", lambda: cache.load(Path(folder) / "nothing"), winnowkv.NotFound)
        expect_error("nothing", lambda: cache.save(Path(folder) / "nothing" / "cache"), winnowkv.NotFound)
        whole_cache = cache.to_bytes()
        cache.from_bytes(bytearray(whole_cache))
        assert cache.to_bytes() == whole_cache


def check_sequences(context):
    """Several sequences in a step come out as alone; and wrong entries are refused."""
    half, whole = rows(2, 6), rows(4, 6)
    with KvCache("none", **SHAPE, sequences=2, context=context) as both, \
            KvCache("none", **SHAPE, context=context) as alone:
        expected = alone.step(0, half, half, whole)
        out = both.step(0, half, half, whole, entries=[Entry(1, count=4), Entry(0, first=4)])
        assert out.tolist()[0][:4] == expected.tolist()[0][:4]
        assert both.next_position(0, 1) == 4 and both.next_position(0, 0) == 2
        expect_error("entries", lambda: both.step(0, half, half, whole, entries=[]))
        expect_error("sequence", lambda: both.step(0, half, half, whole, sequence=2))
        expect_error("batch of 1", lambda: both.step(0, half, half, whole, sequence=[0, 1]))
        expect_error("overlaps q", lambda: both.step(0, half, half, whole, out=whole))
        expect_error("expected k and v, or q", lambda: both.step(0))


def main():
    backend, layout = sys.argv[1:]
    check_layout(Path(layout).read_text(encoding="utf-8"))
    check_numbers(Path(layout).resolve().parents[2] / "plugin_api")
    with Context(backend=backend) as context:
        for check in check_cache, check_unlike_layers, check_experts, check_states, check_sequences:
            check(context)
    result = subprocess.run([sys.executable, "-B", external_policy.__file__, backend], capture_output=True, text=True)
    print(result.stdout + result.stderr)
    assert result.returncode == 0 and "keeps the same" in result.stdout
    kept = result.stdout.splitlines()[1].split()
    assert 32 <= len(kept) <= external_policy.BUDGET and kept[:4] == ["0", "1", "2", "3"], f"kept: {kept}"


main()
