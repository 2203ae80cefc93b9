"""What ci/onnx runs: a text of the user's goes before the book, and another pin means another environment and another
model. Nothing is downloaded or made.

    onnx_command_test.py SOURCE
"""

import sys
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(sys.argv.pop(1))
sys.path.append(str(SOURCE / "ci"))

import onnx_host  # noqa: E402
import parts  # noqa: E402
import texts  # noqa: E402


class Command(unittest.TestCase):
    def setUp(self):
        self.enterContext(mock.patch.object(parts, "python_with", lambda name, packages, add=None: Path(name)))
        self.enterContext(mock.patch.object(parts, "kept", lambda name, version, make: Path(f"{name}-{version}")))
        self.enterContext(mock.patch.object(texts, "book", lambda: Path("book.txt")))
        self.enterContext(mock.patch.object(parts, "setup"))

    def test_the_text(self):
        """The last --text is what argparse takes."""
        for given in (), ("--text", "mine.txt"), ("--text=mine.txt",):
            with mock.patch.object(sys, "argv", ["ci/onnx", "measure", "memory", *given]), \
                    mock.patch.object(onnx_host.os, "execv") as execv:
                onnx_host.main()
            command = execv.call_args.args[1]
            self.assertEqual(command[-len(given):] if given else [], list(given))
            texts_of = [part for part in command if part.endswith(".txt")]
            self.assertEqual(texts_of[-1].rpartition("=")[2], "mine.txt" if given else "book.txt")

    def test_other_pins(self):
        def names():
            return [str(parts.onnxruntime_python()), str(onnx_host.python()), str(onnx_host.model_of("smollm2"))]

        before = names()
        self.assertEqual(len(set(before)), 3)
        self.assertEqual(names(), before)
        for pins, changed in (("ONNX", (0, 1, 2)), ("ONNX_MODELS", (1, 2))):
            name = getattr(parts, pins)[0].partition("==")[0]
            with mock.patch.object(parts, pins, (f"{name}==0.0.1", *getattr(parts, pins)[1:])):
                self.assertEqual(tuple(at for at, each in enumerate(names()) if each != before[at]), changed, pins)


if __name__ == "__main__":
    unittest.main()
