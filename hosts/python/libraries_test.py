"""Arrays of torch, jax and mlx, and of others with DLPack: each library that is installed gets results of its own, and
its own attention says what they have to be. A library that is not installed is skipped, and printed.

    libraries_test.py PATH_OF_A_BACKEND
"""

import array
import importlib
import unittest

import numpy as np
from numpy_attention import Case, attention, main

import winnowkv
from winnowkv import KvCache, Packed, dequantize, hadamard, kv_append, quantize, sdpa

RANDOM = np.random.default_rng(4)
SHAPE = {"layers": 2, "q_heads": 4, "kv_heads": 2, "head_size": 16, "max_tokens": 128}


def draw(*shape):
    return RANDOM.standard_normal(shape, dtype=np.float32)


class Of:
    """What each library has to do; the tests of one are a class below."""

    name: str
    module: str
    kind: type | tuple[type, ...]

    @classmethod
    def setUpClass(cls):
        try:
            cls.library = importlib.import_module(cls.module)
        except ModuleNotFoundError as missing:
            if missing.name != cls.module.partition(".")[0]:
                raise
            print(f"{cls.name} is not tested: it is not installed")
            raise unittest.SkipTest(f"{cls.name} is not installed") from None

    def make(self, values):
        """An array of the library."""
        raise NotImplementedError

    def cast(self, values, name):
        raise NotImplementedError

    def numbers(self, values):
        """In numpy and F32."""
        return np.asarray(values)

    def own_attention(self, q, k, v):
        """Causal, of the library itself, in numpy."""
        raise NotImplementedError

    def test_attention(self):
        q, k, v = draw(2, 4, 8, 16), draw(2, 2, 8, 16), draw(2, 2, 8, 16)
        given = [self.make(each) for each in (q, k, v)]
        out, scores = sdpa(*given, causal=True, scores="probs")
        for found in out, scores:
            self.assertIsInstance(found, self.kind)
        expected = attention(q, k, v, causal=True)
        self.assert_close(self.numbers(out), expected["out"])
        self.assert_close(self.numbers(scores), expected["probs"])
        self.assert_close(self.numbers(out), self.own_attention(*given))
        self.assert_close(self.numbers(sdpa(*given, mask=self.make(np.tril(np.ones((8, 8), bool))))), expected["out"])
        self.assert_close(self.numbers(sdpa(*given, sinks=self.make(np.float32([1, 2, 3, 4])))),
                          attention(q, k, v, sinks=[1, 2, 3, 4])["out"])

    def test_types(self):
        q, k, v = draw(2, 4, 8, 16), draw(2, 2, 8, 16), draw(2, 2, 8, 16)
        for name, most in (("float16", 5e-3), ("bfloat16", 3e-2)):
            given = [self.cast(self.make(each), name) for each in (q, k, v)]
            out = sdpa(*given, causal=True)
            self.assertIn(name, str(out.dtype))
            self.assert_close(self.numbers(self.cast(out, "float32")), attention(q, k, v, causal=True)["out"], most)
        self.expect_error("expected float32, float16 or bfloat16", sdpa, self.cast(self.make(q), "int32"),
                          self.make(k), self.make(v))

    def test_caches(self):
        k, v, q = draw(2, 40, 16), draw(2, 40, 16), draw(4, 40, 16)
        with KvCache("none:k=f32,v=f32", **SHAPE) as cache:
            out, scores = cache.step(0, self.make(k), self.make(v), self.make(q), scores=True)
            self.assertIsInstance(scores, self.kind)
            self.assert_close(self.numbers(out), attention(q, k, v, causal=True)["out"][0])
            self.assert_close(self.numbers(scores), attention(q, k, v, causal=True)["biased"][0])
            found, _ = cache.read(0, [3, 1])
            self.assertIsInstance(found, self.kind)
            np.testing.assert_array_equal(self.numbers(found), k[:, [3, 1]])
            cache.write(0, self.make(np.int32([2])), self.make(2 * k[:, [2]]))
            self.assertIs(type(cache.read(0, [2], library="numpy")[0]), np.ndarray)

    def test_rows(self):
        rows = draw(1, 2, 5, 64)
        packed = quantize(self.make(rows), "q8_0")
        self.assertIsInstance(packed, Packed)
        found = dequantize(packed)
        self.assertIsInstance(found, self.kind)
        np.testing.assert_array_equal(self.numbers(found), dequantize(quantize(rows, "q8_0")))
        np.testing.assert_array_equal(self.numbers(hadamard(self.make(rows))), hadamard(rows))

    def test_a_policy(self):
        kinds = []

        def policy(scores, importance):
            kinds.extend((scores, importance))
            return self.policy(scores, importance)

        def numpy_policy(scores, importance):
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            return importance + (weights / weights.sum(-1, keepdims=True)).sum(3).mean(2)

        kept = []
        for convert, function in ((self.make, policy), (lambda values: values, numpy_policy)):
            random = np.random.default_rng(5)
            with KvCache("external:budget=32", **SHAPE, policy=function) as cache:
                for _ in range(60):
                    for layer in range(2):
                        rows = random.standard_normal((8, 1, 16), dtype=np.float32)
                        cache.step(layer, *map(convert, (rows[:2], rows[2:4], rows[4:])))
                kept.append([list(cache.positions(layer, head)) for layer in range(2) for head in range(2)])
        self.assertEqual(*kept)
        for each in kinds:
            self.assertIsInstance(each, self.kind)


class Torch(Of, Case):
    name = module = "torch"

    @property
    def kind(self):
        return self.library.Tensor

    def make(self, values):
        return self.library.from_numpy(np.array(values))

    def cast(self, values, name):
        return values.to(getattr(self.library, name))

    def own_attention(self, q, k, v):
        return self.library.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def policy(self, scores, importance):
        return importance + scores.softmax(-1).sum(3).mean(2)

    def test_views_and_outputs(self):
        """As transformers has them: a token's heads beside each other."""
        q, k, v = (self.make(draw(1, 5, heads, 16)).transpose(1, 2) for heads in (4, 2, 2))
        with KvCache("none:k=f32,v=f32", **SHAPE) as cache:
            out = self.library.empty(1, 5, 4, 16)
            for _ in range(3):
                result = cache.step(0, k, v, q, out=out.transpose(1, 2))
                self.assertEqual(result.data_ptr(), out.data_ptr())
                cache.truncate(0)
            self.assert_close(out.transpose(1, 2), attention(q, k, v, causal=True)["out"])
        self.expect_error(("k has elements", ".contiguous()"), sdpa, q, k.transpose(2, 3), v)

    def test_what_is_refused(self):
        q = self.make(draw(1, 2, 3, 16))
        self.expect_error(("q is a tensor that wants a gradient", "no_grad"), sdpa, q.clone().requires_grad_(), q, q)
        parameter = self.library.nn.Parameter(self.make(np.float32([1, 2])))
        with self.library.no_grad():
            expected = sdpa(q, q, q, sinks=[1, 2])
            self.assertTrue(self.library.equal(sdpa(q.clone().requires_grad_(), q, q, sinks=parameter), expected))
        self.expect_error("k is in memory of meta", sdpa, q, q.to("meta"), q)
        self.expect_error("v is torch.float64", sdpa, q, q, q.double())
        with self.library.inference_mode():
            sdpa(q + 0, q, q)


class Jax(Of, Case):
    name = module = "jax"

    @property
    def kind(self):
        return self.library.Array

    def make(self, values):
        return self.library.numpy.asarray(values)

    def cast(self, values, name):
        return values.astype(name)

    def own_attention(self, q, k, v):
        swap = self.library.numpy.swapaxes
        return swap(self.library.nn.dot_product_attention(*(swap(each, 1, 2) for each in (q, k, v)), is_causal=True),
                    1, 2)

    def policy(self, scores, importance):
        return importance + self.library.nn.softmax(scores, -1).sum(3).mean(2)

    def test_what_is_refused(self):
        q = self.make(draw(1, 2, 3, 16))
        self.expect_error("q is a tracer of jax", self.library.jit(lambda each: sdpa(each, q, q)), q)
        self.expect_error("out may not be written", sdpa, q, q, q, out=q + 0)
        cache = q + 0
        self.expect_error("k_cache may not be written", kv_append, q[:, :, :1], None, cache, None, [0])
        np.testing.assert_array_equal(cache, q)


class Mlx(Of, Case):
    name, module = "mlx", "mlx.core"

    @property
    def kind(self):
        return self.library.array

    def make(self, values):
        return self.library.array(values)

    def cast(self, values, name):
        return values.astype(getattr(self.library, name))

    def own_attention(self, q, k, v):
        return self.library.fast.scaled_dot_product_attention(q, k, v, scale=16 ** -.5, mask="causal")

    def policy(self, scores, importance):
        return importance + self.library.softmax(scores, -1).sum(3).mean(2)

    def test_views(self):
        q, k, v = (self.make(draw(1, 5, heads, 16)).swapaxes(1, 2) for heads in (4, 2, 2))
        self.assert_close(self.numbers(sdpa(q, k, v)), attention(*map(np.array, (q, k, v)))["out"])
        self.expect_error("out may not be written", sdpa, q, k, v, out=q + 0)
        cache = k + 0
        self.expect_error("k_cache may not be written", kv_append, k[:, :, :1], None, cache, None, [4])
        np.testing.assert_array_equal(np.array(cache), np.array(k))


class Exporter:
    """Another library with DLPack: numpy's arrays under another name."""

    def __init__(self, values, device=1, version=True):
        self._values, self._device, self._version = values, device, version

    def __dlpack_device__(self):
        return self._device, 0

    def __dlpack__(self, **options):
        if not self._version and options:
            raise TypeError("an older DLPack")
        return self._values.__dlpack__(**options)


class Others(Case):
    def test_dlpack(self):
        q, k, v = draw(2, 4, 8, 16), draw(2, 2, 8, 16), draw(2, 2, 8, 16)
        expected = sdpa(q, k, v)
        for dtype in np.float32, np.float16:
            out = sdpa(*(Exporter(each.astype(dtype), version=False) for each in (q, k, v)))
            self.assertEqual((type(out), out.dtype), (np.ndarray, dtype))
            self.assert_close(out, expected, 5e-3)
        turned = np.ascontiguousarray(k.swapaxes(1, 2)).swapaxes(1, 2)
        turned.flags.writeable = False
        np.testing.assert_array_equal(sdpa(Exporter(q), Exporter(turned), Exporter(v)), expected)
        self.assertIsInstance(sdpa(Exporter(q), k, v, out=Exporter(np.empty_like(q))), Exporter)
        self.expect_error("q is in memory of cuda", sdpa, Exporter(q, device=2), k, v)
        self.expect_error("q is float64", sdpa, Exporter(q.astype(float)), k, v)
        self.expect_error("q is complex64", sdpa, Exporter(q.astype("c8")), k, v)

    def test_buffers(self):
        q, k, v = draw(4, 8, 16), draw(2, 8, 16), draw(2, 8, 16)
        expected = sdpa(q, k, v)
        for make in (memoryview, lambda each: memoryview(each.tobytes()).cast("f", each.shape),
                     lambda each: memoryview(array.array("f", each.tobytes())).cast("B").cast("f", each.shape)):
            out = sdpa(make(q), k, make(v))
            self.assertIs(type(out), memoryview)
            np.testing.assert_array_equal(out, expected)
        self.expect_error("q has the shape [512]", sdpa, array.array("f", q.tobytes()), k, v)
        self.expect_error("q is of the format 'd'", sdpa, memoryview(q.astype(float)), k, v)
        half = sdpa(memoryview(q.astype(np.float16)), k, v)
        self.assertEqual(half.format, "f")

    def test_names(self):
        self.expect_error("library is 'cupy', expected one of numpy, torch, jax, mlx, memoryview",
                          winnowkv._arrays.named, "cupy")


if __name__ == "__main__":
    main()
