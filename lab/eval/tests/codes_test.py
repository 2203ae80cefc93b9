"""Codes of keys and values: constants from statistics, bytes, and which rows a query reads packed.

    codes_test.py
"""

import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

EVAL = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(EVAL / "adapters"), str(EVAL), str(EVAL.parents[1] / "hosts" / "python")]

import code_statistics  # noqa: E402
import codes  # noqa: E402
import named_codes  # noqa: E402
from winnow_eval import Failure  # noqa: E402

N, HALF = 16, 8
FREQUENCIES = 100.0 ** (-np.arange(HALF) / HALF)


def head_of(keys, queries, positions, index=0):
    """The statistics of one head, all rows alike."""
    ones = np.ones(len(keys))

    def sums(rows):
        one = {"weight": ones.sum(), "first": rows.sum(0), "second": rows.T @ rows, "queries": queries.T @ queries}
        return {weight: {"weighted": one, "alike": one} for weight in ("out", "one")}

    bare = code_statistics.turned(keys, -positions, FREQUENCIES)
    value = {"weight": ones.sum(), "first": keys.sum(0), "count": ones.sum(), "plain_first": keys.sum(0),
             "plain_second": keys.T @ keys, "score_second": keys.T @ keys}
    return code_statistics.Head(sums(keys), sums(bare), value, FREQUENCIES, index)


class Library:
    """In the place of lab/codes: numbers are rounded to 2 ** bits steps of a part of the row."""

    def scalar(self, rows, bits, weights, search):
        step = 8.0 / 2.0 ** np.asarray(bits)
        return np.where(np.asarray(bits) > 0, np.rint(rows / step) * step, 0).astype(np.float32)


class Plain:
    """A code that gives zeros back, so that what was subtracted shows."""

    def encode_decode(self, x, positions, side, head):
        return 0 * x

    def bytes(self, side, n, tokens):
        return tokens * n

    def constants(self, side, n):
        return 0


class Statistics(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(7)

    def rows(self, count, scale=1.0):
        return (self.random.standard_normal((count, N)) * scale).astype(np.float64)

    def test_turning_is_a_rotation_that_depends_on_the_difference(self):
        q, k = self.rows(5), self.rows(5)
        at = np.arange(5)
        turned = code_statistics.turned
        self.assertTrue(np.allclose(turned(turned(k, at, FREQUENCIES), -at, FREQUENCIES), k))
        here = (turned(q, at + 3, FREQUENCIES) * turned(k, at, FREQUENCIES)).sum(1)
        there = (turned(q, at + 1003, FREQUENCIES) * turned(k, at + 1000, FREQUENCIES)).sum(1)
        self.assertTrue(np.allclose(here, there))

    def test_the_mean_over_offsets_is_that_of_all_offsets(self):
        rows, length = self.rows(40) + 3, 57
        first, second = rows.mean(0), rows.T @ rows / len(rows)
        expected_first, expected_second = np.zeros(N), np.zeros((N, N))
        for offset in range(length):
            there = code_statistics.turned(rows, np.full(len(rows), offset), FREQUENCIES)
            expected_first += there.mean(0) / length
            expected_second += there.T @ there / len(there) / length
        found = code_statistics.mean_over_offsets(first, second, FREQUENCIES, length)
        self.assertTrue(np.allclose(found[0], expected_first))
        self.assertTrue(np.allclose(found[1], expected_second))

    def test_equal_frequencies_keep_their_coupling(self):
        """Phases of a difference of zero are 1 at any length."""
        still = np.zeros(HALF)
        rows = self.rows(20)
        first, second = rows.mean(0), rows.T @ rows / 20
        found = code_statistics.mean_over_offsets(first, second, still, 1 << 20)
        self.assertTrue(np.allclose(found[0], first) and np.allclose(found[1], second))

    def test_a_bare_mean_is_found_whatever_the_positions(self):
        mean = np.zeros(N)
        mean[[2, 5, 2 + HALF]] = 30, -7, 11
        at = np.arange(400)
        keys = code_statistics.turned(self.rows(400, 0.1) + mean, at, FREQUENCIES)
        head = head_of(keys, self.rows(30), at)
        self.assertTrue(np.allclose(head.bare_mean("out", HALF), mean, atol=0.05))
        kept = head.bare_mean("out", 1)
        self.assertEqual(set(np.flatnonzero(kept)), {2, 2 + HALF})
        left = head.of_bare_keys(4096, "out", HALF)
        self.assertLess(np.trace(left.covariance), 1.0)
        self.assertGreater(np.trace(head.of_keys(4096).covariance), 100.0)

    def test_turned_means_of_a_model_and_of_a_context(self):
        mean = np.linspace(-9, 9, N)
        at = np.arange(300)
        keys = code_statistics.turned(self.rows(300, 0.01) + mean, at, FREQUENCIES).astype(np.float32)
        head = head_of(keys.astype(np.float64), self.rows(30), at)
        for kind, most in (("turned", 0.05), ("turned_context", 0.05), ("model", 30)):
            code = codes.Centred(Plain(), kind, 4096, 44, HALF)
            error = np.abs(code.encode_decode(keys, at, "k", head) - keys).max()
            self.assertLess(error, most, kind)
        self.assertGreater(error, 5)  # that of a mean that is not turned

    def test_pairs_that_are_not_turned_keep_the_mean_that_stays(self):
        """A pair that the rotary embedding hardly turns needs no turning."""
        frequencies = np.where(np.arange(HALF) == 6, 1e-9, 0.7)
        mean = np.zeros(N)
        mean[[1, 6]] = 20, 15
        at = np.arange(300)
        keys = code_statistics.turned(self.rows(300, 0.01) + mean, at, frequencies).astype(np.float32)
        head = head_of(keys.astype(np.float64), self.rows(30), at)
        head.frequencies, head.bare = frequencies, head_of(
            code_statistics.turned(keys.astype(np.float64), -at, frequencies), self.rows(30), at).keys
        error = np.abs(codes.Centred(Plain(), "turned", 4096, 0, 1).encode_decode(keys, at, "k", head) - keys).max()
        self.assertLess(error, 0.1)
        spectral = codes.Spectral(Library(), 4, 4096, "axes", turned=1)
        self.assertLess(np.abs(spectral.encode_decode(keys, at, "k", head) - keys).max(), 0.1)

    def test_scales_keep_what_they_say(self):
        rows, weights = self.rows(50).astype(np.float32), np.linspace(1, 2, N)
        coded = 0.7 * rows + 0.2 * self.rows(50).astype(np.float32)
        slope, length = (codes.rescaled(coded, rows, weights, scale) for scale in ("slope", "length"))
        own = (rows * rows * weights).sum(1)
        self.assertTrue(np.allclose((slope * rows * weights).sum(1), own, rtol=1e-5))
        self.assertTrue(np.allclose((length * length * weights).sum(1), own, rtol=1e-5))
        self.assertIs(codes.rescaled(coded, rows, weights, "least"), coded)

    def test_bits_go_where_variance_is(self):
        variances = np.repeat([100.0, 10.0, 1.0, 1e-9], 8)
        bits = codes.bits_of(variances, 64)
        self.assertEqual(bits.sum(), 64)
        self.assertEqual(list(bits[::8]), sorted(bits[::8], reverse=True))
        self.assertEqual(bits[-1], 0)
        self.assertEqual(set(codes.bits_of(np.ones(32), 96)), {3})
        self.assertEqual(codes.bits_of(np.ones(32), 8 * 4 * 5).max(), codes.MOST_BITS)

    def test_more_bits_lose_less_in_every_basis(self):
        mix = self.rows(N)
        keys = (self.rows(500) @ mix + 2).astype(np.float32)
        at = np.arange(500)
        head = head_of(keys.astype(np.float64), self.rows(50) @ mix, at)
        for t in ("dense", "slow", "int8", "axes", "rotated"):
            errors = []
            for code_bytes in (2, 4, 8):
                code = codes.Spectral(Library(), code_bytes, 0, t)
                errors.append(np.square(code.encode_decode(keys, at, "k", head) - keys).mean())
            self.assertEqual(errors, sorted(errors, reverse=True), t)
            self.assertLess(errors[-1], np.square(keys).mean() / 20, t)

    def test_a_byte_that_is_left_goes_to_some_heads(self):
        keys, at = self.rows(100).astype(np.float32), np.arange(100)
        code, spent = codes.Spectral(Library(), 2.25, 0), []
        for index in range(8):
            head = head_of(keys.astype(np.float64), self.rows(50), at, index)
            code.encode_decode(keys, at, "k", head)
            spent.append(code._made[head][4].sum() / 8)
        self.assertEqual(sum(spent), 18)
        self.assertEqual(set(spent), {2, 3})

    def test_bytes_of_constants(self):
        self.assertEqual(codes.constants_of("dense", 64), 4 * 64 * 64 + 4 * 64 + 8)
        self.assertEqual(codes.constants_of("int8", 64), 2 * 64 * 64 + 4 * 64 + 4 * 64 + 8)
        self.assertEqual(codes.constants_of("axes", 64), 4 * 64 + 4 * 64 + 8)
        self.assertEqual(codes.constants_of("slow", 64), 4 * 32 * 32 + 4 * 32 + 4 * 64 + 8)


class Rows(unittest.TestCase):
    def maker(self):
        return named_codes.Maker(Library, None, 64, 8192, {})

    def test_which_rows_a_query_reads_packed(self):
        row = self.maker().row("k=f32,v=trellis3,residual=48,cadence=32", 2048)
        below = [row.windows["v"].packed_below(position) for position in range(600)]
        self.assertEqual(below, sorted(below))
        self.assertEqual({each % 32 for each in below}, {codes.SINK})
        dense = [position + 1 - each for position, each in enumerate(below) if position > 100]
        self.assertEqual((min(dense), max(dense)), (16, 47))

    def test_bytes_are_all_that_a_sequence_needs(self):
        def total(name, tokens):
            return self.maker().row(name, tokens).bytes(64, tokens)

        self.assertEqual(total("k=f32,v=f32", 100), 100 * 256)
        self.assertEqual(total("k=f32,v=trellis3", 2048), 2048 * 128 + 2048 * 26 + 52 * 128)
        for t in ("dense", "slow", "int8", "axes", "rotated"):
            for tokens in (2048, 8192, 32768):
                same = total(f"k=spectral_as_turbo3,v=trellis3,center=model,basis={t}", tokens)
                self.assertAlmostEqual(same, 2 * (26 * tokens + 52 * 128 + 128), delta=1e-6 * same)
        with self.assertRaisesRegex(Failure, "bytes of codes for a row of 64 elements in a context of 512"):
            total("k=spectral_as_turbo3,v=trellis3", 512)

    def test_wrong_rows(self):
        for name, words in (("k=turbo3", "no v="), ("k=turbo9,v=f32", "expected f32, scalar2"),
                            ("k=f32,v=spectral3", "v=spectral3, expected"), ("k=f32,v=f32,k=f32", "at most once"),
                            ("k=f32,v=f32,size=3", "size says nothing of this row"),
                            ("k=f32,v=trellis3,basis=axes", "basis says nothing of this row"),
                            ("k=spectral3,v=f32,center=context", "center=context, expected model, turned"),
                            ("k=spectral3,v=f32,weight=all", "weight=all, expected out, one"),
                            ("k=spectral6,v=f32", "k=6, expected a number from 0.5 to 5"),
                            ("kivi:k=9,v=9", "expected one of kivi"),
                            ("kivi:k=2,v=2,residual=16", "residual=16, expected a number from 32"),
                            ("kivi:k=2,v=2,residual=48,cadence=4", "residual=48,cadence=4, expected a number"),
                            ("kivi:k=2,v=2,residual=", "residual=, expected a number"),
                            ("k=turbo3,v=turbo3,shifts=-1", "shifts=-1, expected a number from 0"),
                            ("k=turbo3,v=turbo3,center=turned,pairs=33", "pairs=33, expected a number from 1 to 32"),
                            ("k=turbo3,v=turbo3,center=context,mean_rows=0", "mean_rows=0, expected"),
                            ("k=f32,v=trellis3,center=off2", "center=off2, expected off"),
                            ("k=spectral3,v=f32,basis=round", "basis=round, expected dense"),
                            ("k=spectralx,v=f32", "expected a number"),
                            ("k=f32,v=f32,residual=8,cadence=9", "cadence=9, expected a number from 1 to 8"),
                            ("k=f32,v=f32,residual=x", "residual=x, expected a number")):
            with self.assertRaisesRegex(Failure, words):
                self.maker().row(name, 8192)

    def test_presets_are_rows(self):
        for names in named_codes.PRESETS.values():
            for name in names:
                self.maker().row(name, 8192)


class Compiled(unittest.TestCase):
    """The library of lab/codes as Python calls it."""

    def test_it_is_compiled_and_called(self):
        library = codes.Library(Path(self.enterContext(tempfile.TemporaryDirectory())))
        rows = np.random.default_rng(3).standard_normal((300, 64)).astype(np.float32)
        bits, ones = np.full(64, 2), np.ones(64)
        scalar = np.square(library.scalar(rows, bits, ones, True) - rows).mean()
        trellis = np.square(library.trellis(rows, bits, ones, 8) - rows).mean()
        self.assertLess(abs(scalar - 0.112), 0.005)
        self.assertLess(trellis, 0.85 * scalar)
        rows[7, 3] = np.inf
        with self.assertRaisesRegex(Failure, "not of finite numbers"):
            library.scalar(rows, bits, ones, True)


if __name__ == "__main__":
    unittest.main()
