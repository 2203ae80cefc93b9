"""bench/elastic_rows.py, on keys of which it is known what has to go.

    elastic_rows_test.py
"""

import sys
import unittest
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

import elastic_rows  # noqa: E402

TOKENS, SIZE, GROUP = 128, 16, 2
NAMES = elastic_rows.FIGURES


def drawn(seed, *shape):
    return numpy.random.default_rng(seed).normal(size=shape)


class Elastic(unittest.TestCase):
    def zeroed(self, keys, scale, queries=None):
        queries = drawn(1, 3, GROUP, SIZE) if queries is None else queries
        return elastic_rows.zeroed(keys, queries, [100, 110, TOKENS - 1], scale, numpy.random.default_rng(2))

    def test_the_threshold_is_that_of_the_policy(self):
        keys = numpy.array([[1., -3.], [-1., 3.]])  # a mean of 2, a deviation of 1
        self.assertEqual(elastic_rows.threshold(keys, 0.5), 1)
        keys = numpy.array([[0.] * 15 + [16.]])  # a mean of 1, a deviation of 3.87
        self.assertAlmostEqual(elastic_rows.threshold(keys, 1), 15 ** .5 / 2)

    def test_what_goes_is_counted_behind_the_sinks(self):
        keys = numpy.full((TOKENS, SIZE), 8.)
        keys[::2] = 1  # a mean of 4.5, a threshold of .25 of it: 1.125
        elements, l1, l2, above, their_l2, *_ = self.zeroed(keys, 0.25)
        self.assertEqual((elements, above), (0.5, 0.5))
        self.assertAlmostEqual(l1, 1 / 9)
        self.assertAlmostEqual(l2, 1 / 65)
        self.assertAlmostEqual(their_l2, 64 / 65)
        keys[:elastic_rows.SINKS] = 0.01  # stay, whatever they are
        self.assertEqual(self.zeroed(keys, 0.25)[0], 0.5)

    def test_attention_is_compared_with_that_of_all(self):
        keys = drawn(3, TOKENS, SIZE)
        nothing = dict(zip(NAMES[5:7], self.zeroed(keys, 0)[5:7]))
        weights = elastic_rows.attention(keys, drawn(1, 3, GROUP, SIZE), [100, 110, TOKENS - 1])
        self.assertAlmostEqual(nothing["entropy"], elastic_rows.entropy(weights))
        self.assertAlmostEqual(nothing["KL"], 0)
        numpy.testing.assert_allclose(weights.sum(axis=-1), 1)
        self.assertEqual(weights[0, 0, 101:].sum(), 0)
        small, at_random = self.zeroed(keys, 0.5)[6], self.zeroed(keys, 0.5)[8]
        self.assertTrue(0 < small < at_random / 5, f"{small} and {at_random}")
        everything = self.zeroed(keys, 100)[5]  # but the sinks: more alike than before
        self.assertGreater(everything, nothing["entropy"])

    def test_divergence_is_that_of_probabilities(self):
        found = elastic_rows.divergence(numpy.array([[.5, .5], [1., 0.]]), numpy.array([[.25, .75], [.5, .5]]))
        self.assertAlmostEqual(found, (0.5 * numpy.log(2) + 0.5 * numpy.log(2 / 3) + numpy.log(2)) / 2)

    def test_tokens_go_by_what_they_got(self):
        keys = numpy.zeros((TOKENS, SIZE))
        keys[10:20, 0] = 40  # all attention is here
        queries = numpy.tile(numpy.eye(SIZE)[0], (4, GROUP, 1))
        for statistic in (elastic_rows.by_sum, elastic_rows.by_count):
            share, l1, l2, attention = elastic_rows.evicted(keys, queries, [40, 60, 80, TOKENS - 1], statistic)
            self.assertEqual((share, l1, l2), (0.75, 0, 0))
            self.assertLess(attention, 0.01)
        keys[30, 1] = 5  # nobody looks at it
        self.assertEqual(elastic_rows.evicted(keys, queries, [40, 60, 80, TOKENS - 1], elastic_rows.by_sum)[1], 5 / 405)


if __name__ == "__main__":
    unittest.main()
