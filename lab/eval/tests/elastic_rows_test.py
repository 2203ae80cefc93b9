"""lab/research/elastic_rows.py, on made rows of which it is known what has to go, and its picture.

    elastic_rows_test.py
"""

import json
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "research"))

import elastic_plot  # noqa: E402
import elastic_rows  # noqa: E402

from winnow_eval import Failure  # noqa: E402

TOKENS, SIZE, GROUP = 128, 16, 2
SINKS = elastic_rows.SINKS
REST = TOKENS - SINKS


def drawn(seed, *shape):
    return numpy.random.default_rng(seed).normal(size=shape)


def made_context(seed, kv_heads=2, tokens=TOKENS):
    """(keys, values, queries) as recorded_rows.read() gives them."""
    return (*(drawn(seed + at, kv_heads, tokens, SIZE).astype(numpy.float32) for at in (0, 1)),
            drawn(seed + 2, kv_heads * GROUP, tokens, SIZE).astype(numpy.float32))


def measured(layers, seed=1):
    return elastic_rows.measure(layers, numpy.random.default_rng(seed))


class Bands(unittest.TestCase):
    def test_the_first_rule_is_that_of_the_policy(self):
        sizes = numpy.array([[[1., 3.], [1., 3.]]])  # a mean of 2, a deviation of 1
        numpy.testing.assert_allclose(elastic_rows.ratios(elastic_rows.POLICY, sizes), sizes / 2)
        sizes = numpy.array([[[0.] * 15 + [16.]]])  # a mean of 1, a deviation of 3.87
        numpy.testing.assert_allclose(elastic_rows.ratios(elastic_rows.POLICY, sizes), sizes / (15 ** 0.5 / 2))

    def test_rules_take_their_statistics_over_what_they_name(self):
        sizes = numpy.abs(drawn(1, 2, 4, 8)) * numpy.array([1, 100])[:, None, None]  # the second head is larger
        found = {rule: elastic_rows.ratios(rule, sizes) for rule in elastic_rows.RULES}
        for rule, axis in (("max(sigma / 2, mu) of a token", 2), ("max(sigma / 2, mu) of a channel", 1)):
            numpy.testing.assert_allclose(found[rule].mean(axis=axis), 1, err_msg=rule)  # mu is above sigma / 2 here
        numpy.testing.assert_allclose(found["mu of a head"].mean(axis=(1, 2)), 1)
        numpy.testing.assert_allclose(found["sigma / 2 of a head"].std(axis=(1, 2)), 2)
        self.assertGreater(found["max(sigma / 2, mu) of a layer"][1].min(), found["mu of a head"][1].min())
        numpy.testing.assert_array_equal(found["one number for the model"], sizes)

    def test_bands_hold_elements_on_their_limits_as_the_policy_does(self):
        sizes = numpy.array([[0.5, 1, 2, 2.5]])  # the policy zeroes what is below tau, here 1
        sums = elastic_rows.band_sums(sizes, sizes)
        numpy.testing.assert_allclose(sums, [[1, 0.5, 0.25], [2, 3, 5], [1, 2.5, 6.25]])
        numpy.testing.assert_allclose(elastic_rows.shares(sums, sums).sum(axis=0), 1)
        numpy.testing.assert_allclose(elastic_rows.shares(sums[:1], sums), [[1 / 4, 0.5 / 6, 0.25 / 11.5]])

    def test_heads_of_zeros_lose_nothing(self):
        sizes = numpy.zeros((1, 4, 8))
        for rule in elastic_rows.RULES:
            if rule != "one number for the model":
                self.assertTrue(numpy.isinf(elastic_rows.ratios(rule, sizes)).all(), rule)
        sums = elastic_rows.band_sums(elastic_rows.ratios(elastic_rows.POLICY, sizes), sizes)
        self.assertEqual(sums[0].tolist(), [0, 0, 0])
        self.assertEqual(elastic_rows.shares(sums, sums)[:, 2].tolist(), [0, 0, 0])


class Losses(unittest.TestCase):
    def head(self, keys=None, values=None):
        keys = drawn(3, TOKENS, SIZE) if keys is None else keys
        values = drawn(4, TOKENS, SIZE) if values is None else values
        positions = numpy.arange(0, TOKENS, 8)
        return elastic_rows.Head(keys, values, drawn(5, len(positions), GROUP, SIZE), positions)

    def test_nothing_that_goes_costs_nothing(self):
        head, nothing = self.head(), numpy.zeros((REST, SIZE), bool)
        for side in elastic_rows.SIDES:
            loss, *entropy = head.loss(side, nothing)
            self.assertAlmostEqual(loss, 0)
            if side == "K":
                self.assertAlmostEqual(*entropy, elastic_rows.entropy(head.weights[-head.last:]))

    def test_small_elements_cost_less_than_random_ones(self):
        head = self.head()
        for side in elastic_rows.SIDES:
            sizes = numpy.abs(head.rows[side][SINKS:])
            small = sizes < numpy.quantile(sizes, 1 / 3)
            random = numpy.random.default_rng(6).permutation(small.ravel()).reshape(small.shape)
            self.assertLess(head.loss(side, small)[0], head.loss(side, random)[0] / 5, side)

    def test_values_that_all_go_leave_what_the_sinks_give(self):
        head = self.head(values=numpy.concatenate([numpy.zeros((SINKS, SIZE)), drawn(4, REST, SIZE)]))
        self.assertAlmostEqual(head.loss("V", numpy.ones((REST, SIZE), bool))[0], 1)
        self.assertEqual(self.head(values=numpy.zeros((TOKENS, SIZE))).loss("V", numpy.ones((REST, SIZE), bool))[0], 0)

    def test_divergence_is_that_of_probabilities(self):
        found = elastic_rows.divergence(numpy.array([[0.5, 0.5], [1., 0.]]), numpy.array([[0.25, 0.75], [0.5, 0.5]]))
        self.assertAlmostEqual(found, (0.5 * numpy.log(2) + 0.5 * numpy.log(2 / 3) + numpy.log(2)) / 2)

    def test_tokens_go_by_what_they_got(self):
        keys = numpy.zeros((TOKENS, SIZE))
        keys[10:20, 0] = 40  # all attention is here
        positions = numpy.array([40, 60, 80, TOKENS - 1])
        queries = numpy.tile(numpy.eye(SIZE)[0], (4, GROUP, 1))
        head = elastic_rows.Head(keys, keys, queries, positions)
        for statistic in elastic_rows.STATISTICS.values():
            gone, attention = head.evicted(statistic, 1 / 4)
            self.assertEqual(len(gone), TOKENS * 3 // 4)
            self.assertFalse(set(gone) & {*range(10, 20), *range(TOKENS - 16, TOKENS)}, "heavy or newest tokens")
            self.assertLess(attention, 0.01)


class Measuring(unittest.TestCase):
    layers = {0: [made_context(10), made_context(20)], 3: [made_context(30), made_context(40)]}

    @classmethod
    def setUpClass(cls):
        cls.found = measured(cls.layers)

    def test_the_scales_of_rules_take_as_many_elements(self):
        for side, found in self.found.items():
            policy, *others = found["rules"]
            self.assertAlmostEqual(policy["elements"], found["bands"]["mean"][0][0], msg=side)
            self.assertGreaterEqual(policy["scale"], elastic_rows.SWEET[side])
            self.assertAlmostEqual(policy["scale"], elastic_rows.SWEET[side], delta=0.01)
            for other in others:
                self.assertAlmostEqual(other["elements"], policy["elements"], places=3, msg=f"{side} {other['rule']}")
            self.assertGreater(others[-1]["loss"], policy["loss"], "random elements")
            self.assertEqual(others[-1]["rule"], elastic_rows.RANDOM)

    def test_bands_of_a_normal_distribution(self):
        for side, scale in elastic_rows.SWEET.items():
            found = self.found[side]
            below, _, above = found["bands"]["mean"]
            tau = scale * 0.79788  # mu of |x|; sigma / 2 is 0.301
            self.assertAlmostEqual(below[0], float(numpy.mean(numpy.abs(drawn(9, 100000)) < tau)), delta=0.01)
            self.assertAlmostEqual(above[0], float(numpy.mean(numpy.abs(drawn(9, 100000)) > 2 * tau)), delta=0.02)
            self.assertEqual(found["sigma_decides"], 0)
            self.assertEqual([(each["layer"], each["head"]) for each in found["heads"]],
                             [(0, 0), (0, 1), (3, 0), (3, 1)])
            for kind in ("elements", "L2"):
                self.assertAlmostEqual(sum(found["histogram"][kind]), 1)
            for row in found["scales"]:
                self.assertLess(row["loss"], row["random_loss"])
            taken = [row["bands"]["mean"][0][0] for row in found["scales"]]
            self.assertEqual(taken, sorted(taken))

    def test_sums_together_differ_from_means_where_heads_do(self):
        keys, values, queries = made_context(50)
        keys = keys * numpy.array([1, 1000], numpy.float32)[:, None, None]
        keys[0, SINKS:] = 1  # nothing of it is below a threshold
        bands = measured({0: [(keys, values, queries)]})["K"]["bands"]
        self.assertAlmostEqual(bands["mean"][0][2] * 2, bands["together"][0][2], places=5)

    def test_sinks_count_nowhere(self):
        changed = {layer: [(keys, values.copy(), queries) for keys, values, queries in contexts]
                   for layer, contexts in self.layers.items()}
        for contexts in changed.values():
            for _, values, _ in contexts:
                values[:, :SINKS] *= 1e6
        self.assertEqual(measured(changed)["V"]["bands"], self.found["V"]["bands"])

    def test_what_policies_evict_is_about_as_much_as_they_evict(self):
        for side, found in self.found.items():
            for row in found["evicted"]:
                elements, _, energy = numpy.sum(row["bands"]["mean"], axis=0)
                self.assertAlmostEqual(elements, energy, delta=0.02)  # tokens are alike
                self.assertTrue(0 < row["attention"] < 1, side)

    def test_hostile_rows(self):
        for broken in (numpy.nan, numpy.inf, -numpy.inf):
            for at in range(3):
                context = made_context(60)
                context[at][1, -1, 2] = broken
                with self.assertRaisesRegex(Failure, "layer 7: .*not finite"):
                    measured({7: [context]})
        with self.assertRaisesRegex(Failure, "layer 2: .*at least 128 tokens"):
            measured({2: [made_context(60, tokens=TOKENS - 8)]})
        rows = [numpy.zeros_like(rows) for rows in made_context(60)]
        for found in measured({0: [tuple(rows)]}).values():
            self.assertEqual(found["bands"]["mean"][0], [0, 0, 0])
            self.assertTrue(all(row["loss"] == 0 for row in found["scales"]))
            json.dumps(found, allow_nan=False)
        huge = [rows * numpy.float32(1e30) for rows in made_context(60)]
        found = measured({0: [(huge[0] / numpy.float32(1e30), huge[1], huge[2] / numpy.float32(1e30))]})
        json.dumps(found, allow_nan=False)


class Program(unittest.TestCase):
    def test_files_and_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["elastic_rows.py", "--llama-cpp", ".", "--plugin", "p", "--model", "m.gguf", "--text", "t.txt",
                         "--context", str(TOKENS), "--layers", "2", "--out", folder]
            recorded = [[made_context(10 * layer)] for layer in range(3)]
            with mock.patch.object(sys, "argv", arguments), mock.patch("builtins.print"), \
                    mock.patch.object(elastic_rows.recorded_rows, "record", lambda *_, is_whole: recorded):
                elastic_rows.main()
            made = json.loads((Path(folder) / "haze.json").read_text())
            self.assertEqual({each["layer"] for each in made["sides"]["K"]["heads"]}, {0, 2})
            for kind in ("svg", "png"):
                self.assertGreater((Path(folder) / f"haze.{kind}").stat().st_size, 10000)
            drawn_twice = [elastic_plot.draw(made, Path(folder), ["svg"])[0].read_bytes() for _ in range(2)]
            self.assertEqual(*drawn_twice, "the same figures give the same picture")

    def test_options_that_are_refused(self):
        for option, value in (("--layers", "0"), ("--context", "127")):
            arguments = ["elastic_rows.py", "--llama-cpp", ".", "--plugin", "p", "--model", "m", "--text", "t",
                         option, value]
            error = SimpleNamespace(write=lambda text: said.append(text), flush=lambda: None)
            said = []
            with mock.patch.object(sys, "argv", arguments), mock.patch.object(sys, "stderr", error), \
                    self.assertRaises(SystemExit):
                elastic_rows.options()
            self.assertIn(f"{option}: {value}, expected", "".join(said))


if __name__ == "__main__":
    unittest.main()
