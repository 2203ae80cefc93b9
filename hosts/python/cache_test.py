"""Runs the example of a policy on a backend, and holds the package's structs against the layout of the C headers.

    cache_test.py PATH_OF_A_BACKEND PATH_OF_LAYOUT_H
"""

import ctypes
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import external_policy
from winnowkv import Experts
from winnowkv import cache as winnowkv_cache

STRUCTS = {"winnow_host_info": winnowkv_cache.HostInfo, "winnow_device_info": winnowkv_cache.DeviceInfo,
           "winnow_context_desc": winnowkv_cache.ContextDesc, "winnow_tensor": winnowkv_cache.Tensor,
           "winnow_resource": winnowkv_cache.Resource, "winnow_cache_desc": winnowkv_cache.CacheDesc,
           "winnow_cache_entry": winnowkv_cache.CacheEntry,
           "winnow_cache_step_desc": winnowkv_cache.CacheStepDesc,
           "winnow_cache_tokens": winnowkv_cache.CacheTokens,
           "winnow_cache_state_desc": winnowkv_cache.CacheStateDesc,
           "winnow_api": winnowkv_cache.Api, "winnow_cache_api": winnowkv_cache.CacheApi}


def check_layout(text):
    """Every field is there, and lies where C has it."""
    for name, its in STRUCTS.items():
        expected = dict(re.findall(rf"LAYOUT_AT\({name}, (\w+), (\d+)\)", text))
        has = {field[0]: str(getattr(its, field[0]).offset) for field in its._fields_}
        assert has == expected, f"{name}: {sorted(set(has.items()) ^ set(expected.items()))}"
        size = re.search(rf"LAYOUT_SIZE\({name}, (\d+)\)", text)[1]
        assert ctypes.sizeof(its) == int(size), f"{name} has {ctypes.sizeof(its)} bytes, expected {size}"


def expect_error(words, call):
    try:
        call()
    except winnowkv_cache.Error as error:
        assert words in str(error), f"{error}: says nothing of {words}"
        return
    raise AssertionError(f"{words}: no error")


def check_cache(backend):
    """Importances are as they were set, also by a policy that has no sense; and what is wrong is refused."""
    shape = {"layers": 1, "q_num_heads": 4, "kv_num_heads": 2, "head_size": 16, "context": 64}
    with winnowkv_cache.Context(backend) as context:
        with context.cache("external:budget=32,sink=0,residual=0,cadence=1,recent=1", **shape) as cache:
            rows = (ctypes.c_float * 64)(*range(64))
            half = (ctypes.c_float * 32)(*range(32))
            for position in range(40):
                cache.step(0, half, half, rows)
                cache.set_importance(0, 1, {position: 5.0 if position % 2 else float("nan"), 63: 1.0})
            kept = cache.positions(0, 1)
            assert len(kept) == 32 and [p for p in range(40) if p not in kept] == list(range(0, 16, 2)), kept
            assert cache.positions(0, 0) == list(range(8, 40)), "the head without importances is no window"
            assert [value == 5 for value in cache.importance(0, 1)] == [position % 2 == 1 for position in kept]
            expect_error("positions[0]", lambda: cache.set_importance(0, 0, {64: 1.0}))
            expect_error("head", lambda: cache.set_importance(0, 2, {0: 1.0}))
            expect_error("expected", lambda: cache.step(0, rows, half, rows))
        with context.cache("window:budget=32", **shape) as cache:
            try:
                cache.step(0, half, half, rows, no_wait=True)
                raise AssertionError("a step took memory that must not wait")
            except winnowkv_cache.WouldWait as error:
                assert "cache_reserve" in str(error), error
            cache.reserve(40)
            for _ in range(40):
                cache.step(0, half, half, rows, no_wait=True)
            assert cache.next_position(0) == 40
            expect_error("no importance", lambda: cache.set_importance(0, 0, {0: 1.0}))
        expect_error("no policy", lambda: context.cache("nonsense", **shape))
        divided = "adaptive_budget:budget=32,policy=window,residual=0"
        with context.cache(divided, {"profile": struct.pack("<3d", 1, .5, 2)}, **shape):
            pass
        expect_error("size is 8", lambda: context.cache(divided, {"profile": bytes(8)}, **shape))


def check_unlike_layers(backend):
    """Each layer takes and gives rows of its own shape."""
    shapes = [{"q_num_heads": 4, "kv_num_heads": 2, "head_size": 16},
              {"q_num_heads": 3, "kv_num_heads": 1, "head_size": 32, "v_head_size": 64}]
    with winnowkv_cache.Context(backend) as context:
        with context.cache("none:k=f32,v=f32", layer_shapes=shapes, context=64) as cache:
            for layer, (k, v, q) in enumerate([(32, 32, 64), (32, 64, 96)]):
                values = (ctypes.c_float * v)(*range(v))
                out, _ = cache.step(layer, (ctypes.c_float * k)(), values, (ctypes.c_float * q)())
                assert list(out[:16]) == list(range(16)) and len(out) == (64, 192)[layer], list(out)
            assert cache.positions(0, 1) == [0] and cache.positions(1, 0) == [0]
            expect_error("head", lambda: cache.positions(1, 1))
        expect_error("expected 0 where layer_shapes is given",
                     lambda: context.cache("none", layer_shapes=shapes, head_size=16, context=64))


def check_experts(backend):
    """Tokens of experts that few tokens go to are gone before the budget is full, but for the newest; others stay."""
    experts = Experts(4, inactive=0.5)
    assert experts.importance({0: [0, 1], 1: [0, 0]}) == {0: (2 + 1) / 2, 1: 2}, "of shares 2, 1, 1/2 and 1/2"
    assert experts.counts == [3, 1, 0, 0]
    experts = Experts(2, inactive=1)
    assert experts.importance({7: [0, 0], 8: [1]}) == {7: 1.2, 8: -1}, "0.8 of the average is less than 1"
    shape = {"layers": 1, "q_num_heads": 4, "kv_num_heads": 2, "head_size": 16, "context": 160}
    config = "moe:budget=1/1,experts=8,inactive=1/2,evict_inactive=on,recent=32,k=f16,v=f16"
    with winnowkv_cache.Context(backend) as context, context.cache(config, **shape) as cache:
        rows, half, experts = (ctypes.c_float * 64)(*range(64)), (ctypes.c_float * 32)(*range(32)), Experts(8, 0.5)
        rare = [position for position in range(160) if position % 16 == 8]
        for position in range(160):
            cache.step(0, half, half, rows)
            chosen = [6, 7] if position in rare else [position % 6, (position + 1) % 6]
            worth = experts.importance({position: chosen})
            for head in range(2):
                cache.set_importance(0, head, worth)
        kept = set(cache.positions(0, 1))
        assert kept >= set(range(160)) - set(rare), f"others are gone: {set(range(160)) - set(rare) - kept}"
        assert not kept & {position for position in rare[1:] if position < 96}, f"are there: {kept & set(rare)}"


def check_states(backend):
    """A sequence goes through bytes and through a file into others; what is no saved cache is refused."""
    shape = {"layers": 1, "q_num_heads": 4, "kv_num_heads": 2, "head_size": 16, "context": 64, "max_sequences": 3}
    half, rows = (ctypes.c_float * 160)(*range(160)), (ctypes.c_float * 320)(*range(320))
    with winnowkv_cache.Context(backend) as context, context.cache("h2o:budget=32", **shape) as cache, \
            tempfile.TemporaryDirectory() as folder:
        for _ in range(12):
            cache.step(0, half, half, rows, sequence=1)
        saved, path = cache.to_bytes(1), Path(folder) / "cache"
        cache.from_bytes(saved, 0)
        cache.save(path, 1)
        assert path.read_bytes() == saved
        cache.load(path, 2)
        for sequence in 0, 2:
            assert cache.positions(0, 1, sequence) == cache.positions(0, 1, 1)
            assert cache.importance(0, 1, sequence) == cache.importance(0, 1, 1)
        expect_error("1 sequences, expected 3", lambda: cache.from_bytes(saved))
        expect_error("checksum", lambda: cache.from_bytes(saved[:-1] + bytes([saved[-1] ^ 1]), 0))
        expect_error("cut short", lambda: cache.from_bytes(b"x", 0))
        expect_error("size is 0", lambda: cache.from_bytes(b"", 0))
        whole = cache.to_bytes()
        cache.from_bytes(whole)
        assert cache.to_bytes() == whole


def main():
    backend, layout = sys.argv[1:]
    check_layout(Path(layout).read_text(encoding="utf-8"))
    check_cache(backend)
    check_unlike_layers(backend)
    check_experts(backend)
    check_states(backend)
    result = subprocess.run([sys.executable, "-B", external_policy.__file__, backend], capture_output=True, text=True)
    print(result.stdout + result.stderr)
    assert result.returncode == 0 and "keeps the same" in result.stdout
    kept = result.stdout.splitlines()[1].split()
    assert 32 <= len(kept) <= external_policy.BUDGET and kept[:4] == ["0", "1", "2", "3"], f"kept: {kept}"


main()
