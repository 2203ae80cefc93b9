"""Running llama.cpp's programs, here made-up ones: what is asked for again, and what is said when that does not help.

    host_test.py
"""

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import Failure, configs, host  # noqa: E402


class Tries(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def tries(self, last, *before, quick=1000):
        """(Run or Failure, how often the program ran): it prints `before`, a text for each of its first runs, or else
        `last`, and ends with status 1 where the text begins with "!"."""
        for number, text in enumerate(before):
            (self.folder / str(number)).write_text(text)
        (self.folder / "last").write_text(last)
        program = self.folder / "llama-perplexity"
        program.write_text(f"#!/bin/sh\ncd {self.folder}\nnumber=$(cat runs 2>/dev/control || echo 0)\n"
                           "echo $((number + 1)) > runs\n[ -f $number ] || number=last\ncat $number\n"
                           "! grep -q '^!' $number\n")
        program.chmod(0o755)
        with mock.patch.object(host, "QUICK", quick):
            try:
                made = host.Host(self.folder, "plugin", "model").run_program("llama-perplexity", [], configs.CONTROL)
            except Failure as failure:
                made = failure
        return made, int((self.folder / "runs").read_text())

    def test_whole_output(self):
        made, runs = self.tries(host.LAST_WORDS)
        self.assertEqual((made.stdout, runs), (host.LAST_WORDS, 1))

    def test_cut_output_is_asked_for_again(self):
        made, runs = self.tries(host.LAST_WORDS, "cut", "cut")
        self.assertEqual((made.stdout, runs), (host.LAST_WORDS, 3))

    def test_always_cut(self):
        made, runs = self.tries("[1]12.5,")
        self.assertEqual(runs, host.TRIES)
        self.assertRegex(str(made), f"(?s)cut.*{host.LAST_WORDS}.*12.5")

    def test_a_long_run_is_not_repeated(self):
        for text in ("[1]12.5,", "", "! nothing that explains it"):
            made, runs = self.tries(text, quick=0)
            self.assertEqual(runs, 1)
            self.assertIsInstance(made, Failure)
            self.assertEqual("cut" in str(made), not text.startswith("!"))
            (self.folder / "runs").unlink()

    def test_a_failure_with_a_reason_is_not_repeated(self):
        made, runs = self.tries("! error: out of something")
        self.assertEqual(runs, 1)
        self.assertIn("out of something", str(made))


unittest.main()
