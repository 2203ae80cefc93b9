"""What a call of the Python package costs beside the plugin: with functions of C that do nothing in the place of the
plugin's, so that ctypes counts, too. A step should take 10 us at most. And what a policy in numpy costs for each token
of a model of 30 layers, the plugin's work for it included: in time of the process, which other programs disturb less.

    call_bench.py PATH_OF_A_BACKEND
"""

import ctypes
import statistics
import sys
import time

import numpy as np

import winnowkv
from winnowkv import operations

NOTHING = ctypes.cast(ctypes.CDLL(None).pthread_mutexattr_destroy, ctypes.c_void_p).value  # returns 0


def least_us(call, times=3000):
    """The least time of a call, in microseconds."""
    least = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - begin)
    return 1e6 * least


def nothing(arguments):
    """A function of C that takes so many pointers, and does nothing."""
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * arguments)(NOTHING)


def heavy_hitters(scores, importance):
    """The policy of README.md."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probs = weights / weights.sum(axis=-1, keepdims=True)
    return importance + probs.sum(axis=3).mean(axis=2)


def report_policy(context, layers=30, tokens=2000, rounds=50):
    """A token's steps in the shape of SmolLM2-135M, without a policy and with one, and the policy alone."""
    random, own = np.random.default_rng(1), []
    row, prompt = (random.standard_normal((9, count, 64), dtype=np.float32) for count in (1, tokens))

    def policy(scores, importance):
        begin = time.process_time()
        result = heavy_hitters(scores, importance)
        own.append(time.process_time() - begin)
        return result

    def median_ms():
        taken = []
        for _ in range(rounds):
            begin = time.process_time()
            for layer in range(layers):
                cache.step(layer, row[:3], row[3:6], row)
            taken.append(time.process_time() - begin)
        return 1e3 * statistics.median(taken[rounds // 5:])  # without the first, which compile and take memory

    with winnowkv.KvCache("external:budget=1/4", layers=layers, q_heads=9, kv_heads=3, head_size=64,
                          max_tokens=2 * tokens, context=context) as cache:
        for layer in range(layers):
            cache.step(layer, prompt[:3], prompt[3:6])
        without = median_ms()
        cache.policy = policy
        whole, numpy = median_ms(), 1e3 * statistics.median(own)
    print(f"a token of {layers} layers after {tokens} takes {without:.1f} ms, and with a policy {whole:.1f} ms: "
          f"{numpy:.1f} ms in the policy's numpy, {whole - without - numpy:.1f} ms for its scores and importance")


def main():
    random = np.random.default_rng(0)
    k, v, q = (random.standard_normal((heads, 1, 64), dtype=np.float32) for heads in (3, 3, 9))
    with winnowkv.Context(backend=sys.argv[1], threads=1) as context:
        report_policy(context)
        cache = winnowkv.KvCache("window:budget=64", layers=1, q_heads=9, kv_heads=3, head_size=64, max_tokens=1024,
                                 context=context)
        calls = {"a step": lambda: cache.step(0, k, v, q), "sdpa": lambda: winnowkv.sdpa(q, k, v, context=context)}
        out = calls["a step"]()
        calls["a step with out="] = lambda: cache.step(0, k, v, q, out=out)
        whole = {name: least_us(call, 500) for name, call in calls.items()}
        cache._step._function = operations.on(context, operations._Sdpa).function = nothing(3)
        context._core.functions = context._core.functions | {"finish": nothing(1)}
        for name, call in calls.items():
            print(f"{name} takes {least_us(call):.1f} us beside the plugin, {whole[name]:.1f} us with it")


main()
