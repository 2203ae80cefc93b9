"""Conversations with made-up models: what is typed, what counts, and what is compared with reading anew.

    conversation_test.py        needs the standard library alone
"""

import re
import sys
import tempfile
import unittest
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import conversation, haystack, report  # noqa: E402
from winnow_eval.configs import Config  # noqa: E402
from winnow_eval.host import Run  # noqa: E402
from winnow_eval.store import Store  # noqa: E402

CHARACTERS, CONTEXT, COUNT = 5, 512, 6
BASE = Config("base", "winnow")
POLICY = Config("window:budget=1/4", "winnow", kv="window:budget=1/4")
FACT = re.compile(r"The pass number of (\w+) is (\d+)")


class Progress:
    @contextmanager
    def step(self, *_):
        yield lambda share: None


class Model:
    """Stands for llama.cpp: the base knows all but Oskar; the policy forgets in the third turn if it goes on."""

    model_sha256, version = "0", "made up"

    def __init__(self):
        self.runs = 0

    def identity(self, config):
        return {"config": config.settings()}

    def run_program(self, program, arguments, config, typed=""):
        assert program == "llama-completion"
        options = dict(zip(arguments, arguments[1:]))
        prompt = Path(options["-f"]).read_text()
        words = re.findall(r" ?[^ ]+", prompt)
        log = f"number of tokens in prompt = {len(words)}\n" + "".join(
            f"0.1 I  {number} -> '{word}'\n" for number, word in enumerate(words)) + " eval time = 1.0 ms / 8 runs\n"
        if options["-n"] == 0:
            return Run("", f"number of tokens in prompt = {len(prompt) // CHARACTERS}\n", None, 0.1, 1)
        self.runs += 1
        assert ("-i" in arguments) == bool(typed)
        known = {name: number for name, number in FACT.findall(prompt) if name != "Oskar"}
        answers = []
        for turn, text in enumerate([prompt, *typed.splitlines()]):
            name = re.search(r"The pass number of (\w+) is$", text)[1]
            forgotten = config.kv and turn >= 2
            answers.append(f" {known[name]}." if name in known and not forgotten else " something else.")
        out = conversation.BREAK.join(answers) + (f"{conversation.BREAK}EOF by user" if typed else " The")
        tensors = {f"cache_{kind}_l0": {"type": "f16", "attention_calls": 9} for kind in "kv"}
        made = {"tensors": tensors, "attention_calls": 9, "sdpa_calls": 0 if config.kv else 9}
        if config.kv:
            half = list(range(len(words) // 2, len(words) + 40))
            made["caches"] = [{"name": "cache_k_l0", "steps": 9, "decoded": 9, "resident": [[[half, [0, *half]]]]}]
        return Run(out, log, made, 0.1, 1)


class Texts(unittest.TestCase):
    def test_each_fact_is_in_the_opening_and_asked_for_once(self):
        made = haystack.conversation(CONTEXT, 3, 4, CHARACTERS)
        self.assertEqual(made, haystack.conversation(CONTEXT, 3, 4, CHARACTERS))
        facts = dict(FACT.findall(made.opening))
        asked = [re.search(r"of (\w+) is$", text)[1] for text in (made.opening, *made.turns)]
        self.assertEqual(sorted(facts), sorted(asked))
        self.assertEqual([facts[name] for name in asked], list(made.answers))
        self.assertFalse(any(FACT.search(turn) or "\n" in turn for turn in made.turns))
        whole = len(made.opening) + sum(map(len, made.turns))
        self.assertTrue(0.8 * CONTEXT < whole / CHARACTERS <= CONTEXT, whole / CHARACTERS)


class Answers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store, self.model = Store(folder.name), Model()

    def run_all(self):
        return conversation.run(self.model, self.store, [BASE, POLICY], BASE, CONTEXT, COUNT, Progress())

    def test_what_is_forgotten_in_a_later_turn(self):
        found = self.run_all()
        base, policy = found["results"]
        self.assertEqual(base["retrieved"], base["trials"])
        self.assertEqual(sum(base["trials"]), found["full_cache_answers"])
        self.assertEqual(policy["retrieved"], [*policy["trials"][:2], 0, 0])
        self.assertNotIn("resident", base)
        self.assertAlmostEqual(policy["resident"], 0.5, delta=0.02)
        # Reading anew gives the last fact, which going on did not, where the model knows it at all.
        self.assertEqual(policy["same_as_fresh"], COUNT - policy["trials"][-1])

    def test_a_second_run_asks_nothing(self):
        first = self.run_all()
        runs = self.model.runs
        self.assertEqual(runs, 3 * COUNT)
        self.assertEqual(self.run_all(), first)
        self.assertEqual(self.model.runs, runs)

    def test_the_table(self):
        lines = report.conversation_table({"rows": [], "conversation": self.run_all()}).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertTrue(lines[2].endswith("| - | - |"), lines[2])
        self.assertRegex(lines[3], r"^\| `window:budget=1/4` \|.* 0/\d \| 0/\d \| (49|50)\.\d \| \d/6 \|$")


if __name__ == "__main__":
    unittest.main()
