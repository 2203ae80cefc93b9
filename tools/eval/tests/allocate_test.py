"""Which layers get other formats: against all ways of filling two lists, and in strings that a cache takes.

    allocate_test.py
"""

import itertools
import json
import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import Failure, allocate, allocate_plots  # noqa: E402
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

    def test_formats_are_those_of_the_string(self):
        self.assertEqual(allocate.formats("winnow", 2), {"k": ["turbo4"] * 2, "v": ["turbo3"] * 2})
        self.assertEqual(allocate.formats("winnow:fine=0+2-3,k_fine=q8_0,coarse=1,v_coarse=turbo2", 5),
                         {"k": ["q8_0", "turbo4", "q8_0", "q8_0", "turbo4"],
                          "v": ["turbo3", "turbo2", "turbo3", "turbo3", "turbo3"]})

    def test_shares(self):
        self.assertEqual(allocate.expect_shares("1,1.05"), [1.0, 1.05])
        for text in ("", "x", "0.1", "3", "1,,2"):
            with self.assertRaises(Failure, msg=text) as raised:
                allocate.expect_shares(text)
            self.assertIn("expected numbers from 0.5 to 2", str(raised.exception))


BY_HAND = {"format": 2, "shape": {"layers": 3, "kv_heads": 2, "head_size": 64}, "kld": 0.01,
           "sensitivities": [{"k": 0.02, "v": 0.001}, {"k": 0, "v": 0.001}, {"k": 0.001, "v": 0.004}]}


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def written(self, found):
        path = self.folder / "given.json"
        path.write_text(found if isinstance(found, str) else json.dumps(found))
        return path

    def test_what_is_given_is_allocated_and_drawn_alike_each_time(self):
        found = allocate.read(self.written(BY_HAND))
        same = BY_HAND | {"shape": {key: float(value) for key, value in BY_HAND["shape"].items()}}
        self.assertEqual(allocate.read(self.written(same)), found)
        path, made = allocate.report(found, [1, 1.2], self.folder / "out")
        self.assertEqual(made["usual_bytes_per_token"], 3 * 2 * (34 + 26))
        self.assertEqual(made["allocations"][1]["configuration"], "winnow:fine=0,k_fine=q8_0,coarse=1,k_coarse=turbo3")
        self.assertEqual(allocate.report(allocate.read(path), [1, 1.2], self.folder / "again")[1], made)
        pictures = [allocate_plots.draw(made, self.folder / name) for name in ("out", "again")]
        for one, other in zip(*pictures, strict=True):
            self.assertGreater(one.stat().st_size, 1000)
            if one.suffix == ".svg":
                self.assertEqual(one.read_text(), other.read_text())

    def test_what_is_wrong_is_said(self):
        shape = BY_HAND["shape"]
        for wrong, said in (("{", "is not JSON"), ([], "the whole: [] is not of type 'object'"),
                            (BY_HAND | {"format": 1}, "format: 2 was expected"),
                            (BY_HAND | {"shape": shape | {"layers": 0}}, "shape.layers: 0 is less than"),
                            (BY_HAND | {"shape": shape | {"head_size": 80}}, "80 is not a multiple of 32"),
                            (BY_HAND | {"shape": shape | {"layers": 4}}, "of 3 layers, expected one for each of 4"),
                            (BY_HAND | {"kld": None}, "kld: None is not of type 'number'"),
                            (BY_HAND | {"kld": float("inf")}, "kld: inf, expected a number of at most 1e+09"),
                            (BY_HAND | {"sensitivities": [{"k": 1}] * 3}, "'v' is a required property"),
                            (BY_HAND | {"sensitivities": [{"k": 1, "v": float("nan")}] * 3},
                             "sensitivities[0].v: nan, expected a number of at most")):
            with self.assertRaises(Failure, msg=said) as raised:
                allocate.read(self.written(wrong))
            self.assertIn(said, str(raised.exception))
        with self.assertRaises(Failure):
            allocate.read(self.folder / "none.json")


if __name__ == "__main__":
    unittest.main()
