"""What is measured, what is kept and what is refused, with a made-up llama.cpp that answers at once.

    plan_test.py
"""

import math
import statistics
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from made_host import BYTES, CELLS, COUNT, KLD, LAYERS, LN_RATIO, NLL, MadeHost, MadeMeasure  # noqa: E402
from made_progress import Progress  # noqa: E402
from winnow_eval import Failure, configs, divergence, measure, store  # noqa: E402
from winnow_calibrate import storage  # noqa: E402

POLICY = "h2o:budget=1/4"
CONTROL = "cpu:k=f16,v=f16"


class Plan(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.host = MadeHost(self.folder)
        self.store = store.Store(self.folder / "out")
        for made in (mock.patch.object(measure, "Measure", MadeMeasure),
                     mock.patch.object(measure, "identity", lambda: "made up")):
            self.enterContext(made)

    def plan(self, *strings, contexts=(128,), modes=("batch",), generation=False, count=COUNT, sigmas=None):
        task = divergence.Task(self.host, self.store, self.folder / "text", {"sha256": "1", "part": "all"}, count)
        return divergence.Plan(task, [configs.parse(text) for text in strings], list(contexts), modes, generation,
                               sigmas)

    def run_plan(self, *strings, **options):
        """(rows, what llama.cpp was asked)"""
        self.host.asked.clear()
        plan = self.plan(*strings, **options)
        progress = Progress()
        progress.expect(plan.units())
        with measure.Process(self.host) as process:
            plan.run(process, progress)
        self.assertEqual((plan.units(), progress.done), (0, progress.total))
        return plan.finished(), list(self.host.asked)

    def test_rows(self):
        rows, asked = self.run_plan("inplace:k=q8_0,v=q4_0", contexts=(128, 256), generation=True)
        self.assertEqual([(row["name"], row["role"], row["context"]) for row in rows],
                         [(CONTROL, "control", 128), ("inplace:k=q8_0,v=q4_0", "row", 128),
                          (CONTROL, "control", 256), ("inplace:k=q8_0,v=q4_0", "row", 256)])
        row = rows[1]
        bytes_per_token = LAYERS * (BYTES["q8_0"] + BYTES["q4_0"])
        self.assertEqual((row["kv_bytes_per_token"], row["kv_bytes"]), (bytes_per_token, CELLS * bytes_per_token))
        self.assertEqual((row["attention_calls"], rows[0]["attention_calls"]), (COUNT * 4, 0))
        self.assertEqual((row["contexts"], row["scored_tokens"]), (COUNT, COUNT * 63))
        self.assertEqual((row["generation_tokens_per_second"], row["prompt_tokens_per_second"]), (12.5, 64))
        speeds = [f"speed {CONTROL}", "speed inplace:k=q8_0,v=q4_0"]
        self.assertEqual(asked, [one for context in (128, 256) for one in (
            *(word for index in range(COUNT) for word in (f"base {context} {index}", f"{CONTROL} {context} {index}",
                                                          f"inplace:k=q8_0,v=q4_0 {context} {index}")), *speeds)])

    def test_numbers(self):
        row = self.run_plan("cpu:k=q8_0")[0][1]
        ratio = math.exp(statistics.fmean(LN_RATIO))
        for key, expected in (("ppl_increase_percent", 100 * (ratio - 1)), ("kld", 0.005), ("kld_p99", 0.006),
                              ("ppl_increase_se", 100 * ratio * statistics.stdev(LN_RATIO) / math.sqrt(3)),
                              ("kld_se", statistics.stdev(KLD) / math.sqrt(3)),
                              ("ppl_base", math.exp(statistics.fmean(NLL))),
                              ("ppl", math.exp(statistics.fmean(NLL) + statistics.fmean(LN_RATIO)))):
            self.assertAlmostEqual(row[key], expected, delta=1e-9, msg=key)
        self.assertEqual([round(value, 9) for value in row["per_context"]["ln_ratio"]], LN_RATIO)

    def test_a_failure_loses_only_its_run(self):
        self.host.fails, self.host.fails_at = "cpu:k=q4_0,v=f16", 1
        with self.assertRaisesRegex(Failure, "made-up"):
            self.run_plan("cpu:k=q8_0", "cpu:k=q4_0")
        self.host.fails = None
        _, asked = self.run_plan("cpu:k=q8_0", "cpu:k=q4_0")
        self.assertEqual(asked, ["base 128 1", "cpu:k=q4_0,v=f16 128 1", "base 128 2", f"{CONTROL} 128 2",
                                 "cpu:k=q8_0,v=f16 128 2", "cpu:k=q4_0,v=f16 128 2"])

    def test_more_contexts_cost_those_alone(self):
        self.run_plan("cpu:k=q8_0", count=2)
        rows, asked = self.run_plan("cpu:k=q8_0", count=3)
        self.assertEqual(asked, ["base 128 2", f"{CONTROL} 128 2", "cpu:k=q8_0,v=f16 128 2"])
        self.assertEqual(rows[1]["contexts"], 3)

    def test_a_further_configuration_costs_itself_and_the_base(self):
        self.run_plan("cpu:k=q8_0")
        _, asked = self.run_plan("cpu:k=q8_0", "inplace:k=q8_0")
        self.assertEqual(asked, [one for index in range(COUNT)
                                 for one in (f"base 128 {index}", f"inplace:k=q8_0,v=f16 128 {index}")])
        self.assertEqual(self.run_plan("inplace:k=q8_0")[1], [])

    def test_another_plugin_means_another_base_for_all(self):
        self.run_plan("cpu:k=q8_0")
        self.host.plugin_version = 2
        self.assertEqual(len(self.run_plan("cpu:k=q8_0")[1]), 3 * COUNT)

    def test_a_policy_is_decoded_and_what_has_none_is_measured_once(self):
        self.host.policies = [POLICY]
        rows, asked = self.run_plan("cpu:k=q8_0", POLICY, modes=("batch", "decode"), count=2)
        self.assertEqual(asked[:6], ["base 128 0", f"{CONTROL} 128 0", "cpu:k=q8_0,v=f16 128 0", f"{POLICY} 128 0",
                                     f"{POLICY} 128 0 from 64", "base 128 1"])
        names = (CONTROL, "cpu:k=q8_0,v=f16", POLICY)
        self.assertEqual([(row["name"], row["mode"]) for row in rows],
                         [(name, mode) for mode in ("batch", "decode") for name in names])
        self.assertEqual(rows[1] | {"mode": "decode"}, rows[4])
        self.host.ignores_decoding = True
        with self.assertRaisesRegex(Failure, "0 of 128 tokens one at a time, expected 64"):
            self.run_plan(POLICY, modes=("decode",), count=3)

    def test_a_row_of_a_policy_says_its_family(self):
        self.host.policies = [POLICY]
        rows, _ = self.run_plan("cpu:k=q8_0", POLICY)
        self.assertEqual([row.get("family") for row in rows], [None, None, f"a family of {POLICY}"])
        self.assertFalse(any("files" in row for row in rows))

    def test_another_profile_means_another_row(self):
        self.host.policies = [POLICY]
        speeds = [f"speed {POLICY}"] * divergence.GENERATION_RUNS
        own = [*(f"{POLICY} 128 {index}" for index in range(COUNT)), *speeds]
        for content in ("", "cache_k_l0 1 2 3\n", "cache_k_l0 1 2 4\n"):
            self.host.profile.write_text(content)
            rows, asked = self.run_plan("cpu:k=q8_0", POLICY, generation=True)
            self.assertEqual([one for one in asked if POLICY in one], own)
            self.assertEqual(sum("cpu" in one for one in asked), 0 if content else 2 * (COUNT + 1))
            self.assertEqual(rows[2]["files"], {str(self.host.profile): storage.sha256_of(self.host.profile)})
            self.assertEqual(self.run_plan("cpu:k=q8_0", POLICY, generation=True)[1], [])
        self.host.profile.unlink()
        self.assertEqual([one for one in self.run_plan(POLICY, generation=True)[1] if POLICY in one], own)

    def test_what_is_decided_is_measured_no_further(self):
        few = divergence.FEWEST_DECIDED
        self.host.kld = {CONTROL: [0.0], "cpu:k=q8_0,v=f16": [0.1, 0.11], "cpu:k=q4_0,v=f16": [0.5, 0.6],
                         "cpu:k=q4_0,v=q4_0": [0.5, 0.59, 0.7]}
        names = list(self.host.kld)[1:]
        rows, asked = self.run_plan(*names, count=few + 4, sigmas=3)
        self.assertEqual([row["contexts"] for row in rows], [few, few, few + 4, few + 4])
        self.assertIn(f"base 128 {few + 3}", asked)
        self.assertNotIn(f"{CONTROL} 128 {few}", asked)
        self.assertEqual(self.run_plan(*names, count=few + 4, sigmas=3)[1], [])
        self.assertTrue(all(row["contexts"] == few + 4 for row in self.run_plan(*names, count=few + 4)[0]))

    def test_what_was_not_winnow_alone_is_not_kept(self):
        self.host.short_calls = 1
        with self.assertRaisesRegex(Failure, "refused"):
            self.run_plan("inplace:k=q8_0")
        self.host.short_calls = 0
        with MadeMeasure(self.host, "model") as process:
            process.read("text", 128, 64)
            process.run(configs.BASE, 0, base=True)
            self.host.short_calls = 1
            self.assertRaisesRegex(Failure, "refused", divergence.compare, self.host, process,
                                   divergence.Setting(128, "batch"), configs.parse("inplace"), 0, [3.9] * 63)

    def test_a_policy_is_measured_if_the_plugin_says_that_it_carries_it_out(self):
        policy = configs.parse(POLICY)
        length = (256, "--contexts 128")
        with divergence.probing(self.host) as process:
            with self.assertRaisesRegex(Failure, "does not carry out"):
                divergence.probe(process, policy, length)
            self.host.policies = ["h2o:budget=1/8"]
            with self.assertRaisesRegex(Failure, "(?s)does not carry out.*context of 256 tokens.*--contexts 128 takes"):
                divergence.probe(process, policy, length)
            self.host.policies = [POLICY]
            divergence.probe(process, policy, length)
            rows, _ = self.run_plan(POLICY)
            self.assertEqual(rows[1]["config"]["kv"], POLICY)
            self.assertEqual((rows[1]["kv_bytes_per_token"], rows[1]["kv_bytes"]), (8, 8 * CELLS))
            self.assertEqual((rows[1]["kv_metadata_bytes"], rows[0]["kv_metadata_bytes"]), (2 * CELLS, 0))
            self.host.in_place_calls = 1
            with self.assertRaisesRegex(Failure, "1 in place"):
                divergence.probe(process, policy, length)
            self.host.in_place_calls, self.host.short_calls = 0, 1
            with self.assertRaisesRegex(Failure, "1 attention calls of each layer for 2 micro-batches"):
                divergence.probe(process, policy, length)

    def test_the_shortest_and_the_longest_context_are_those_that_llama_cpp_makes(self):
        for contexts, with_generation, ends in (
                ([512, 2048], True, [(512, "--contexts 512"), (2304, "generation after 2048 tokens")]),
                ([2048, 512], False, [(512, "--contexts 512"), (2048, "--contexts 2048")]),
                ([128], True, [(256, "--contexts 128")]), ([100, 128], False, [(256, "--contexts 100")])):
            self.assertEqual(divergence.ends(divergence.lengths(contexts, with_generation)), ends)

    def test_of_a_long_context_the_end_is_scored(self):
        for context, first, count in ((128, 64, 63), (129, 64, 64), (4096, 2048, 2047), (4098, 2050, 2047),
                                      (32768, 30720, 2047)):
            self.assertEqual((divergence.first_scored(context), divergence.scored(context)), (first, count), context)
            decoded = divergence.Setting(context, "decode")
            self.assertEqual(decoded.decode_from(configs.parse(POLICY)), first)

    def test_sizes(self):
        for contexts, count, words in (([128], 1, "--count"), ([64], 3, "scored"), ([16], 99, "--contexts")):
            with self.assertRaisesRegex(Failure, words):
                divergence.check_sizes(contexts, count)
        divergence.check_sizes([128], 3)
        with self.assertRaisesRegex(Failure, "2 contexts of 128 tokens, 3 were asked for"):
            divergence.check_length(300, [128], 3)


unittest.main()
