"""One evaluation from options to results, with a made-up llama.cpp: what is refused, said, copied and counted.

    evaluate_test.py
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from rich.console import Console

FOLDER = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FOLDER))

import made_model  # noqa: E402
from made_host import COUNT, LN_RATIO, TRAINED, VOCABULARY, MadeHost, MadeMeasure  # noqa: E402
from made_results import made_others, made_results  # noqa: E402
from winnow_eval import Failure, divergence, evaluate, measure, report, tasks  # noqa: E402
from winnow_calibrate import progress  # noqa: E402

ROW = "cpu:k=q8_0,v=f16"


class Evaluation(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        made_model.write(self.folder / "model.gguf", "llama", list(map(str, range(VOCABULARY))))
        (self.folder / "text.txt").write_text("Some words.\n")
        self.works = []  # (expected, done) of each evaluation

    def evaluate(self, *strings, free=10**12, takes=None, policies=(), **more):
        """(results, what was said, what llama.cpp was asked)"""
        options = dict(model=self.folder / "model.gguf", text=self.folder / "text.txt",
                       strings=list(strings) or [ROW], files=[], contexts=[128], modes=["batch", "decode"], count=COUNT,
                       sigmas=None, part="all",
                       out=self.folder / "out", weights="f32", batch=64, ubatch=32, threads=2, programs=None,
                       plugin=None, plugin_folders=[], device=None, tasks=["needle"], task_contexts=[256],
                       task_trials=4, generation=False, fresh=False, others=[]) | more
        self.host = MadeHost(self.folder)
        self.host.version, self.host.takes, self.host.policies = "made up", takes or {}, policies
        said, seen = io.StringIO(), []

        class Noted(progress.Progress):
            def __init__(self, console):
                super().__init__(console)
                seen.append(self)

        with (mock.patch.object(evaluate, "_make_host", lambda _: self.host),
              mock.patch.object(evaluate, "Progress", Noted),
              mock.patch.object(measure, "Measure", MadeMeasure),
              mock.patch.object(measure, "identity", lambda: "made up"),
              mock.patch.object(shutil, "disk_usage", lambda _: mock.Mock(free=free))):
            results = evaluate.evaluate(evaluate.Options(**options), Console(file=said, width=200))
        self.works.append((seen[0].total, seen[0].done))
        return results, said.getvalue(), [asked for asked in self.host.asked if not asked.startswith("probe")]

    def test_rows(self):
        results, said, asked = self.evaluate(ROW)
        self.assertEqual([row["name"] for row in results["rows"]], 2 * ["cpu:k=f16,v=f16", ROW])
        self.assertAlmostEqual(results["rows"][1]["ppl_increase_percent"], 100 * sum(LN_RATIO) / COUNT, delta=0.1)
        needle, = results["tasks"]
        self.assertEqual([(one["retrieved"], one["trials"]) for one in needle["results"]], [(4, 4), (4, 4)])
        self.assertIn("weights in F32", said)
        self.assertNotIn(str(self.folder), json.dumps(results))

    def test_what_is_kept_needs_neither_room_nor_a_copy_of_the_model(self):
        with self.assertRaisesRegex(Failure, "no room"):
            self.evaluate(ROW, free=4 * 32 * VOCABULARY - 1)
        first, _, _ = self.evaluate(ROW, free=4 * 32 * VOCABULARY)
        again, said, asked = self.evaluate(ROW, free=0)
        self.assertEqual((first["rows"], first["tasks"]), (again["rows"], again["tasks"]))
        self.assertEqual(asked, [])
        self.assertNotIn("F32", said)

    def test_the_copy_is_what_is_measured_and_not_probed(self):
        self.evaluate(tasks=[])
        models = self.host.models
        original = [kind for kind, name in models if name == "model.gguf"]
        self.assertEqual(set(original), {"probe"})
        self.assertTrue(all(name.endswith("-f32.gguf") for kind, name in models if kind != "probe"))
        self.assertLess(len(original), len(models))

    def test_all_lengths_and_tasks_are_of_one_process(self):
        self.evaluate(ROW, contexts=[128, 256])
        self.assertEqual([name.endswith("-f32.gguf") for name in self.host.started], [False, True])

    def test_each_configuration_is_probed_in_the_shortest_and_the_longest_context(self):
        self.evaluate(ROW, contexts=[512, 2048], tasks=[])
        probes = [asked for asked in self.host.asked if asked.startswith("probe")]
        names = ("inplace:k=f16,v=f16", "cpu:k=f16,v=f16", ROW)
        self.assertEqual(probes, [f"probe {name} {cells}" for name in names for cells in (512, 2048)])
        self.evaluate(ROW, contexts=[512, 2048], task_contexts=[256, 2048])
        probes = [asked for asked in self.host.asked if asked.startswith("probe")]
        self.assertEqual(probes, [f"probe {name} {cells}" for name in names for cells in (512, 2304)],
                         "not what the questions alone take")

    def test_a_virtual_configuration_is_probed_once_in_each_context_too(self):
        policy = "h2o:budget=1/4"
        self.evaluate(policy, policies=[policy], contexts=[512, 2048], tasks=[])
        probes = [asked for asked in self.host.asked if asked.startswith(f"probe {policy}")]
        self.assertEqual(probes, [f"probe {policy} {cells}" for cells in (512, 2048)])

    def test_what_another_length_than_the_shortest_would_refuse_is_refused_before_anything_is_measured(self):
        takes = {"cpu:k=q4_0,v=q4_0": (512, 2048)}
        self.evaluate(*takes, contexts=[512, 2048], tasks=[], takes=takes)
        for more, words in (({"contexts": [128, 2048], "tasks": []}, "256 tokens, which --contexts 128 takes"),
                            ({"generation": True, "tasks": []}, "2304 tokens, which generation after 2048 tokens"),
                            ({"task_contexts": [512, 2048]}, "2304 tokens, which the task needle of 2048 tokens")):
            with self.assertRaisesRegex(Failure, f"(?s)made for 512 to 2048 tokens.*{words}"):
                self.evaluate(*takes, **{"contexts": [512, 2048], "takes": takes} | more)
            self.assertEqual([asked for asked in self.host.asked if not asked.startswith("probe")], [], words)

    def test_what_is_kept_is_no_work(self):
        self.evaluate(ROW)
        self.evaluate(ROW)
        self.evaluate(ROW, "cpu:k=q4_0", contexts=[128])
        (expected, done), again, (more, more_done) = self.works
        self.assertEqual(done, expected)
        self.assertEqual(again, (0, 0))
        self.assertEqual(more_done, more)
        needle = 4 * (256 + 100)
        self.assertEqual((expected, more), (3 * 128 * COUNT + 3 * needle, 2 * 128 * COUNT + needle))

    def test_lengths_that_the_model_does_not_know_are_said(self):
        _, said, _ = self.evaluate(contexts=[128, 512], task_contexts=[256, 400])
        notes = [line for line in said.splitlines() if line.startswith("note")]
        beyond = f"the model was trained on contexts of {TRAINED} tokens"
        self.assertEqual(notes, [f"note: --contexts: {beyond}, 512 is beyond",
                                 f"note: --task-contexts: {beyond}, 400 is beyond"])

    def test_a_model_without_a_chat_template_is_asked_the_rest(self):
        reason = "the model has no chat template"
        with mock.patch.object(MadeMeasure, "no_chat", reason):
            results, said, _ = self.evaluate(ROW, tasks=["needle", "chat"])
        self.assertEqual([task["task"] for task in results["tasks"]], ["needle"])
        self.assertEqual(results["refused"], [{"name": "all configurations", "what": "chat", "refused": reason}])
        self.assertIn(f"note: --tasks chat: {reason}; it is left out", said)
        self.assertIn(reason, report.markdown(results))

    def test_rows_of_another_tool_come_with_them(self):
        found = made_others()
        path = self.folder / "others.json"
        path.write_text(json.dumps(found))
        with self.assertRaisesRegex(Failure, "others.json is of made-up.gguf"):
            self.evaluate(ROW, tasks=[], others=[path])
        self.assertEqual([asked for asked in self.host.asked if not asked.startswith("probe")], [], "it was measured")
        model, text = ((self.folder / name).read_bytes() for name in ("model.gguf", "text.txt"))
        found["model"]["sha256"] = hashlib.sha256(model).hexdigest()
        found["text"] |= {"sha256": hashlib.sha256(text).hexdigest(), "part": "all"}
        path.write_text(json.dumps(found))
        results, _, asked = self.evaluate(ROW, tasks=[], others=[path])
        self.assertIn("base 128 0", asked)
        self.assertEqual([row["role"] for row in results["rows"][-2:]], ["other", "other"])
        self.assertEqual(results["command"][-4:], ["--with", "others.json", "--no-generation", ROW])
        self.assertEqual(json.loads((self.folder / "out" / "results.json").read_text()), results)
        path.write_text("[]")
        with self.assertRaisesRegex(Failure, "others.json, the whole"):
            self.evaluate("cpu:k=q4_0", tasks=[], others=[path])
        self.assertEqual(self.host.asked, [])

    def test_the_command_says_when_a_difference_is_decided(self):
        for sigmas, said in ((None, []), (0.0, ["--until-decided", "0"]), (3.0, ["--until-decided", "3"])):
            results, _, _ = self.evaluate(tasks=[], sigmas=sigmas)
            words = results["command"]
            found = words.index("--until-decided") if "--until-decided" in words else len(words)
            self.assertEqual(words[found:found + 2], said)

    def test_fresh_forgets_what_was_kept(self):
        self.evaluate(tasks=[])
        _, _, asked = self.evaluate(tasks=[], fresh=True)
        self.assertIn("base 128 0", asked)


class Command(unittest.TestCase):
    def test_a_folder_that_cannot_be_written_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "results.json").write_text(json.dumps(made_results(contexts=(128,), needle=False)))
            taken = Path(folder) / "taken"
            taken.write_text("a file")
            done = subprocess.run([sys.executable, "-B", "-m", "winnow_eval", "eval", "--from", folder, "--out", taken],
                                  capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(FOLDER)})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(str(taken), done.stderr)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
