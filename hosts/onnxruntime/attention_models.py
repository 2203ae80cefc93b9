"""Models of attention nodes alone, for provider_test.py: whose queries, keys and values are the model's inputs."""

import copy

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

POSITIONS = 96  # rows of the cos and sin caches


class Shape:
    """What the nodes of a model are like. layers: for each (query heads, KV heads, head size)."""

    def __init__(self, layers=((4, 2, 32), (6, 2, 16)), packed=False, half=False, rotary=None, interleaved=False,
                 partial=False, sink=False, position_ids=False, past=True, bias=False, hidden=None, **attributes):
        self.layers, self.packed, self.half, self.rotary, self.interleaved = layers, packed, half, rotary, interleaved
        self.partial, self.sink, self.position_ids, self.past, self.bias = partial, sink, position_ids, past, bias
        self.hidden = hidden  # a name in the place of the length of the query's rows
        self.attributes = attributes

    @property
    def number(self):
        return np.float16 if self.half else np.float32

    def without_past(self):
        """Without inputs and outputs of the model. ONNX Runtime up to 1.26 wants the nodes' outputs named."""
        made = copy.copy(self)
        made.past = False
        return made


def tables(shape, size):
    """The cos and sin caches of a layer."""
    half = size // 4 if shape.partial else size // 2
    angles = np.arange(POSITIONS)[:, None] * 100.0 ** (-np.arange(half) / half)
    return np.cos(angles).astype(shape.number), np.sin(angles).astype(shape.number)


def make_model(shape):
    """The bytes of a model: a GroupQueryAttention for each layer, with inputs q0, k0, v0, ... and outputs o0, ..."""
    kind = TensorProto.FLOAT16 if shape.half else TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, ["batch"]),
              helper.make_tensor_value_info("total", TensorProto.INT32, [])]
    outputs, nodes, constants = [], [], []
    if shape.position_ids:
        inputs.append(helper.make_tensor_value_info("position_ids", TensorProto.INT64, ["batch", "tokens"]))
    if shape.bias:
        inputs.append(helper.make_tensor_value_info("bias", kind, [1, 1, "tokens", "total"]))

    def constant(name, array):
        constants.append(numpy_helper.from_array(array, name))
        return name

    for layer, (heads, kv_heads, size) in enumerate(shape.layers):
        names = [f"{letter}{layer}" for letter in "qkv"]
        rows = [heads, kv_heads, kv_heads]
        if shape.packed:
            names, rows = names[:1], [heads + 2 * kv_heads]
        for name, count in zip(names, rows):
            inputs.append(helper.make_tensor_value_info(name, kind, ["batch", "tokens", shape.hidden or count * size]))
        names += [""] * (3 - len(names))
        own = [f"past_{letter}{layer}" if shape.past else "" for letter in "kv"]
        presents = [f"present_{letter}{layer}" for letter in "kv"]
        for name in filter(None, own):
            inputs.append(helper.make_tensor_value_info(name, kind, ["batch", kv_heads, "past", size]))
        cos, sin = tables(shape, size)
        names += [*own, "seqlens_k", "total",
                  constant(f"cos{layer}", cos) if shape.rotary else "",
                  constant(f"sin{layer}", sin) if shape.rotary else "",
                  "position_ids" if shape.position_ids else "", "bias" if shape.bias else "",
                  constant(f"sink{layer}", np.linspace(-1, 2, heads).astype(shape.number)) if shape.sink else ""]
        while not names[-1]:
            names.pop()
        nodes.append(helper.make_node("GroupQueryAttention", names, [f"o{layer}", *presents], f"attention_{layer}",
                                      domain="com.microsoft", num_heads=heads, kv_num_heads=kv_heads,
                                      do_rotary=int(bool(shape.rotary)), rotary_interleaved=int(shape.interleaved),
                                      **shape.attributes))
        outputs.append(helper.make_tensor_value_info(f"o{layer}", kind, ["batch", "tokens", heads * size]))
        for name in presents if shape.past else ():
            outputs.append(helper.make_tensor_value_info(name, kind, ["batch", kv_heads, "present", size]))
    graph = helper.make_graph(nodes, "attention", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def changed(model, change):
    """The bytes of a model whose graph was changed."""
    loaded = onnx.load_from_string(model)
    change(loaded.graph)
    return loaded.SerializeToString()


def into_branches(graph, computed=False):
    """Moves all nodes into both branches of an If. computed: they read no value of the graph around them, but what
    other nodes of the branch make of these."""
    branches = []
    for name in ("then", "else"):
        branch = onnx.GraphProto(name=name)
        branch.node.extend(graph.node)
        branch.output.extend(graph.output)
        for node in branch.node:
            node.name = f"{name}_{node.name}"
            node.output[:] = [f"{name}_{output}" for output in node.output]
            if computed:
                node.input[:] = [each and f"{name}_{each}" for each in node.input]
        if computed:
            read = sorted({each for node in branch.node for each in node.input if each})
            nodes = [helper.make_node("Abs", [each.removeprefix(f"{name}_")], [each]) for each in read]
            nodes += copy.deepcopy([*branch.node])
            del branch.node[:]
            branch.node.extend(nodes)
        for output in branch.output:
            output.name = f"{name}_{output.name}"
        branches.append(branch)
    del graph.node[:]
    graph.initializer.append(numpy_helper.from_array(np.array(True), "condition"))
    graph.input.append(helper.make_tensor_value_info("negated", TensorProto.BOOL, []))
    graph.node.append(helper.make_node("Xor", ["condition", "negated"], ["chosen"]))
    graph.node.append(helper.make_node("If", ["chosen"], [output.name for output in graph.output],
                                       then_branch=branches[0], else_branch=branches[1]))


def into_loop(graph):
    """Moves all nodes into the body of a Loop, which has inputs and reads values of the graph around it."""
    body = onnx.GraphProto(name="body")
    body.input.extend([helper.make_tensor_value_info("iteration", TensorProto.INT64, []),
                       helper.make_tensor_value_info("goes_on", TensorProto.BOOL, [])])
    body.node.extend(graph.node)
    body.node.append(helper.make_node("Identity", ["goes_on"], ["still"]))
    body.output.append(helper.make_tensor_value_info("still", TensorProto.BOOL, []))
    body.output.extend(graph.output)
    graph.initializer.append(numpy_helper.from_array(np.array(1), "times"))
    outputs = [f"all_{output.name}" for output in graph.output]
    del graph.node[:], graph.output[:]
    graph.node.append(helper.make_node("Loop", ["times", ""], outputs, body=body))
    graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)


def into_bfloat16(graph):
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.BFLOAT16


def with_function(model):
    """The bytes of a model with a function, which the runtime inlines."""
    loaded = onnx.load_from_string(model)
    opset = helper.make_opsetid("", 21)
    loaded.functions.append(helper.make_function(
        "local", "Twice", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["y"])], [opset]))
    loaded.opset_import.append(helper.make_opsetid("local", 1))
    loaded.graph.node.append(helper.make_node("Twice", ["o0"], ["twice"], domain="local"))
    loaded.graph.output.append(helper.make_tensor_value_info("twice", TensorProto.FLOAT, None))
    return loaded.SerializeToString()


def into_multi_head_attention(graph):
    """Makes other attention nodes of those without past."""
    for node in graph.node:
        node.op_type = "MultiHeadAttention"
        del node.input[3:], node.output[1:]
        heads = next(each for each in node.attribute if each.name == "num_heads")
        del node.attribute[:]
        node.attribute.extend([heads, helper.make_attribute("unidirectional", 1)])
    del graph.input[:2]  # lengths


def _with_node(operator, **values):
    """Adds a node. values: its "input" and "output"."""
    def change(graph):
        graph.node.append(helper.make_node(operator, [values["input"]], [values["output"]], "other"))
        graph.output.append(helper.make_empty_tensor_value_info(values["output"]))
    return change


def _compute_past(graph):
    next(value for value in graph.input if value.name == "past_k0").name = "given"
    graph.node.insert(0, helper.make_node("Abs", ["given"], ["past_k0"]))


def _add_weights(graph):
    graph.node[0].output.append("weights")


def _read_no_output(graph):
    del graph.output[0]


_ONE = Shape(layers=((4, 2, 32),), rotary=True)
# Models with one node that Winnow does not compute: the provider's reason, and a pattern of what strip_cache() says.
UNSERVED = {
    "bias": (make_model(Shape(_ONE.layers, bias=True)), "it has an attention_bias", "has an attention_bias"),
    "window": (make_model(Shape(_ONE.layers, local_window_size=0)), "its local_window_size is 0",
               "has local_window_size=0"),
    "weights": (changed(make_model(Shape(_ONE.layers, qk_output=1)), _add_weights),
                "its output 3 (weights) is not served", "has an output weights"),
    "past is computed": (changed(make_model(_ONE), _compute_past), "its past past_k0 is computed in the model",
                         "past_k0, the past of an attention node, is computed"),
    "past is read": (changed(make_model(_ONE), _with_node("Shape", input="past_k0", output="shape")),
                     "another node reads its past past_k0", "past_k0, .* is also an input of the node other"),
    "present is read": (changed(make_model(_ONE), _with_node("Abs", input="present_v0", output="abs")),
                        "another node reads its present present_v0",
                        "present_v0, .* is also an input of the node other"),
    "output is not read": (changed(make_model(_ONE), _read_no_output), "nobody reads its output o0",
                           "has an output o0 that nobody reads"),
}


def random_rows(shape, generator, batch, tokens):
    """Values for the inputs q0, k0, v0, ..."""
    feeds = {}
    for layer, (heads, kv_heads, size) in enumerate(shape.layers):
        made = [generator.standard_normal((batch, tokens, count * size)).astype(shape.number)
                for count in (heads, kv_heads, kv_heads)]
        if shape.packed:
            feeds[f"q{layer}"] = np.concatenate(made, axis=2)
        else:
            feeds |= {f"{letter}{layer}": rows for letter, rows in zip("qkv", made)}
    return feeds
