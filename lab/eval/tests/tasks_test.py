"""Tasks with a made-up model: which questions are asked, what counts, what is kept.

    tasks_test.py        needs the standard library alone
"""

import ast
import re
import sys
import tempfile
import unittest
from dataclasses import asdict, replace
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from made_progress import Progress  # noqa: E402
from winnow_eval import Failure, haystack, identifiers, measure, report, resident, tasks  # noqa: E402
from winnow_eval.configs import BASE, Config  # noqa: E402
from winnow_calibrate.host import Run  # noqa: E402
from winnow_eval.measure import Answered  # noqa: E402
from winnow_eval.store import Store  # noqa: E402

CHARACTERS = 5  # of a token of the made-up model
LAYERS = 2
WEAK = Config("weak", "winnow", "q4_0", "q4_0")
POLICY = Config("window:budget=1/2", "winnow", kv="window:budget=1/2")
NUMBER = re.compile(r"(?:The|One of the) pass numbers? of ([\w ]+) is (\d+)")


class Host:
    """Counts what its process is asked. `unknown`: people of whom the full cache knows nothing."""

    model = model_sha256 = "0"
    version = "made up"
    ubatch = 256

    def __init__(self):
        self.runs, self.unknown, self.miscount, self.ignores_decoding = 0, (), 0, False
        self.stops_at, self.profile = None, ""

    def identity(self, config):
        return {"config": config.settings()}


def answer_of(seen, cue, unknown):
    """What a model that reads `seen` says after it."""
    name = re.search(r"pass numbers? of (?:the )?([\w ]+?)(?: is|\?|, one)", cue)
    if name is None:  # an identifier
        known = re.search(r"[a-z]+_$", cue)[0]
        found = re.search(rf"\b{known}([a-z_]+)\b", seen)
        return f"{found[1]}(" if found else "nothing("
    found = [number for person, number in NUMBER.findall(seen) if person.removeprefix("the ") == name[1]]
    if not found or name[1] in unknown:
        return " a secret. It was 12."
    return f" {', '.join(found)}. The"


class Measure:
    """Stands for winnow-measure: a full cache reads all, WEAK and POLICY the second half of what came so far."""

    def __init__(self, host, model):
        self.host = host

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def count_tokens(self, text):
        return len(text) // CHARACTERS

    def answer(self, config, dialogue):
        host = self.host
        if host.runs == host.stops_at:
            raise KeyboardInterrupt
        host.runs += 1
        is_full = config.settings() == BASE.settings()
        so_far, texts, tokens, batches = "", [], [], 0
        for turn in dialogue["turns"]:
            part = turn["text"] + turn["question"] + turn["prefix"]
            so_far += part
            tokens.append(len(part) // CHARACTERS)
            seen = so_far if is_full else so_far[len(so_far) // 2:]
            text = answer_of(seen, turn["question"] + turn["prefix"], host.unknown)
            text = text.partition(dialogue["until"])[0] + dialogue["until"] if dialogue["until"] else text
            texts.append(text)
            so_far += text
            batches += -(-tokens[-1] // host.ubatch) + dialogue["generate"]
        assert sum(tokens) + dialogue["generate"] <= dialogue["cells"], "it does not fit"
        evaluated = sum(tokens) + len(texts) * dialogue["generate"]
        first = dialogue["turns"][0]
        question = len(first["text"]) // CHARACTERS
        whole = first["text"] + first["question"]
        found = [list(range(whole.index(part) // CHARACTERS, (whole.index(part) + len(part)) // CHARACTERS + 1))
                 for part in dialogue["find"]]
        calls = batches + host.miscount
        layers = {f"cache_{kind}_l{layer}": {"type": getattr(config, kind), "attention_calls": calls}
                  for kind in "kv" for layer in range(LAYERS)}
        made = {"tensors": layers, "attention_calls": calls * LAYERS, "sdpa_calls": calls * LAYERS, "caches": []}
        if config.kv:
            assert dialogue["decode"]
            decoded = 0 if host.ignores_decoding else evaluated - question
            made |= {"sdpa_calls": 0, "caches": [{"name": "cache_k_l0", "profile_file": host.profile,
                                                    "steps": calls * LAYERS, "decoded": decoded}]}
            if resident.ENVIRONMENT in config.environment:
                # The second layer's second head holds what comes in the second half, the others hold everything.
                every, newest = list(range(evaluated)), list(range(tokens[0] // 2, evaluated))
                made["caches"][0]["resident"] = [[[every, every], [every, newest]]]
        return Answered(texts, tokens[0], question, evaluated, found, batches, Run("", "", made, 0.1, 1))


class Texts(unittest.TestCase):
    def test_a_needle_is_there_once_and_asked_for_at_the_end(self):
        for make, asked in ((haystack.needle, 512), (haystack.chat_needle, 512 - haystack.CHAT)):
            for depth in (0, 0.5, 1):
                trial = make(512, depth, 0, CHARACTERS)
                (text, question, prefix), = trial.turns
                self.assertEqual(re.findall(r"\d+", text), [trial.answers[0][0]])
                self.assertAlmostEqual(text.index(trial.facts[0]) / len(text), depth, delta=0.15)
                self.assertLessEqual(len(text + question + prefix), 512 * CHARACTERS)
                self.assertGreater(len(text), 0.85 * asked * CHARACTERS)

    def test_a_table_has_each_key_once(self):
        for context in (256, 2048):
            trial = haystack.lookup(context, 0.5, 0, CHARACTERS)
            (text, question, _), = trial.turns
            found = NUMBER.findall(text)
            self.assertEqual(len(dict(found)), len(text.splitlines()))
            key = re.search(r"of ([\w ]+) is$", question)[1]
            self.assertEqual((dict(found)[key],), trial.answers[0])
            self.assertAlmostEqual(text.index(trial.facts[0]) / len(text), 0.5, delta=0.1)
            self.assertTrue(0.85 * context < len(text) / CHARACTERS < context)

    def test_several_values_of_one_key(self):
        trial = haystack.several(512, 0, CHARACTERS)
        text = trial.turns[0][0]
        self.assertEqual([number for _, number in NUMBER.findall(text)], list(trial.answers[0]))
        self.assertEqual(len(set(trial.answers[0])), haystack.VALUES)
        self.assertTrue(all(fact in text for fact in trial.facts))

    def test_each_fact_of_a_conversation_is_in_its_opening_and_asked_for_once(self):
        made = haystack.conversation(512, 3, CHARACTERS)
        facts = dict(NUMBER.findall(made.turns[0][0]))
        asked = [re.search(r"of (\w+) is$", question)[1] for _, question, _ in made.turns]
        self.assertEqual(sorted(facts), sorted(asked))
        self.assertEqual([facts[name] for name in asked], [answer for answer, in made.answers])
        self.assertFalse(any(NUMBER.search(text) for text, _, _ in made.turns[1:]))
        whole = sum(len(text + question) for text, question, _ in made.turns)
        self.assertTrue(0.8 * 512 < whole / CHARACTERS <= 512, whole / CHARACTERS)

    def test_an_identifier_comes_again_from_far(self):
        for count in range(5):
            trial = identifiers.trial(512, count, 3)
            (text, question, _), = trial.turns
            known = re.search(r"[a-z]+_$", question)[0]
            name = known + trial.answers[0][0]
            before = text + question[:-len(known)]
            self.assertLessEqual(before.rindex(name), (1 - identifiers.FAR) * len(before))
            self.assertTrue(trial.facts[0].endswith(name))
            self.assertEqual(before.count(trial.facts[0]), 1 if before.rindex(name) == before.index(name) else
                             before.count(trial.facts[0]))
            self.assertEqual(before.index(trial.facts[0]) + len(trial.facts[0]), before.rindex(name) + len(name))
            self.assertTrue(0.85 * 512 < len(text + question) / 3 <= 512)

    def test_the_same_name_gives_the_same_text_and_another_another(self):
        for task in tasks.TASKS.values():
            make = (lambda number: task.make(256, 0.25, number, CHARACTERS)) if task.has_depths else (
                lambda number: task.make(256, number, CHARACTERS))
            self.assertEqual(make(1), make(1))
            self.assertNotEqual(make(1).turns, make(2).turns)
            self.assertNotEqual(make(1).id, make(2).id)

    def test_the_filler_is_not_one_sentence_again_and_again(self):
        sentences = haystack.filler(haystack.generator("test"), 20000)
        self.assertGreater(len(set(sentences)), 0.95 * len(sentences))

    def test_the_code_is_code(self):
        self.assertGreater(len([ast.parse(source) for source in identifiers.sources().values()]), 50)


class Plan(unittest.TestCase):
    def test_at_least_as_many_as_wanted(self):
        for task in tasks.TASKS.values():
            turns = haystack.TURNS if task.name == "conversation" else 1
            for contexts in ([512], [512, 1024], [512, 1024, 2048]):
                for trials in (1, 2, 3, 7, 45, 46, 100):
                    depths, number = tasks.plan(task, contexts, trials)
                    self.assertGreaterEqual(len(contexts) * len(depths) * number * turns, trials)
                    self.assertEqual(depths == [None], not task.has_depths)
        needle = tasks.TASKS["needle"]
        self.assertEqual(tasks.plan(needle, [512, 1024, 2048], 45), ([0, 0.25, 0.5, 0.75, 1], 3))
        self.assertEqual(tasks.plan(needle, [256], 2), ([0, 1], 1))

    def test_the_shortest_and_the_longest_context_have_room_for_the_answers(self):
        self.assertEqual(tasks.lengths([], [512]), [])
        self.assertEqual(tasks.lengths(["needle", "several"], [2048, 512, 1024]),
                         [(588, "the task needle of 512 tokens"), (2124, "the task needle of 2048 tokens"),
                          (640, "the task several of 512 tokens"), (2176, "the task several of 2048 tokens")])
        of_talk = [cells for cells, _ in tasks.lengths(["conversation"], [512])]
        self.assertEqual(of_talk, [512 + tasks.ROOM + 4 * 12, 512 + 2 * tasks.ROOM + 12], "not all that is read anew")
        for name, task in tasks.TASKS.items():
            self.assertGreater(tasks.lengths([name], [256])[0][0], 256 + tasks.ROOM, name)

    def test_what_cannot_be_is_refused(self):
        for names, contexts, trials, words in (
                (["needle"], [512, 64], 45, "--task-contexts: 64 tokens, expected at least 128"),
                (["needle"], [512], 0, "--task-trials: 0"),
                (["needle", "haystack"], [512], 1, "--tasks: \"haystack\", expected needle, chat,")):
            with self.assertRaisesRegex(Failure, words):
                tasks.check(names, contexts, trials)
        tasks.check([], [64], 45)


class Answers(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.host, self.progress = Host(), Progress()
        self.enterContext(mock.patch.object(measure, "Measure", Measure))
        self.measure = self.enterContext(mock.patch.object(tasks.measure, "identity", return_value="a program"))

    def asking(self, configs, contexts=(256, 512), trials=12, names=("needle",)):
        return tasks.Asking(self.host, Store(self.folder), configs, list(names), list(contexts), trials)

    def ask(self, *arguments, **more):
        asking = self.asking(*arguments, **more)
        self.work = sum(tasks.work_left(asking).values())
        self.store = asking.store
        with measure.Process(asking.host) as process:
            found = tasks.run(asking, process, self.progress)
        self.assertEqual(sum(tasks.work_left(asking).values()), 0)
        return found

    def test_a_cache_that_forgets_the_first_half_finds_the_second(self):
        for name in ("needle", "chat", "lookup"):
            task, = self.ask([BASE, WEAK], trials=20, names=[name])
            full, weak = task["results"]
            self.assertEqual((full["retrieved"], full["trials"]), (20, 20), name)
            for trial in task["trials"]:
                if trial["depth"] != 0.5:
                    self.assertEqual(weak["answers"][trial["id"]]["found"], [[trial["depth"] > 0.5]], (name, trial))
            self.assertTrue(0 < weak["retrieved"] < 20)

    def test_each_of_several_values_counts(self):
        task, = self.ask([BASE, WEAK, POLICY], trials=4, names=["several"])
        full, weak, policy = task["results"]
        self.assertEqual((full["retrieved"], full["trials"]), (16, 16))
        self.assertEqual(weak["trials"], 16)
        self.assertTrue(4 <= weak["retrieved"] <= 8, weak["retrieved"])  # the values of the second half
        self.assertEqual(policy["retrieved"], weak["retrieved"])
        self.assertAlmostEqual(resident.mean(policy["answers"].values()), 0.875, delta=0.05)

    def test_identifiers(self):
        task, = self.ask([BASE, WEAK], trials=4, names=["code"], contexts=[512])
        full, weak = task["results"]
        self.assertEqual(full["retrieved"], full["trials"])
        self.assertLess(weak["retrieved"], weak["trials"])

    def test_what_a_right_answer_is(self):
        self.assertEqual(tasks._is_number(" 4827. The 11", ["4827"]), [True])
        self.assertEqual(tasks._is_number("48271", ["4827"]), [False])
        self.assertEqual(tasks._is_number("a secret", ["4827"]), [False])
        self.assertEqual(tasks._has_all("1, 22 and 3", ["22", "4", "1"]), [True, False, True])
        self.assertEqual([tasks._goes_on(text, ["lines"]) for text in ("lines(", "lines", "lines_of(", "line")],
                         [[True], [True], [False], [False]])

    def test_only_what_the_full_cache_answers_counts(self):
        self.host.unknown = haystack.NAMES[::2]
        task, = self.ask([BASE, WEAK])
        refused = [trial for trial in task["trials"] if trial["full_cache_finds"] == [[False]]]
        self.assertTrue(refused)
        for result in task["results"]:
            self.assertFalse({trial["id"] for trial in refused} & set(result["answers"]))
        self.assertEqual(task["results"][0]["retrieved"], task["results"][0]["trials"])

    def test_a_cell_that_cannot_be_filled_is_said(self):
        self.host.unknown = haystack.NAMES
        task, = self.ask([WEAK], trials=2)
        self.assertEqual(task["results"][0]["trials"], 0)
        self.assertIn("needle: at depth 50% of 256 tokens the full cache knows 0 of 4 trials; 1 were wanted",
                      self.progress.said[0])

    def test_a_length_of_which_no_text_can_be_made_leaves_its_cell_short(self):
        self.assertIsNone(identifiers.trial(10**6, 0, CHARACTERS))
        task, = self.ask([BASE, WEAK], trials=8, names=["code"], contexts=[512, 10**6])
        self.assertEqual({trial["context"] for trial in task["trials"]}, {512})
        self.assertEqual(task["results"][0]["trials"], 4)
        self.assertEqual(self.progress.said, ["code: of 1000000 tokens the full cache knows 0 of 0 trials, and no more "
                                              "can be made of this length; 4 were wanted"])
        self.assertIn("0 of 0 at 1000000 tokens", report.full_cache({"tasks": [task]}, "code").replace("\n", " "))

    def test_a_further_configuration_asks_only_for_its_own(self):
        first, = self.ask([BASE])
        asked = self.host.runs
        second, = self.ask([BASE, WEAK])
        self.assertEqual(self.host.runs - asked, second["results"][1]["trials"])
        self.assertEqual(first["results"][0], second["results"][0])
        self.assertEqual(self.work, sum(context + tasks.START_UNITS for context in (256, 512) for _ in range(10)))
        self.ask([BASE, WEAK])
        self.assertEqual(self.host.runs - asked, second["results"][1]["trials"])
        self.assertEqual(self.work, 0)
        self.assertGreater(self.store.kept, asked)

    def test_another_profile_is_asked_for_anew(self):
        profile = Path(self.folder) / "profile.txt"
        profile.write_text("a")
        self.host.profile = str(profile)
        task, = self.ask([BASE, POLICY])
        asked, trials = self.host.runs, task["results"][1]["trials"]
        profile.write_text("b")
        self.ask([BASE, POLICY])
        self.assertEqual(self.host.runs - asked, trials)

    def test_another_program_is_asked_anew(self):
        self.ask([BASE])
        asked = self.host.runs
        self.measure.return_value = "another program"
        self.ask([BASE])
        self.assertEqual(self.host.runs, 2 * asked)

    def test_an_interruption_loses_one_answer(self):
        self.host.stops_at = 5
        with self.assertRaises(KeyboardInterrupt):
            self.ask([BASE, WEAK])
        self.host.stops_at = None
        results = self.ask([BASE, WEAK])
        runs, self.host = self.host.runs, Host()
        self.folder = tempfile.mkdtemp(dir=self.folder)
        self.assertEqual(results, self.ask([BASE, WEAK]))
        self.assertEqual(self.host.runs, runs)

    def test_what_of_the_facts_a_policy_holds(self):
        task, = self.ask([BASE, POLICY], contexts=[512], trials=10)
        full, policy = task["results"]
        self.assertFalse(any("resident" in answer for answer in full["answers"].values()))
        for trial in task["trials"]:
            answer = policy["answers"][trial["id"]]
            if trial["depth"] != 0.5:
                self.assertEqual(answer["resident"]["share"], 1 if trial["depth"] > 0.5 else 0.75)
        early = [policy["answers"][trial["id"]] for trial in task["trials"] if trial["depth"] < 0.5]
        self.assertEqual(resident.mean(early), 0.75)
        tokens = sum(answer["resident"]["tokens"] for answer in policy["answers"].values())
        self.assertEqual(policy["resident"]["tokens"], tokens)
        (first, second), (third, last) = resident.shares(policy["resident"])
        self.assertEqual((first, second, third), (1, 1, 1))
        self.assertTrue(0.3 < last < 0.7, last)
        self.assertAlmostEqual(resident.mean(policy["answers"].values()), (3 + last) / 4)

    def test_a_conversation_that_forgets(self):
        task, = self.ask([BASE, POLICY], contexts=[512], trials=24, names=["conversation"])
        full, policy = task["results"]
        self.assertEqual((full["retrieved"], full["trials"]), (24, 24))
        self.assertLess(policy["retrieved"], 24)
        self.assertEqual(self.host.runs, 3 * 6)  # the policy is asked anew, too
        self.assertTrue(all(answer["as_anew"] for answer in policy["answers"].values()))
        self.assertTrue(all("as_anew" not in answer for answer in full["answers"].values()))
        lines = report.task_table({"rows": [], "tasks": [task]}, "conversation").splitlines()
        self.assertRegex(lines[0], r"\| turn 1 \| .* \| turn 4 \| of the facts resident, % \| last answer")
        self.assertRegex(lines[3], r"^\| `window:budget=1/2` \|.* \| \d\d\.\d \| 6/6 \|$")

    def test_a_question_that_was_not_decoded_is_refused(self):
        self.host.ignores_decoding = True
        with self.assertRaisesRegex(Failure, "cache_k_l0 took 0 tokens one at a time"):
            self.ask([BASE, POLICY], contexts=[512], trials=1)

    def test_attention_elsewhere_is_refused(self):
        self.host.miscount = -1
        with self.assertRaisesRegex(Failure, f"{BASE}: Winnow attended .* expected"):
            self.ask([BASE])

    def test_what_is_kept_belongs_to_its_text(self):
        trial = haystack.needle(256, 0, 0, CHARACTERS)
        other = replace(trial, turns=(("Other words. ", *trial.turns[0][1:]),))
        self.assertNotEqual(tasks._identity(self.host, BASE, trial), tasks._identity(self.host, BASE, other))
        self.assertEqual(asdict(trial)["turns"], trial.turns)


class Held(unittest.TestCase):
    def test_a_plugin_that_does_not_report_it(self):
        with self.assertRaisesRegex(Failure, "WINNOW_REPORT_WITH"):
            resident.counts({"caches": [{}]}, [1])

    def test_nobody_looked(self):
        self.assertIsNone(resident.mean([{"found": [[True]]}]))
        self.assertIsNone(resident.total([]))


if __name__ == "__main__":
    unittest.main()
