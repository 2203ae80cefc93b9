"""lab/research/page_scores.py, on rows that are drawn or made so that what has to come out is known.

    page_scores_test.py
"""

import struct
import sys
import tempfile
import unittest
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "research"))

import page_scores  # noqa: E402
import recorded_rows  # noqa: E402

CONTEXT, SIZE, GROUP = 256, 64, 3
TURN = page_scores.rotation(SIZE)
BY_NAME = {score.name: score for score in page_scores.SCORES}


def drawn(seed, *shape):
    return numpy.random.default_rng(seed).normal(size=shape)


class Scores(unittest.TestCase):
    def missed(self, score, share, keys, queries, position=CONTEXT - 1):
        return page_scores.missed(score, keys, [queries], [position], share, TURN)[0]

    def test_the_rotation_keeps_lengths_and_angles(self):
        numpy.testing.assert_allclose(TURN @ TURN.T, numpy.eye(SIZE), atol=1e-12)
        numpy.testing.assert_allclose((turn := page_scores.rotation(80)) @ turn.T, numpy.eye(80), atol=1e-12)

    def test_where_all_pages_are_picked_nothing_is_missed(self):
        keys, queries = drawn(1, CONTEXT, SIZE), drawn(2, GROUP, SIZE)
        for score in page_scores.SCORES:
            self.assertAlmostEqual(self.missed(score, 4, keys, queries), 0, msg=score.name)

    def test_what_is_missed_is_the_attention_of_what_is_not_picked(self):
        keys, queries = 3 * drawn(3, CONTEXT, SIZE), drawn(4, GROUP, SIZE)
        score = BY_NAME["mean key, not counted"]
        most = page_scores.pages_picked(score, CONTEXT, SIZE, 1 / 4)
        logits = queries @ keys.T / SIZE ** .5
        weights = numpy.exp(logits) / numpy.exp(logits).sum(axis=1, keepdims=True)
        pages = [range(at, at + 2) for at in range(page_scores.SINKS, CONTEXT - page_scores.RESIDUAL - 1, 2)]
        means = numpy.array([keys[list(page)].mean(axis=0) for page in pages])
        z = numpy.exp(queries @ means.T / SIZE ** .5)
        promise = (z / z.sum(axis=1, keepdims=True)).sum(axis=0)
        promise[-page_scores.NEWEST // 2:] = 100
        left_out = sorted(range(len(pages)), key=lambda page: -promise[page])[most:]
        expected = numpy.mean([sum(row[token] for page in left_out for token in pages[page]) for row in weights])
        self.assertGreater(expected, 0.01)
        self.assertAlmostEqual(self.missed(score, 1 / 4, keys, queries), expected)

    def test_who_knows_more_misses_less(self):
        found = {name: 0 for name in BY_NAME}
        for seed in range(20):
            keys, queries = 3 * drawn(seed, CONTEXT, SIZE), drawn(100 + seed, GROUP, SIZE)
            for name, score in BY_NAME.items():
                found[name] += self.missed(score, 1 / 4, keys, queries)
        self.assertLess(found["mean key, not counted"], found["sum of the heads' softmax (as it is)"])
        by_age = 0  # as many of the newest pages
        blind = page_scores.Score("by age", lambda pages, q: numpy.tile(numpy.arange(len(pages.mean)), (len(q), 1)))
        for seed in range(20):
            by_age += self.missed(blind, 1 / 4, 3 * drawn(seed, CONTEXT, SIZE), drawn(100 + seed, GROUP, SIZE))
        self.assertLess(found["sum of the heads' softmax (as it is)"], by_age)

    def test_larger_signatures_leave_room_for_fewer_tokens(self):
        picked = {name: page_scores.pages_picked(score, 2048, SIZE, 1 / 16) * score.page
                  for name, score in BY_NAME.items()}
        self.assertLess(picked["the same, two bits an element"], picked["sum of the heads' softmax (as it is)"])
        self.assertLess(picked["the same, pages of one token"], picked["the same, pages of four"])
        self.assertEqual(picked["mean key, not counted"], picked["sum of the heads' softmax (as it is)"])

    def test_rows_come_by_layer_and_context(self):
        with tempfile.TemporaryDirectory() as folder:
            path, numbers = Path(folder) / "rows", iter(range(100))
            with open(path, "wb") as file:
                for _ in range(2):  # contexts, of two micro-batches of 16 tokens
                    for _ in range(2):
                        for name in (b"first", b"second"):
                            file.write(struct.pack("<8s64s9q", b"WNROWS2", name, 1, 2, 16, 4, 1, 3, 1, 4, 2))
                            file.write(numpy.full(2 * 16 * 4, next(numbers), numpy.float32).tobytes())
                            file.write(numpy.full(2 * 16 * 3, next(numbers), numpy.float32).tobytes())
                            file.write(numpy.full(4 * 2 * 4, next(numbers), numpy.float32).tobytes())
            layers = recorded_rows.read(path, 32)
        self.assertEqual([len(contexts) for contexts in layers], [2, 2])
        keys, values, queries = layers[1][1]
        self.assertEqual((keys.shape, values.shape, queries.shape), ((2, 32, 4), (2, 32, 3), (4, 4, 4)))
        firsts = [(rows[0, 0, 0], rows[0, -1, 0]) for rows in (keys, values, queries)]
        self.assertEqual(firsts, [(15, 21), (16, 22), (17, 23)])

    def test_heads_have_the_queries_of_their_group(self):
        keys, values, queries = drawn(1, 2, 8, 4), drawn(2, 2, 8, 3), drawn(3, 6, 5, 4)
        for head, (its_keys, its_values, its_queries) in enumerate(recorded_rows.heads(keys, values, queries)):
            numpy.testing.assert_equal(its_keys, keys[head])
            numpy.testing.assert_equal(its_values, values[head])
            self.assertEqual(its_queries.shape, (5, 3, 4))
            numpy.testing.assert_equal(its_queries[4, 2], queries[head * 3 + 2, 4])


if __name__ == "__main__":
    unittest.main()
