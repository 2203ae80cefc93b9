"""Which layers get other formats: against all ways of filling two lists, and in strings that a cache takes.

    allocate_test.py
"""

import itertools
import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import Failure, allocate  # noqa: E402
from winnow_eval.allocate import Kind  # noqa: E402

K_FINE, V_FINE, K_COARSE, V_COARSE = allocate.KINDS
SIZES = allocate.row_bytes(64)


def least(changes, costs, most):
    """The least change of all ways."""
    found = []
    for lists in itertools.product((None, 0, 1), repeat=len(changes)):
        if sum(costs[which] for which in lists if which is not None) <= most:
            found.append(sum(of[which] for of, which in zip(changes, lists) if which is not None))
    return min(found)


class Filling(unittest.TestCase):
    def test_is_the_best_of_all_ways(self):
        generator = random.Random(5)
        for _ in range(200):
            changes = [[generator.uniform(-1, 1) for _ in range(2)] for _ in range(generator.randint(1, 6))]
            costs = [generator.choice((34, 8, -8)), generator.choice((8, -8, -16))]
            most = generator.choice((-20, 0, 10, 34, 100))
            filled = allocate.fill(changes, costs, most)
            if filled is None:  # even all coarser takes more
                self.assertLess(most, sum(min(*costs, 0) for _ in changes))
                continue
            total, added, (first, second) = filled
            self.assertAlmostEqual(total, least(changes, costs, most))
            self.assertAlmostEqual(total, sum(changes[at][0] for at in first) + sum(changes[at][1] for at in second))
            self.assertEqual(added, costs[0] * len(first) + costs[1] * len(second))
            self.assertLessEqual(added, most)
            self.assertFalse(set(first) & set(second))

    def test_bits_go_where_they_matter(self):
        layers = [{"k": .0001, "v": .0} for _ in range(30)]
        layers[18]["k"] = .01
        for layer in (3, 4, 5):
            layers[layer]["k"] = -.0001
        more, added, configuration = allocate.allocate(layers, SIZES, 20)
        self.assertEqual(configuration, "winnow:fine=18,k_fine=q8_0,coarse=3-5,k_coarse=turbo3")
        self.assertEqual(added, 34 - 3 * 8)
        self.assertAlmostEqual(more, -.01 * .0093 / .0247 - .0003)

    def test_nothing_is_a_choice(self):
        self.assertEqual(allocate.allocate([{"k": .001, "v": .001}] * 4, SIZES, 0), (0, 0, "winnow"))


class Changes(unittest.TestCase):
    def test_follow_the_squared_error(self):
        self.assertAlmostEqual(allocate.change(K_COARSE, .5), .5)
        self.assertAlmostEqual(allocate.change(V_COARSE, .5), .5)
        self.assertAlmostEqual(allocate.change(K_FINE, .0247), -.0093)
        self.assertAlmostEqual(allocate.change(V_FINE, .0821), -.0247)

    def test_sizes_are_those_of_the_formats(self):
        self.assertEqual(SIZES, {"q8_0": 68, "turbo2": 18, "turbo3": 26, "turbo4": 34})


class Strings(unittest.TestCase):
    def test_ranges(self):
        for layers, text in (([4], "4"), ([0, 1, 2, 9, 11, 12], "0-2+9+11-12"), ([7, 3], "3+7")):
            self.assertEqual(allocate.ranges(layers), text)

    def test_lists(self):
        self.assertEqual(allocate.string([(K_FINE, [1]), (V_FINE, [])]), "winnow:fine=1,k_fine=q8_0")
        self.assertEqual(allocate.string([(K_FINE, []), (V_COARSE, [0, 2])]), "winnow:fine=0+2,v_fine=turbo2")
        self.assertEqual(allocate.string([(Kind("k", "q8_0"), [5]), (Kind("v", "turbo4"), [0])]),
                         "winnow:fine=5,k_fine=q8_0,coarse=0,v_coarse=turbo4")
        self.assertEqual(allocate.rows(2), ["winnow", "winnow:coarse=0,k_coarse=turbo3",
                                            "winnow:coarse=0,v_coarse=turbo2", "winnow:coarse=1,k_coarse=turbo3",
                                            "winnow:coarse=1,v_coarse=turbo2"])

    def test_shares(self):
        self.assertEqual(allocate.expect_shares("1,1.05"), [1.0, 1.05])
        for text in ("", "x", "0.1", "3", "1,,2"):
            with self.assertRaises(Failure, msg=text) as raised:
                allocate.expect_shares(text)
            self.assertIn("expected numbers from 0.5 to 2", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
