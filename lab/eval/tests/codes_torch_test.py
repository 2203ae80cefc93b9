"""Attention over coded rows, and the statistics of a calibration, on a tiny random model: as plain loops have them.
ci/transformers runs it; torch and transformers are enough for it.

    codes_torch_test.py PATH_OF_A_BACKEND
"""

import dataclasses
import sys
import unittest
from pathlib import Path

EVAL = Path(__file__).resolve().parent.parent
PYTHON = EVAL.parents[1] / "hosts" / "python"
sys.path[:0] = [str(EVAL / "adapters"), str(EVAL), str(PYTHON)]

import codes_torch  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

import named_codes  # noqa: E402
import winnowkv  # noqa: E402
from transformers_test import make  # noqa: E402

CONTEXT, FIRST = 200, 120
BACKEND = sys.argv.pop(1)


class Rounded:
    """A code that rounds to whole numbers: far from what it is given."""

    def encode_decode(self, x, positions, side, head):
        return np.rint(x)

    def bytes(self, side, n, tokens):
        return tokens * n

    def constants(self, side, n):
        return 0


class Exact(Rounded):
    """A code that loses nothing."""

    def encode_decode(self, x, positions, side, head):
        return x


class Slow:
    """What codes_torch.Packed computes, query by query."""

    def __init__(self, row, rows, first):
        self.row, self.rows, self.first = row, rows, first

    def attend(self, layer, module, q, k, v, scaling):
        k, v = (torch.cat([old[:, :self.first], new[0]], 1) for old, new in zip(self.rows[layer], (k, v)))
        made = torch.empty_like(q)
        groups = q.shape[1] // len(k)
        for index in range(q.shape[2]):
            position = self.first + index
            coded = {}
            for side, window in self.row.windows.items():
                coded[side] = torch.zeros(position + 1, 1, dtype=torch.bool)
                coded[side][window.sink:window.packed_below(position)] = True
            for head in range(q.shape[1]):
                keys, values = (torch.where(coded[side], rows[head // groups, :position + 1].round(),
                                            rows[head // groups, :position + 1]) for side, rows in (("k", k), ("v", v)))
                p = torch.softmax(keys @ q[0, head, index] * scaling, 0)
                made[0, head, index] = p @ values
        return made


class Codes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(5)
        cls.tokens = torch.randint(2, 128, (CONTEXT,)).tolist()
        cls.model = codes_torch.Model(make("Llama"))
        cls.model.model.set_attn_implementation(codes_torch.NAME)
        cls.base = cls.model.base(cls.tokens, FIRST)
        with torch.inference_mode():
            cls.sums = cls.model.calibrate([cls.tokens[:150], cls.tokens[40:]])
        cls.model.heads = codes_torch.heads_of(cls.sums, cls.model.frequencies)

    def row(self, residual, cadence, sink=4, codes=None, v_residual=None):
        code = Rounded()
        windows = {"k": named_codes.Window(sink, residual, cadence),
                   "v": named_codes.Window(sink, v_residual or residual, cadence)}
        return named_codes.Row("rounded", codes or {"k": code, "v": code}, windows, 0, {})

    def test_the_base_is_the_model(self):
        self.assertIsNone(self.model.why_not())
        model = make("Llama")
        model.load_state_dict(self.model.model.state_dict())
        with torch.inference_mode():
            logits = model(torch.tensor(self.tokens)[None]).logits[0, FIRST:-1]
        self.assertLess((logits - self.base.logits).abs().max(), 1e-4)

    def test_rows_as_they_are_lose_nothing(self):
        found = self.model.run(self.row(48, 32, codes={"k": None, "v": None}), self.base)
        self.assertLess(abs(np.mean(found.scores["kld"])), 1e-9)
        self.assertEqual(len(found.scores["kld"]), CONTEXT - FIRST - 1)

    def test_each_query_reads_its_own_rows_packed(self):
        for residual, cadence, sink, of_values in ((48, 32, 4, 48), (16, 16, 0, 30), (1, 1, 4, 5), (100, 7, 3, 20)):
            row = self.row(residual, cadence, sink, v_residual=of_values)
            found = self.model.run(row, self.base)
            with torch.inference_mode():
                logits = self.model._logits(Slow(row, self.base.rows, FIRST), self.base.tokens[FIRST:], FIRST, 0)
            expected = codes_torch.torch_model.compared([logits], self.base)
            self.assertGreater(np.mean(expected["kld"]), 1e-4)
            self.assertTrue(np.allclose(found.scores["kld"], expected["kld"], rtol=1e-3, atol=1e-7), row)

    def test_winnows_formats_and_shifts(self):
        context = winnowkv.Context(backend=BACKEND, threads=1)
        maker = named_codes.Maker(lambda: None, context, self.model._size, 4096, {})
        lost = [np.mean(self.model.run(maker.row(name, CONTEXT), self.base).scores["kld"])
                for name in ("k=q8_0,v=q8_0", "k=turbo4,v=turbo4", "k=turbo2,v=turbo2")]
        self.assertEqual(lost, sorted(lost))
        moved = maker.row("k=f32,v=f32,shifts=3", CONTEXT)
        exact = dataclasses.replace(moved, codes={"k": Exact(), "v": None})
        running = codes_torch.Packed(exact, self.base.rows, FIRST, self.model.heads)
        keys = self.base.rows[0][0]
        self.assertLess((running._read(0, "k", keys) - keys).abs().max(), 1e-3)
        once, often = (np.mean(self.model.run(maker.row(f"k=turbo4,v=f32,shifts={count}", CONTEXT), self.base)
                               .scores["kld"]) for count in (0, 8))
        self.assertLess(once, often)

    def test_a_code_that_changes_nothing_is_found(self):
        row = self.row(48, 32, codes={"k": Exact(), "v": None})
        with self.assertRaisesRegex(codes_torch.Failure, "the code of k changed 0 rows, expected at least"):
            self.model.run(row, self.base)

    def test_what_is_not_computed(self):
        for architecture, more, words in (("Gemma2", {}, "softcap|window"),
                                          ("Mistral", {"sliding_window": 16}, "window"),
                                          ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0,
                                                                         "rope_theta": 1e4}}, "rotary")):
            self.assertRegex(codes_torch.Model(make(architecture, **more)).why_not() or "none", words)

    def test_a_calibration_sums_what_each_query_and_key_say(self):
        """Layer 0, where keys and queries follow from the tokens alone, in double."""
        layer, model, tokens = self.model.model.model.layers[0], self.model, self.tokens[:150]
        seen = {}

        class Look:
            def attend(self, number, module, q, k, v, scaling):
                seen.setdefault(number, (q[0].double(), k[0].double(), v[0].double(), scaling))
                return codes_torch.exact(q, k, v, scaling)

        with torch.inference_mode():
            sums = model.calibrate([tokens])
            model._logits(Look(), torch.tensor(tokens), 0, 1)
        q, k, v, scaling = seen[0]
        groups, size = len(q) // len(k), q.shape[2]
        out = layer.self_attn.o_proj.weight.detach().double().view(-1, len(q), size)
        for head in range(len(k)):
            m = sum(out[:, each].T @ out[:, each] for each in range(head * groups, (head + 1) * groups))
            weight, a, squares = {"out": 0, "one": 0}, {"out": 0, "one": 0}, 0
            for each in range(head * groups, (head + 1) * groups):
                for at in range(len(tokens)):
                    p = torch.softmax(k[head, :at + 1] @ q[each, at] * scaling, 0)
                    o = p @ v[head, :at + 1]
                    far = v[head, :at + 1] - o
                    p2 = torch.zeros(len(tokens), dtype=torch.float64)
                    some = slice(codes_torch.SINK, max(codes_torch.SINK, at - codes_torch.RESIDUAL + 1))
                    p2[some] = p[some] ** 2
                    squares = squares + p2
                    for name, matrix in (("out", m), ("one", torch.eye(size, dtype=torch.float64))):
                        omega = p2.clone()
                        omega[:at + 1] *= ((far @ matrix) * far).sum(1)
                        weight[name] = weight[name] + omega
                        a[name] = a[name] + omega.sum() * torch.outer(q[each, at], q[each, at])
            for name in weight:
                found = {key: sums[f"keys.{name}.weighted.{key}"][0, head] for key in ("weight", "first", "second",
                                                                                      "queries")}
                w = weight[name].numpy()
                rows = k[head].numpy()
                for key, expected in (("weight", w.sum()), ("first", w @ rows), ("queries", a[name].numpy()),
                                      ("second", (rows * w[:, None]).T @ rows)):
                    error = np.abs(found[key] - expected).max() / np.abs(expected).max()
                    self.assertLess(error, 1e-3, (name, key))
            self.assertLess(np.abs(sums["value.first"][0, head] - squares.numpy() @ v[head].numpy()).max(), 1e-4)


if __name__ == "__main__":
    unittest.main()
