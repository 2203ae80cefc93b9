"""What llama.cpp prints, read into numbers: a made-up run of which all numbers are known.

    logs_test.py
"""

import math
import statistics
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import made_log  # noqa: E402
from winnow_eval import Failure, configs, logs, perplexity, text  # noqa: E402
from winnow_eval.host import Host, Run, calls_per_layer, essence  # noqa: E402

NLL = [3.9, 4.05, 3.7, 4.12]  # of the base
LN_RATIO = [0.07676, 0.01312, -0.0061, 0.05]
KLD = [0.04653, 0.03053, 0.05386, 0.04041]
SAME_TOP = [80.952, 92.064, 85.714, 90.476]


def printed():
    return made_log.divergence(NLL, LN_RATIO, KLD, SAME_TOP)


def of_base(nll=NLL):
    """The base's perplexity after each context, as it is printed."""
    return [round(ppl, 4) for ppl in made_log.running_perplexity(nll)]


class Divergence(unittest.TestCase):
    def test_numbers(self):
        found = logs.divergence(printed(), 4, of_base())
        self.assertAlmostEqual(found["ppl"], math.exp(statistics.fmean(NLL) + statistics.fmean(LN_RATIO)), delta=1e-6)
        self.assertEqual((found["ppl_base"], found["kld_p99"]), (of_base()[-1], 0.399526))
        ratio = math.exp(statistics.fmean(LN_RATIO))
        self.assertAlmostEqual(found["ppl_increase_percent"], 100 * (ratio - 1), delta=1e-3)
        for key, values in (("ln_ratio", LN_RATIO), ("kld", KLD), ("same_top", SAME_TOP)):
            rounding = 0.004 if key == "same_top" else 0.00003
            for seen, value in zip(found["per_context"][key], values, strict=True):
                self.assertAlmostEqual(seen, value, delta=rounding)
        self.assertAlmostEqual(found["kld_se"], statistics.stdev(KLD) / 2, delta=2e-5)
        self.assertAlmostEqual(found["same_top_se"], statistics.stdev(SAME_TOP) / 2, delta=2e-3)
        self.assertAlmostEqual(found["ppl_increase_se"], 100 * ratio * statistics.stdev(LN_RATIO) / 2, delta=2e-3)

    def test_the_base_against_itself_is_nothing(self):
        same = made_log.divergence(NLL, [0.0] * 4, [0.0] * 4, [100.0] * 4)
        self.assertRegex(same, r"Mean ln\(PPL\(Q\)/PPL\(base\)\) +: +0.00042")  # llama-perplexity's own is not
        found = logs.divergence(same, 4, logs.running_perplexity(made_log.base(NLL), 4))
        self.assertEqual((found["ppl_increase_percent"], found["ppl_increase_se"]), (0, 0))
        self.assertEqual(found["per_context"]["ln_ratio"], [0] * 4)

    def test_the_perplexity_of_the_base(self):
        self.assertEqual(logs.running_perplexity(made_log.base(NLL), 4), of_base())
        with self.assertRaisesRegex(Failure, "4 of 5 contexts"):
            logs.running_perplexity(made_log.base(NLL), 5)
        with self.assertRaisesRegex(Failure, "finite"):
            logs.running_perplexity("[1]12.5000,[2]nan,", 2)

    def test_what_is_not_all_there(self):
        with self.assertRaisesRegex(Failure, "4 of 5 contexts"):
            logs.divergence(printed(), 5, of_base())
        with self.assertRaisesRegex(Failure, "contexts"):
            logs.divergence(printed().split("Mean PPL")[0], 4, of_base())
        with self.assertRaisesRegex(Failure, "finite"):
            logs.divergence(printed().replace("99.0%   KLD:   0.399526", "99.0%   KLD:   nan"), 4, of_base())

    def test_running_means_are_undone(self):
        self.assertEqual(logs.each([4.0, 3.0, 4.0]), [4.0, 2.0, 6.0])


class Logs(unittest.TestCase):
    def cache(self, *lines):
        return logs.cache("\n".join(f"0.01.541.206 I llama_kv_cache: size = {line}" for line in lines))

    def test_sizes_are_exact(self):
        line = "   4.22 MiB (   512 cells,  30 layers,  1/1 seqs), K (q5_1):    2.11 MiB, V (q5_1):    2.11 MiB"
        self.assertEqual(self.cache(line), {"bytes": 2 * 512 * 30 * 6 * 24, "cells": 512, "layers": 30})

    def test_several_caches_are_added(self):
        lines = ("  40.00 MiB (  2048 cells,  10 layers,  1/1 seqs), K (f16):   20.00 MiB, V (f16):   20.00 MiB",
                 "   4.00 MiB (   512 cells,   4 layers,  1/1 seqs), K (f16):    2.00 MiB, V (f16):    2.00 MiB")
        self.assertEqual(self.cache(*lines), {"bytes": 44 * 2**20, "cells": 2048, "layers": 14})

    def test_ambiguous_sizes_stay_as_printed(self):
        line = "   0.02 MiB (    64 cells,   1 layers,  1/1 seqs), K (q4_0):    0.01 MiB, V (q4_0):    0.01 MiB"
        self.assertEqual(self.cache(line)["bytes"], 2 * round(0.01 * 2**20))

    def test_none(self):
        with self.assertRaisesRegex(Failure, "KV cache"):
            logs.cache("something else")

    def test_speed(self):
        line = "I llama_perf_context_print: prompt eval time =    8000.00 ms /   512 tokens (   15.49 ms per token"
        self.assertEqual(logs.prompt_speed(line), 64)
        with self.assertRaises(Failure):
            logs.prompt_speed("")

    def test_what_explains_a_failure(self):
        self.assertEqual(essence("a\n0.00.1 I fine\n0.00.2 E it failed\n0.00.3 I over\n"), "  0.00.2 E it failed")
        self.assertEqual(essence("a\n\nb\n"), "  a\n  b")
        self.assertEqual(essence(""), "  nothing")


class Calls(unittest.TestCase):
    CONFIG = configs.parse("inplace:k=q8_0,v=q4_0")

    def report(self, attention=(4, 4), types=("q8_0", "q4_0"), total=None, sdpa=None):
        tensors = {f"cache_{name}_l{layer}": {"type": kind, "attention_calls": calls, "append_calls": calls}
                   for layer, calls in enumerate(attention) for name, kind in zip("kv", types)}
        total = sum(attention) if total is None else total
        return {"attention_calls": total, "sdpa_calls": total if sdpa is None else sdpa, "tensors": tensors}

    def calls(self, report, layers=2):
        return calls_per_layer(Run("", "", report, 1.0, 1), self.CONFIG, layers)

    def test_good(self):
        self.assertEqual(self.calls(self.report()), 4)
        self.assertEqual(calls_per_layer(Run("", "", None, 1.0, 1), configs.NULL, 2), 0)

    def test_what_was_not_winnow_alone_is_refused(self):
        for report in (None, self.report(attention=(4, 3)), self.report(attention=(4,)), self.report(total=9),
                       self.report(types=("f16", "f16")), self.report(sdpa=7), self.report() | {"tensors": {}}):
            with self.assertRaises(Failure):
                self.calls(report)

    def test_what_stayed_in_place_is_refused(self):
        policy = configs.parse("winnow:budget=1/4")
        report = self.report(sdpa=0) | {"kv": policy.kv, "caches": [{"steps": 8}], "in_place": []}
        self.assertEqual(calls_per_layer(Run("", "", report, 1.0, 1), policy, 2), 4)
        report["in_place"] = [{"name": "cache_k_l1", "operation": "GET_ROWS", "node": "members", "reason": "is read"}]
        with self.assertRaisesRegex(Failure, r"cache_k_l1 stays in place: members \(GET_ROWS\): is read"):
            calls_per_layer(Run("", "", report, 1.0, 1), policy, 2)

    def test_too_few_micro_batches(self):
        with self.assertRaisesRegex(Failure, "4 attention calls of each layer for 5 micro-batches"):
            perplexity.expect_calls(Run("", "", self.report(), 1.0, 1), self.CONFIG, 2, 5)

    def test_micro_batches(self):
        for batch, ubatch, context, expected in ((512, 512, 2048, 4), (512, 128, 128, 1), (512, 200, 700, 4),
                                                 (64, 64, 129, 3)):
            host = Host("bin", "plugin.so", "model.gguf", batch, ubatch)
            self.assertEqual(perplexity.micro_batches(host, context), expected)


class Text(unittest.TestCase):
    def test_halves_meet_at_a_paragraph(self):
        whole = b"one\n\ntwo two two\n \nthree\n\nfour four four four four"
        first, second = text.part_of(whole, "first"), text.part_of(whole, "second")
        self.assertEqual((first + second, second[:4]), (whole, b"four"))
        self.assertEqual(text.part_of(whole, "all"), whole)
        self.assertEqual(text.part_of(b"one\r\ntwo\r\nthree\n", "second"), b"three\n")
        with self.assertRaisesRegex(Failure, "one line"):
            text.part_of(b"one line\n", "first")


unittest.main()
