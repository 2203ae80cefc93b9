"""winnow-measure, here a made-up one: its answers, and what is said where it ends.

    measure_test.py
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import Failure, configs, divergence, measure  # noqa: E402
from winnow_calibrate import host  # noqa: E402


class Process(unittest.TestCase):
    FIRST = '{"vocabulary": 99, "trained_context": 512, "no_chat": ""}'

    def measure(self, script):
        """winnow-measure, which is this script."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        program = folder / "winnow-measure"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with mock.patch.dict(os.environ, {"WINNOW_EVAL_MEASURE": str(program)}):
            return measure.Measure(host.Host("bin", "plugin.so", "model.gguf", device="some"), "model.gguf")

    def test_it_answers_line_by_line(self):
        answers = """read line; echo '{"tokens": 7}'; read line; echo '{"error": "out of something"}'"""
        with self.measure(f"echo '{self.FIRST}'; {answers}") as process:
            self.assertEqual((process.vocabulary, process.trained_context), (99, 512))
            self.assertEqual(process.count_tokens("some words"), 7)
            with self.assertRaisesRegex(Failure, "a text: out of something"):
                process.count_tokens("more")

    def test_its_log_says_why_it_ended(self):
        for script, words in (("echo 'error loading model' >&2", "cannot load model.gguf"),
                              ("echo 'llama.cpp does not take it' >&2; exit 3", '(?s)status 3.*"some" exist'),
                              ("printf '{\"tokens\": 1'", "status 0")):
            with self.assertRaisesRegex(Failure, words), self.measure(script):
                self.fail("it was started")
        with self.measure(f"echo '{self.FIRST}'; echo 'error: out of something' >&2; read line") as process:
            with self.assertRaisesRegex(Failure, "out of something"):
                process.count_tokens("some words")
            with self.assertRaisesRegex(Failure, "status 0"):
                process.count_tokens("some words")

    def test_it_is_read_as_utf_8_whatever_the_locale(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        program = folder / "winnow-measure"
        answer = '{"error": "où"}'
        program.write_text(f"#!/bin/sh\necho '{self.FIRST}'; echo 'été' >&2; read line; echo '{answer}'\n",
                           encoding="utf-8")
        program.chmod(0o755)
        asks = """
from winnow_eval import Failure, configs, divergence, measure
from winnow_calibrate import host
with measure.Measure(host.Host("bin", "plugin.so", "model.gguf"), "model.gguf") as process:
    try:
        process.count_tokens("some words")
    except Failure as failure:
        print(ascii((str(failure), process.log())))
"""
        done = subprocess.run([sys.executable, "-B", "-c", asks], capture_output=True, encoding="ascii",
                              env=os.environ | {"PYTHONPATH": str(Path(measure.__file__).parent.parent), "LC_ALL": "C",
                                                "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
                                                "WINNOW_EVAL_MEASURE": str(program)})
        self.assertEqual((done.stdout, done.stderr), (ascii(("a text: où", "été\n")) + "\n", ""))


class Calls(unittest.TestCase):
    def test_too_few_micro_batches(self):
        tensors = {f"cache_{name}_l0": {"type": "f16", "attention_calls": 4} for name in "kv"}
        report = {"attention_calls": 4, "sdpa_calls": 4, "tensors": tensors}
        with self.assertRaisesRegex(Failure, "4 attention calls of each layer for 5 micro-batches"):
            divergence.expect_calls(host.Run("", "", report, 1.0, 1), configs.parse("inplace"), 1, 5)


unittest.main()
