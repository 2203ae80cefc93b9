"""Configurations from strings and from TOML files: what they stand for, and what is refused, with a reason.

    configs_test.py
"""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import Failure, configs  # noqa: E402
from winnow_eval.configs import Config  # noqa: E402
from winnow_calibrate.host import Host  # noqa: E402


class Strings(unittest.TestCase):
    def test_what_they_stand_for(self):
        for text, expected in {
                "cpu": Config("cpu:k=f16,v=f16", "cpu"),
                "inplace:k=q8_0,v=q4_0": Config("inplace:k=q8_0,v=q4_0", "winnow", "q8_0", "q4_0"),
                "cpu:v=q5_1": Config("cpu:k=f16,v=q5_1", "cpu", "f16", "q5_1"),
                "cpu:rotate=off,k=q4_0,v=q4_0": Config("cpu:k=q4_0,v=q4_0,rotate=off", "cpu", "q4_0", "q4_0", False),
                "h2o:budget=1/4,k=turbo4": Config("h2o:budget=1/4,k=turbo4", "winnow", kv="h2o:budget=1/4,k=turbo4"),
        }.items():
            self.assertEqual(configs.parse(text), expected, text)

    def test_a_name_stands_for_itself(self):
        for config in configs.load(configs.DEFAULTS_FILE):
            self.assertEqual(configs.parse(config.name), config)

    def test_what_is_refused_names_what_there_is(self):
        for text, *wanted in (("cpu:k=q9", "q9", "q8_0"), ("cpu:key=f16", "key", "rotate"), ("cpu:k", "\"k\""),
                              ("cpu:k=f16,k=f16", "twice"), ("cpu:rotate=maybe", "maybe", "off"), ("cpu:", "key=value"),
                              ("", "cpu"), ("CPU:k=f16", "CPU", "inplace"), ("cpu:k=f16,", "key=value")):
            with self.assertRaises(Failure, msg=text) as raised:
                configs.parse(text)
            for word in wanted:
                self.assertIn(word, str(raised.exception), text)


class Tables(unittest.TestCase):
    def load(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "some.toml"
            path.write_text(text)
            return configs.load(path)

    def test_all_keys(self):
        (config,) = self.load('[[config]]\nname = "mine"\nbackend = "winnow"\nk = "q8_0"\nv = "q4_0"\nrotate = false\n'
                              'kv = "h2o"\nenvironment = {WINNOW_PRESSURE = "1", WINNOW_KV_SWA = "none"}\n')
        self.assertEqual(config, Config("mine", "winnow", "q8_0", "q4_0", False, "h2o",
                                        (("WINNOW_KV_SWA", "none"), ("WINNOW_PRESSURE", "1"))))

    def test_the_baselines_are_what_has_to_be_beaten(self):
        found = {(config.backend, config.k, config.rotate) for config in configs.load(configs.DEFAULTS_FILE)}
        quantized = {(backend, cache, rotate) for backend in ("cpu", "winnow") for cache in ("q8_0", "q5_1", "q4_0")
                     for rotate in (True, False)}
        self.assertEqual(found, quantized | {("cpu", "f16", True), ("winnow", "f16", True)})

    def test_what_is_refused(self):
        row = '[[config]]\nbackend = "cpu"\n'
        for text, *wanted in (("", "[[config]]"), ("[[config", "some.toml"), ("[[other]]\na = 1", "other", "config"),
                              ("[[config]]\nk = \"f16\"", "backend"), ('[[config]]\nbackend = "gpu"', "gpu", "winnow"),
                              (row + 'K = "f16"', "K", "rotate"), (row + "rotate = \"on\"", "rotate", "bool"),
                              (row + 'v = "q9"', "q9", "iq4_nl"), (row + 'kv = "h2o"', "kv", "winnow"),
                              ("configs = \"h2o\"", "list of strings"), ("configs = [1]", "list of strings"),
                              ("configs = [\"cpu:k=q9\"]", "q9"), ("contexts = [2048]", "no configs"),
                              (row + "arguments = [1]", "arguments", "environment"),
                              (row + "environment = {WINNOW_PRESSURE = 1}", "strings"),
                              (row + 'environment = {WINNOW_BACKEND = "reference"}', "WINNOW_BACKEND", "PRESSURE")):
            with self.assertRaises(Failure, msg=text) as raised:
                self.load(text)
            for word in wanted:
                self.assertIn(word, str(raised.exception), text)

    def test_strings_beside_tables(self):
        found = self.load('configs = ["h2o:budget=1/4", "cpu:k=q8_0"]\n[[config]]\nbackend = "winnow"\n')
        self.assertEqual([config.name for config in found],
                         ["h2o:budget=1/4", "cpu:k=q8_0,v=f16", "inplace:k=f16,v=f16"])

    def test_contexts_that_are_none(self):
        for text in ("2048", "[]", "[0]", '["512"]', "[512, 512]"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "some.toml"
                path.write_text(f'contexts = {text}\nconfigs = ["h2o"]\n')
                with self.assertRaisesRegex(Failure, "some.toml, contexts"):
                    configs.contexts_of([path])

    def test_a_missing_file(self):
        with self.assertRaisesRegex(Failure, "nonesuch.toml"):
            configs.load(Path("nonesuch.toml"))


class Presets(unittest.TestCase):
    """The files that come with Winnow."""

    def test_all_can_be_read_and_say_nothing_twice(self):
        names = sorted(path.stem for path in configs.FOLDER.glob("*.toml"))
        self.assertEqual(names, ["adaptive", "baselines", "budgets", "elastic_intervals", "elastic_scales",
                                 "elastic_sinks", "lengths", "policies", "quality"])
        for name in names:
            found = configs.gather([], [name])
            self.assertGreater(len(found), 4, name)
            self.assertIn(name, configs.GRAMMAR)

    def test_the_sweeps_are_whole(self):
        budgets = [config.kv for config in configs.load("budgets")]
        for size in (128, 256, 512, 1024, 2048):
            for policy in ("winnow", "window", "h2o", "random"):
                self.assertTrue(any(kv.startswith(f"{policy}:budget={size}") for kv in budgets), f"{policy} {size}")
        self.assertEqual(configs.contexts_of(["budgets"]), [2048])
        names = {config.name for config in configs.load("quality")}
        for share in ("1/2", "1/4", "1/8", "1/16"):
            for policy in ("winnow", "window", "h2o", "scissorhands", "hierarchical", "random"):
                self.assertIn(f"{policy}:budget={share}", names)
        self.assertEqual(configs.contexts_of(["lengths"]), [512, 1024, 2048, 4096, 8192])

    def test_files_without_contexts_or_with_different_ones(self):
        self.assertIsNone(configs.contexts_of(["baselines"]))
        self.assertEqual(configs.contexts_of(["baselines", "policies", "budgets"]), [2048])
        with self.assertRaisesRegex(Failure, "budgets and lengths ask for different contexts"):
            configs.contexts_of(["budgets", "lengths"])

    def test_a_file_of_the_same_name_comes_first(self):
        self.assertEqual(configs.located(configs.DEFAULTS_FILE), configs.DEFAULTS_FILE)
        self.assertEqual(configs.located("budgets"), configs.FOLDER / "budgets.toml")
        self.assertEqual(configs.located("nonesuch"), Path("nonesuch"))


class Gathering(unittest.TestCase):
    def test_nothing_asked_for_is_the_baselines_without_the_control_run(self):
        names = [config.name for config in configs.gather([], [])]
        self.assertEqual(len(names), 13)
        self.assertNotIn(configs.CONTROL.name, names)

    def test_the_control_run_is_not_measured_twice(self):
        self.assertEqual([config.name for config in configs.gather(["cpu", "cpu:k=q8_0"], [])], ["cpu:k=q8_0,v=f16"])

    def test_duplicates(self):
        with self.assertRaisesRegex(Failure, "same"):
            configs.gather(["cpu:k=q8_0", "cpu:v=f16,k=q8_0"], [])


class Settings(unittest.TestCase):
    """What llama.cpp is started with."""

    def settings(self, text, program="llama-completion"):
        arguments, environment = Host("bin", "plugin.so", "model.gguf", device="some").settings(
            program, configs.parse(text))
        return " ".join(map(str, arguments)), environment

    def test_cpu(self):
        arguments, environment = self.settings("cpu:k=q8_0,v=q4_0,rotate=off")
        self.assertIn("-ctk q8_0 -ctv q4_0", arguments)
        self.assertIn("-dev none", arguments)
        self.assertEqual(environment["LLAMA_ATTN_ROT_DISABLE"], "1")
        self.assertNotIn("GGML_BACKEND_PATH", environment)

    def test_in_place(self):
        arguments, environment = self.settings("inplace:k=q8_0")
        self.assertIn("-dev Winnow", arguments)
        self.assertEqual(environment["GGML_BACKEND_PATH"], "plugin.so")
        self.assertEqual(environment["WINNOW_DEVICE"], "some")
        self.assertNotIn("LLAMA_ATTN_ROT_DISABLE", environment)
        self.assertNotIn("WINNOW_KV", environment)

    def test_policy(self):
        self.assertEqual(self.settings("h2o:budget=1/4")[1]["WINNOW_KV"], "h2o:budget=1/4")


unittest.main()
