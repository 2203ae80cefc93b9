"""Running llama.cpp's programs, here made-up ones: what is asked for again, what is said when that does not help, and
what memory they had.

    host_test.py
"""

import dataclasses
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_calibrate import Failure, host, memory  # noqa: E402
from winnow_calibrate.config import Config  # noqa: E402

CPU = Config("cpu", "cpu")


class Tries(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def tries(self, last, *before, quick=1000, config=CPU):
        """(Run or Failure, how often the program ran): it prints `before`, a text for each of its first runs, or else
        `last`, and ends with status 1 where the text begins with "!"."""
        for number, text in enumerate(before):
            (self.folder / str(number)).write_text(text)
        (self.folder / "last").write_text(last)
        program = self.folder / "llama-perplexity"
        program.write_text(f"#!/bin/sh\ncd {self.folder}\nnumber=$(cat runs 2>/dev/null || echo 0)\n"
                           "echo $((number + 1)) > runs\n[ -f $number ] || number=last\ncat $number\n"
                           '[ -z "$WINNOW_REPORT_ROWS" ] || echo $number >> "$WINNOW_REPORT_ROWS"\n'
                           "! grep -q '^!' $number\n")
        program.chmod(0o755)
        with mock.patch.object(host, "QUICK", quick):
            try:
                made = host.Host(self.folder, "plugin", "model").run_program("llama-perplexity", [], config)
            except Failure as failure:
                made = failure
        return made, int((self.folder / "runs").read_text())

    def test_whole_output(self):
        made, runs = self.tries(host.LAST_WORDS)
        self.assertEqual((made.stdout, runs), (host.LAST_WORDS, 1))

    def test_cut_output_is_asked_for_again(self):
        made, runs = self.tries(host.LAST_WORDS, "cut", "cut")
        self.assertEqual((made.stdout, runs), (host.LAST_WORDS, 3))

    def test_rows_that_a_cut_run_recorded_are_gone(self):
        rows = self.folder / "rows"
        config = dataclasses.replace(CPU, environment=(("WINNOW_REPORT_ROWS", str(rows)),))
        _, runs = self.tries(host.LAST_WORDS, "cut", "cut", config=config)
        self.assertEqual((runs, rows.read_text()), (3, "last\n"))

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


class Programs(unittest.TestCase):
    def test_one_that_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(Failure, f"no llama-bench in {folder}; build this target of llama.cpp, or not"):
                host.expect_program(folder, "llama-bench", ", or not")
            (Path(folder) / "llama-bench").touch()
            host.expect_program(folder, "llama-bench")


class Memory(unittest.TestCase):
    SIZE = 64 << 20

    def test_of_a_process(self):
        holds = f"bytearray(b'x') * {self.SIZE}; print(flush=True); input(); raise SystemExit(3)"
        with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            had, other = (memory.of(process.pid, field) for field in ("VmHWM", "VmNothing"))
            process.stdin.write(b"\n")
            process.stdin.flush()
            most = memory.wait(process)
        self.assertTrue(self.SIZE < had <= most < 2 * self.SIZE, (had, most))
        self.assertEqual((other, process.returncode, memory.of(process.pid, "VmHWM")), (0, 3, 0))


unittest.main()
