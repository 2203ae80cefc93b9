"""What is measured, what is kept and what is refused, with a made-up llama.cpp that answers at once.

    plan_test.py
"""

import math
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import made_log  # noqa: E402
from made_host import (BYTES, CELLS, COUNT, LAYERS, LN_RATIO, NLL, VOCABULARY, MadeHost, Progress,  # noqa: E402
                       logits_bytes)
from winnow_eval import Failure, configs, perplexity, store  # noqa: E402

POLICY = "h2o:budget=1/4"


class Plan(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.host = MadeHost(self.folder)
        self.store = store.Store(self.folder / "out")
        self.store.base.mkdir(parents=True)

    def plan(self, *strings, contexts=(128,), generation=False):
        task = perplexity.Task(self.host, self.store, self.folder / "text", {"sha256": "1", "part": "all"}, COUNT)
        return perplexity.Plan(task, [configs.parse(text) for text in strings], list(contexts), generation)

    def run_plan(self, *strings, **options):
        """(rows, what llama.cpp was asked)"""
        self.host.asked.clear()
        plan = self.plan(*strings, **options)
        plan.run(Progress())
        self.assertEqual(plan.units(), 0)
        return plan.finished(), list(self.host.asked)

    def test_rows(self):
        rows, asked = self.run_plan("inplace:k=q8_0,v=q4_0", contexts=(128, 256), generation=True)
        self.assertEqual([(row["name"], row["role"], row["context"]) for row in rows],
                         [("cpu:k=f16,v=f16", "control", 128), ("inplace:k=q8_0,v=q4_0", "row", 128),
                          ("cpu:k=f16,v=f16", "control", 256), ("inplace:k=q8_0,v=q4_0", "row", 256)])
        row = rows[1]
        bytes_per_token = LAYERS * (BYTES["q8_0"] + BYTES["q4_0"])
        self.assertEqual((row["kv_bytes_per_token"], row["kv_bytes"]), (bytes_per_token, CELLS * bytes_per_token))
        self.assertEqual((row["attention_calls"], rows[0]["attention_calls"]), (COUNT * 4, 0))
        self.assertEqual(row["scored_tokens"], COUNT * 63)
        self.assertEqual((row["generation_tokens_per_second"], row["prompt_tokens_per_second"]), (12.5, 64))
        speeds = ["speed cpu:k=f16,v=f16", "speed inplace:k=q8_0,v=q4_0"]
        self.assertEqual(asked, ["base 128", "cpu:k=f16,v=f16 128", "inplace:k=q8_0,v=q4_0 128", *speeds,
                                 "base 256", "cpu:k=f16,v=f16 256", "inplace:k=q8_0,v=q4_0 256", *speeds])
        self.assertEqual(list(self.store.base.iterdir()), [])

    def test_perplexity_is_compared_with_what_the_base_printed(self):
        self.host.fails = "cpu:k=q8_0,v=f16"
        with self.assertRaises(Failure):
            self.run_plan("cpu:k=q8_0")
        self.host.fails = None
        for row in self.run_plan("cpu:k=q8_0")[0]:  # the second with the base of the first call
            self.assertAlmostEqual(row["ppl_increase_percent"], 100 * math.expm1(0.02), delta=1e-3)
            self.assertAlmostEqual(row["ppl_increase_se"], 100 * math.exp(0.02) * 0.01 / math.sqrt(3), delta=1e-3)
            self.assertEqual(row["ppl_base_running"], [round(ppl, 4) for ppl in made_log.running_perplexity(NLL)])

    def test_a_failure_loses_only_its_run(self):
        self.host.fails = "cpu:k=q4_0,v=f16"
        with self.assertRaisesRegex(Failure, "made-up"):
            self.run_plan("cpu:k=q8_0", "cpu:k=q4_0")
        self.host.fails = None
        _, asked = self.run_plan("cpu:k=q8_0", "cpu:k=q4_0")
        self.assertEqual(asked, ["cpu:k=q4_0,v=f16 128"])  # the base's logits were kept as well
        self.assertEqual(list(self.store.base.iterdir()), [])

    def test_logits_that_a_full_disk_cut_are_not_kept(self):
        self.host.cut = 1
        size = logits_bytes(128, COUNT)
        with self.assertRaisesRegex(Failure, f"{size - 1} bytes, expected {size}"):
            self.run_plan()
        self.assertEqual(list(self.store.base.iterdir()), [])
        self.host.cut = size  # not even the head
        with self.assertRaisesRegex(Failure, "0 bytes"):
            self.run_plan()
        self.host.cut, self.host.fails = 0, "cpu:k=q8_0,v=f16"
        with self.assertRaisesRegex(Failure, "made-up"):
            self.run_plan("cpu:k=q8_0")
        self.host.fails = None
        with open(self.store.base / "128.kld", "r+b") as file:
            file.truncate(size - 1)
        self.assertEqual(self.run_plan("cpu:k=q8_0")[1], ["base 128", "cpu:k=q8_0,v=f16 128"])

    def test_room_is_for_what_is_still_to_be_written(self):
        plan = self.plan("cpu:k=q8_0", contexts=(128, 256))
        self.assertEqual(plan.room(VOCABULARY), logits_bytes(256, COUNT))  # one after the other
        self.run_plan(contexts=(128, 256))
        self.assertEqual(self.plan(contexts=(128, 256)).room(VOCABULARY), 0)
        self.host.fails = "cpu:k=q8_0,v=f16"
        with self.assertRaises(Failure):
            self.run_plan("cpu:k=q8_0", contexts=(256, 128))
        self.assertEqual(self.plan("cpu:k=q8_0", contexts=(256, 128)).room(VOCABULARY), logits_bytes(128, COUNT))
        with self.assertRaisesRegex(Failure, "no room"):
            perplexity.check_room(self.folder, 10**18)
        perplexity.check_room(self.folder, 10)

    def test_a_further_configuration_costs_itself_and_the_base(self):
        self.run_plan("cpu:k=q8_0")
        _, asked = self.run_plan("cpu:k=q8_0", "inplace:k=q8_0")
        self.assertEqual(asked, ["base 128", "inplace:k=q8_0,v=f16 128"])
        self.assertEqual(self.run_plan("inplace:k=q8_0")[1], [])

    def test_another_plugin_means_another_base_for_all(self):
        self.host.fails = "cpu:k=q8_0,v=f16"
        with self.assertRaises(Failure):
            self.run_plan("cpu:k=q8_0")
        self.host.fails, self.host.plugin_version = None, 2
        self.assertEqual(self.run_plan("cpu:k=q8_0")[1], ["base 128", "cpu:k=f16,v=f16 128", "cpu:k=q8_0,v=f16 128"])

    def test_what_was_not_winnow_alone_is_not_kept(self):
        self.host.short_calls = 1
        with self.assertRaisesRegex(Failure, "refused"):
            self.run_plan("inplace:k=q8_0")
        self.assertEqual(list(self.store.base.iterdir()), [])
        self.host.short_calls = 0
        self.run_plan()
        self.host.short_calls = 1
        self.assertRaisesRegex(Failure, "refused", perplexity.compare, self.plan().task, 128, configs.parse("inplace"),
                               self.store.base, made_log.running_perplexity(NLL), lambda share: None)

    def test_a_policy_is_measured_if_the_plugin_says_that_it_carries_it_out(self):
        policy = configs.parse(POLICY)
        with self.assertRaisesRegex(Failure, "does not carry out"):
            perplexity.probe(self.host, policy)
        self.host.policies = ["h2o:budget=1/8"]
        with self.assertRaisesRegex(Failure, "does not carry out"):
            perplexity.probe(self.host, policy)
        self.host.policies = [POLICY]
        perplexity.probe(self.host, policy)
        rows, _ = self.run_plan(POLICY)
        self.assertEqual(rows[1]["config"]["kv"], POLICY)
        self.assertEqual((rows[1]["kv_bytes_per_token"], rows[1]["kv_bytes"]), (8, 8 * CELLS))
        self.assertEqual((rows[1]["kv_metadata_bytes"], rows[0]["kv_metadata_bytes"]), (2 * CELLS, 0))
        self.host.in_place_calls = 1
        with self.assertRaisesRegex(Failure, "1 in place"):
            perplexity.probe(self.host, policy)

    def test_sizes(self):
        for contexts, count, words in (([128], 1, "--count"), ([64], 3, "scored"), ([16], 99, "--contexts")):
            with self.assertRaisesRegex(Failure, words):
                perplexity.check_sizes(contexts, count)
        perplexity.check_sizes([128], 3)


unittest.main()
