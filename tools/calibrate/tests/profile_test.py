"""What `winnow profile` makes of the plugin's report: one profile in the order of the layers, its files, its picture.

    profile_test.py        needs requirements.txt
"""

import csv
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import made_log  # noqa: E402
from winnow_calibrate import Failure, cli, profile, profile_plots, weights  # noqa: E402
from winnow_calibrate.host import Host, Run  # noqa: E402

LAYERS, HEADS, CONTEXT, COUNT = 12, 4, 256, 3


def made_layer(number, queries=100):
    heads = [0.1 * number + head for head in range(HEADS)]
    return {"name": f"cache_k_l{number}", "queries": queries, "entropy": heads,
            "concentration": [1 / (1 + each) for each in heads], "variance": [each / 1000 for each in heads],
            "newest_50": [0.4] * HEADS, "newest_100": [0.5 + number / 100] * HEADS}


def made_profile():
    setting = {"model": "made-up.gguf", "text": "made-up.txt", "contexts": COUNT, "context": CONTEXT}
    return {"format": 1, "setting": setting, "layers": [made_layer(number) for number in range(LAYERS)]}


class MadeHost(Host):
    """A plugin with two caches, as of a model with sliding windows; the layers take turns."""

    def __init__(self):
        super().__init__("bin", "plugin.so", "model.gguf", batch=128, ubatch=64)
        self.without_profile, self.missing_calls, self.queries, self.says = False, 0, 100, ""

    def run_program(self, program, arguments, config, on_output=None, batch=None):
        assert program == "llama-perplexity" and batch == 128
        assert self.settings(program, config)[1]["WINNOW_REPORT_WITH"] == "profile"
        calls = COUNT * CONTEXT // 64 - self.missing_calls
        tensors = {f"cache_{kind}_l{layer}": {"type": "f16", "attention_calls": calls}
                   for layer in range(LAYERS) for kind in "kv"}
        caches = [{"steps": LAYERS * calls} for _ in range(2)]
        if not self.without_profile:
            for first, cache in enumerate(caches):
                cache["profile"] = [made_layer(number, self.queries) for number in range(first, LAYERS, 2)]
        report = {"tensors": tensors, "attention_calls": LAYERS * calls, "sdpa_calls": 0, "caches": caches}
        return Run("", made_log.of_cache(CONTEXT, LAYERS, "f16", "f16", 384, 384) + self.says, report, 1.0, 1)


class Recording(unittest.TestCase):
    def record(self, **settings):
        host = MadeHost()
        for name, value in settings.items():
            setattr(host, name, value)
        return profile.record(host, "text.txt", CONTEXT, COUNT)

    def test_layers_of_all_caches_in_the_models_order(self):
        self.assertEqual([layer["name"] for layer in self.record()],
                         [f"cache_k_l{number}" for number in range(LAYERS)])

    def test_what_was_not_recorded_is_refused(self):
        for settings, words in (({"without_profile": True}, "older than"), ({"missing_calls": 1}, "11 attention calls"),
                                ({"queries": 0}, "cache_k_l0: no query"),
                                ({"says": "you need at least 512 tokens to evaluate"}, "--context: the text has less "
                                 "than 512 tokens, and llama-perplexity"),
                                ({"says": "calculating perplexity over 2 chunks, n_ctx=256"}, "--count: the text has 2 "
                                 "contexts of 256 tokens, 3 were asked for")):
            with self.assertRaisesRegex(Failure, words):
                self.record(**settings)


class Command(unittest.TestCase):
    """What is refused before the model is written in F32, and which weights are recorded."""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        for name in ("bin/llama-completion", "bin/llama-perplexity", "plugin.so", "model.gguf"):
            (self.folder / name).touch()
        (self.folder / "text.txt").write_text("Some words.\n")
        self.recorded = []

    def run_command(self, command=cli.measure, **more):
        """What was written in F32."""
        written = []
        options = dict(model=self.folder / "model.gguf", text_file=self.folder / "text.txt", context=CONTEXT,
                       count=COUNT, part="all", out=self.folder / "out", batch=128, llama_cpp=self.programs,
                       plugin=self.folder / "plugin.so") | more

        def record(host, *_):
            self.recorded.append(host.model)
            return [made_layer(0)]

        with (mock.patch.object(weights, "write_f32", lambda source, target: written.append(source.name)),
              mock.patch.object(profile, "record", record),
              mock.patch.object(profile_plots, "draw", lambda *_: []), mock.patch("sys.stdout", io.StringIO())):
            command(**options)
        return written

    def setting(self):
        return json.loads((self.folder / "out" / "profile.json").read_text())["setting"]

    def test_weights(self):
        self.assertEqual(self.run_command(), ["model.gguf"])
        self.assertEqual(self.setting()["weights"], "f32")
        self.assertEqual(self.run_command(weights="as-is"), [])
        self.assertEqual(self.setting()["weights"], "as-is")
        for command in (cli.measure, cli.calibrate):
            with self.assertRaisesRegex(Failure, '--weights: "f16", expected f32, as-is'):
                self.run_command(command, context=1024, weights="f16")

    def test_a_folder_that_cannot_be_written_is_said_first(self):
        taken = self.folder / "taken"
        taken.write_text("a file")
        for out in (taken, taken / "below"):
            with self.assertRaisesRegex(Failure, f"--out: cannot write to {out}, expected a folder: "):
                self.run_command(out=out)
        self.assertEqual(self.recorded, [])

    def test_the_program_that_records_has_to_be_there(self):
        (self.programs / "llama-perplexity").unlink()
        for command in (cli.measure, cli.calibrate):
            with self.assertRaisesRegex(Failure, f"no llama-perplexity in {self.programs}; build this target"):
                self.run_command(command)
        self.assertEqual(self.recorded, [])


class Files(unittest.TestCase):
    def test_the_policys_file_has_the_layers_means(self):
        lines = profile.policy_text(made_profile()).splitlines()
        self.assertTrue(lines[0].startswith("# made-up.gguf, 3 contexts of 256 tokens"))
        rows = [line.split() for line in lines if not line.startswith("#")]
        self.assertEqual([name for name, *_ in rows], [f"cache_k_l{number}" for number in range(LAYERS)])
        self.assertEqual([float(word) for word in rows[5][1::2]], [0.5 + 1.5, (0.5 + 1.5) / 1000])

    def test_csv_has_every_head(self):
        rows = list(csv.DictReader(io.StringIO(profile.csv_text(made_profile()))))
        self.assertEqual(len(rows), LAYERS * HEADS)
        self.assertEqual((rows[-1]["layer"], rows[-1]["head"]), ("cache_k_l11", "3"))
        self.assertAlmostEqual(float(rows[-1]["entropy"]), 4.1)
        self.assertAlmostEqual(float(rows[-1]["newest_100"]), 0.61)

    def test_what_the_newest_hold_is_the_mean_over_layers(self):
        self.assertEqual([round(each, 6) for each in profile.newest(made_profile())], [0.4, 0.555])

    def test_layers_may_have_unlike_numbers_of_heads(self):
        made = made_profile()
        for layer in made["layers"][1:]:
            layer |= {key: layer[key][:-1] for key in profile.RECORDED}
        figure = profile_plots.picture(made)
        found = next(axes.images[0].get_array() for axes in figure.axes if axes.images)
        profile_plots.pyplot.close(figure)
        self.assertEqual((found.shape, found.mask.sum()), ((LAYERS, HEADS), LAYERS - 1))

    def test_all_is_written_and_the_picture_is_the_same_again(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
            paths = profile.write(made_profile(), Path(folder)) + profile_plots.draw(made_profile(), Path(folder))
            self.assertEqual(sorted(path.name for path in paths),
                             [f"profile.{kind}" for kind in ("csv", "json", "png", "svg", "txt")])
            again = profile_plots.draw(made_profile(), Path(other), formats=("svg",))
            self.assertEqual(again[0].read_bytes(), (Path(folder) / "profile.svg").read_bytes())


if __name__ == "__main__":
    unittest.main()
