"""A made-up model turned to F32: the same numbers, the same words about it, and what is refused.

    weights_test.py
"""

import sys
import tempfile
import unittest
from pathlib import Path

import gguf
import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import made_model  # noqa: E402
from winnow_calibrate import Failure, weights  # noqa: E402

Q = gguf.GGMLQuantizationType


class Weights(unittest.TestCase):
    def setUp(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.source, self.target = folder / "model.gguf", folder / "f32.gguf"
        self.values = numpy.random.default_rng(1).standard_normal((4, 64)).astype(numpy.float32)

    def write(self, **more):
        writer = gguf.GGUFWriter(self.source, "llama")
        writer.add_block_count(2)
        writer.add_file_type(3)
        writer.add_token_list(["a", "bc", "ü"])
        writer.add_array("some.numbers", [1.5, 2.5])
        for name, value in more.items():
            writer.add_uint16(name.replace("_", "."), value)
        for kind in (Q.Q8_0, Q.Q4_1, Q.Q5_1):
            writer.add_tensor(f"t.{kind.name}", gguf.quantize(self.values, kind), raw_dtype=kind)
        writer.add_tensor("t.F16", self.values.astype(numpy.float16))
        writer.add_tensor("t.F32", self.values)
        writer.add_tensor("t.I32", numpy.arange(6, dtype=numpy.int32))
        made_model.close(writer)

    def test_the_same_model_in_f32(self):
        self.write()
        weights.write_f32(self.source, self.target)
        old, new = gguf.GGUFReader(self.source), gguf.GGUFReader(self.target)
        self.assertEqual([tensor.name for tensor in new.tensors], [tensor.name for tensor in old.tensors])
        for before, after in zip(old.tensors, new.tensors):
            self.assertEqual(list(after.shape), list(before.shape))
            if before.tensor_type == Q.I32:
                self.assertEqual((after.tensor_type, after.data.tolist()), (Q.I32, before.data.tolist()))
                continue
            self.assertEqual(after.tensor_type, Q.F32)
            numpy.testing.assert_array_equal(after.data, gguf.dequantize(before.data, before.tensor_type))
            self.assertLess(abs(after.data - self.values).max(), 0.2)
        fields = {name: field.contents() for name, field in new.fields.items()}
        self.assertEqual(fields["tokenizer.ggml.tokens"], ["a", "bc", "ü"])
        self.assertEqual(fields["some.numbers"], [1.5, 2.5])
        self.assertEqual((fields["llama.block_count"], fields["general.file_type"]), (2, 0))
        self.assertEqual(sorted(path.name for path in self.target.parent.iterdir()), ["f32.gguf", "model.gguf"])

    def test_what_is_refused(self):
        self.write(split_count=2)
        with self.assertRaisesRegex(Failure, "one of several files"):
            weights.write_f32(self.source, self.target)
        self.source.write_bytes(b"PK\3\4 something else")
        with self.assertRaisesRegex(Failure, "not a GGUF file"):
            weights.read(self.source)
        self.source.write_bytes(b"GGUF\3\0\0\0\0\0")
        with self.assertRaisesRegex(Failure, "damaged"):
            weights.read(self.source)
        self.assertFalse(self.target.exists())


unittest.main()
