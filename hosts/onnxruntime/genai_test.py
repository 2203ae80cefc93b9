"""onnxruntime-genai, unmodified: a model without past and present is run, and with Winnow's provider the tokens are
those of genai's own CPU provider.

    genai_test.py [LIBRARY_OF_THE_PROVIDER [NAME=VALUE ...]]

What follows the library are options of the provider. Without the library only what needs no provider is tested.
"""

import dataclasses
import gc
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE)]

import numpy as np
import onnxruntime_genai as genai

import models
from decode import NAME
from winnowkv.onnx import strip_cache_files
from winnowkv.onnxruntime import PROVIDER

LIBRARY, *SETTINGS = sys.argv[1:] or [None]
OPTIONS = {"kv": "none:k=f32,v=f32", "max_tokens": "512"} | dict(each.split("=", 1) for each in SETTINGS)
PROMPT = [int(token) for token in np.random.default_rng(1).integers(0, 90, 60)]
SHAPES = {"separate": models.Shape(), "packed": models.Shape(packed=True, rotary="interleaved"),
          "bias": models.Shape(bias=True, heads=4, kv_heads=4), "no rotation": models.Shape(rotary="none")}
NEW = 32
if LIBRARY:
    genai.register_execution_provider_library(NAME, os.path.abspath(LIBRARY))


def model_of(folder, options=None):
    """options: of Winnow's provider; None: genai's own."""
    config = genai.Config(str(folder))
    config.clear_providers()
    if options is not None:
        config.append_provider(PROVIDER)
        for name, value in options.items():
            config.set_provider_option(PROVIDER, name, value)
    return genai.Model(config)


def generator_of(model, **options):
    parameters = genai.GeneratorParams(model)
    parameters.set_search_options(**{"max_length": 256, "do_sample": False} | options)
    return genai.Generator(model, parameters)


def tokens_of(model, prompt=PROMPT, new=NEW, **options):
    generator = generator_of(model, max_length=len(prompt) + new, **options)
    generator.append_tokens(np.array([prompt], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)[len(prompt):]]


def calls_in(report):
    """Of each node that Winnow computed, once a session has ended."""
    gc.collect()
    return [node["calls"] for node in json.loads(report.read_text())["claimed"]]


class Folders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def make(self, shape):
        """Folders with and without past and present."""
        source, stripped = self.folder / "source", self.folder / "stripped"
        models.write(source, shape)
        strip_cache_files(source, stripped)
        return source, stripped


class WithoutProvider(Folders):
    def test_genai_runs_a_model_without_a_cache(self):
        """The first new token comes from the prompt alone, so that it is right. Later ones are not: ORT's kernel has
        nothing to go on with, which is what the provider is for."""
        source, stripped = self.make(SHAPES["separate"])
        expected, got = (tokens_of(model_of(folder), new=1) for folder in (source, stripped))
        self.assertEqual(got, expected)

    @unittest.skipIf(LIBRARY, "the provider is registered")
    def test_a_stripped_folder_needs_the_provider(self):
        _, stripped = self.make(dataclasses.replace(SHAPES["separate"], layers=1))
        with self.assertRaisesRegex(Exception, "Unknown provider name"):
            genai.Model(str(stripped))


@unittest.skipIf(LIBRARY is None, "no library of the provider was named")
class WithProvider(Folders):
    def test_tokens_are_those_of_the_cpu_provider(self):
        for name, shape in SHAPES.items():
            for shared in (False, True):
                with self.subTest(name, shared=shared), tempfile.TemporaryDirectory() as folder:
                    self.folder = Path(folder)
                    source, stripped = self.make(shape)
                    expected = tokens_of(model_of(source), past_present_share_buffer=shared)
                    self.assertGreater(len(set(expected)), 4, "a model that says always the same shows nothing")
                    for each in (source, stripped):
                        report = Path(folder, "report.json")
                        model = model_of(each, OPTIONS | {"report": str(report)})
                        for _ in range(2):  # a second sequence begins anew
                            self.assertEqual(tokens_of(model, past_present_share_buffer=shared), expected)
                        del model  # which writes the report
                        self.assertEqual(calls_in(report), [2 * NEW] * shape.layers)

    def test_a_sequence_goes_back(self):
        source, stripped = self.make(SHAPES["packed"])

        def sequences(model):
            generator, found = generator_of(model, past_present_share_buffer=False), []
            for length, appended in ((0, PROMPT), (64, PROMPT[:5]), (30, PROMPT[30:50]), (0, PROMPT[7:20])):
                generator.rewind_to(length)
                generator.append_tokens(np.array([appended], np.int32))
                for _ in range(8):
                    generator.generate_next_token()
                found.append([int(token) for token in generator.get_sequence(0)])
            return found

        expected = sequences(model_of(source))
        for each in (source, stripped):
            self.assertEqual(sequences(model_of(each, OPTIONS)), expected)

    def test_the_folder_as_it_was_written(self):
        """Its genai_config.json names the provider."""
        source, stripped = self.make(SHAPES["no rotation"])  # which needs max_tokens, as strip-cache has written it
        config = stripped / "genai_config.json"
        written = json.loads(config.read_text())
        [provider] = written["model"]["decoder"]["session_options"]["provider_options"]
        provider[PROVIDER] |= {name: value for name, value in OPTIONS.items() if name != "max_tokens"}
        config.write_text(json.dumps(written))
        self.assertEqual(tokens_of(genai.Model(str(stripped))), tokens_of(model_of(source)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
