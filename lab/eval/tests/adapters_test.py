"""The adapters of other tools, with made-up models in the place of torch and OpenVINO.

    adapters_test.py
"""

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

EVAL = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(EVAL / "adapters"), str(EVAL)]

import kvpress_rows  # noqa: E402
import launch  # noqa: E402
import llama_tokens  # noqa: E402
import openvino_answers  # noqa: E402
import openvino_tasks  # noqa: E402
import rows  # noqa: E402
import torch_plan  # noqa: E402
from made_progress import Progress  # noqa: E402
from made_results import made_results  # noqa: E402
from winnow_eval import Failure, others, report, store, tasks  # noqa: E402

CONTEXT, COUNT, SCORED = 128, 2, 63
TOKEN_BYTES = 40
DIGEST = "0" * 64
TEXT = ("made-up.txt", {"sha256": "1" * 64, "part": "second", "measured_sha256": "2" * 64})


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.store = store.Store(self.folder / "out")

    @contextlib.contextmanager
    def fails(self, *words):
        with self.assertRaises(Failure) as raised:
            yield
        for word in words:
            self.assertIn(word, str(raised.exception))


class Statistics(Folder):
    """Two contexts whose figures can be reckoned by hand."""

    def parts(self):
        def scores(nll, kld, same):
            return {"nll": [nll] * SCORED, "nll_base": [2.0] * SCORED, "kld": [kld] * SCORED,
                    "same_top": [1] * same + [0] * (SCORED - same)}

        return [rows.part(CONTEXT, scores(2.1, 0.1, 63), 640, 2.0), rows.part(CONTEXT, scores(2.3, 0.3, 42), 1280, 6.0)]

    def test_figures(self):
        made = rows.summary(self.parts())
        self.assertEqual((made["context"], made["contexts"], made["scored_tokens"]), (CONTEXT, 2, 2 * SCORED))
        self.assertEqual((made["kv_bytes"], made["kv_bytes_per_token"]), (1280, 10))  # of the larger one
        expected = {"ppl": math.exp(2.2), "ppl_base": math.exp(2), "ppl_increase_percent": 100 * math.expm1(0.2),
                    "ppl_increase_se": 100 * math.exp(0.2) * 0.1, "kld": 0.2, "kld_se": 0.1, "kld_p99": 0.3,
                    "same_top_percent": 250 / 3, "same_top_se": 50 / 3, "prompt_tokens_per_second": 32}
        for key, value in expected.items():
            self.assertAlmostEqual(made[key], value, msg=key)
        for key, values in {"ln_ratio": [0.1, 0.3], "kld": [0.1, 0.3], "same_top": [100, 200 / 3]}.items():
            for one, value in zip(made["per_context"][key], values, strict=True):
                self.assertAlmostEqual(one, value, msg=key)
        for key in rows.WINNOWS:
            self.assertNotIn(key, made)

    def test_the_last_bits_of_nothing_are_not_negative(self):
        parts = [part | {"kld": -1e-17} for part in self.parts()]
        self.assertEqual(rows.summary(parts)["kld"], 0)

    def test_a_token_that_is_missing(self):
        with self.fails("kld", "62 tokens", "expected 63"):
            rows.part(CONTEXT, {"kld": [0.1] * 62}, 0, 1.0)

    def test_the_file_is_one_that_winnow_eval_reads(self):
        path = self.folder / "new" / "made.json"
        row = {"name": "tool:a", "context": CONTEXT, "mode": "batch"} | rows.summary(self.parts())
        refused = {"name": "tool:b", "context": CONTEXT, "mode": "decode", "refused": "it does not"}
        rows.write(path, ("tool", "1.0"), rows.command("tool", ["--model", Path("/somewhere/m.gguf"), "--count", 2]),
                   ("m.gguf", DIGEST), TEXT, [row, refused], [{"task": "needle", "name": "tool:a", "retrieved": 1,
                                                               "trials": 2}], ["it is made up"])
        found = others.read(path)
        self.assertEqual(found["command"], ["tool", "--model", "m.gguf", "--count", "2"])
        self.assertEqual(found["text"], {"file": "made-up.txt"} | TEXT[1])
        self.assertEqual(found["rows"], json.loads(json.dumps([row, refused])))
        self.assertEqual([one.name for one in path.parent.iterdir()], ["made.json"])

    def test_what_winnow_eval_would_not_read_is_not_written(self):
        path = self.folder / "made.json"
        path.write_text("the old one")
        with self.fails("rows[0]", others.SCHEMA):
            rows.write(path, ("tool", "1.0"), [], ("m.gguf", DIGEST), TEXT, [{"name": "tool:a", "context": 2}])
        self.assertEqual(path.read_text(), "the old one")


class Refusal(Exception):
    pass


class MadeModel:
    """In the place of a model in torch; `asked` has what was run."""

    def __init__(self, refuses=(), reason=None, control=0.0):
        self.refuses, self.reason, self.control, self.asked = refuses, reason, control, []

    def why_not(self):
        return self.reason

    def base(self, tokens, first_scored):
        self.asked.append(("base", tokens[0]))
        return SimpleNamespace(tokens=tokens, nll=[2.0] * (len(tokens) - first_scored - 1))

    def run(self, row, base):
        self.asked.append((row.name, row.mode, base.tokens[0]))
        if row.press in self.refuses:
            raise Refusal("it cannot")
        kld = 0.2 if row.press else self.control
        held = (row.kept(64) + (0 if row.mode == "decode" else 64)) * TOKEN_BYTES
        scores = {"nll": [2.0 + kld] * SCORED, "kld": [kld] * SCORED, "same_top": [1] * SCORED}
        return SimpleNamespace(scores=scores, seconds=2.0, scored_seconds=0.5, resident_at_most=held,
                               held_after_prompt=row.kept(64) * TOKEN_BYTES)


class Kvpress(Folder):
    def plan(self, *presses, modes=("batch",), keep="32", interval=None, versions="1"):
        found = kvpress_rows.planned([kvpress_rows.parse_press(press) for press in presses], keep, interval, modes,
                                     CONTEXT)
        tokens = torch_plan.contexts_of(list(range(10, 10 + COUNT * CONTEXT)), None, CONTEXT, COUNT)
        return torch_plan.Plan("kvpress", self.store, {CONTEXT: (found, tokens)}, {"versions": versions})

    def measured(self, model, *presses, **options):
        plan = self.plan(*presses, **options)
        plan.run(lambda: model, Refusal, Progress())
        return {(row["name"], row["mode"]): row for row in plan.finished()}

    def test_contexts_are_cut_as_winnow_measure_does(self):
        self.assertEqual(torch_plan.contexts_of([5, 6, 7, 8, 9], None, 2, 2), [[5, 6], [7, 8]])
        self.assertEqual(torch_plan.contexts_of([5, 6, 7, 8, 9], 1, 2, 2), [[1, 6], [1, 8]])

    def test_rows(self):
        model = MadeModel()
        found = self.measured(model, "tova", "snapkv:window_size=16", modes=("batch", "decode"))
        self.assertEqual(list(found), [
            ("kvpress:none", "batch"), ("kvpress:tova,keep=32", "batch"),
            ("kvpress:snapkv,window_size=16,keep=32", "batch"), ("kvpress:none", "decode"),
            ("kvpress:tova,keep=32,interval=8", "decode"),
            ("kvpress:snapkv,window_size=16,keep=32,interval=8", "decode")])
        row = found["kvpress:tova,keep=32", "batch"]
        self.assertEqual((row["kv_bytes"], row["kv_bytes_after_prompt"]), (96 * TOKEN_BYTES, 32 * TOKEN_BYTES))
        self.assertAlmostEqual(row["kld"], 0.2)
        self.assertAlmostEqual(row["ppl_base"], math.exp(2))
        decoded = found["kvpress:tova,keep=32,interval=8", "decode"]
        self.assertEqual(decoded["kv_bytes_after_prompt"], 24 * TOKEN_BYTES)  # what an interval fills up
        self.assertEqual(decoded["generation_tokens_per_second"], 128)
        self.assertEqual(len(model.asked), COUNT * 7)

    def test_an_interruption_loses_one_context(self):
        model = MadeModel()
        run = model.run

        def interrupted(row, base):
            if base.tokens[0] != 10 and row.press:
                raise KeyboardInterrupt
            return run(row, base)

        model.run = interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.measured(model, "tova")
        again = MadeModel()
        self.measured(again, "tova")
        self.assertEqual([asked[0] for asked in again.asked], ["base", "kvpress:tova,keep=32"])
        last = MadeModel()
        self.measured(last, "tova")
        self.assertEqual(last.asked, [])
        self.measured(last, "tova", versions="2")
        self.assertEqual(len(last.asked), COUNT * 3)

    def test_a_press_that_fails_is_refused_and_asked_once(self):
        model = MadeModel(refuses=("snapkv",))
        found = self.measured(model, "snapkv", "tova")
        self.assertEqual(found["kvpress:snapkv,keep=32", "batch"], {
            "name": "kvpress:snapkv,keep=32", "context": CONTEXT, "mode": "batch", "refused": "it cannot"})
        self.assertIn("kld", found["kvpress:tova,keep=32", "batch"])
        self.assertEqual(sum(asked[0] == "kvpress:snapkv,keep=32" for asked in model.asked), 1)

    def test_a_model_that_kvpress_does_not_take(self):
        model = MadeModel(reason="not this one")
        found = self.measured(model, "tova")
        self.assertEqual(found["kvpress:tova,keep=32", "batch"]["refused"], "not this one")
        self.assertEqual(found["kvpress:none", "batch"]["refused"], "not this one")
        self.assertEqual(model.asked, [])

    def test_what_compresses_nothing_is_refused(self):
        model = MadeModel()
        found = self.measured(model, "tova", keep="64")
        self.assertIn("nothing of a prompt of 64 tokens", found["kvpress:tova,keep=64", "batch"]["refused"])
        found = self.measured(model, "tova", modes=("decode",), interval=32)
        self.assertIn("no room", found["kvpress:tova,keep=32,interval=32", "decode"]["refused"])
        self.assertFalse(any("tova" in asked[0] for asked in model.asked))

    def test_a_control_run_that_differs(self):
        for wrong in (1e-3, math.nan):
            with self.fails("kvpress:none", "expected less than"):
                self.measured(MadeModel(control=wrong), "tova")

    def test_presses(self):
        self.assertEqual(kvpress_rows.parse_press("snapkv"), ("snapkv", ()))
        self.assertEqual(kvpress_rows.parse_press("expected-attention:n_sink=8,use_vnorm=false,epsilon=0.02"),
                         ("expected-attention", (("n_sink", 8), ("use_vnorm", False), ("epsilon", 0.02))))
        with self.fails("h2o", "expected-attention, keydiff"):
            kvpress_rows.parse_press("h2o")
        for wrong in ("snapkv:", "snapkv:window_size", "snapkv:window_size=x", "snapkv:compression_ratio=0.5"):
            with self.fails(wrong, "window_size=32"):
                kvpress_rows.parse_press(wrong)
        with self.fails("tova", "twice"):
            self.plan("tova", "tova")

    def test_sizes(self):
        self.assertEqual(kvpress_rows.parse_keep("1/4,96", 2048), [512, 96])
        for wrong in ("0", "x", "1/0", "", "1.5", "-1"):
            with self.fails("--keep", "expected"):
                kvpress_rows.parse_keep(wrong, 128)
        for wrong in ("3/2", "129", "1/256"):
            with self.fails("--keep", "of a context of 128"):
                kvpress_rows.parse_keep(wrong, 128)
        with self.fails("--keep", "twice"):
            kvpress_rows.parse_keep("1/4,32", 128)


class MadeVocabulary:
    """In the place of llama.cpp: a token for each character; "~" ends an answer."""

    def of(self, text):
        return [ord(letter) for letter in text]

    def text_of(self, tokens):
        return "".join(map(chr, tokens))

    def eog(self, tokens):
        return [token == ord("~") for token in tokens]


class MadeAnswers:
    """In the place of openvino_answers.Answers: answers with the pass number that the prompt asks for."""

    settings = []  # of all processes
    requests = []
    wrong = ()  # parts of prompts that are answered wrong
    without_eviction = False
    refuses = ""  # the type of cache that is refused

    def __init__(self, settings):
        self.kind, self.evict = settings["properties"]["KV_CACHE_PRECISION"], settings["evict"]
        MadeAnswers.settings.append(settings)

    def __enter__(self):
        if self.kind == self.refuses:
            raise openvino_answers.Refused("not this type")
        return self

    def __exit__(self, *_):
        pass

    def answer(self, tokens, generate):
        prompt = "".join(map(chr, tokens))
        if len(tokens) > openvino_answers.BLOCK:  # not to warm up
            MadeAnswers.requests.append(self.kind)
        found = prompt.rsplit(" The pass", 1)[-1]
        number = prompt.split(f"The pass{found} ")[1][:4] if f"The pass{found} " in prompt else "0000"
        said = "1" if any(part in prompt for part in self.wrong) else f" {number}~ 9999"
        held = self.evict if self.evict and not self.without_eviction else len(tokens)
        size = {"f16": 100, "u8": 60, "u4": 80}[self.kind]
        return {"tokens": [ord(letter) for letter in said], "prompt_seconds": 0.5, "generation_seconds": 2.0,
                "resident_at_most": len(tokens), "resident_at_last": held, "cache_bytes_per_token": size,
                "peak_bytes": 1000}


class Openvino(Folder):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.multiple(MadeAnswers, settings=[], requests=[], wrong=(), without_eviction=False,
                                              refuses=""))

    def asked(self, *strings, contexts=(512,), trials=5):
        asking = openvino_tasks.Asking(self.store, MadeVocabulary(), MadeAnswers, {"version": "1"}, Path("m.gguf"), {})
        found = openvino_tasks.run(asking, [openvino_tasks.parse(text) for text in strings], list(contexts), trials,
                                   Progress())
        return {one["name"]: one for one in found}

    def test_answers(self):
        found = self.asked("f16", "u8", "f16,evict=1/4")
        self.assertEqual(list(found), ["openvino:f16", "openvino:u8", "openvino:f16,evict=1/4"])
        for one in found.values():
            self.assertEqual((one["task"], one["retrieved"], one["trials"], one["peak_bytes"]), ("needle", 5, 5, 1000))
            self.assertRegex(next(iter(one["answers"].values())), r"^ \d{4}$")  # up to the token that ends it
            self.assertEqual(one["by_context"], [{"context": 512, "retrieved": 5, "trials": 5}])
        self.assertEqual(found["openvino:u8"]["generation_tokens_per_second"], 5)  # without the first of 11
        self.assertEqual([settings["evict"] for settings in MadeAnswers.settings], [None, None, 128])

    def test_those_count_that_the_full_cache_knows(self):
        candidates = [trial for depth in (0, 0.25) for trial in (tasks.TASKS["needle"].make(512, depth, 0, 1.0),)]
        MadeAnswers.wrong = [trial.facts[0] for trial in candidates]
        found = self.asked("u8")
        self.assertEqual((found["openvino:u8"]["retrieved"], found["openvino:u8"]["trials"]), (5, 5))
        self.assertEqual((MadeAnswers.requests.count("f16"), MadeAnswers.requests.count("u8")), (7, 5))

    def test_kept_answers_are_not_asked_again(self):
        before = self.asked("u8")
        asked = list(MadeAnswers.requests)
        self.assertEqual(self.asked("u8"), before)
        self.assertEqual(MadeAnswers.requests, asked)

    def test_an_eviction_that_does_nothing_is_refused(self):
        MadeAnswers.without_eviction = True
        found = self.asked("f16", "f16,evict=1/4")
        self.assertIn("nothing was evicted", found["openvino:f16,evict=1/4"]["refused"])
        self.assertEqual(found["openvino:f16"]["retrieved"], 5)

    def test_a_cache_of_another_type_is_refused(self):
        self.assertIn("0.80 of the bytes of f16", self.asked("u4")["openvino:u4"]["refused"])

    def test_refusals_say_why(self):
        self.assertIn("at least 96 tokens", self.asked("f16,evict=64")["openvino:f16,evict=64"]["refused"])
        MadeAnswers.refuses = "u8"
        self.assertEqual(self.asked("u8")["openvino:u8"]["refused"], "not this type")
        MadeAnswers.refuses, self.store = "f16", store.Store(self.folder / "other")
        self.assertEqual({name: one["refused"] for name, one in self.asked("f16", "u4").items()},
                         {"openvino:f16": "not this type", "openvino:u4": "the full cache gives no answers: not this "
                                                                          "type"})

    def test_configurations(self):
        self.assertEqual(openvino_tasks.parse("u8,evict=100").evicted(2048), 96)
        self.assertEqual(openvino_tasks.parse("u4,evict=1/4").evicted(2048), 512)
        for wrong in ("q8_0", "u8,evict=", "u8,evict=0", "f16,recent=3", ""):
            with self.fails(f'"{wrong}"', "f16, u8, u4"):
                openvino_tasks.parse(wrong)
        self.assertEqual(openvino_tasks.parse_property("NUM_STREAMS=1"), ("NUM_STREAMS", "1"))
        with self.fails("--property", "fast"):
            openvino_tasks.parse_property("fast")

    def test_what_openvino_says_is_a_line(self):
        error = RuntimeError("Exception from src/a.cpp:84:\nCheck 'data != nullptr' failed at /b/c.cpp:8:\nIt cannot\n")
        self.assertEqual(openvino_answers._reason(error), "OpenVINO: It cannot")


class Recorded(Folder):
    """What kvpress and OpenVINO GenAI really gave for SmolLM2-135M (the command is in each file), in small: the figures
    of the file follow from it, and winnow eval takes the file."""

    def recorded(self, name):
        return json.loads((Path(__file__).parent / "data" / f"{name}.json").read_text(encoding="utf-8"))

    def added(self, found):
        """Results of winnow eval with this file beside them."""
        path = self.folder / "file.json"
        path.write_text(json.dumps(found))
        kept = made_results(contexts=(256,), count=2)
        kept["model"] |= {"sha256": found["model"]["sha256"]}
        if found["text"]:
            kept["text"] |= found["text"]
        return others.add(kept, [path])

    def test_kvpress(self):
        recorded = self.recorded("kvpress")
        wanted = recorded["file"]
        presses = [kvpress_rows.parse_press(press) for press in kvpress_rows.PRESSES]
        planned = kvpress_rows.planned(presses, "1/2", 16, ["batch", "decode"], 256)
        plan = torch_plan.Plan("kvpress", self.store, {256: (planned, [[1], [2]])}, {})
        for row in planned:
            plan.parts[256, row] = [one["part"] for one in recorded["parts"]
                                    if (one["row"], one["mode"]) == (row.name, row.mode)]
            refused = next(one.get("refused") for one in wanted["rows"]
                           if (one["name"], one["mode"]) == (row.name, row.mode))
            self.assertEqual(refused is None, len(plan.parts[256, row]) == 2, row.name)
            self.assertEqual((256, row) in plan.refused, row.mode == "batch" and bool(row.press))
            if refused:
                plan.refused.setdefault((256, row), refused)  # what kvpress itself said
        self.assertEqual(json.loads(json.dumps(plan.finished())), wanted["rows"])
        kld = {row.name: plan.finished()[number].get("kld") for number, row in enumerate(planned)}
        self.assertLess(kld.pop("kvpress:none"), torch_plan.SAME)
        self.assertEqual(len([name for name, value in kld.items() if value and 0.05 < value < 0.3]), 4)
        made = self.added(wanted)
        self.assertEqual(sum(row["role"] == "other" for row in made["rows"]), 6)
        (why,) = [row["refused"] for row in made["refused"] if row["what"].endswith("decode")]
        self.assertIn("Query length 16 should be greater than the window size 64", why)
        text = report.quality_table(made, (256, "decode"))
        self.assertIn("| `kvpress:keydiff,keep=128,interval=16` | 11,520 |", text)

    def test_openvino(self):
        recorded = self.recorded("openvino")
        asking = openvino_tasks.Asking(self.store, MadeVocabulary(), MadeAnswers, {}, Path("m.gguf"), {})
        configs = {text: openvino_tasks.parse(text) for text in ("f16", "u8", "u4", "f16,evict=1/2")}
        for one in recorded["answers"]:
            asking.answers[configs[one["config"].removeprefix("openvino:")], one["trial"]] = one["result"]
        for config in configs.values():
            wanted = next(task for task in recorded["file"]["tasks"] if task["name"] == config.name)
            for name in wanted["answers"]:
                asking._expect(config, config.evicted(384), asking.answers[config, name])
            trials = [SimpleNamespace(id=name, context=384) for name in wanted["answers"]]
            self.assertEqual(len(trials), 5)
            self.assertEqual(openvino_tasks._result(asking, config, trials), wanted)
        made = self.added(recorded["file"])
        (needle,) = [task for task in made["tasks"] if task["task"] == "needle"]
        self.assertEqual({one["name"]: (one["retrieved"], one["trials"]) for one in needle["others"]},
                         {"openvino:f16": (5, 5), "openvino:u8": (5, 5), "openvino:u4": (5, 5),
                          "openvino:f16,evict=1/2": (4, 5)})
        self.assertIn("not the logits", made["refused"][0]["refused"])


class Programs(Folder):
    def refused(self, program, *arguments):
        """What a program says before anything is loaded."""
        done = subprocess.run([sys.executable, EVAL / "adapters" / program, *map(str, arguments)], capture_output=True,
                              text=True, cwd=self.folder, env=os.environ | {"PYTHONPATH": str(EVAL)})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def test_command_lines(self):
        for name in ("model.gguf", "text.txt"):
            (self.folder / name).write_text("made up")
        kvpress = ("kvpress_rows.py", "--model", "model.gguf", "--text", "text.txt", "--llama-cpp", ".")
        openvino = ("openvino_tasks.py", "--model", "model.gguf", "--llama-cpp", ".")
        for words, arguments in ((["--model", "missing"], kvpress[:1]),
                                 (["--text", "missing"], kvpress[:3]),
                                 (["no file", "nonesuch"], (*kvpress, "--text", "nonesuch")),
                                 (["libllama.so"], kvpress),
                                 (["--mode", "prompt"], (*kvpress, "--mode", "prompt")),
                                 (["--count", "at least 2"], (*kvpress, "--count", 1)),
                                 (["--part", "third"], (*kvpress, "--part", "third")),
                                 (["--contexts", "512,x"], (*kvpress, "--contexts", "512,x")),
                                 (["PRESS", "h2o"], (*kvpress, "h2o")),
                                 (["--llama-cpp", "missing"], openvino[:3]),
                                 (["libllama.so"], openvino),
                                 (["CONFIGURATION", "q8_0"], (*openvino, "q8_0")),
                                 (["twice"], (*openvino, "u8", "u8")),
                                 (["--task-contexts", "64"], (*openvino, "--task-contexts", 64))):
            said = self.refused(*arguments)
            for word in words:
                self.assertIn(word, said)
        self.assertFalse((self.folder / "winnow-kvpress").exists())

    def test_launch(self):
        self.assertIn("kvpress, openvino, policy", self.refused("launch.py", "h2o"))
        for name, program in launch.PROGRAMS.items():
            self.assertTrue((EVAL / "adapters" / program).is_file())
            lines = launch.requirements(name).read_text().splitlines()
            self.assertTrue(all("==" in line for line in lines if not line.startswith("#")), lines)

    def test_a_library_that_is_none(self):
        (self.folder / "libllama.so").write_text("not a library")
        with self.fails("llama.cpp cannot tell the tokens"), llama_tokens.Tokens(self.folder, "model.gguf"):
            pass


if __name__ == "__main__":
    unittest.main()
