"""Removing past and present from a model: what goes, what stays, what is refused, and that logits stay: of a prompt
alone under ORT's own kernels, of all tokens under Winnow's provider.

    strip_cache_test.py [LIBRARY_OF_THE_PROVIDER [NAME=VALUE ...]]

needs onnx and onnxruntime. What follows the library are options of the provider. Without the library only what needs no
provider is tested.
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE)]

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import models
from attention_models import UNSERVED
from decode import Sequence, greedy, session
from winnowkv.errors import InvalidArgument, Unsupported
from winnowkv.onnx import strip_cache, strip_cache_files
from winnowkv.onnxruntime import PROVIDER

LIBRARY, *SETTINGS = sys.argv[1:] or [None]
OPTIONS = {"kv": "none:k=f32,v=f32", "max_tokens": "128"} | dict(each.split("=", 1) for each in SETTINGS)
PROMPT = [5, 17, 60, 3, 3, 81, 44, 9]
SHAPES = {"separate": {}, "interleaved": {"rotary": "interleaved"}, "packed": {"packed": True},
          "no rotary": {"rotary": "none"}, "sinks": {"sinks": True}, "half": {"half": True},
          "softcap and window": {"softcap": 20.0, "window": 4}}


def names(values):
    return [value.name for value in values]


def tolerance(shape):
    """Logits are up to 10, and sums over them come in another order; float16 has 11 bits."""
    return 0.05 if shape.half else 1e-4


def run(model, tokens):
    made = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
    for value in made.get_inputs()[2:]:
        kind = np.float16 if value.type == "tensor(float16)" else np.float32
        inputs[value.name] = np.zeros((1, value.shape[1], 0, value.shape[3]), kind)
    return made.run(["logits"], inputs)[0]


class Models(unittest.TestCase):
    def test_past_and_present_go_and_a_prompt_has_the_same_logits(self):
        for name, changes in SHAPES.items():
            with self.subTest(name):
                shape = models.Shape(**changes)
                model = models.make(shape)
                before = run(model, PROMPT)
                self.assertEqual(strip_cache(model), 3)
                self.assertEqual(names(model.graph.input), ["input_ids", "attention_mask"])
                self.assertEqual(names(model.graph.output), ["logits"])
                for node in model.graph.node:
                    if node.op_type == "GroupQueryAttention":
                        self.assertEqual([*node.input[3:5]], ["", ""])
                        self.assertEqual([*node.input[5:7]], ["seqlens_k", "total"])
                np.testing.assert_allclose(run(model, PROMPT), before, rtol=0, atol=tolerance(shape))

    def test_a_second_time_changes_nothing(self):
        model = models.make(models.Shape())
        strip_cache(model)
        before = model.SerializeToString(deterministic=True)
        self.assertEqual(strip_cache(model), 0)
        self.assertEqual(model.SerializeToString(deterministic=True), before)

    def test_a_model_made_without_a_cache_is_what_stripping_makes(self):
        stripped, made = models.make(models.Shape()), models.make(models.Shape(past=False))
        strip_cache(stripped)
        self.assertEqual(stripped.SerializeToString(deterministic=True), made.SerializeToString(deterministic=True))

    def refuses(self, model, pattern):
        before = model.SerializeToString(deterministic=True)
        with self.assertRaisesRegex(Unsupported, pattern):
            strip_cache(model)
        self.assertEqual(model.SerializeToString(deterministic=True), before)

    def test_other_attention_is_refused(self):
        multi_head = models.make(models.Shape(operator="MultiHeadAttention", kv_heads=6))
        self.refuses(multi_head, "has MultiHeadAttention.*expected GroupQueryAttention of com.microsoft")
        self.refuses(models.make(models.Shape(layers=0)), "no attention node")

    def test_what_the_provider_does_not_compute_is_refused(self):
        for name, (model, _, pattern) in UNSERVED.items():
            with self.subTest(name):
                self.refuses(onnx.load_from_string(model), pattern)

    def test_attention_in_a_branch_is_refused(self):
        model = models.make(models.Shape(layers=2))
        [node, _] = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
        branch = helper.make_graph([node], "branch", [], [helper.make_tensor_value_info(
            node.output[0], TensorProto.FLOAT, None)])
        model.graph.node.append(helper.make_node("If", ["condition"], ["x"], then_branch=branch, else_branch=branch))
        self.refuses(model, "has GroupQueryAttention, perhaps in a branch")

    def test_a_cache_that_something_else_uses_is_refused(self):
        for name in ("past_key_values.1.key", "present.0.value"):
            model = models.make(models.Shape())
            model.graph.node.append(helper.make_node("Shape", [name], ["shape"], "its_shape"))
            self.refuses(model, f"{name}, a tensor of the cache, is also an input of the node its_shape")

    def test_a_past_that_is_computed_is_refused(self):
        model = models.make(models.Shape())
        model.graph.input.pop()
        self.refuses(model, "past_key_values.2.value, the past of an attention node, is computed")

    def test_a_past_that_is_an_output_is_refused(self):
        model = models.make(models.Shape())
        model.graph.output.append(model.graph.input[-1])
        self.refuses(model, "past_key_values.2.value is an output")

    def test_a_cache_in_integers_is_refused(self):
        model = models.make(models.Shape(sinks=True))
        node = next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")
        node.input.append("k_scale")
        self.refuses(model, "attention_0 keeps its cache in integers")


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.source = models.write(self.folder / "source", models.Shape())

    def test_weights_are_copied_so_that_both_models_load(self):
        target = self.folder / "other" / "stripped.onnx"
        self.assertEqual(strip_cache_files(self.source, target), 3)
        self.assertEqual(strip_cache_files(self.source, target), 3)  # again, over the first one
        for path in (self.source, target):
            onnx.load(path)  # which refuses weights with several hard links
        tokens = [greedy(Sequence(session(str(path))), PROMPT, 1)[0][0] for path in (self.source, target)]
        self.assertEqual(*tokens)

    def test_a_model_may_be_changed_in_place(self):
        self.assertEqual(strip_cache_files(self.source, self.source), 3)
        self.assertEqual(strip_cache_files(self.source, self.source), 0)
        self.assertEqual([path.name for path in sorted(self.source.parent.iterdir())],
                         ["genai_config.json", "model.onnx", "model.onnx.data"])

    def test_weights_of_another_model_stay(self):
        other = models.write(self.folder / "other", dataclasses.replace(models.Shape(), layers=1))
        before = other.read_bytes()
        with self.assertRaisesRegex(FileExistsError, "model.onnx.data is there"):
            strip_cache_files(self.source, other)
        self.assertEqual(other.read_bytes(), before)

    def test_weights_outside_of_the_folder_are_refused(self):
        model = onnx.load(self.source, load_external_data=False)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = "../weights"
        self.source.write_bytes(model.SerializeToString())
        with self.assertRaisesRegex(InvalidArgument, r"weights in \.\./weights"):
            strip_cache_files(self.source, self.folder / "other" / "model.onnx")

    def test_a_folder_of_genai_is_adapted(self):
        source, target = self.source.parent, self.folder / "target"
        (source / "parts").mkdir()
        (source / "parts" / "tokenizer.json").write_text("{}")
        before = (source / "genai_config.json").read_text()
        self.assertEqual(strip_cache_files(source, target), 3)
        config = json.loads((target / "genai_config.json").read_text())
        decoder = config["model"]["decoder"]
        self.assertEqual(decoder["inputs"], {"input_ids": "input_ids", "attention_mask": "attention_mask"})
        self.assertEqual(decoder["outputs"], {"logits": "logits"})
        self.assertIs(config["search"]["past_present_share_buffer"], False)
        self.assertEqual(decoder["session_options"]["provider_options"], [
            {PROVIDER: {"kv": "winnow", "max_tokens": "512"}}])
        self.assertTrue((target / "parts" / "tokenizer.json").is_file())
        self.assertEqual(*((folder / "model.onnx.data").read_bytes() for folder in (target, source)))
        self.assertEqual(names(onnx.load(target / "model.onnx", load_external_data=False).graph.output), ["logits"])
        self.assertEqual((source / "genai_config.json").read_text(), before)
        with self.assertRaises(FileExistsError):
            strip_cache_files(source, target)
        for inside in (source / "inside", source / "parts" / "inside"):
            with self.assertRaisesRegex(InvalidArgument, "inside lies in .*choose a folder outside of it"):
                strip_cache_files(source, inside)
            self.assertFalse(inside.exists())
        again = self.folder / "again"
        self.assertEqual(strip_cache_files(target, again), 0)
        self.assertEqual((again / "genai_config.json").read_text(), (target / "genai_config.json").read_text())

    def test_positions_do_not_slide(self):
        file = self.source.with_name("genai_config.json")
        config = json.loads(file.read_text())
        config["model"]["decoder"]["sliding_window"] = {"window_size": 64}
        file.write_text(json.dumps(config))
        strip_cache_files(self.source.parent, self.folder / "target")
        config = json.loads((self.folder / "target" / file.name).read_text())
        self.assertEqual(config["model"]["decoder"]["sliding_window"],
                         {"window_size": 64, "slide_key_value_cache": False, "slide_inputs": False})

    def test_other_folders_are_refused(self):
        target = self.folder / "target"
        with self.assertRaisesRegex(InvalidArgument, "has no genai_config.json"):
            strip_cache_files(self.folder, target)
        file = self.source.with_name("genai_config.json")
        config = json.loads(file.read_text())
        del config["model"]["decoder"]["filename"]
        file.write_text(json.dumps(config))
        with self.assertRaisesRegex(Unsupported, "expected a decoder in one file"):
            strip_cache_files(self.source.parent, target)
        self.assertFalse(target.exists())

    def test_the_command(self):
        target = self.folder / "stripped.onnx"
        command = [sys.executable, "-B", "-m", "winnowkv.onnx", "strip-cache"]

        def call(*arguments):
            return subprocess.run([*command, *map(str, arguments)], cwd=HERE.parent / "python", capture_output=True,
                                  text=True)

        data = self.source.with_name("model.onnx.data")
        data.rename(self.folder / data.name)
        self.source.rename(self.folder / "model.onnx")
        done = call(self.folder / "model.onnx", target)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"{target}: 3 attention nodes have lost past and present\n")
        self.assertEqual(call(target, target).stdout, f"{target}: the model had no past and present\n")
        broken = self.folder / "broken.onnx"
        broken.write_bytes(b"\xff" * 64)
        for source, pattern in ((broken, "broken.onnx is no ONNX model"), (self.folder / "none", "No such file")):
            done = call(source, target)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, f"^winnowkv.onnx: .*{pattern}")
            self.assertEqual(done.stderr.count("\n"), 1)


@unittest.skipIf(LIBRARY is None, "no library of the provider was named")
class WithProvider(unittest.TestCase):
    def test_logits_are_those_of_the_model_with_past(self):
        tokens = [int(token) for token in np.random.default_rng(2).integers(0, 97, 70)]
        for name, changes in SHAPES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                shape = models.Shape(**changes)
                source, target = models.write(folder, shape), Path(folder, "stripped.onnx")
                strip_cache_files(source, target)
                if shape.window > 0 and onnxruntime.__version__.startswith("1.23."):  # sees a token more than it says
                    models.write(folder, dataclasses.replace(shape, window=shape.window - 1))
                expected = self.logits(session(str(source)), tokens)
                made = session(str(target), LIBRARY, OPTIONS)
                for _ in range(2):  # a second sequence begins anew
                    np.testing.assert_allclose(self.logits(made, tokens), expected, rtol=0, atol=tolerance(shape))

    def logits(self, session, tokens):
        """Of a prompt in two calls, and of one token at a time."""
        sequence, ends = Sequence(session), [0, 40, 55, *range(56, 71)]
        return np.concatenate([sequence.step(tokens[begin:end])[0] for begin, end in zip(ends, ends[1:])])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
