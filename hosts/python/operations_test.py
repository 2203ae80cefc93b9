"""Attention and the operations on rows over numpy's arrays, against numpy in double precision, and what is refused.

    operations_test.py PATH_OF_A_BACKEND
"""

import sys
import threading
import time

import numpy as np
from numpy_attention import Case, attention, main

import winnowkv
from winnowkv import Packed, dequantize, hadamard, kv_append, quantize, requantize, sdpa, supports

RANDOM = np.random.default_rng(1)


def draw(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def qkv(batch=1, q_heads=4, kv_heads=2, q_len=3, kv_len=9, size=16, v_size=16, dtype=np.float32):
    return (draw(batch, q_heads, q_len, size, dtype=dtype), draw(batch, kv_heads, kv_len, size, dtype=dtype),
            draw(batch, kv_heads, kv_len, v_size, dtype=dtype))


class Sdpa(Case):
    def check(self, q, k, v, most=2e-5, **options):
        expected = attention(q, k, v, **options)
        for scores in ("raw", "softcapped", "biased", "probs"):
            out, found, stats = sdpa(q, k, v, scores=scores, row_stats=True, **options)
            self.assertIs(type(out), np.ndarray)
            self.assertEqual((out.dtype, found.dtype), (q.dtype, np.float32))
            lead = (lambda array: array[0]) if q.ndim == 3 else (lambda array: array)
            self.assert_close(out, lead(expected["out"]), most)
            self.assert_close(found, lead(expected[scores]), most)
            self.assert_close(stats, lead(expected["row_stats"]), most)
        self.assert_close(sdpa(q, k, v, **options), lead(expected["out"]), most)

    def test_options(self):
        q, k, v = qkv()
        mask = draw(1, 4, 3, 9)
        hidden = RANDOM.random((3, 9)) < .5
        hidden[1] = False  # this query sees nothing
        for options in ({}, {"causal": True}, {"scale": .5, "softcap": 3.0}, {"window": 4, "causal": True},
                        {"window": (2, 1)}, {"mask": mask}, {"mask": mask.astype(np.float16)}, {"mask": hidden},
                        {"mask": mask[:, :1, :1]}, {"mask": mask, "mask_slopes": [1, .5, 2, -1]},
                        {"alibi": draw(4)}, {"alibi": [.5, .25, .1, 0], "causal": True}, {"sinks": draw(4)},
                        {"sinks": [1, 2, 3.5, -1], "mask": hidden}, {"q_offset": 2, "causal": True},
                        {"q_offset": 5, "window": 3, "positions": np.arange(9, dtype=np.int32)[::-1].copy(),
                         "causal": True}):
            with self.subTest(**options):
                self.check(q, k, v, **options)

    def test_lengths_of_each_entry(self):
        q, k, v = qkv(batch=3, q_len=2)
        k[1, :, 7:] = v[1, :, 7:] = np.nan
        for lengths in ([9, 7, 3], np.array([9, 7, 3], np.int32), [9, 7, 0]):
            for options in ({}, {"causal": True}, {"window": 4, "causal": True, "softcap": 3.0},
                            {"causal": True, "q_offset": [4, 5, 1]}, {"causal": True, "q_offset": np.array([1, 2, 3])}):
                with self.subTest(lengths=lengths, **options):
                    self.check(q, np.nan_to_num(k), np.nan_to_num(v), kv_lengths=lengths, **options)
                    np.testing.assert_array_equal(sdpa(q, k, v, kv_lengths=lengths, **options),
                                                  sdpa(q, np.nan_to_num(k), np.nan_to_num(v), kv_lengths=lengths,
                                                       **options))
        self.expect_error("kv_lengths", sdpa, q, k, v, kv_lengths=[1, 2])
        self.expect_error("kv_lengths[0] is 1.5, expected a whole number", sdpa, q, k, v, kv_lengths=[1.5, 2, 3])
        self.expect_error("q_offset is '?', expected whole numbers in one row", sdpa, q, k, v, q_offset="?")

    def test_shapes(self):
        for shape in ({"batch": 2}, {"q_heads": 6, "kv_heads": 2, "q_len": 1, "kv_len": 200, "size": 64, "v_size": 32},
                      {"q_len": 40, "kv_len": 40}, {"kv_len": 1, "q_len": 1}):
            with self.subTest(**shape):
                self.check(*qkv(**shape), causal=True)
        q, k, v = qkv(batch=4)
        self.check(q, k[:2], v[:2])
        self.check(q[0], k[0], v[0])

    def test_types(self):
        for dtype, most in ((np.float16, 2e-3), (bfloat16(), 2e-2)):
            if dtype is None:
                print("bfloat16 is not tested: there is no ml_dtypes")
                continue
            self.check(*qkv(dtype=dtype), most=most, causal=True)
        q, k, v = qkv()
        self.check(q, k.astype(np.float16), v, most=2e-3)

    def test_any_order_of_axes_is_taken_as_it_lies(self):
        q, k, v = qkv()
        copies = self.context.stats().host_copies
        for order in ((0, 2, 1, 3), (1, 0, 2, 3), (2, 1, 0, 3)):
            views = [np.ascontiguousarray(each.transpose(order)).transpose(np.argsort(order)) for each in (q, k, v)]
            self.assertFalse(views[1].flags.c_contiguous and order != (1, 0, 2, 3))
            self.check(*views, causal=True)
        whole = draw(2, 4, 2, 9, 16)
        self.check(q, whole[0, 1:3:2], whole[1, ::4])
        self.check(q[:, :, ::2], k[:, :, 1::3], v[:, :, 1::3])
        self.check(q, np.broadcast_to(k[:, :1], k.shape), v)
        q.flags.writeable = k.flags.writeable = False
        self.check(q, k, v)
        if "unified_memory" in self.context.info.capabilities:
            self.assertEqual(self.context.stats().host_copies, copies)

    def test_orders_that_are_refused(self):
        q, k, v = qkv()
        self.expect_error("k has elements 36 bytes apart along its last axis, expected 4, one after the other", sdpa, q,
                          np.ascontiguousarray(k.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2), v)
        self.expect_error("numpy.ascontiguousarray(...) has that order", sdpa, np.asfortranarray(q), k, v)
        self.expect_error("v has the strides", sdpa, q, k, v[:, :, ::-1])
        self.expect_error("q has elements 8 bytes apart", sdpa, draw(1, 4, 3, 32)[..., ::2], k, v)
        self.expect_error("q has elements -4 bytes apart", sdpa, q[..., ::-1], k, v)

    def test_types_and_shapes_that_are_refused(self):
        q, k, v = qkv()
        self.expect_error("q is float64, expected float32, float16 or bfloat16", sdpa, q.astype(float), k, v)
        self.expect_error("k is int32, expected float32, float16 or bfloat16, or Packed", sdpa, q, k.astype("i4"), v)
        self.expect_error("v is float32 in the other order of bytes", sdpa, q, k, v.astype(">f4"))
        self.expect_error("q is a masked array", sdpa, np.ma.masked_array(q), k, v)
        self.expect_error("q has the shape [], expected [batch, q_heads, q_len, size]", sdpa, np.float32(1)[...], k, v)
        self.expect_error("k has the shape [9, 16]", sdpa, q, k[0, 0], v)
        self.expect_error("q has the shape [1, 4, 0, 16], expected 1 at least", sdpa, q[:, :, :0], k, v)
        self.expect_error("k.shape[3]", sdpa, q, k[..., :8], v)
        self.expect_error("v.shape[2]", sdpa, q, k, v[:, :, :8])
        self.expect_error("heads", sdpa, q[:, :3], k, v)
        self.expect_error("mask is int64, expected float32, float16 or bool", sdpa, q, k, v, mask=np.ones((3, 9), int))
        self.expect_error("mask.shape[2] (of four axes) is 2", sdpa, q, k, v, mask=np.ones((2, 9), bool))
        self.expect_error("sinks is '0000', expected numbers in one row", sdpa, q, k, v, sinks="0000")
        self.expect_error("sinks", sdpa, q, k, v, sinks=[1, 2])
        self.expect_error("scores is 'logits', expected one of raw, softcapped, biased, probs", sdpa, q, k, v,
                          scores="logits")
        self.expect_error("q_offset is None", sdpa, q, k, v, positions=np.zeros((1, 1, 9), np.int32), causal=True)
        self.expect_error("positions is float32, expected int32", sdpa, q, k, v,
                          positions=np.zeros((1, 1, 9), np.float32))
        self.expect_error("k has the shape [1, 1, 2, 9, 16]", sdpa, q, k[None], v)
        self.expect_error("q is str", sdpa, np.full((1, 4, 3, 16), "a"), k, v)
        self.expect_error("q has the shape []", sdpa, np.float32(1), k, v)
        unaligned = np.frombuffer(b"x" + q.tobytes(), np.uint8)[1:].view(np.float32).reshape(q.shape)
        self.expect_error("q begins at an address", sdpa, unaligned, k, v)
        for wrong in (None, 1.0, "text", [[1.0]], {}, object()):
            self.expect_error("q is of type", sdpa, wrong, k, v, kind=TypeError)
        huge = np.lib.stride_tricks.as_strided(k, (1, 2, 2 ** 45, 16), k.strides)
        self.expect_error("k.shape[2]", sdpa, q, huge, v)

    def test_out(self):
        q, k, v = qkv()
        expected, out = sdpa(q, k, v), np.empty((1, 3, 4, 16), np.float32).transpose(0, 2, 1, 3)
        self.assertIs(sdpa(q, k, v, out=out), out)
        np.testing.assert_array_equal(out, expected)
        half = np.empty(out.shape, np.float16)
        sdpa(q, k, v, out=half)
        self.assert_close(half, expected, 1e-3)
        result = sdpa(q, k, v, out=out, scores="probs")
        self.assertIs(result[0], out)
        for _ in range(2):  # also once it was taken as it is
            sdpa(q, k, v, out=half)
            half.flags.writeable = False
            self.expect_error("out may not be written", sdpa, q, k, v, out=half)
            half.flags.writeable = True
        self.expect_error("out is int32", sdpa, q, k, v, out=np.empty(out.shape, np.int32))
        self.expect_error("out.shape", sdpa, q, k, v, out=np.empty((1, 4, 3, 8), np.float32))
        self.expect_error("out overlaps q", sdpa, q, k, v, out=q)

    def test_sparse_values(self):
        q, k, v = qkv(kv_len=64)
        expected = attention(8 * q, k, v)
        out, skipped = sdpa(8 * q, k, v, v_threshold=1e-3)
        self.assertEqual((skipped.shape, skipped.dtype), ((1, 4, 3, 1), np.int32))
        small = (expected["probs"] < 1e-3).sum(-1, keepdims=True)
        self.assertGreater(small.min(), 0)
        self.assertTrue((skipped <= small + 1).all(), (skipped, small))
        bound = 1e-3 * skipped * np.abs(v).max() + 2e-5  # what the values that were passed over may add up to
        self.assertTrue((np.abs(out - expected["out"]) <= bound).all())
        self.assertFalse(sdpa(q, k, v, v_threshold=1e-30)[1].any())

    def test_a_call_after_a_failure_is_as_any_other(self):
        q, k, v = qkv()
        expected = sdpa(q, k, v)
        for words, wrong in (("sinks", {"sinks": [1]}), ("mask.shape[2]", {"mask": np.ones((2, 2), bool)}),
                             ("scores is '?'", {"scores": "?"}), ("out overlaps q", {"out": q})):
            self.expect_error(words, sdpa, q, k, v, **wrong)
            np.testing.assert_array_equal(sdpa(q, k, v), expected)

    def test_threads_wait_for_each_other(self):
        q, k, v = qkv(q_heads=8, kv_heads=8, q_len=64, kv_len=1024, size=64, v_size=64)
        expected, results = sdpa(q, k, v), [None] * 4

        def compute(which):
            for _ in range(3):
                results[which] = sdpa(q, k, v)

        threads = [threading.Thread(target=compute, args=(which,)) for which in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            np.testing.assert_array_equal(result, expected)

    def test_another_thread_runs_during_a_call(self):
        """Python is told never to take the GIL from a thread, so the other one runs if the call gives it away."""
        q, k, v = qkv(q_heads=8, kv_heads=8, q_len=64, kv_len=1024, size=64, v_size=64)
        sdpa(q, k, v)
        count, is_over, interval = 0, False, sys.getswitchinterval()

        def run():
            nonlocal count
            while not is_over:
                count += 1
                time.sleep(0)

        thread = threading.Thread(target=run)
        sys.setswitchinterval(60)
        try:
            thread.start()
            before, calls = count, 0
            while count == before and calls < 100:
                sdpa(q, k, v)
                calls += 1
            after = count
        finally:
            is_over = True
            sys.setswitchinterval(interval)
            thread.join()
        print(f"during {calls} calls another thread ran {after - before} times")
        self.assertGreater(after, before)


def bfloat16():
    try:
        from ml_dtypes import bfloat16 as dtype
    except ImportError:
        return None
    return dtype


class Rows(Case):
    ERRORS = {"f32": 0, "f16": 1e-3, "bf16": 1e-2, "q8_0": 1e-2, "q5_1": .06, "q5_0": .06, "q4_1": .12, "q4_0": .12,
              "iq4_nl": .12, "affine8_g32": 1e-2, "affine8_g64": 1e-2, "affine4_g32": .12, "affine4_g64": .15,
              "turbo4": .12, "turbo3": .25, "turbo2": .45, "turbo3_5": .25, "turbo2_5": .45, "sparse16": .35,
              "sparse8": .35}

    def test_there_and_back(self):
        rows = draw(2, 3, 5, 64)
        for name, most in self.ERRORS.items():
            with self.subTest(name):
                packed = quantize(rows, name)
                self.assertEqual((packed.shape, packed.type), (rows.shape, name))
                self.assertEqual(packed.nbytes, 30 * winnowkv.row_bytes(name, 64))
                back = dequantize(packed)
                self.assertEqual((back.shape, back.dtype), (rows.shape, np.float32))
                self.assertLessEqual(np.linalg.norm(back - rows) / np.linalg.norm(rows), most)
                self.assert_close(dequantize(packed, dtype="float16"), back, 1e-3)
                again = Packed(packed.shape, name)
                again.from_bytes(packed.to_bytes())
                np.testing.assert_array_equal(dequantize(again), back)

    def test_known_bytes(self):
        """A block of Q8_0: the scale in F16, 127 times which is the largest; then the numbers."""
        rows = np.zeros((1, 1, 32), np.float32)
        rows[0, 0, :3] = 127, -64, 1
        data = quantize(rows, "q8_0").to_bytes()
        self.assertEqual(np.frombuffer(data, np.float16, 1)[0], 1)
        self.assertEqual(list(np.frombuffer(data, np.int8, 4, 2)), [127, -64, 1, 0])

    def test_append_and_attend(self):
        q, k, v = qkv(kv_len=5, size=64, v_size=64)
        k_cache, v_cache = Packed((1, 2, 8, 64), "q8_0"), Packed((1, 2, 8, 64), "f16")
        kv_append(k, v, k_cache, v_cache, [0, 1, 2, 3, 4])
        out = sdpa(q, k_cache.first(5), v_cache.first(5), causal=True)
        self.assert_close(out, attention(q, k, v, causal=True)["out"], 3e-2)
        same = attention(q, dequantize(k_cache, range(5)), dequantize(v_cache, range(5)), causal=True)["out"]
        self.assert_close(out, same, 2e-5)
        kv_append(k[:, :, :1], None, k_cache, None, np.array([7], np.int32))
        np.testing.assert_array_equal(dequantize(k_cache, [7, 0, 99])[:, :, [0, 1]], dequantize(k_cache, [0, 7]))
        self.assertFalse(dequantize(k_cache, [99]).any())
        by_head = np.array([[[1], [2]]])
        kv_append(None, v[:, :, :1], None, v_cache, None, by_head)
        np.testing.assert_array_equal(dequantize(v_cache, by_head), v[:, :, :1].astype(np.float16))
        host = np.zeros((1, 2, 8, 64), np.float32)
        kv_append(k, None, host, None, [3, 1, -1, 0, 7])
        np.testing.assert_array_equal(host[:, :, [3, 1, 0, 7]], k[:, :, [0, 1, 3, 4]])
        self.assertEqual(np.count_nonzero(host.any(-1)), 8)

    def test_requantize(self):
        rows = draw(1, 2, 6, 64)
        packed = quantize(rows, "q8_0")
        coarse = requantize(packed, "q4_0")
        np.testing.assert_array_equal(dequantize(coarse), dequantize(quantize(dequantize(packed), "q4_0")))
        some = Packed(rows.shape, "f32")
        self.assertIs(requantize(packed, rows=[1, 4], out=some), some)
        np.testing.assert_array_equal(dequantize(some, [1, 4]), dequantize(packed, [1, 4]))
        self.assertFalse(dequantize(some, [0, 2, 3, 5]).any())
        self.expect_error("a type or out", requantize, packed)

    def test_hadamard(self):
        for shape in ((64,), (3, 32), (2, 3, 4, 576)):
            rows = draw(*shape)
            turned = hadamard(rows)
            self.assertEqual(turned.shape, rows.shape)
            self.assert_close(np.linalg.norm(turned, axis=-1), np.linalg.norm(rows, axis=-1))
            self.assert_close(hadamard(turned, inverse=True), rows)
            self.assertIs(hadamard(turned, inverse=True, out=turned), turned)
            self.assert_close(turned, rows)
        self.expect_error("hadamard", hadamard, draw(17))

    def test_what_is_refused(self):
        rows = draw(1, 2, 6, 64)
        self.expect_error("type is 'q9', expected one of f32, f16", quantize, rows, "q9")
        self.expect_error(("33", "multiple of 32"), quantize, rows[..., :33].copy(), "q8_0")
        self.expect_error("norm is 'odd'", quantize, rows, "turbo4", norm="odd")
        self.expect_error("shape is [4]", Packed, (4,), "f16")
        self.expect_error("rows is 9", Packed((1, 4, 32), "f16").first, 9)
        packed = quantize(rows, "q8_0")
        self.expect_error("takes all rows", packed.first(2).to_bytes)
        self.expect_error("data has 1 bytes, expected", packed.from_bytes, b"x")
        self.expect_error("rows[0] is 0.0, expected a whole number", kv_append, rows, None, packed, None,
                          np.zeros(6, np.float32))
        with winnowkv.Context(backend=self.backend) as other:
            stranger = quantize(rows, "q8_0", context=other)
            self.expect_error("of another context", sdpa, rows, packed, stranger)
        self.expect_error("the context is closed", dequantize, stranger, kind=winnowkv.Error)

    def test_supports(self):
        q, k, v = qkv()
        answer = supports(sdpa, q, k, v, causal=True)
        self.assertTrue(answer and answer.variant)
        answer = supports(sdpa, q, k[..., :8], v)
        self.assertFalse(answer)
        self.assertIn("k.shape[3]", answer.reason)
        self.assertIn("q is int64", supports(sdpa, q.astype(int), k, v).reason)
        self.assertTrue(supports(quantize, draw(1, 2, 6, 64), "turbo4"))
        self.assertFalse(supports(quantize, draw(1, 2, 6, 33), "turbo4"))
        self.assertFalse(supports(hadamard, draw(17)))
        packed = quantize(draw(1, 2, 6, 64), "q8_0")
        for call in ((dequantize, packed), (requantize, packed, "q4_0"),
                     (kv_append, draw(1, 2, 1, 64), None, packed, None, [3])):
            self.assertTrue(supports(*call), call)
        with self.assertRaises(TypeError):
            supports(print, q)


class Contexts(Case):
    def test_a_context_tells_of_itself(self):
        before = self.context.stats()
        sdpa(*qkv())
        self.assertEqual(self.context.stats().sdpa_calls, before.sdpa_calls + 1)
        self.assertIn(self.context.info.name, repr(self.context))
        self.assertIn(self.context.info.type, ("cpu", "gpu", "accelerator"))

    def test_closing(self):
        context = winnowkv.Context(backend=self.backend)
        cache = winnowkv.KvCache("none", layers=1, q_heads=1, head_size=16, max_tokens=8, context=context)
        context.close()
        context.close()
        cache.close()
        self.assertIn("closed", repr(cache))
        self.assertEqual(repr(context), "<Context, closed>")
        self.expect_error("the context is closed", sdpa, *qkv(), context=context, kind=winnowkv.Error)

    def test_threads_of_the_driver(self):
        """PoCL's pool has the size that the first context asks for; what comes too late is said."""
        for threads in "1", "2":
            out, errors = self.run_python("""
                import sys, winnowkv
                first = winnowkv.Context(backend=sys.argv[1], threads=int(sys.argv[2])).info
                print(first.platform, first.compute_units, sep="|")
                winnowkv.Context(backend=sys.argv[1], threads=1)
                """, threads)
            platform, units = out.strip().split("|")
            if platform != "Portable Computing Language":
                self.skipTest(f"{platform} has another pool than PoCL's")
            self.assertLessEqual(int(units), int(threads))
            self.assertEqual("expected 1: its pool was made before" in errors, int(units) > 1, errors)

    def test_errors_have_classes(self):
        from winnowkv.errors import error_of

        for status, kinds in ((1, (winnowkv.InvalidArgument, ValueError)), (6, (winnowkv.OutOfMemory, MemoryError)),
                              (3, (winnowkv.Unimplemented, NotImplementedError)), (1 << 30, (winnowkv.Error,))):
            error = error_of(status, "text")
            for kind in kinds:
                self.assertIsInstance(error, kind)
            self.assertEqual((error.status, str(error)), (status, "text"))
        self.expect_error("nonsense", winnowkv.Context, "nonsense", kind=winnowkv.NotFound,
                          backend=self.backend)


if __name__ == "__main__":
    main()
