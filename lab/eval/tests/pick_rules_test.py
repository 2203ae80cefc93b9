"""lab/research/pick_rules.py, on keys, values and queries of which it is known what has to come out.

    pick_rules_test.py
"""

import math
import sys
import unittest
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "research"))

import pick_rules  # noqa: E402
from pick_rules import FIGURES, Rule  # noqa: E402

CONTEXT, SIZE, GROUP = 512, 16, 3


def drawn(seed, *shape):
    return numpy.random.default_rng(seed).normal(size=shape)


def head(seed=1, share=1 / 4, **other):
    made = {"keys": 3 * drawn(seed, CONTEXT, SIZE), "values": drawn(seed + 50, CONTEXT, SIZE),
            "queries": drawn(seed + 100, CONTEXT, GROUP, SIZE)} | other
    return pick_rules.Head(made["keys"], made["values"], made["queries"], share)


def figures(its, rule):
    return dict(zip(FIGURES, its.figures(rule)))


class Rules(unittest.TestCase):
    def test_who_picks_everything_loses_nothing(self):
        its = figures(head(share=4), Rule(""))
        self.assertEqual((its["picked"], round(its["attention"], 12), round(its["output"], 12)), (1, 0, 0))

    def test_what_is_lost_is_what_lies_in_other_pages(self):
        its = head(seed=2)
        found = figures(its, Rule(""))
        held, attention, output, misses = numpy.zeros(its.scores.shape[1], bool), [], [], []
        for query in range(len(its.scores)):
            promise = [its.scores[query, page] * (math.e if held[page] else 1) for page in range(its.counts[query])]
            for page in range(its.counts[query] - min(8, its.most // 2), its.counts[query]):
                promise[page] = 10
            picked = numpy.zeros_like(held)
            picked[sorted(range(len(promise)), key=lambda page: -promise[page])[:its.most]] = True
            misses.append(sum(picked & ~held) / its.most)
            held = picked
            away = [4 + 2 * page + i for page in range(its.counts[query]) if not picked[page] for i in (0, 1)]
            for weights in its.weights[:, query]:
                attention.append(weights[away].sum())
                kept = weights.copy()
                kept[away] = 0
                near = kept @ its.values / kept.sum() - weights @ its.values
                output.append(math.sqrt(sum(near ** 2) / sum((weights @ its.values) ** 2)))
        first = pick_rules.WARM
        self.assertAlmostEqual(found["misses"], numpy.mean(misses[first:]))
        self.assertAlmostEqual(found["attention"], numpy.mean(attention[first * GROUP:]))
        self.assertAlmostEqual(found["output"], numpy.mean(output[first * GROUP:]))
        self.assertTrue(found["attention"] > 0.01 and found["output"] > 0.01, found)

    def test_a_query_sees_no_token_behind_it(self):
        its = head()
        self.assertEqual(its.weights[:, 0, its.first + 1:].sum(), 0)
        numpy.testing.assert_allclose(its.weights.sum(axis=2), 1)

    def test_a_larger_bonus_has_fewer_misses_and_loses_more(self):
        by_bonus = [figures(head(seed=3), Rule("", bonus)) for bonus in (0, 1, 3)]
        for less, more in zip(by_bonus, by_bonus[1:]):
            self.assertLess(more["misses"], less["misses"])
            self.assertGreater(more["attention"], less["attention"])

    def test_no_more_pages_come_than_a_rule_permits(self):
        its = head(seed=3)
        share, before, counts = 0.1, None, []
        for _, held in its.picks(Rule("", bonus=0, new=share)):
            if before is not None:
                counts.append((held & ~before).sum())
                self.assertEqual(held.sum(), its.most)
            before = held
        self.assertEqual(max(counts), int(share * its.most), "and some queries want as many")
        self.assertGreater(figures(its, Rule("", bonus=0))["misses"], 2 * share)
        self.assertEqual(figures(its, Rule("", new=1)), figures(its, Rule("")))

    def test_a_mean_of_what_was_promised_keeps_what_was_picked(self):
        its = head(seed=3)
        by_weight = [figures(its, Rule("", bonus=0, kept=kept)) for kept in (0, 0.5, 0.9)]
        for less, more in zip(by_weight, by_weight[1:]):
            self.assertLess(more["misses"], less["misses"])
            self.assertGreater(more["attention"], less["attention"])
        self.assertEqual(by_weight[0], figures(its, Rule("", bonus=0)))

    def test_a_scale_is_that_of_the_queries(self):
        usual, scaled = head(seed=2), pick_rules.Head(3 * drawn(2, CONTEXT, SIZE), drawn(52, CONTEXT, SIZE),
                                                      drawn(102, CONTEXT, GROUP, SIZE) / 4, 1 / 4, scale=1)
        numpy.testing.assert_allclose(scaled.weights, usual.weights)
        numpy.testing.assert_allclose(scaled.scores, usual.scores)

    def test_queries_that_stay_where_they_are_do_not_pick(self):
        still = numpy.tile(drawn(4, 1, GROUP, SIZE), (CONTEXT, 1, 1))
        its = figures(head(queries=still), Rule("", moved=0.9))
        self.assertEqual((its["picked"], its["misses"]), (0, 0))
        self.assertEqual(figures(head(), Rule("", moved=1.1))["picked"], 1)
        angle = numpy.radians(2) * numpy.arange(CONTEXT)[:, None, None]  # 26 degrees are a cosine of .9
        turning = numpy.zeros((CONTEXT, GROUP, SIZE))
        turning[:, :, :1], turning[:, :, 1:2] = numpy.cos(angle), numpy.sin(angle)
        self.assertAlmostEqual(figures(head(queries=turning), Rule("", moved=0.9))["picked"], 1 / 13, delta=0.01)
        self.assertEqual(figures(head(queries=still * (1 - 2 * (numpy.arange(CONTEXT) % 2))[:, None, None]),
                                 Rule("", moved=0.9))["picked"], 1)

    def test_values_that_are_nothing_are_not_picked_by_their_length(self):
        values = drawn(5, CONTEXT, SIZE)
        values[4::4] = values[5::4] = 0  # whole pages
        its = head(seed=5, values=values)
        of_length = figures(its, Rule("", value=pick_rules.length))
        self.assertGreater(of_length["attention"], 2 * figures(its, Rule(""))["attention"])
        numpy.testing.assert_allclose(pick_rules.length(numpy.array([[[3., 4.], [0., 0.]]]), None), 2.5)
        numpy.testing.assert_allclose(pick_rules.distance(numpy.array([[[4., 4.]], [[1., 0.]]]), [1, 0]), [5, 0])

    def test_what_is_behind_the_first_query_changes_no_score_of_it(self):
        its, other = drawn(1, CONTEXT, SIZE), drawn(1, CONTEXT, SIZE)
        other[CONTEXT * 3 // 4 + 1:] *= 100
        scores = [head(keys=keys, values=keys) for keys in (its, other)]
        numpy.testing.assert_allclose(scores[0].scores[0], scores[1].scores[0])
        numpy.testing.assert_allclose(scores[0].mean_value, scores[1].mean_value)

    def test_what_could_be_foreseen_is_counted_of_all_misses(self):
        pages = numpy.zeros((40, 3), bool)
        pages[2, 1] = True
        lately = pick_rules.is_lately(pages)
        self.assertEqual(numpy.argwhere(lately).tolist(), [[query, 1] for query in range(3, 19)])
        heads = [head(seed=8), head(seed=9)]
        known, (misses, away) = pick_rules.foreseen(heads)
        expected, near, next_best = 0, 0, 0
        for its in heads:
            before = others = None
            for query, (_, picked) in enumerate(its.picks(Rule(""))):
                for page in numpy.flatnonzero(picked & ~before) if query >= pick_rules.WARM else ():
                    expected += 1
                    near += any(before[page + by] for by in (-2, -1, 1, 2) if 0 <= page + by < len(before))
                    next_best += page in others
                promise = [math.inf if picked[page] else -score * (math.e if query and before[page] else 1)
                           for page, score in enumerate(its.scores[query])]
                others = sorted(range(len(promise)), key=lambda page: promise[page])[:its.most // 2]
                before = picked
        self.assertEqual((misses, known["within two pages of one that was picked"][0]), (expected, near))
        counted = len(heads) * (len(heads[0].scores) - pick_rules.WARM)
        self.assertEqual(known["nearly picked, 1/8 as many as picked"][1], counted * (heads[0].most // 8))
        self.assertTrue(misses < away < counted * heads[0].scores.shape[1], f"{misses} of {away}")
        few, many = (known[f"nearly picked, 1/{part} as many" + " as picked" * (part == 8)][0] for part in (8, 2))
        self.assertTrue(0 < few < many < misses, f"{few}, {many} of {misses}")
        self.assertEqual(many, next_best)

    def test_layers_have_the_bonuses_that_lose_least_at_no_more_misses(self):
        moving, alike = 3 * drawn(6, CONTEXT, SIZE), numpy.ones((CONTEXT, SIZE))
        layers = [[[head(seed=6, keys=moving)]], [[head(seed=7, keys=moving, values=alike)]]]
        chosen = pick_rules.bonuses(layers)
        self.assertEqual(chosen[1], max(pick_rules.BONUSES), "whichever pages are picked, the output is the same")
        self.assertLess(chosen[0], pick_rules.USUAL)
        by_rule = [[figures(its, Rule("", bonus)) for ((its,),), bonus in zip(layers, bonuses)]
                   for bonuses in (chosen, [pick_rules.USUAL] * 2)]
        own, usual = ({name: sum(layer[name] for layer in each) for name in FIGURES} for each in by_rule)
        self.assertLessEqual(own["misses"], usual["misses"])
        self.assertLess(own["output"], usual["output"])


if __name__ == "__main__":
    unittest.main()
