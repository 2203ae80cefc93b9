"""What `winnow profile` makes of the plugin's report: one profile in the order of the layers, its files, its picture.

    profile_test.py        needs requirements.txt
"""

import csv
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import made_host  # noqa: E402
from winnow_eval import Failure, profile, profile_plots  # noqa: E402
from winnow_eval.host import Host, Run  # noqa: E402

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
        self.without_profile, self.missing_calls, self.queries = False, 0, 100

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
        return Run("", made_host.log(CONTEXT, LAYERS, "f16", "f16", 384, 384), report, 1.0, 1)


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
                                ({"queries": 0}, "cache_k_l0: no query")):
            with self.assertRaisesRegex(Failure, words):
                self.record(**settings)


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

    def test_all_is_written_and_the_picture_is_the_same_again(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
            paths = profile.write(made_profile(), Path(folder)) + profile_plots.draw(made_profile(), Path(folder))
            self.assertEqual(sorted(path.name for path in paths),
                             [f"profile.{kind}" for kind in ("csv", "json", "png", "svg", "txt")])
            again = profile_plots.draw(made_profile(), Path(other), formats=("svg",))
            self.assertEqual(again[0].read_bytes(), (Path(folder) / "profile.svg").read_bytes())


if __name__ == "__main__":
    unittest.main()
