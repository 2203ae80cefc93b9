"""Policies in Python under transformers as the adapter measures them, on a tiny random model: the full cache gives what
torch's gives, and TOVA in Python loses what Winnow's own does. ci/transformers runs it; torch and transformers are
enough for it.

    policy_torch_test.py PATH_OF_A_BACKEND
"""

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
from winnow_eval import Failure  # noqa: E402

CONTEXT, FIRST = 256, 128
EXTERNAL = "external:budget=48,k=f16,v=f16"
TOVA = "tova:budget=48,k=f16,v=f16,recent=1/4,grace=0"  # the same policy, of Winnow's own
BACKEND = sys.argv.pop(1)


def row(config, function=None, mode="decode", chunk=1):
    return SimpleNamespace(name=config, config=config, policy="made-up", function=function, mode=mode, chunk=chunk,
                           queries=8)


class Policies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(3)
        model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(
            vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=512)).eval()
        for weights in model.parameters():  # far from a mean of all values, so that a wrong token shows
            torch.nn.init.normal_(weights, std=0.15 if weights.dim() > 1 else 0.3)
        cls.model = policy_torch.Model(model, winnowkv.Context(backend=BACKEND, threads=1))
        cls.base = cls.model.base(torch.randint(2, 128, (CONTEXT,)).tolist(), FIRST)

    def kld(self, *arguments, **options):
        outcome = self.model.run(row(*arguments, **options), self.base)
        self.assertEqual(len(outcome.scores["kld"]), CONTEXT - FIRST - 1)
        return sum(outcome.scores["kld"]) / (CONTEXT - FIRST - 1), outcome

    def test_the_full_cache(self):
        for mode, chunk in (("decode", 32), ("batch", 32), ("batch", 100)):
            kld, outcome = self.kld("none:k=f32,v=f32", mode=mode, chunk=chunk)
            self.assertLess(abs(kld), 1e-6)
            self.assertGreaterEqual(outcome.resident_at_most, CONTEXT * 3 * 2 * 2 * 32 * 4)  # F32 of all tokens
            self.assertLess(outcome.held_after_prompt, outcome.resident_at_most)

    def test_tova(self):
        found, outcome = self.kld(EXTERNAL, external_policy.tova)
        expected, same = self.kld(TOVA)
        self.assertGreater(found, 1e-3)
        self.assertAlmostEqual(found, expected, delta=1e-6)
        self.assertEqual(outcome.resident_at_most, same.resident_at_most)
        batch, _ = self.kld(EXTERNAL, external_policy.tova, mode="batch", chunk=16)
        self.assertGreater(batch, 1e-3)

    def test_why_there_is_no_row(self):
        def expect(kind, words, *arguments):
            with self.assertRaises(kind) as raised:
                self.kld(*arguments)
            self.assertIn(words, str(raised.exception))

        expect(policy_torch.Refused, "nothing of 256 tokens is evicted", "external:budget=256", external_policy.tova)
        expect(Failure, "made-up: ZeroDivisionError in line", EXTERNAL, lambda scores, importance: 1 / 0)
        expect(Failure, "the policy returned None", EXTERNAL, lambda scores, importance: None)
        expect(Failure, "keeps no importance", "window:budget=48", external_policy.tova)
        self.assertIsNone(self.model.why_not())


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    unittest.main()
