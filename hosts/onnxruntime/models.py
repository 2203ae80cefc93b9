"""Decoders in ONNX, made without a network: tiny random ones for tests, or with the weights of a GGUF file.

    models.py GGUF_FILE FOLDER [--last-logits] [--context 4096]

writes FOLDER/model.onnx with its weights in float32 beside it, tokenizer.json, and a genai_config.json unless there are
only the last token's logits.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
LEAST_EXTERNAL = 1024  # bytes; smaller tensors stay in the model


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a decoder looks like. The hidden state has heads * head_size elements."""
    layers: int = 3
    heads: int = 6
    kv_heads: int = 2
    head_size: int = 64
    feed_forward: int = 128
    vocabulary: int = 97
    context: int = 512  # positions that RoPE's tables have
    theta: float = 10000.0
    epsilon: float = 1e-5
    operator: str = "GroupQueryAttention"  # or MultiHeadAttention, for which kv_heads is heads
    rotary: str = "halves"  # which elements form a pair: "halves", "interleaved"; or "none"
    packed: bool = False  # Q, K and V in one tensor
    bias: bool = False  # of Q, K and V
    softcap: float = 0.0
    scale: float = 0.0  # 0: 1 / sqrt(head_size)
    window: int = -1  # newest tokens that a query sees, itself included; -1: all
    smooth_softmax: bool = False
    sinks: bool = False  # a logit for each query head, which takes part in the softmax
    half: bool = False  # attention in float16, between casts
    past: bool = True  # inputs past_key_values.0.key, ... and outputs present.0.key, ...
    last_logits: bool = False  # logits of the last token only

    @property
    def width(self):
        return self.heads * self.head_size

    @property
    def kv_width(self):
        return self.kv_heads * self.head_size


def random_weights(shape, seed=0):
    """Weights by their names in GGUF files, with which logits of different tokens differ."""
    random = np.random.default_rng(seed)

    def matrix(rows, columns, gain=1.5):
        return (random.standard_normal((rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    width, feed_forward = shape.width, shape.feed_forward
    weights = {"token_embd.weight": matrix(shape.vocabulary, width), "output.weight": matrix(shape.vocabulary, width),
               "output_norm.weight": np.ones(width, np.float32)}
    for layer in range(shape.layers):
        sizes = {"attn_q": (width, width), "attn_k": (shape.kv_width, width), "attn_v": (shape.kv_width, width),
                 "attn_output": (width, width), "ffn_gate": (feed_forward, width), "ffn_up": (feed_forward, width),
                 "ffn_down": (width, feed_forward)}
        for name, (rows, columns) in sizes.items():
            weights[f"blk.{layer}.{name}.weight"] = matrix(rows, columns)
            if shape.bias and name in ("attn_q", "attn_k", "attn_v"):
                weights[f"blk.{layer}.{name}.bias"] = random.standard_normal(rows).astype(np.float32)
        weights[f"blk.{layer}.attn_sinks.weight"] = random.standard_normal(shape.heads).astype(np.float32)
        for name in ("attn_norm", "ffn_norm"):
            weights[f"blk.{layer}.{name}.weight"] = np.ones(width, np.float32)
    return weights


class GgufWeights:
    """The weights of a GGUF file, each dequantized when it is asked for."""

    def __init__(self, path):
        import gguf

        self._dequantize = gguf.dequantize
        self.reader = gguf.GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self.reader.tensors}

    def __contains__(self, name):
        return name in self._tensors

    def __getitem__(self, name):
        tensor = self._tensors[name]
        return self._dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    def field(self, name):
        field = self.reader.fields.get(name)
        return None if field is None else field.contents()

    def shape(self, **changes):
        architecture = self.field("general.architecture")
        if architecture not in ("llama", "qwen2"):
            raise ValueError(f"{architecture} is not known here, expected a model of the architecture llama or qwen2")

        def of(name):
            return self.field(f"{architecture}.{name}")

        heads, vocabulary = of("attention.head_count"), self._tensors["token_embd.weight"].shape[1]
        # llama.cpp's converter permutes the rows of Q and K of the architecture llama.
        shape = Shape(layers=of("block_count"), heads=heads, kv_heads=of("attention.head_count_kv"),
                      head_size=of("embedding_length") // heads, feed_forward=of("feed_forward_length"),
                      vocabulary=int(vocabulary), context=of("context_length"), theta=of("rope.freq_base"),
                      epsilon=of("attention.layer_norm_rms_epsilon"), bias="blk.0.attn_q.bias" in self,
                      rotary="interleaved" if architecture == "llama" else "halves")
        return dataclasses.replace(shape, **changes)


class _Builder:
    def __init__(self, shape, weights, data):
        """data: a file to which weights are appended, or None to have them in the model."""
        self.shape, self.weights, self.data = shape, weights, data
        self.nodes, self.tensors, self.inputs, self.outputs = [], {}, [], []
        self.cache_type = TensorProto.FLOAT16 if shape.half else TensorProto.FLOAT

    def constant(self, name, array):
        if name not in self.tensors:
            array = np.ascontiguousarray(array)
            if self.data is None or array.nbytes < LEAST_EXTERNAL:
                self.tensors[name] = numpy_helper.from_array(array, name)
            else:
                self.tensors[name] = self.external(name, array)
        return name

    def external(self, name, array):
        self.data.seek(-self.data.tell() % 4096, 1)  # so that a runtime can map it
        tensor = TensorProto(name=name, dims=array.shape, data_location=TensorProto.EXTERNAL,
                             data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
        for key, value in (("location", Path(self.data.name).name), ("offset", self.data.tell()),
                           ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.data.write(memoryview(array).cast("B"))
        return tensor

    def node(self, operator, inputs, outputs=1, domain="", name=None, **attributes):
        """The name of its first output. outputs: how many, or their names."""
        name = name or f"{operator}_{len(self.nodes)}"
        outputs = [f"{name}_{number}" for number in range(outputs)] if isinstance(outputs, int) else outputs
        self.nodes.append(helper.make_node(operator, inputs, outputs, name, domain=domain, **attributes))
        return outputs[0]

    def cast(self, value, kind):
        return self.node("Cast", [value], to=kind)

    def norm(self, value, name):
        return self.node("SimplifiedLayerNormalization", [value, self.constant(name, self.weights[name])], axis=-1,
                         epsilon=self.shape.epsilon, stash_type=1)

    def linear(self, value, *names):
        """value times the weights of these names, side by side."""
        matrix = np.concatenate([self.weights[f"{name}.weight"] for name in names])
        value = self.node("MatMul", [value, self.constant(f"{'+'.join(names)}.weight", matrix.T)])
        if f"{names[0]}.bias" in self.weights:
            bias = np.concatenate([self.weights[f"{name}.bias"] for name in names])
            value = self.node("Add", [value, self.constant(f"{'+'.join(names)}.bias", bias)])
        return value

    def tables(self):
        """cos and sin of RoPE: [context, head_size / 2]."""
        shape = self.shape
        rates = shape.theta ** (-np.arange(0, shape.head_size, 2) / shape.head_size)
        angles = np.arange(shape.context)[:, None] * rates
        kind = np.float16 if shape.half else np.float32
        return [self.constant("cos_cache", np.cos(angles).astype(kind)),
                self.constant("sin_cache", np.sin(angles).astype(kind))]

    def cache_tensors(self, layer):
        """Names of past_key and past_value, and of present_key and present_value. Without a cache the latter have
        names, too, because onnxruntime up to 1.26 requires them."""
        pasts = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        presents = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        if not self.shape.past:
            return ["", ""], presents
        for names, values, length in ((pasts, self.inputs, "past"), (presents, self.outputs, "total")):
            for name in names:
                values.append(helper.make_tensor_value_info(
                    name, self.cache_type, ["batch", self.shape.kv_heads, length, self.shape.head_size]))
        return pasts, presents

    def attention(self, layer, value):
        shape, prefix = self.shape, f"blk.{layer}"
        projections = [f"{prefix}.attn_{kind}" for kind in "qkv"]
        rows = [self.linear(value, *names) for names in ([projections] if shape.packed else zip(projections))]
        if shape.half:
            rows = [self.cast(each, TensorProto.FLOAT16) for each in rows]
        pasts, presents = self.cache_tensors(layer)
        outputs = [f"{prefix}.attention", *presents]
        attributes = {"scale": shape.scale} if shape.scale else {}
        if shape.operator == "MultiHeadAttention":
            rows[:2] = [self.rotated(each) for each in rows[:2]]
            inputs = [*rows, "", "", "", *pasts]
            attributes |= {"num_heads": shape.heads, "unidirectional": 1}
        else:
            sinks = ["", "", self.constant(f"{prefix}.sinks", self.weights[f"{prefix}.attn_sinks.weight"].astype(
                np.float16 if shape.half else np.float32))] if shape.sinks else []
            rotary = ["", ""] if shape.rotary == "none" else self.tables()
            inputs = [*rows, *[""] * (3 - len(rows)), *pasts, "seqlens_k", "total", *rotary, *sinks]
            attributes |= {"num_heads": shape.heads, "kv_num_heads": shape.kv_heads, "softcap": shape.softcap,
                           "local_window_size": shape.window, "do_rotary": int(shape.rotary != "none"),
                           "rotary_interleaved": int(shape.rotary == "interleaved"),
                           "smooth_softmax": int(shape.smooth_softmax)}
            attributes = {name: number for name, number in attributes.items()
                          if number != {"local_window_size": -1}.get(name, 0)}
        while not inputs[-1]:
            inputs.pop()
        value = self.node(shape.operator, inputs, outputs, MICROSOFT, f"attention_{layer}", **attributes)
        return self.cast(value, TensorProto.FLOAT) if shape.half else value

    def rotated(self, rows):
        if self.shape.rotary == "none":
            return rows
        return self.node("RotaryEmbedding", [rows, "position_ids", *self.tables()], domain=MICROSOFT,
                         interleaved=int(self.shape.rotary == "interleaved"))

    def lengths(self):
        """seqlens_k (of each row less 1), total, and position_ids: from the attention mask and the input's length."""
        self.constant("one", np.array([1], np.int64))
        ones = self.node("ReduceSum", ["attention_mask", "one"], keepdims=0)
        self.node("Cast", [self.node("Sub", [ones, "one"])], ["seqlens_k"], to=TensorProto.INT32)
        columns = self.node("Shape", ["attention_mask"], start=1, end=2)
        self.node("Cast", [columns], ["total"], to=TensorProto.INT32)
        if self.shape.operator == "MultiHeadAttention":
            counted = self.node("CumSum", ["attention_mask", self.constant("axis", np.array(1, np.int64))])
            positions = self.node("Sub", [counted, "one"])
            first = self.node("Neg", [self.node("Shape", ["input_ids"], start=1, end=2)])
            self.constant("end", np.array([np.iinfo(np.int64).max]))
            self.node("Slice", [positions, first, "end", "one"], ["position_ids"])

    def model(self):
        shape = self.shape
        value = self.node("Gather", [self.constant("token_embd.weight", self.weights["token_embd.weight"]),
                                     "input_ids"])
        self.lengths()
        for layer in range(shape.layers):
            prefix = f"blk.{layer}"
            attended = self.attention(layer, self.norm(value, f"{prefix}.attn_norm.weight"))
            value = self.node("Add", [value, self.linear(attended, f"{prefix}.attn_output")])
            rows = self.norm(value, f"{prefix}.ffn_norm.weight")
            gate = self.linear(rows, f"{prefix}.ffn_gate")
            gate = self.node("Mul", [gate, self.node("Sigmoid", [gate])])
            rows = self.node("Mul", [gate, self.linear(rows, f"{prefix}.ffn_up")])
            value = self.node("Add", [value, self.linear(rows, f"{prefix}.ffn_down")])
        if shape.last_logits:
            self.constant("last", np.array([-1], np.int64))
            self.constant("end", np.array([np.iinfo(np.int64).max]))
            value = self.node("Slice", [value, "last", "end", "one"])
        self.head(self.norm(value, "output_norm.weight"))
        ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length])
               for name, length in (("input_ids", "tokens"), ("attention_mask", "total"))]
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "rows", shape.vocabulary])
        graph = helper.make_graph(self.nodes, "decoder", [*ids, *self.inputs], [logits, *self.outputs],
                                  list(self.tensors.values()))
        # What runtimes of 2024 read, too.
        return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21),
                                                                      helper.make_opsetid(MICROSOFT, 1)])

    def head(self, value):
        """The logits: by the matrix of embeddings where there is no other, without a transposed copy."""
        name = "output.weight" if "output.weight" in self.weights else "token_embd.weight"
        rows = self.node("Reshape", [value, self.constant("rows", np.array([-1, self.shape.width]))])
        flat = self.node("Gemm", [rows, self.constant(name, self.weights[name])], transB=1)
        leading = self.node("Shape", [value], end=2)
        to = self.node("Concat", [leading, self.constant("vocabulary", np.array([self.shape.vocabulary]))], axis=0)
        self.node("Reshape", [flat, to], ["logits"])


def make(shape, weights=None):
    """An onnx.ModelProto with its weights inside; random ones unless they are given."""
    return _Builder(shape, random_weights(shape) if weights is None else weights, None).model()


def write(folder, shape, weights=None, end_of_text=None):
    """Writes model.onnx with its weights beside it, and genai_config.json unless the model has last_logits, which genai
    does not take. end_of_text: the token that ends a text. Returns the model's path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    with open(folder / "model.onnx.data", "wb") as data:
        model = _Builder(shape, random_weights(shape) if weights is None else weights, data).model()
    path.write_bytes(model.SerializeToString())
    if not shape.last_logits:
        (folder / "genai_config.json").write_text(json.dumps(genai_config(shape, end_of_text), indent=4))
    return path


def genai_config(shape, end_of_text):
    """What onnxruntime-genai reads beside a model."""
    cache = {"inputs": {f"past_{kind}_names": f"past_key_values.%d.{kind}" for kind in ("key", "value")},
             "outputs": {f"present_{kind}_names": f"present.%d.{kind}" for kind in ("key", "value")}}
    last = shape.vocabulary - 1
    return {
        "model": {
            "type": "llama", "vocab_size": shape.vocabulary, "context_length": shape.context, "bos_token_id": last,
            "eos_token_id": last if end_of_text is None else end_of_text, "pad_token_id": last,
            "decoder": {
                "session_options": {"provider_options": []}, "filename": "model.onnx", "head_size": shape.head_size,
                "hidden_size": shape.width, "num_attention_heads": shape.heads, "num_hidden_layers": shape.layers,
                "num_key_value_heads": shape.kv_heads,
                "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **cache["inputs"]},
                "outputs": {"logits": "logits", **cache["outputs"]}}},
        "search": {"max_length": shape.context, "do_sample": False, "past_present_share_buffer": True}}


# How text is cut before its parts become tokens, by "tokenizer.ggml.pre".
CUTS = {"qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
                 r"\s+(?!\S)|\s+", "smollm": None}


def write_tokenizer(path, weights):
    """Writes tokenizer.json, with the tokens of a GGUF file but without its control tokens' meaning."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    kind = weights.field("tokenizer.ggml.pre")
    if kind not in CUTS:
        raise ValueError(f"the tokenizer {kind} is not known here, expected one of {', '.join(CUTS)}")
    merges = [tuple(merge.split(" ")) for merge in weights.field("tokenizer.ggml.merges")]
    tokens = {token: number for number, token in enumerate(weights.field("tokenizer.ggml.tokens"))}
    made = Tokenizer(models.BPE(tokens, merges))
    cut = CUTS[kind]
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(cut), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)] if cut else
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    made.save(str(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--last-logits", action="store_true", help="of a call only the last token's logits")
    parser.add_argument("--context", type=int, help="positions of RoPE's tables (default: the model's context)")
    options = parser.parse_args()
    weights = GgufWeights(options.gguf)
    changes = {"context": options.context} if options.context else {}
    print(write(options.folder, weights.shape(last_logits=options.last_logits, **changes), weights,
                weights.field("tokenizer.ggml.eos_token_id")))
    write_tokenizer(options.folder / "tokenizer.json", weights)


if __name__ == "__main__":
    main()
