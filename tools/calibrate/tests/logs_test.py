"""What llama.cpp says of caches, read into numbers, and what a plugin reports, checked.

    logs_test.py
"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_calibrate import Failure, logs, text  # noqa: E402
from winnow_calibrate.config import Config  # noqa: E402
from winnow_calibrate.host import Host, Run, calls_per_layer, essence, micro_batches  # noqa: E402


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

    def test_what_explains_a_failure(self):
        self.assertEqual(essence("a\n0.00.1 I fine\n0.00.2 E it failed\n0.00.3 I over\n"), "  0.00.2 E it failed")
        self.assertEqual(essence("a\n\nb\n"), "  a\n  b")
        self.assertEqual(essence(""), "  nothing")


class Calls(unittest.TestCase):
    CONFIG = Config("packed", "winnow", k="q8_0", v="q4_0")

    def report(self, attention=(4, 4), types=("q8_0", "q4_0"), total=None, sdpa=None):
        tensors = {f"cache_{name}_l{layer}": {"type": kind, "attention_calls": calls, "append_calls": calls}
                   for layer, calls in enumerate(attention) for name, kind in zip("kv", types)}
        total = sum(attention) if total is None else total
        return {"attention_calls": total, "sdpa_calls": total if sdpa is None else sdpa, "tensors": tensors}

    def calls(self, report, layers=2):
        return calls_per_layer(Run("", "", report, 1.0, 1), self.CONFIG, layers)

    def test_good(self):
        self.assertEqual(self.calls(self.report()), 4)
        self.assertEqual(calls_per_layer(Run("", "", None, 1.0, 1), Config("cpu", "cpu"), 2), 0)

    def test_what_was_not_winnow_alone_is_refused(self):
        for report in (None, self.report(attention=(4, 3)), self.report(attention=(4,)), self.report(total=9),
                       self.report(types=("f16", "f16")), self.report(sdpa=7), self.report() | {"tensors": {}}):
            with self.assertRaises(Failure):
                self.calls(report)

    def test_what_stayed_in_place_is_refused(self):
        policy = Config("policy", "winnow", kv="winnow:budget=1/4")
        report = self.report(sdpa=0) | {"kv": policy.kv, "caches": [{"steps": 8}], "in_place": []}
        self.assertEqual(calls_per_layer(Run("", "", report, 1.0, 1), policy, 2), 4)
        report["in_place"] = [{"name": "cache_k_l1", "operation": "GET_ROWS", "node": "members", "reason": "is read"}]
        with self.assertRaisesRegex(Failure, r"cache_k_l1 stays in place: members \(GET_ROWS\): is read"):
            calls_per_layer(Run("", "", report, 1.0, 1), policy, 2)

    def test_micro_batches(self):
        for batch, ubatch, context, expected in ((512, 512, 2048, 4), (512, 128, 128, 1), (512, 200, 700, 4),
                                                 (64, 64, 129, 3)):
            host = Host("bin", "plugin.so", "model.gguf", batch, ubatch)
            self.assertEqual(micro_batches(host, context), expected)


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
