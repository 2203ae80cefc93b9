"""Rows of policies in Python, with a made-up model in the place of torch; policy_torch_test.py has torch.

    policy_rows_test.py
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

EVAL = Path(__file__).resolve().parent.parent
PYTHON = EVAL.parents[1] / "hosts" / "python"
sys.path[:0] = [str(EVAL / "adapters"), str(EVAL), str(PYTHON)]

import policy_rows  # noqa: E402
import rows  # noqa: E402
import torch_plan  # noqa: E402
from made_progress import Progress  # noqa: E402
from made_results import made_results  # noqa: E402
from winnow_eval import Failure, others, report, store  # noqa: E402
from winnow_calibrate import storage  # noqa: E402

CONTEXT, COUNT, SCORED = 128, 2, 63
EXAMPLE = PYTHON / "external_policy.py"
CONFIG = "external:budget=1/4"
KEEP = "def keep(scores, importance):\n    return importance\n"
DATACLASS = f"""from __future__ import annotations
import dataclasses

@dataclasses.dataclass
class Heads:
    count: int

{KEEP}"""
MOVED_PATH = f"import sys\nsys.path.insert(0, '/nonesuch')\n{KEEP}"
NAME = f"external_policy.py:tova {CONFIG}"


class Refusal(Exception):
    pass


class MadeModel:
    """In the place of a model in torch; `asked` has what was run."""

    def __init__(self, control=0.0):
        self.control, self.asked = control, []

    def why_not(self):
        return None

    def base(self, tokens, first_scored):
        return SimpleNamespace(tokens=tokens, nll=[2.0] * (len(tokens) - first_scored - 1))

    def run(self, row, base):
        self.asked.append((row.name, row.mode))
        kld = self.control if row.is_control else 0.1
        scores = {"nll": [2.0 + kld] * SCORED, "kld": [kld] * SCORED, "same_top": [1] * SCORED}
        return SimpleNamespace(scores=scores, seconds=2.0, scored_seconds=0.5, resident_at_most=640,
                               held_after_prompt=600)


class Rows(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.store = store.Store(self.folder / "out")

    def assert_fails(self, words, call, *arguments):
        with self.assertRaises(Failure) as raised:
            call(*arguments)
        self.assertIn(words, str(raised.exception))

    def written(self, text):
        """The path of a file with this text, for the command line."""
        path = self.folder / "mine.py"
        path.write_text(text)
        return path

    def measured(self, model, *policies, modes=("batch",), chunk=32, queries=8, configs=(CONFIG,)):
        found = policy_rows.planned([policy_rows.load_policy(str(given)) for given in policies], configs, modes, chunk,
                                    queries)
        tokens = torch_plan.contexts_of(list(range(COUNT * CONTEXT)), None, CONTEXT, COUNT)
        plan = torch_plan.Plan("policy", self.store, {CONTEXT: (found, tokens)}, {})
        plan.run(lambda: model, Refusal, Progress())
        return {(row["name"], row["mode"]): row for row in plan.finished()}

    def test_rows(self):
        found = self.measured(MadeModel(), f"{EXAMPLE}:tova", modes=("batch", "decode"), configs=(CONFIG, "h2o"))
        self.assertEqual(list(found), [(name, mode) for mode in ("batch", "decode") for name in
                                       ("winnowkv:none:k=f32,v=f32", NAME, "external_policy.py:tova h2o")])
        row = found[NAME, "decode"]
        self.assertEqual((row["kv_bytes_per_token"], row["kv_bytes_after_prompt"]), (5, 600))
        self.assertEqual(row["generation_tokens_per_second"], 128)
        self.assertAlmostEqual(row["kld"], 0.1)
        with self.assertRaisesRegex(Failure, "winnowkv:none.*expected less than"):
            self.measured(MadeModel(control=1e-3), f"{EXAMPLE}:tova", chunk=16)

    def test_they_stand_beside_those_of_winnow_eval(self):
        found, path = self.measured(MadeModel(), f"{EXAMPLE}:tova"), self.folder / "policy.json"
        kept = made_results(contexts=(CONTEXT,), count=COUNT)
        model, text = (kept["model"]["file"], "0" * 64), {"sha256": "1" * 64, "part": "second"}
        kept["model"]["sha256"] = model[1]
        kept["text"] |= text
        rows.write(path, ("winnowkv", "1.0"), ["policy_rows.py"], model, ("text.txt", text), found.values(),
                   remarks=policy_rows.remarks(["batch"], 32, 8, {"torch": "2", "device": "a CPU"}))
        made = others.add(kept, [path])
        self.assertIn(f"| `{NAME}` | 5 |", report.quality_table(made, (CONTEXT, "batch")))
        self.assertIn("winnowkv 1.0: the text comes in calls of 32 tokens", "\n".join(made["remarks"]))

    def test_what_is_measured_anew(self):
        """What determines a result: the file, and how often and of what the policy is called."""
        path = self.written(KEEP)
        for expected, options in ((4, {}), (0, {}), (4, {"chunk": 16}), (4, {"queries": 4}), (0, {})):
            model = MadeModel()
            self.measured(model, f"{path}:keep", **options)
            self.assertEqual(len(model.asked), expected, options)
        self.written("def keep(scores, importance):\n    return 2 * importance\n")
        model = MadeModel()
        self.measured(model, f"{path}:keep")
        self.assertEqual(model.asked, [(f"mine.py:keep {CONFIG}", "batch")] * COUNT)  # the control is kept

    def test_policies(self):
        name, digest, function = policy_rows.load_policy(f"{EXAMPLE}:tova")
        self.assertEqual((name, digest), ("external_policy.py:tova", storage.sha256_of(EXAMPLE)))
        (worth,), = function(SimpleNamespace(tolist=lambda: [[[[[0.0, 0.0]]]]]), None)
        self.assertEqual(worth, [0.5, 0.5])
        (self.folder / "beside.py").write_text(KEEP)
        policy_rows.load_policy(f"{self.written('from beside import keep')}:keep")
        self.assertNotIn(str(self.folder), sys.path)
        policy_rows.load_policy(f"{self.written(DATACLASS)}:keep")
        before = list(sys.path)
        policy_rows.load_policy(f"{self.written(MOVED_PATH)}:keep")
        self.assertEqual(sys.path, ["/nonesuch", *before])
        sys.path.remove("/nonesuch")
        for given, words in ((EXAMPLE, "expected a file of Python and a function in it"),
                             (f"{EXAMPLE}:", "expected a file of Python"), ("tova:tova", "expected a file of Python"),
                             (f"{self.folder}/none.py:tova", "no file"), (f"{EXAMPLE}:h2o", "has no function h2o"),
                             (f"{EXAMPLE}:LAYERS", "has no function LAYERS"),
                             (f"{self.written('1 / 0')}:keep", "mine.py fails: ZeroDivisionError")):
            self.assert_fails(words, policy_rows.load_policy, str(given))
        self.assert_fails("given twice", self.measured, MadeModel(), f"{EXAMPLE}:tova", f"{EXAMPLE}:tova")

    def test_the_command_line(self):
        for name in ("model.gguf", "text.txt", "backend.so"):
            (self.folder / name).write_text("made up")
        given = ("--model", "model.gguf", "--text", "text.txt", "--llama-cpp", ".", f"{EXAMPLE}:tova")
        for words, arguments in (("--model: missing", given[-1:]), ("has no function h2o", (*given, f"{EXAMPLE}:h2o")),
                                 ("--backend: no file", (*given, "--backend", "none/none.so")),
                                 ("--backend: no backend libwinnow_cuda.so", (*given, "--backend", "cuda")),
                                 ("libllama.so", (*given, "--backend", "backend.so"))):
            done = subprocess.run([sys.executable, EVAL / "adapters" / "policy_rows.py", *map(str, arguments)],
                                  capture_output=True, text=True, cwd=self.folder,
                                  env={"PYTHONPATH": f"{EVAL}:{PYTHON}", "PATH": ""})
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
