"""What a call of the Python package costs beside the plugin: with functions of C that do nothing in the place of the
plugin's, so that ctypes counts, too. A step should take 10 us at most.

    call_bench.py PATH_OF_A_BACKEND
"""

import ctypes
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


def main():
    random = np.random.default_rng(0)
    k, v, q = (random.standard_normal((heads, 1, 64), dtype=np.float32) for heads in (3, 3, 9))
    with winnowkv.Context(backend=sys.argv[1]) as context:
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
