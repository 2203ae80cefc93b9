"""The needle test with made-up models: which questions are asked, what counts, what is kept.

    needle_test.py        needs the standard library alone
"""

import re
import sys
import tempfile
import unittest
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import Failure, haystack, resident, needle  # noqa: E402
from winnow_eval.configs import Config  # noqa: E402
from winnow_eval.host import Run  # noqa: E402
from winnow_eval.store import Store  # noqa: E402

CHARACTERS = 5  # of a token of the made-up model
LAYERS = 2
BASE = Config("base", "winnow")
WEAK = Config("weak", "winnow", "q4_0", "q4_0")
POLICY = Config("window:budget=1/2", "winnow", kv="window:budget=1/2")


class Progress:
    """Notes what is said."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    @contextmanager
    def step(self, label, units):
        yield lambda share: None


class Model:
    """Stands for llama.cpp: reads the whole prompt with BASE, only its second half with WEAK; knows no Oskar."""

    batch, ubatch = 512, 256
    model_sha256, version = "0", "made up"

    def __init__(self):
        self.runs = 0
        self.unknown = ()
        self.miscount = 0
        self.ignores_decoding = False

    def identity(self, config):
        return {"config": config.settings()}

    def run_program(self, program, arguments, config, on_line=None):
        assert program == "llama-completion"
        options = dict(zip(arguments, arguments[1:]))
        prompt = Path(options["-f"]).read_text()
        tokens = len(prompt) // CHARACTERS
        if options["-n"] == 0:
            return Run("", f"main: number of tokens in prompt = {tokens}\n", None, 0.1, 1)
        assert tokens <= options["-c"] - options["-n"], "the prompt does not fit"
        self.runs += 1
        seen = prompt if config is BASE else prompt[len(prompt) // 2:]
        question = prompt[prompt.rindex("The pass number"):]
        person = question.split()[4]
        match = re.search(re.escape(question) + r" (\d+)", seen)
        text = f" {match[1]}. The" if match and person not in self.unknown else " a secret. It was 12"
        runs = options["-n"] - 1
        calls = -(-tokens // self.ubatch) + runs + self.miscount
        layers = {f"cache_{kind}_l{layer}": {"type": getattr(config, kind), "attention_calls": calls}
                  for kind in "kv" for layer in range(LAYERS)}
        report = {"tensors": layers, "attention_calls": calls * LAYERS, "sdpa_calls": calls * LAYERS}
        pieces = ""
        if config.kv:
            environment = dict(config.environment)
            assert "--verbose-prompt" in arguments and environment.pop("WINNOW_REPORT_WITH") == "resident"
            position = int(environment.pop("WINNOW_DECODE_FROM"))
            assert position == len(prompt.removesuffix(question).rstrip()) // CHARACTERS and not environment
            decoded = 0 if self.ignores_decoding else tokens - position + runs
            words = re.findall(r" ?[^ ]+", prompt)
            pieces = f"number of tokens in prompt = {len(words)}\n" + "".join(
                f"0.01 I   {number} -> '{word}'\n" for number, word in enumerate(words))
            # The second layer's second head holds the words of the second half, the others hold everything.
            newest = list(range(len(re.findall(r" ?[^ ]+", prompt[:len(prompt) // 2])), len(words)))
            all_words = list(range(len(words)))
            report |= {"sdpa_calls": 0, "caches": [{
                "name": "cache_k_l0", "steps": calls * LAYERS, "decoded": decoded,
                "resident": [[[all_words, all_words], [all_words, newest]]]}]}
        times = (f"prompt eval time = 10.0 ms / {tokens} tokens\n"
                 f"       eval time = 10.0 ms / {runs} runs\n")
        return Run(text, pieces + times, report, 0.1, 1)


class Texts(unittest.TestCase):
    def test_the_fact_is_there_once_and_asked_for_at_the_end(self):
        for depth in (0, 0.5, 1):
            trial = haystack.trial(512, depth, 0, CHARACTERS)
            self.assertTrue(trial.prompt.endswith(trial.question))
            self.assertEqual(re.findall(r"\d+", trial.prompt), [trial.answer])
            where = trial.prompt.index(trial.answer) / len(trial.prompt)
            self.assertAlmostEqual(where, depth, delta=0.15)
            self.assertLessEqual(len(trial.prompt), 512 * CHARACTERS)
            self.assertGreater(len(trial.prompt), 0.9 * 512 * CHARACTERS)

    def test_the_same_name_gives_the_same_text_and_another_another(self):
        trial = haystack.trial(256, 0.25, 1, CHARACTERS)
        self.assertEqual(trial, haystack.trial(256, 0.25, 1, CHARACTERS))
        self.assertNotEqual(trial.prompt, haystack.trial(256, 0.25, 2, CHARACTERS).prompt)

    def test_the_filler_is_not_one_sentence_again_and_again(self):
        sentences = haystack.filler(haystack.generator("test"), 20000)
        self.assertGreater(len(set(sentences)), 0.95 * len(sentences))


class Plan(unittest.TestCase):
    def test_at_least_as_many_as_wanted(self):
        for contexts in ([512], [512, 1024], [512, 1024, 2048]):
            for trials in (1, 2, 3, 7, 45, 46, 100):
                depths, number = needle.plan(contexts, trials)
                self.assertGreaterEqual(len(contexts) * len(depths) * number, trials)
                self.assertTrue(all(0 <= depth <= 1 for depth in depths))
        self.assertEqual(needle.plan([512, 1024, 2048], 45), ([0, 0.25, 0.5, 0.75, 1], 3))
        self.assertEqual(needle.plan([256], 2), ([0, 1], 1))

    def test_what_cannot_be_is_refused(self):
        for contexts, trials, words in (([512, 64], 45, "64 tokens, expected at least 128"),
                                        ([512], 0, "needle trials: 0")):
            with self.assertRaisesRegex(Failure, words):
                needle.plan(contexts, trials)


class Answers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model, self.progress = Model(), Progress()

    def ask(self, configs, contexts=(256, 512), trials=12):
        self.store = Store(self.folder)
        return needle.run(self.model, self.store, configs, BASE, list(contexts), trials, self.progress)

    def test_a_cache_that_forgets_the_first_half_finds_the_second(self):
        results = self.ask([BASE, WEAK], trials=20)
        full, weak = results["results"]
        self.assertEqual((full["retrieved"], full["trials"]), (20, 20))
        for trial in results["trials"]:
            if trial["depth"] != 0.5:
                self.assertEqual(weak["answers"][trial["id"]]["correct"], trial["depth"] > 0.5, trial)
        self.assertEqual(weak["retrieved"], sum(answer["correct"] for answer in weak["answers"].values()))

    def test_the_first_number_counts(self):
        self.assertEqual(needle.first_number(" 4827. The 11"), "4827")
        self.assertEqual(needle.first_number("48271"), "48271")
        self.assertIsNone(needle.first_number("a secret"))

    def test_only_what_the_full_cache_answers_counts(self):
        self.model.unknown = haystack.NAMES[::2]
        results = self.ask([BASE, WEAK])
        refused = [trial for trial in results["trials"] if not trial["full_cache_answers"]]
        self.assertTrue(refused)
        for result in results["results"]:
            self.assertFalse({trial["id"] for trial in refused} & set(result["answers"]))
        self.assertEqual(results["results"][0]["retrieved"], results["results"][0]["trials"])

    def test_a_cell_that_cannot_be_filled_is_said(self):
        self.model.unknown = haystack.NAMES
        results = self.ask([WEAK], trials=2)
        self.assertEqual(results["results"][0]["trials"], 0)
        self.assertIn("answers 0 of 4 questions; 1 were wanted", self.progress.said[0])

    def test_a_further_configuration_asks_only_for_its_own(self):
        first = self.ask([BASE])
        asked = self.model.runs
        second = self.ask([BASE, WEAK])
        self.assertEqual(self.model.runs - asked, second["results"][1]["trials"])
        self.assertEqual(first["results"][0], second["results"][0])
        self.ask([BASE, WEAK])
        self.assertEqual(self.model.runs - asked, second["results"][1]["trials"])
        self.assertGreater(self.store.kept, asked)

    def test_an_interruption_loses_one_answer(self):
        whole = Model.run_program

        def interrupted(*arguments):
            if self.model.runs == 5:
                raise KeyboardInterrupt
            return whole(self.model, *arguments)

        self.model.run_program = interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.ask([BASE, WEAK])
        del self.model.run_program
        results = self.ask([BASE, WEAK])
        fresh, other = Model(), tempfile.mkdtemp(dir=self.folder)
        self.assertEqual(results, needle.run(fresh, Store(other), [BASE, WEAK], BASE, [256, 512], 12, Progress()))
        self.assertEqual(self.model.runs, fresh.runs)

    def test_what_a_policy_resident_of_the_facts(self):
        results = self.ask([BASE, POLICY], contexts=[512], trials=10)
        full, policy = results["results"]
        self.assertFalse(any("resident" in answer for answer in full["answers"].values()))
        for trial in results["trials"]:
            answer = policy["answers"][trial["id"]]
            self.assertEqual(answer["resident"]["tokens"], 7)  # The pass number of NAME is NUMBER.
            if trial["depth"] != 0.5:
                self.assertEqual(answer["resident"]["layers"], [[7, 7], [7, 7 if answer["correct"] else 0]])
        early = [policy["answers"][trial["id"]] for trial in results["trials"] if trial["depth"] < 0.5]
        self.assertEqual(resident.shares(early), [[1, 1], [1, 0]])
        self.assertEqual(resident.mean(early), 0.75)

    def test_a_question_that_was_not_decoded_is_refused(self):
        self.model.ignores_decoding = True
        with self.assertRaisesRegex(Failure, "cache_k_l0 took 0 tokens one at a time"):
            self.ask([BASE, POLICY], contexts=[512], trials=1)

    def test_attention_elsewhere_is_refused(self):
        self.model.miscount = -1
        with self.assertRaisesRegex(Failure, "base: Winnow attended .* expected"):
            self.ask([BASE])


class Held(unittest.TestCase):
    PIECES = ("So", " it", "'s 4", "8", "27. The", " end", " it's 5")
    LOG = "0.0 I   1 -> 'So it'\n0.0 I main: number of tokens in prompt = 6\n" + "".join(
        f"0.0{number} I  {number * 7} -> '{piece}'\n" for number, piece in enumerate(PIECES))

    def test_tokens_that_hold_a_part(self):
        self.assertEqual(resident.tokens_of("it's 4827.", self.LOG), [1, 2, 3, 4])
        self.assertEqual(resident.tokens_of("8", self.LOG), [3])

    def test_a_prompt_without_the_fact_is_refused(self):
        with self.assertRaisesRegex(Failure, "6 tokens of the prompt, and \"it's 5\" is not"):
            resident.tokens_of("it's 5", self.LOG)

    def test_a_plugin_that_does_not_report_it(self):
        with self.assertRaisesRegex(Failure, "WINNOW_REPORT_WITH"):
            resident.counts({"caches": [{}]}, [1])

    def test_nobody_looked(self):
        self.assertIsNone(resident.mean([{"correct": True}]))


if __name__ == "__main__":
    unittest.main()
