"""What `winnow calibrate` makes of samples: networks that find an order which no input alone has, and their file.

    networks_test.py        needs requirements.txt
"""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_calibrate import Failure, networks  # noqa: E402

HEADS = 2


def made_layers(count=3000, seed=1):
    """In the first layer what matters is the importance, in the second the age, though both heads have the same."""
    random = numpy.random.default_rng(seed)
    layers = []
    for number in range(2):
        samples = []
        for _ in range(HEADS):
            importance, age = numpy.exp(random.normal(-3, 2, count)), numpy.exp(random.uniform(3, 7, count))
            attention = importance**0.5 if number == 0 else 10 / age
            samples.append(numpy.stack([importance, age, attention], axis=1).tolist())
        layers.append({"name": f"cache_k_l{number}", "samples": samples})
    return layers


def predicted(found, layer, head, importance, age):
    """As a cache does it."""
    inputs = numpy.log(max(importance, networks.LEAST)), numpy.log(max(age, 1))
    return sum(out * max(by_importance * inputs[0] + by_age * inputs[1] + bias, 0)
               for (by_importance, by_age, out), bias in zip(found["hidden"], found["layers"][layer][head]))


steps = []
found = networks.calibrate(made_layers(), steps.append)


class Training(unittest.TestCase):
    def test_heads_learn_what_is_theirs(self):
        self.assertEqual((steps[-1], len(steps)), (1, networks.STEPS))
        judged = found["rank_correlation"]
        self.assertGreater(judged["prediction"], 0.97)
        self.assertLess(max(judged["importance"], judged["age"]), 0.7)
        for head in range(HEADS):
            self.assertGreater(predicted(found, "cache_k_l0", head, 1, 900),
                               predicted(found, "cache_k_l0", head, 0.01, 40) + 1)
            self.assertGreater(predicted(found, "cache_k_l1", head, 0.01, 40),
                               predicted(found, "cache_k_l1", head, 1, 900) + 1)

    def test_it_repeats_itself(self):
        self.assertEqual(networks.calibrate(made_layers()), found)

    def test_what_cannot_be_trained_on_is_refused(self):
        for layers, words in (([{"name": "cache_k_l0"}], "no samples; the plugin is older"),
                              (made_layers(count=100), "400 samples, expected at least 2000")):
            with self.assertRaisesRegex(Failure, words):
                networks.calibrate(layers)


class Files(unittest.TestCase):
    def test_the_policys_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = networks.write(found, {"model": "made-up.gguf"}, Path(folder))
            written = json.loads(path.read_text())
        self.assertEqual((path.name, written["winnow_network"], written["setting"]["model"]),
                         ("network.json", 1, "made-up.gguf"))
        self.assertEqual([len(unit) for unit in written["hidden"]], [3] * 8)
        self.assertEqual({name: [len(head) for head in heads] for name, heads in written["layers"].items()},
                         {f"cache_k_l{number}": [8] * HEADS for number in range(2)})


if __name__ == "__main__":
    unittest.main()
