"""The options of `winnow eval`: what they are where nothing is said, and what is refused.

    cli_test.py
"""

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import Failure, cli  # noqa: E402


class Numbers(unittest.TestCase):
    def test_what_they_are(self):
        self.assertEqual(cli.numbers("--contexts", "512, 2048,0128"), [512, 2048, 128])

    def test_what_is_refused(self):
        for given, words in (("512,512", "twice"), ("512,0512", "twice"), ("512,", "expected token counts"),
                             ("0", "expected token counts"), ("512,x", "expected token counts")):
            with self.assertRaisesRegex(Failure, f'--contexts: "{given}".*{words}'):
                cli.numbers("--contexts", given)


class Options(unittest.TestCase):
    def options(self, **given):
        """What is evaluated with these arguments of the command."""
        with tempfile.TemporaryDirectory() as folder:
            files = {"model": Path(folder) / "model.gguf", "text_file": Path(folder) / "text.txt"}
            for path in files.values():
                path.touch()
            with mock.patch.object(cli, "evaluate") as evaluate, mock.patch.object(cli, "render"):
                cli.measure(**files, **given)
            return evaluate.call_args.args[0]

    def test_a_micro_batch_is_no_larger_than_a_batch(self):
        for given, expected in (({}, (512, 512)), ({"batch": 256}, (256, 256)), ({"batch": 2048}, (2048, 512)),
                                ({"batch": 256, "ubatch": 32}, (256, 32)), ({"ubatch": 64}, (512, 64))):
            options = self.options(**given)
            self.assertEqual((options.batch, options.ubatch), expected, given)
        with self.assertRaisesRegex(Failure, "--ubatch: 512, expected at most --batch, which is 256"):
            self.options(batch=256, ubatch=512)

    def test_weights(self):
        self.assertEqual([self.options(**given).weights for given in ({}, {"weights": "as-is"})], ["f32", "as-is"])
        with self.assertRaisesRegex(Failure, '--weights: "f16", expected f32, as-is'):
            self.options(weights="f16")


unittest.main()
