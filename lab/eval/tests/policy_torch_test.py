"""Policies in Python under transformers as the adapter measures them, on a tiny random model: the full cache gives what
torch's gives, and TOVA in Python loses what Winnow's own does. ci/transformers runs it; torch and transformers are
enough for it.

    policy_torch_test.py PATH_OF_A_BACKEND
"""

import json
import statistics
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

EVAL = Path(__file__).resolve().parent.parent
PYTHON = EVAL.parents[1] / "hosts" / "python"
sys.path[:0] = [str(EVAL / "adapters"), str(EVAL), str(PYTHON)]

import policy_torch  # noqa: E402

import torch  # noqa: E402
import transformers  # noqa: E402

import external_policy  # noqa: E402
import winnowkv  # noqa: E402
from transformers_test import make  # noqa: E402
from winnow_eval import Failure  # noqa: E402

CONTEXT, FIRST = 256, 128
EXTERNAL = "external:k=f16,v=f16"
TOVA = "tova:k=f16,v=f16,recent=1/4,grace=0"  # the same policy, of Winnow's own
BACKEND = sys.argv.pop(1)


def row(config, function=None, mode="decode", chunk=1):
    return SimpleNamespace(name=config, config=config, policy=f"{Path(__file__).name}:made_up", function=function,
                           mode=mode, chunk=chunk, queries=8)


class Policies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(5)
        cls.tokens = torch.randint(2, 128, (CONTEXT,)).tolist()
        cls.use("Llama")

    @classmethod
    def use(cls, architecture):
        """Measures on this model from now on."""
        cls.model = policy_torch.Model(make(architecture), winnowkv.Context(backend=BACKEND, threads=1))
        cls.base = cls.model.base(cls.tokens, FIRST)

    def kld(self, *arguments, **options):
        outcome = self.model.run(row(*arguments, **options), self.base)
        self.assertEqual(len(outcome.scores["kld"]), CONTEXT - FIRST - 1)
        return sum(outcome.scores["kld"]) / (CONTEXT - FIRST - 1), outcome

    def test_the_full_cache(self):
        """Also of models with windows, a softcap and sinks, which have to be in the base."""
        self.addCleanup(self.use, "Llama")
        for architecture in "Gemma2", "GptOss", "Llama":
            self.use(architecture)
            self.assertIsNone(self.model.why_not())
            for mode, chunk in (("decode", 32), ("batch", 32), ("batch", 100)):
                with self.subTest(architecture, mode=mode, chunk=chunk):
                    kld, outcome = self.kld("none:k=f32,v=f32", mode=mode, chunk=chunk)
                    self.assertLess(abs(kld), 1e-6)
                    full = CONTEXT * 3 * 2 * 2 * 32 * 4  # bytes of all tokens in F32
                    self.assertGreaterEqual(outcome.resident_at_most, full)
                    self.assertLess(outcome.held_after_prompt, outcome.resident_at_most)

    def test_tova(self):
        """Steps have no more tokens than `cadence`, 6 and 16: within a longer one Winnow's own TOVA ranks anew, and a
        policy in Python after it."""
        for mode, budget, chunk in (("decode", 48, 1), ("batch", 48, 4), ("batch", 128, 16)):
            with self.subTest(mode, budget=budget, chunk=chunk):
                external, own = (f"{config},budget={budget}" for config in (EXTERNAL, TOVA))
                found, outcome = self.kld(external, external_policy.tova, mode=mode, chunk=chunk)
                expected, same = self.kld(own, mode=mode, chunk=chunk)
                self.assertGreater(found, 1e-3)
                self.assertAlmostEqual(found, expected, delta=1e-6)
                self.assertEqual(outcome.resident_at_most, same.resident_at_most)

    def test_why_there_is_no_row(self):
        def expect(kind, words, *arguments):
            with self.assertRaises(kind) as raised:
                self.kld(*arguments)
            self.assertIn(words, str(raised.exception))

        some = f"{EXTERNAL},budget=48"
        expect(policy_torch.Refused, "nothing of 256 tokens is evicted", "external:budget=256", external_policy.tova)
        expect(Failure, "made_up: ZeroDivisionError in line", some, lambda scores, importance: 1 / 0)
        expect(Failure, "the policy returned None", some, lambda scores, importance: None)
        expect(Failure, "keeps no importance", "window:budget=48", external_policy.tova)

    def test_where_an_error_is(self):
        """The line of the policy's file, also where a library raises; outside of it, that of the library."""
        def with_json(scores, importance):
            return json.loads("")

        line = with_json.__code__.co_firstlineno + 1
        for function, words in ((with_json, f"JSONDecodeError in line {line} of {__file__}"),
                                (lambda scores, importance: with_json(scores, importance), f"line {line} of"),
                                (statistics.correlation, f" of {statistics.__file__}")):
            with self.assertRaises(Failure) as raised:
                self.kld(f"{EXTERNAL},budget=48", function)
            self.assertIn(words, str(raised.exception))


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    unittest.main()
