"""What may go wrong around a call: failures in the middle of one, Ctrl-C, forks, threads, the garbage collector,
handles that are used again, memory that may not be written, and arguments of the wrong kind.

    robustness_test.py PATH_OF_A_BACKEND
"""

import copy
import ctypes
import gc
import pickle
import signal
import threading

import numpy as np
from numpy_attention import Case, attention, main

import winnowkv
from winnowkv import Entry, KvCache, Packed, dequantize, kv_append, operations, quantize, requantize, sdpa, supports

RANDOM = np.random.default_rng(6)
SHAPE = {"layers": 1, "q_heads": 2, "kv_heads": 2, "head_size": 16, "max_tokens": 64}
EXACT = "none:k=f32,v=f32"
Q, K, V = (RANDOM.standard_normal((1, 2, tokens, 16), dtype=np.float32) for tokens in (3, 9, 9))


def draw(*shape):
    return RANDOM.standard_normal(shape, dtype=np.float32)


class Failures(Case):
    def test_a_step_after_one_that_failed_goes_where_it_says(self):
        row = draw(2, 1, 16)
        for wrong in ({"drafts": None}, {"drafts": 0.5}, {"drafts": True}, {"drafts": 1 << 64}):
            with self.subTest(**wrong), KvCache(EXACT, **SHAPE, sequences=2) as cache:
                cache.step(0, row, row, sequence=0)
                self.expect_error("drafts is", cache.step, 0, row, row, sequence=1, **wrong)
                cache.step(0, row, row, sequence=0)
                self.assertEqual([cache.next_position(0, each) for each in range(2)], [2, 0])

    def test_a_step_after_one_that_failed_computes_the_same(self):
        rows, query = draw(2, 9, 16), draw(2, 1, 16)
        with KvCache(EXACT, **SHAPE) as cache:
            cache.step(0, rows, rows)
            expected = cache.step(0, q=query)
            for wrong in ({"softcap": "x"}, {"window": "x"}, {"sinks": "x"}):
                self.expect_error(f"{next(iter(wrong))} is 'x', expected", cache.step, 0, q=query, scale=5.0, **wrong)
                np.testing.assert_array_equal(cache.step(0, q=query), expected)
        expected = sdpa(Q, K, V)
        self.expect_error("softcap is 'x', expected a number", sdpa, Q, K, V, scale=5.0, softcap="x")
        np.testing.assert_array_equal(sdpa(Q, K, V), expected)

    def interrupt(self, owner, name, call):
        """Ctrl-C behind the function that enqueues; returns how often the device was waited for."""
        core = self.context._core
        functions, function, count = core.functions, getattr(owner, name), 0

        def finish(handle):
            nonlocal count
            count += 1
            return functions["finish"](handle)

        def interrupted(*arguments):
            function(*arguments)
            signal.raise_signal(signal.SIGINT)

        core.functions = functions | {"finish": finish}
        setattr(owner, name, interrupted)
        try:
            with self.assertRaises(KeyboardInterrupt):
                call()
        finally:
            setattr(owner, name, function)
            core.functions = functions
        return count

    def test_nothing_is_written_after_an_interrupt(self):
        operation = operations.on(None, operations._Sdpa)
        self.assertEqual(self.interrupt(operation, "function", lambda: sdpa(Q, K, V)), 1)
        with KvCache(EXACT, **SHAPE) as cache:
            rows = draw(2, 3, 16)
            self.assertEqual(self.interrupt(cache._step, "_function", lambda: cache.step(0, rows, rows, rows)), 1)

    def test_a_device_that_failed_is_waited_for(self):
        operation = operations.on(None, operations._Sdpa)
        core, function, waits = self.context._core, operation.function, []
        functions = core.functions
        operation.function = lambda *_: 7
        core.functions = functions | {"finish": lambda handle: waits.append(handle) or 0}
        try:
            with self.assertRaises(winnowkv.DeviceError):
                sdpa(Q, K, V)
        finally:
            operation.function, core.functions = function, functions
        self.assertEqual(waits, [core.handle])

    def test_failures_of_state_callbacks_come_through(self):
        rows = draw(2, 60, 16)
        with KvCache(EXACT, **SHAPE) as cache:
            cache.step(0, rows, rows)
            data = cache.to_bytes()
            for name, call in (("string_at", cache.to_bytes), ("memmove", lambda: cache.from_bytes(data))):
                real, calls = getattr(ctypes, name), 0

                def failing(*arguments):
                    nonlocal calls
                    calls += 1
                    if calls == 2:
                        raise KeyboardInterrupt
                    return real(*arguments)

                setattr(ctypes, name, failing)
                try:
                    with self.assertRaises(KeyboardInterrupt):
                        call()
                finally:
                    setattr(ctypes, name, real)
                self.assertEqual(calls, 2)
                self.assertEqual(cache.to_bytes(), data)

    def test_a_policy_may_write_into_its_scores(self):
        def policy(scores, importance):
            result = np.arange(100, 100 + importance.shape[2], dtype=np.float32) + 0 * importance
            scores[:] = -np.inf
            return result

        rows = draw(2, 4, 16)
        with KvCache("external:budget=32", **SHAPE, policy=policy) as cache:
            cache.step(0, rows, rows, rows)
            self.assertEqual(list(cache.importance(0, 0)), [100, 101, 102, 103])

    def test_results_of_a_policy_in_any_order(self):
        rows = draw(2, 4, 16)
        for turn in (np.asfortranarray, lambda values: np.flip(values.copy()), lambda values: values.astype(">f4"),
                     lambda values: values.astype(np.float16)):
            expected = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
            with KvCache("external:budget=32", **SHAPE, policy=lambda scores, importance: turn(expected)) as cache:
                cache.step(0, rows, rows, rows)
                self.assertEqual([list(cache.importance(0, head)) for head in range(2)], turn(expected)[0].tolist())


class Memory(Case):
    def test_buffers_with_a_handle_of_the_past(self):
        """A handle is given away again, and first() of another buffer has the same shape."""
        query, reused = draw(1, 2, 1, 64), 0
        for _ in range(50):
            first = quantize(draw(1, 2, 64, 64), "q8_0")
            handle = first._buffer.handle
            sdpa(query, first.first(16), first.first(16))
            del first
            gc.collect()
            second = quantize(draw(1, 2, 128, 64), "q8_0")
            rows = dequantize(second)[:, :, :16]
            reused += second._buffer.handle == handle
            self.assert_close(sdpa(query, second.first(16), second.first(16)), attention(query, rows, rows)["out"],
                              1e-4)
        print(f"{reused} handles were used again")
        second, third = (quantize(draw(1, 2, rows, 64), "q8_0").first(16) for rows in (64, 128))
        kept, handle = operations.on(None, operations._Sdpa).k, third._buffer.handle
        kept.put(second)
        third._buffer.handle = second._buffer.handle
        self.assertNotEqual(kept._key_of(second), kept._key_of(third))
        third._buffer.handle = handle

    def test_what_may_not_be_written(self):
        rows, cache = draw(1, 2, 1, 16), np.zeros((1, 2, 8, 16), np.float32)
        cache.flags.writeable = False
        self.expect_error("k_cache may not be written", kv_append, rows, None, cache, None, [0])
        self.expect_error("v_cache may not be written", kv_append, None, rows, None, cache, [0])
        self.assertFalse(cache.any())
        self.expect_error("out is ndarray, expected Packed", requantize, quantize(draw(1, 2, 4, 64), "q8_0"),
                          out=np.zeros((1, 2, 4, 64), np.float32))

    def test_exports_that_may_not_be_written(self):
        class Export:
            """Memory that only a later DLPack can call read-only, or that is a copy."""

            def __init__(self, flags, major=1):
                self.flags, self.major, self.values = flags, major, np.zeros((1, 2, 3, 16), np.float32)

            def __dlpack_device__(self):
                return 1, 0

            def __dlpack__(self, *, max_version=None, **_):
                if max_version is None:
                    return self.values.__dlpack__()
                capsule = self.values.__dlpack__(max_version=(1, 0))
                address = winnowkv._dlpack._pointer_of(capsule, b"dltensor_versioned")
                struct = winnowkv._dlpack._Versioned.from_address(address)
                struct.flags, struct.major = self.flags, self.major
                return capsule

        import winnowkv._dlpack
        for flags in 1, 2:
            export = Export(flags)
            self.expect_error("out may not be written", sdpa, Q, K, V, out=export)
            self.assertFalse(export.values.any())
            sdpa(export, K, V)
        self.expect_error("q is a tensor of DLPack 2.", sdpa, Export(0, 2), K, V)

    def test_there_is_one_of_each(self):
        with KvCache("none", **SHAPE) as cache:
            for each in cache, self.context, Packed((1, 4, 32), "f16"):
                for call in copy.copy, copy.deepcopy, pickle.dumps:
                    with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                        call(each)

    def test_nothing_is_destroyed_inside_of_a_call(self):
        """The garbage collector runs in a callback of the plugin."""
        rows, core = draw(2, 60, 16), self.context._core
        cache, thrown = KvCache(EXACT, **SHAPE), [KvCache(EXACT, **SHAPE)]
        cache.step(0, rows, rows)
        handle, real, seen = thrown[0]._handle, ctypes.string_at, []

        def collecting(*arguments):
            thrown.clear()
            seen.append(handle in core.living)
            return real(*arguments)

        ctypes.string_at = collecting
        try:
            cache.to_bytes()
        finally:
            ctypes.string_at = real
        self.assertEqual(set(seen), {True})
        self.assertNotIn(handle, core.living)

    def test_support_takes_no_memory(self):
        rows, core = draw(1, 2, 6, 64), self.context._core
        create, made = core.functions["buffer_create"], []
        packed = quantize(rows, "q8_0")
        functions = core.functions
        core.functions = functions | {"buffer_create": lambda *given: made.append(given) or create(*given)}
        try:
            for source in rows, packed:
                answer = supports(quantize if source is rows else requantize, source, "q4_0")
                self.assertTrue(answer, answer.reason)
        finally:
            core.functions = functions
        self.assertEqual(made, [])


class Threads(Case):
    def test_each_quantizes_its_own(self):
        """Another thread quantizes wholly between two lines of the first."""
        ours, theirs = draw(1, 2, 4, 64), draw(1, 2, 400, 64)
        slot = operations.on(None, operations._Requantize).source
        real, threads = slot.put, []

        def put(array):
            real(array)
            if not threads:
                threads.append(threading.Thread(target=lambda: quantize(theirs, "q8_0")))
                threads[0].start()
                threads[0].join(0.2)  # it has to wait

        slot.put = put
        try:
            found = quantize(ours, "q8_0")
        finally:
            slot.put = real
        threads[0].join()
        self.assertEqual(found.shape, ours.shape)
        self.assert_close(dequantize(found), ours, 0.1)

    def test_a_step_waits_for_close(self):
        cache, rows, core = KvCache(EXACT, **SHAPE), draw(2, 1, 16), self.context._core
        handles, errors, destroy, threads = [], [], core.destroy, []
        cache._step._function = lambda handle, *_: handles.append(handle) or 0

        def step():
            try:
                cache.step(0, rows, rows)
            except winnowkv.Error as error:
                errors.append(str(error))

        def destroy_slowly(handle):
            destroy(handle)
            threads.append(threading.Thread(target=step))
            threads[0].start()
            threads[0].join(0.2)

        core.destroy = destroy_slowly
        try:
            cache.close()
        finally:
            core.destroy = destroy
        threads[0].join()
        self.assertEqual((handles, errors), ([], ["the cache is closed"]))

    def test_a_fork_during_a_call(self):
        """The child neither waits for a thread that it has not, nor calls the driver of its parent."""
        out, errors = self.run_python("""
            import gc, os, sys, threading, time
            import numpy as np, winnowkv
            context = winnowkv.Context(backend=sys.argv[1])
            winnowkv.set_default_context(context)
            rows = np.ones((1, 8, 256, 64), np.float32)
            cache = winnowkv.KvCache("none", layers=1, q_heads=8, head_size=64, **{sys.argv[2]: 64})
            packed = winnowkv.quantize(rows, "q8_0")
            is_over = False

            def compute():
                while not is_over:
                    winnowkv.sdpa(rows, rows, rows, context=context)

            thread = threading.Thread(target=compute, daemon=True)
            thread.start()
            time.sleep(0.3)
            child = os.fork()
            if child == 0:
                for call in context.stats, cache.stats, packed.to_bytes, lambda: winnowkv.sdpa(rows, packed, packed):
                    try:
                        call()
                    except winnowkv.Error as error:
                        print(error)
                print(repr(context), repr(cache))
                cache.close()
                del cache, packed, thread
                gc.collect()
                context.close()
                sys.exit(0)
            for _ in range(300):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    print("child", status)
                    break
                time.sleep(0.1)
            else:
                print("the child hangs")
                os.kill(child, 9)
            is_over = True
            thread.join()
            print(cache.stats().tokens)
            """, next(name for name in SHAPE if SHAPE[name] == 64))
        lines = out.splitlines()
        self.assertEqual(out.count("belongs to the parent process"), 4, out + errors)
        self.assertEqual((lines[-2:], errors), (["child 0", "0"], ""), out)


class Arguments(Case):
    def test_nothing_that_means_that_nothing_is_given(self):
        rows = draw(2, 9, 16)
        for wrong, words in (({"scale": 0.0}, "scale is 0.0, expected another number than 0"),
                             ({"softcap": 0}, "softcap is 0, expected another number than 0"),
                             ({"window": 0}, "window is 0, expected 1 to")):
            self.expect_error(words, sdpa, Q, K, V, **wrong)
            with KvCache(EXACT, **SHAPE) as cache:
                self.expect_error(words, cache.step, 0, rows, rows, rows, **wrong)
        self.expect_error("window[1] is 0, expected 1 or more, or None; causal=True hides", sdpa, Q, K, V,
                          window=(4, 0))
        self.expect_error("window[0] is -1, expected 1 to", sdpa, Q, K, V, window=(-1, -1))
        self.expect_error("window is (1, 2, 3), expected", sdpa, Q, K, V, window=(1, 2, 3))
        for pair in ([4, 2], np.array([4, 2])):
            np.testing.assert_array_equal(sdpa(Q, K, V, window=pair), sdpa(Q, K, V, window=(4, 2)))

    def test_whole_numbers(self):
        row = draw(2, 4, 16)
        mask = np.array([False, True])
        with KvCache("external:budget=32", **SHAPE) as cache:
            self.expect_error("layer is 18446744073709551616, expected 0 to 0", cache.step, 1 << 64, row, row)
            self.assertEqual(cache.next_position(), 0)
            cache.step(0, row, row, row)
            self.expect_error("positions[0] is False, expected a whole number", cache.anchor, mask)
            self.expect_error("positions[0] is False", cache.read, 0, mask)
            self.expect_error("positions[0] is False", cache.set_importance, 0, 0, np.ones(2), positions=mask)
            self.expect_error("positions[0] is 18446744073709551617", cache.set_importance, 0, 0, [7.],
                              positions=[(1 << 64) + 1])
            self.expect_error("sequence is 18446744073709551616", cache.truncate, 1, sequence=1 << 64)
            self.expect_error("sequence is -1", cache.truncate, 1, sequence=-1)
            self.expect_error("length is 1.5, expected a whole number", cache.truncate, 1.5)
            self.expect_error("sequence[0] is 'a', expected a whole number", cache.step, 0, row, row, sequence=["a"])
            self.expect_error("sequence is 'a', expected whole numbers", cache.step, 0, row, row, sequence="a")
            self.expect_error("count is 'a'", cache.step, 0, row, row, entries=[Entry(0, count="a")])
        self.expect_error("rows[0] is True", dequantize, quantize(draw(1, 2, 4, 32), "q8_0"), rows=[True, False])
        self.expect_error("kv_lengths[0] is True", sdpa, Q, K, V, kv_lengths=np.array([True]))
        self.expect_error("kv_lengths is 5, expected whole numbers in one row", sdpa, Q, K, V, kv_lengths=5)
        self.expect_error("threads is -1, expected 0 to", winnowkv.Context, backend=self.backend, threads=-1)
        self.expect_error("shape[1] is 2.9, expected a whole number", Packed, (1, 2.9, 4, 32), "f16")
        self.expect_error("elements is -1", winnowkv.row_bytes, "f16", -1)
        np.testing.assert_array_equal(sdpa(Q, K, V, q_offset=np.int64(6), causal=True), sdpa(Q, K, V, causal=True))
        np.testing.assert_array_equal(sdpa(Q, K, V, kv_lengths=iter([7])), sdpa(Q, K, V, kv_lengths=[7]))
        np.testing.assert_array_equal(sdpa(Q, K, V, positions=list(range(9))), sdpa(Q, K, V))
        with KvCache(EXACT, **SHAPE | {"layers": np.int64(1)}) as cache:
            self.assertEqual(cache.layers, 1)

    def test_messages_name_the_argument(self):
        rows, norms = draw(1, 2, 4, 64), (draw(1, 2, 1, 64), None)
        packed = quantize(rows, "q8_0")
        for words, call, *arguments, options in (
                ("scale is 'x', expected a number", sdpa, Q, K, V, {"scale": "x"}),
                ("sinks has the shape [1, 2], expected one axis", sdpa, Q, K, V, {"sinks": np.zeros((1, 2), "f4")}),
                ("mask.shape[2] (of four axes)", sdpa, Q, K, V, {"mask": np.ones((2, 9), bool)}),
                ("sinks", sdpa, Q, K, V, {"sinks": [1, 2, 3]}),
                ("k_norm is 'x', expected one of default", kv_append, *norms, packed, None, [0], {"k_norm": "x"}),
                ("source is ndarray, expected Packed", dequantize, rows, {}),
                ("dtype is 'q4_0', expected one of float32, float16", dequantize, packed, {"dtype": "q4_0"}),
                ("dtype is 'i32', expected one of float32, float16", dequantize, packed, {"dtype": "i32"}),
                ("config is None, expected a str", KvCache, None, SHAPE),
                ("config is 'none\\x00x', expected a str without NUL", KvCache, "none\0x", SHAPE),
                ("device is 'a\\x00'", winnowkv.Context, "a\0", {"backend": self.backend}),
                ("resources['x'] is str, expected bytes", KvCache, "none", SHAPE | {"resources": {"x": "abc"}}),
                ("layers[0] is (2, 2, 16), expected a LayerShape", KvCache, "none",
                 {"layers": [(2, 2, 16)], **dict(list(SHAPE.items())[-1:])}),
                ("chosen[0] is [], expected one expert at least", winnowkv.Experts(2).importance, {0: []}, {})):
            with self.subTest(words):
                self.expect_error(words, call, *arguments, **options)


if __name__ == "__main__":
    main()
