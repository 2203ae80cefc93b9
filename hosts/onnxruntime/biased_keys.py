"""Tests of models that add a bias to their keys, as Qwen2; provider_test.py runs them."""

import unittest

import numpy as np
from onnx import helper, numpy_helper

from attention_models import Shape, changed, make_model
from provider_session import logged, make_session, options

WARNING = "the model adds a bias to its keys, and "


def before_attention(place, *nodes, **constants):
    """A change of a graph: `nodes` (operator, inputs, attributes) lie one after the other before input `place` of each
    attention node. Among the inputs "" is what the node before made, None nothing, and every other name a constant."""

    def change(graph):
        for name, array in constants.items():
            graph.initializer.append(numpy_helper.from_array(array, name))
        attention = list(graph.node)
        del graph.node[:]
        for node in attention:
            for number, (operator, inputs, attributes) in enumerate(nodes):
                made = f"{node.name}_before_{number}"
                read = [node.input[place] if each == "" else each or "" for each in inputs]
                graph.node.append(helper.make_node(operator, read, [made], **attributes))
                node.input[place] = made
            graph.node.append(node)

    return change


def warnings_of(model, kv):
    text = logged(lambda severity: open_session(model, kv, severity))
    assert text.count(WARNING) in (0, 1), text
    return text.count(WARNING)


def open_session(model, kv, severity):
    settings = options(kv=kv)
    settings.log_severity_level = severity
    make_session(model, settings)


class BiasedKeys(unittest.TestCase):
    shape = Shape(layers=((4, 2, 32),), rotary=True)
    row = np.linspace(-3, 3, 64, dtype=np.float32)
    matrix = np.eye(64, dtype=np.float32)
    add = ("Add", ["", "bias"], {})
    shaped = ("Reshape", ["", "shape"], {})

    def warnings(self, *nodes, kv="winnow", place=1, shape=shape, row=row):
        change = before_attention(
            place, *nodes, bias=row, matrix=self.matrix, shape=np.array([1, -1, len(row)]), flat=np.array([-1, 64]),
            scale=np.float32(2), epsilon=np.array([1e-5], np.float32), batched=row[None, None],
            nibbles=np.full((64, 2, 16), 0x88, np.uint8),
            scales=np.ones(128, np.float32))
        return warnings_of(changed(make_model(shape), change), kv)

    def test_few_bits_get_a_warning(self):
        for nodes in ([self.add], [("Add", ["bias", ""], {})], [self.add, self.shaped, ("Identity", [""], {})],
                      [("Add", ["", "batched"], {})], [("MatMul", ["", "matrix"], {}), self.add],
                      [self.add, ("Mul", ["scale", ""], {})], [self.bits("bias")],
                      [("Reshape", ["", "flat"], {}), ("Gemm", ["", "matrix", "bias"], {}), self.shaped]):
            with self.subTest(nodes=nodes):
                self.assertEqual(self.warnings(*nodes), 1)
        packed = Shape(layers=((4, 2, 32),), rotary=True, packed=True)
        self.assertEqual(self.warnings(self.add, place=0, shape=packed, row=np.ones(256, np.float32)), 1)
        for kv in ("winnow:budget=1/4", "none:k=q8_0,fine=0,k_fine=turbo4"):
            self.assertEqual(self.warnings(self.add, kv=kv), 1, kv)

    def test_other_models_and_enough_bits_get_none(self):
        for kv in ("winnow:k=q8_0", "none:k=f32,v=f32", "winnow:k=q8_0,coarse=0,v_coarse=turbo2"):
            self.assertEqual(self.warnings(self.add, kv=kv), 0, kv)
        for nodes in ([("Identity", [""], {})], [self.add, ("MatMul", ["", "matrix"], {})], [("Add", ["", ""], {})],
                      [("Add", ["", "epsilon"], {})], [self.bits(None)], [self.add, self.bits(None)],
                      [self.add, ("Einsum", ["", "matrix"], {"equation": "bti,ij->btj"})],
                      [("Reshape", ["", "flat"], {}), ("Gemm", ["", "matrix"], {}), self.shaped]):
            with self.subTest(nodes=nodes):
                self.assertEqual(self.warnings(*nodes), 0)
        self.assertEqual(self.warnings(self.add, place=0, row=np.ones(128, np.float32)), 0, "of queries")
        self.assertEqual(self.warnings(self.add, place=2), 0, "of values")

    @staticmethod
    def bits(bias):
        """A layer of 4 bits."""
        return ("MatMulNBits", ["", "nibbles", "scales", None, None, bias],
                {"domain": "com.microsoft", "K": 64, "N": 64, "bits": 4, "block_size": 32})
