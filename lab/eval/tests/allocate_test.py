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
from unittest import mock

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import Failure, allocate, allocate_cli, allocate_plots, layer_lists  # noqa: E402
from winnow_eval.allocate import Kind  # noqa: E402

K_FINE, V_FINE, K_COARSE, V_COARSE = allocate.KINDS
SIZES = allocate.row_bytes(64)


def least(changes, costs, most):
    """The least change of all ways, and the bytes that it takes at least."""
    found = []
    for lists in itertools.product((None, 0, 1), repeat=len(changes)):
        added = sum(costs[which] for which in lists if which is not None)
        if added <= most:
            found.append((sum(of[which] for of, which in zip(changes, lists) if which is not None), added))
    return min(found)


def filled_by_all_places(changes, costs, most):
    """What fill() gives, by trying all places and lengths of lists."""
    both = numpy.array(changes, float)
    order = numpy.argsort(both[:, 0] - both[:, 1], kind="stable")
    first, second = both[order].T
    size = len(order) + 1
    best, places = numpy.full((size, size), numpy.inf), numpy.zeros((size, size), int)  # by the lengths of the lists
    for place in range(size):
        there = slice(place + 1), slice(size - place)
        sums = allocate.least_sums(first[:place])[:, None] + allocate.least_sums(second[place:])
        places[there][sums < best[there]] = place
        best[there] = numpy.minimum(best[there], sums)
    added = numpy.add.outer(numpy.arange(size) * costs[0], numpy.arange(size) * costs[1])
    best[added > most] = numpy.inf
    total = best.min()
    if total == numpy.inf:
        return None
    lengths = min(map(tuple, numpy.argwhere(best == total)), key=lambda each: added[each])
    place = places[lengths]
    lists = (order[:place][numpy.argsort(first[:place], kind="stable")[:lengths[0]]],
             order[place:][numpy.argsort(second[place:], kind="stable")[:lengths[1]]])
    return float(total), int(added[lengths]), [sorted(map(int, each)) for each in lists]


def of_layers(sensitivities, kv_heads=1):
    return {"shape": {"layers": len(sensitivities), "kv_heads": kv_heads, "head_size": 64},
            "sensitivities": sensitivities}


class Filling(unittest.TestCase):
    def test_is_the_best_of_all_ways(self):
        generator = random.Random(5)
        for attempt in range(300):
            # Quarters are summed exactly: where two ways are alike, the one of fewer bytes has to be found.
            draw = (lambda: generator.uniform(-1, 1)) if attempt < 150 else lambda: generator.randint(-3, 3) / 4
            changes = [[draw() for _ in range(2)] for _ in range(generator.randint(1, 6))]
            costs = [generator.choice((34, 8, -8)), generator.choice((8, -8, -16))]
            most = generator.choice((-20, 0, 10, 34, 100))
            filled = allocate.fill(changes, costs, most)
            if filled is None:  # even all coarser takes more
                self.assertLess(most, sum(min(*costs, 0) for _ in changes))
                continue
            total, added, (first, second) = filled
            expected = least(changes, costs, most)
            self.assertAlmostEqual(total, expected[0])
            self.assertEqual(added, expected[1])
            self.assertAlmostEqual(total, sum(changes[at][0] for at in first) + sum(changes[at][1] for at in second))
            self.assertEqual(added, costs[0] * len(first) + costs[1] * len(second))
            self.assertLessEqual(added, most)
            self.assertFalse(set(first) & set(second))

    def test_bits_go_where_they_matter(self):
        layers = [{"k": .0001, "v": .0} for _ in range(30)]
        layers[18]["k"] = .01
        for layer in (3, 4, 5):
            layers[layer]["k"] = -.0001
        more, added, configuration = allocate.allocate(of_layers(layers), 20)
        self.assertEqual(configuration, "winnow:fine=18,k_fine=q8_0,coarse=3-5,k_coarse=turbo3")
        self.assertEqual(added, 34 - 3 * 8)
        self.assertAlmostEqual(more, -.01 * .0093 / .0247 - .0003)

    def test_nothing_is_a_choice(self):
        self.assertEqual(allocate.allocate(of_layers([{"k": .001, "v": .001}] * 4), 0), (0, 0, "winnow"))

    def test_too_few_bytes_are_refused(self):
        with self.assertRaisesRegex(Failure, "--shares: no lists .* take 1000 bytes a token less"):
            allocate.allocate(of_layers([{"k": .001, "v": .001}] * 4), -1000)

    def test_heads_are_chosen_one_by_one(self):
        layers = [{"heads": [{"k": .0001, "v": .0} for _ in range(3)]} for _ in range(30)]
        layers[18]["heads"][1]["k"] = .01
        for layer, head in ((3, 0), (4, 0), (5, 0), (5, 2), (7, 0), (7, 1), (7, 2)):
            layers[layer]["heads"][head]["k"] = -.0001
        more, added, configuration = allocate.allocate(of_layers(layers, 3), 0)
        self.assertEqual(configuration, "winnow:fine=18.1,k_fine=q8_0,coarse=3-4.0+5.0+5.2+7,k_coarse=turbo3")
        self.assertEqual(added, 34 - 7 * 8)
        self.assertAlmostEqual(more, -.01 * .0093 / .0247 - .0007)

    def test_heads_lose_no_more_than_their_layers(self):
        generator = random.Random(7)
        for _ in range(20):
            heads = [[{side: generator.gauss(.001, .002) for side in "kv"} for _ in range(3)] for _ in range(8)]
            layers = [{side: sum(head[side] for head in layer) for side in "kv"} for layer in heads]
            heads = [{"heads": layer} for layer in heads]
            for most in (-40, 0, 30, 110, 10000):
                by_layers, by_heads = (allocate.allocate(of_layers(each, 3), most) for each in (layers, heads))
                self.assertLessEqual(by_heads[0], by_layers[0] + 1e-12)
                self.assertLessEqual(by_heads[1], most)

    def test_is_that_of_all_places(self):
        generator = random.Random(11)
        draws = (lambda: generator.uniform(-1, 1), lambda: generator.gauss(.001, .002),
                 lambda: generator.randint(-3, 3) / 4, lambda: generator.randint(0, 1) / 4)
        for attempt in range(400):
            draw = draws[attempt % len(draws)]
            changes = [[draw(), draw()] for _ in range(generator.randint(1, 40))]
            costs = (generator.choice((34, 8, -8)), generator.choice((8, -8, -16)))
            most = generator.choice((-200, -20, 0, 10, 34, 100, 10000))
            self.assertEqual(allocate.fill(changes, costs, most), filled_by_all_places(changes, costs, most))

    def test_places_are_tried_twice_for_each_pair_of_lengths(self):
        generator = random.Random(5)
        changes = [[generator.gauss(0, 1) for _ in range(2)] for _ in range(200)]
        with mock.patch.object(allocate, "first_least", side_effect=allocate.first_least) as taken:
            allocate.fill(changes, (34, -8), 100)
        pairs = 201 * 202 // 2
        self.assertEqual(sum(len(call.args[1]) for call in taken.call_args_list), pairs)
        self.assertLess(sum(len(call.args[0]) for call in taken.call_args_list), 4 * pairs)


class Changes(unittest.TestCase):
    def test_follow_the_squared_error(self):
        self.assertAlmostEqual(allocate.change(K_COARSE, .5), .5)
        self.assertAlmostEqual(allocate.change(V_COARSE, .5), .5)
        self.assertAlmostEqual(allocate.change(K_FINE, .0247), -.0093)
        self.assertAlmostEqual(allocate.change(V_FINE, .0821), -.0247)

    def test_sizes_are_those_of_the_formats(self):
        self.assertEqual(SIZES, {"q8_0": 68, "turbo2": 18, "turbo3": 26, "turbo4": 34})


class Strings(unittest.TestCase):
    def test_lists_of_layers_and_heads(self):
        for listed, text in (([(4, None)], "4"), ([(layer, None) for layer in (0, 1, 2, 9, 11, 12)], "0-2+9+11-12"),
                             ([(7, None), (3, None)], "3+7"), ([(18, 1)], "18.1"),
                             ([(5, 2), (5, 0)], "5.0+5.2"), ([(5, 2), (5, 0), (5, 1)], "5"),
                             ([(layer, head) for head in (1, 0) for layer in range(4)], "0-3.0-1"),
                             ([(1, 0), (1, 2), (2, 0), (2, 2), (3, 0), (5, 0)], "1-2.0+1-2.2+3.0+5.0"),
                             ([(0, None), (1, 0), (1, 1), (1, 2), (2, 1), (3, None)], "0-1+2.1+3"), ([], "")):
            self.assertEqual(layer_lists.spell(listed, 3), text)
            whole = {(layer, head) for layer, of in listed for head in (range(3) if of is None else [of])}
            self.assertEqual(sorted(layer_lists.read(text, 3)), sorted(whole))

    def test_lists(self):
        self.assertEqual(allocate.string([(K_FINE, [(1, None)]), (V_FINE, [])], 3), "winnow:fine=1,k_fine=q8_0")
        self.assertEqual(allocate.string([(K_FINE, []), (V_COARSE, [(0, None), (2, 1)])], 3),
                         "winnow:fine=0+2.1,v_fine=turbo2")
        self.assertEqual(allocate.string([(Kind("k", "q8_0"), [(5, None)]), (Kind("v", "turbo4"), [(0, 0)])], 2),
                         "winnow:fine=5,k_fine=q8_0,coarse=0.0,v_coarse=turbo4")
        shape = {"layers": 2, "kv_heads": 3}
        self.assertEqual(allocate.rows(shape, "layers"), ["winnow", *(
            f"winnow:coarse={layer},{end}" for layer in range(2) for end in ("k_coarse=turbo3", "v_coarse=turbo2"))])
        self.assertEqual(allocate.rows(shape, "heads"), ["winnow", *(
            f"winnow:coarse={layer}.{head},{end}" for layer in range(2) for head in range(3)
            for end in ("k_coarse=turbo3", "v_coarse=turbo2"))])

    def test_formats_are_those_of_the_string(self):
        self.assertEqual(allocate.formats("winnow", {"layers": 2, "kv_heads": 3}),
                         {"k": [["turbo4"] * 3] * 2, "v": [["turbo3"] * 3] * 2})
        self.assertEqual(allocate.formats("winnow:fine=0+2-3.1,k_fine=q8_0,coarse=1+3.0,v_coarse=turbo2",
                                          {"layers": 4, "kv_heads": 2}),
                         {"k": [["q8_0", "q8_0"], ["turbo4", "turbo4"], ["turbo4", "q8_0"], ["turbo4", "q8_0"]],
                          "v": [["turbo3", "turbo3"], ["turbo2", "turbo2"], ["turbo3", "turbo3"],
                                ["turbo2", "turbo3"]]})

    def test_shares(self):
        self.assertEqual(allocate.expect_shares("1,1.05"), [1.0, 1.05])
        for text in ("", "x", "0.1", "3", "1,,2"):
            with self.assertRaises(Failure, msg=text) as raised:
                allocate.expect_shares(text)
            self.assertIn("expected numbers from 0.5 to 2", str(raised.exception))


BY_HAND = {"format": 2, "shape": {"layers": 3, "kv_heads": 2, "head_size": 64}, "kld": 0.01,
           "sensitivities": [{"k": 0.02, "v": 0.001}, {"k": 0, "v": 0.001}, {"k": 0.001, "v": 0.004}]}
BY_HEADS = BY_HAND | {"sensitivities": [{"heads": [{"k": 0.02, "v": 0.001}, {"k": -0.001, "v": 0.002}]},
                                        {"heads": [{"k": -0.001, "v": 0.001}, {"k": 0.001, "v": 0.004}]},
                                        {"heads": [{"k": 0.001, "v": 0.001}] * 2}]}


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

    def test_heads_are_allocated_and_drawn(self):
        found = allocate.read(self.written(BY_HEADS))
        path, made = allocate.report(found, [1, 1.2], self.folder / "out")
        self.assertEqual([each["configuration"] for each in made["allocations"]],
                         ["winnow:fine=0.0,k_fine=q8_0,coarse=0.1+1-2,k_coarse=turbo3",
                          "winnow:fine=0.0,k_fine=q8_0,coarse=0-1.1+2,v_coarse=turbo4"])
        self.assertEqual(allocate.report(allocate.read(path), [1, 1.2], self.folder / "again")[1], made)
        for each in allocate_plots.draw(made, self.folder / "out"):
            self.assertGreater(each.stat().st_size, 1000)

    def test_all_of_a_share_may_be_taken(self):
        # A fifth of 600 bytes are 120, four keys in 8 bits and two in 3; 1.2 - 1 is less than a fifth.
        layers = [{"k": .02, "v": .0005}] * 4 + [{"k": .0001, "v": .0005}] * 6
        _, made = allocate.report(of_layers(layers) | {"kld": .1}, [1.2], self.folder)
        self.assertEqual(made["allocations"][0]["configuration"],
                         "winnow:fine=0-3,k_fine=q8_0,coarse=4-5,k_coarse=turbo3")
        self.assertEqual(made["allocations"][0]["bytes_per_token"], 720)

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
                             "sensitivities[0].v: nan, expected a number of at most"),
                            (BY_HEADS | {"shape": shape | {"kv_heads": 3}},
                             "sensitivities[0].heads: of 2 KV heads, expected one for each of 3"),
                            (BY_HEADS | {"sensitivities": [*BY_HEADS["sensitivities"][:2], {"k": 1, "v": 1}]},
                             "sensitivities[2]: of the whole layer, expected heads as in the first layer"),
                            (BY_HAND | {"sensitivities": [{"k": 1, "v": 1}, *BY_HEADS["sensitivities"][:2]]},
                             "sensitivities[1]: of its KV heads, expected layers as in the first layer"),
                            (BY_HAND | {"sensitivities": [{"heads": [{"k": 1}] * 2}] * 3},
                             ".heads[1]: 'v' is a required property"),
                            (BY_HAND | {"sensitivities": [{"heads": 1}] * 3}, "heads: 1 is not of type 'array'"),
                            (BY_HAND | {"sensitivities": [{"heads": [{"k": 1, "v": 1}, {"k": 2e9, "v": 1}]}] * 3},
                             "sensitivities[0].heads[1].k: 2000000000.0, expected a number of at most 1e+09"),
                            (BY_HEADS | {"shape": shape | {"kv_heads": 65}},
                             "shape.kv_heads: layers have 65 KV heads, expected at most 64")):
            with self.assertRaises(Failure, msg=said) as raised:
                allocate.read(self.written(wrong))
            self.assertIn(said, str(raised.exception))
        with self.assertRaises(Failure):
            allocate.read(self.folder / "none.json")

    def test_a_file_is_by_what_it_is(self):
        for found, by in ((BY_HAND, "layers"), (BY_HEADS, "heads")):
            path = self.written(found)
            for asked in (None, by):
                self.assertEqual(allocate.by_of(allocate_cli.given(path, asked)), by)
            other = "heads" if by == "layers" else "layers"
            with self.assertRaisesRegex(Failure, f"--by {other}: --from has sensitivities of {by}"):
                allocate_cli.given(path, other)


class Measuring(unittest.TestCase):
    """What is measured, with a host that only tells its shape."""

    def measured(self, by, kv_heads):
        """(the rows, what is said, what the file has) where each row loses a thousandth more than the one before."""
        def evaluate(options, _):
            rows = [{"name": name, "kld": at / 1000} for at, name in enumerate(options.strings)]
            return {"model": {}, "text": {}, "rows": rows}

        options, console = mock.Mock(), mock.Mock()
        shape = {"layers": 2, "kv_heads": kv_heads, "head_size": 64}
        with mock.patch.object(allocate_cli, "shape_of", return_value=shape), \
                mock.patch.object(allocate_cli, "evaluate", evaluate):
            found = allocate_cli.measured(options, by, console)
        return options.strings, [call.args[0] for call in console.print.call_args_list], found

    def lost(self, *thousandths):
        return [{"k": one / 1000, "v": (one + 1) / 1000} for one in thousandths]

    def test_is_of_layers_or_of_heads(self):
        rows, said, found = self.measured("layers", 2)
        self.assertEqual((len(rows), said), (5, []))
        self.assertEqual(found["sensitivities"], self.lost(1, 3))
        rows, said, found = self.measured("heads", 2)
        self.assertEqual((len(rows), said), (9, []))
        self.assertEqual(found["sensitivities"], [{"heads": self.lost(1, 3)}, {"heads": self.lost(5, 7)}])

    def test_one_head_is_a_layer(self):
        rows, said, found = self.measured("heads", 1)
        self.assertEqual(rows, self.measured("layers", 1)[0])
        self.assertEqual(said, ["note: --by heads: the layers have one KV head each; it goes on by layers"])
        self.assertEqual(found["sensitivities"], self.lost(1, 3))

    def test_more_heads_than_a_list_names_are_refused(self):
        with self.assertRaisesRegex(Failure, "--by heads: layers have 65 KV heads, expected at most 64"):
            self.measured("heads", 65)
        self.assertEqual(len(self.measured("layers", 65)[0]), 5)


if __name__ == "__main__":
    unittest.main()
