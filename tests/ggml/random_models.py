"""Models of several families with few, random weights, as GGUF files: the same bytes at each call.

Each is made so that its attention matters: scores differ by some units, and what attention adds to a token's vector is
as large as the vector. Texts that they write are strings of letters, by which the tokens can be told.
"""

import array
import math
import random
import string
import struct
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

import gguf_files  # noqa: E402
from gguf_files import ARRAY, FLOAT32, INT32, STRING, UINT32  # noqa: E402

F32 = 0  # ggml's type of weights
ALIGNMENT = 32
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # types of tokens

EMBEDDING = 192
FEED_FORWARD = 128
LAYERS = 2
TRAINED_CONTEXT = 16384
LOGITS = 1.5  # how much they differ
SHARP = 1.6  # gain of queries and of keys
WINDOW = 48  # of the family with windows


def vocabulary():
    """[(text, type)]: every byte, so that any text can be read, and tokens of one and two characters."""
    special = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    special += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    single = ["\u2581", *string.ascii_letters, *string.digits, *string.punctuation]
    double = [consonant + vowel for consonant in "bcdfghjklmnprstvwyz" for vowel in "aeiou"]
    return special, special + [(text, NORMAL) for text in single + double]


class Model:
    """What a file has: values by key, weights by name."""

    def __init__(self, architecture, values, noise=0.0):
        """noise: how far the weights are from those that another model of the architecture has under the same names."""
        self.architecture = architecture
        self.noise = noise
        self.values = {f"{architecture}.{key}": value for key, value in values.items()}
        self.weights = {}

    def add(self, name, shape, gain=1.0):
        """A matrix of a whole layer's width of inputs, so that the outputs are `gain` times as large as the inputs."""
        count = math.prod(shape)
        reach = gain * math.sqrt(3 / shape[0])
        table = [reach * (2 * byte / 255 - 1) for byte in range(256)]
        generator = random.Random(f"{self.architecture} {name}")
        weights = array.array("f", map(table.__getitem__, generator.randbytes(count)))
        if self.noise:
            other = map(table.__getitem__, generator.randbytes(count))
            weights = array.array("f", (one + self.noise * more for one, more in zip(weights, other)))
        self.weights[f"{name}.weight"] = (shape, weights)

    def add_norm(self, name, width, gain=1.0):
        self.weights[f"{name}.weight"] = ((width,), array.array("f", [gain]) * width)

    def add_bias(self, name, shape):
        """One that is 0, for a model that has to have it."""
        self.weights[f"{name}.bias"] = (shape, array.array("f", [0]) * math.prod(shape))

    def add_experts(self, layer, count):
        """Feed-forward networks, and the choice between them."""
        self.add(f"blk.{layer}.ffn_gate_inp", (EMBEDDING, count))
        self.add_bias(f"blk.{layer}.ffn_gate_inp", (count,))
        for name, shape in (("gate", (EMBEDDING, FEED_FORWARD)), ("up", (EMBEDDING, FEED_FORWARD)),
                            ("down", (FEED_FORWARD, EMBEDDING))):
            self.add(f"blk.{layer}.ffn_{name}_exps", (*shape, count))
            self.add_bias(f"blk.{layer}.ffn_{name}_exps", (shape[1], count))

    def add_output_norm(self, gain=1.0):
        """With signs: where the table of tokens is also the output, a token does not call for itself."""
        signs = random.Random(self.architecture).choices((-gain, gain), k=EMBEDDING)
        self.weights["output_norm.weight"] = ((EMBEDDING,), array.array("f", signs))

    def add_tokens(self, is_tied, gain=math.sqrt(EMBEDDING)):
        """is_tied: one table for tokens that are read and that are written. Of the latter the special ones and the
        bytes are 0: they are never the likeliest."""
        special, tokens = vocabulary()
        self.add("token_embd", (EMBEDDING, len(tokens)), gain)
        if not is_tied:
            self.add("output", (EMBEDDING, len(tokens)), LOGITS)
        hidden = len(special) * EMBEDDING
        table = self.weights["token_embd.weight" if is_tied else "output.weight"][1]
        table[:hidden] = array.array("f", [0]) * hidden

    def add_feed_forward(self, layer):
        self.add_norm(f"blk.{layer}.ffn_norm", EMBEDDING)
        for name in ("ffn_gate", "ffn_up"):
            self.add(f"blk.{layer}.{name}", (EMBEDDING, FEED_FORWARD))
        self.add(f"blk.{layer}.ffn_down", (FEED_FORWARD, EMBEDDING))

    def add_attention(self, layer, heads, kv_heads, size):
        self.add(f"blk.{layer}.attn_q", (EMBEDDING, heads * size), SHARP)
        self.add(f"blk.{layer}.attn_k", (EMBEDDING, kv_heads * size), SHARP)
        self.add(f"blk.{layer}.attn_v", (EMBEDDING, kv_heads * size), 2)
        self.add(f"blk.{layer}.attn_output", (heads * size, EMBEDDING), 2)

    def add_fused_attention(self, layer, q_width, kv_width, has_one_bias):
        widths = {"qkv": q_width + 2 * kv_width} if has_one_bias else {"q": q_width, "k": kv_width, "v": kv_width}
        self.add(f"blk.{layer}.attn_qkv", (EMBEDDING, q_width + 2 * kv_width), SHARP)
        self.add(f"blk.{layer}.attn_output", (q_width, EMBEDDING), 2)
        for name, width in widths.items():
            self.add_bias(f"blk.{layer}.attn_{name}", (width,))

    def write(self, path):
        values = {"general.architecture": self.architecture, **self.values, **tokenizer()}
        body = {name: weights.tobytes() for name, (_, weights) in self.weights.items()}
        head = header(values, [(name, shape, F32, len(body[name])) for name, (shape, _) in self.weights.items()])
        path.write_bytes(head + b"".join(data + padding(len(data)) for data in body.values()))
        return path


def padding(size):
    """What stands behind so many bytes before the next part of a file."""
    return bytes(-size % ALIGNMENT)


def header(values, tensors):
    """A file's beginning. tensors: (name, shape, ggml's type, bytes), whose data follow in this order, each padded."""
    head = gguf_files.header([(key, *typed(value)) for key, value in values.items()], tensors=len(tensors))
    at = 0
    for name, shape, kind, size in tensors:
        head += gguf_files.text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at)
        at += size + len(padding(size))
    return head + padding(len(head))


def typed(value):
    """(GGUF's type, content). llama.cpp expects single integers without a sign, and lists of them with one."""
    kinds = {int: UINT32, float: FLOAT32, str: STRING}
    if not isinstance(value, list):
        return kinds[type(value)], value
    kind = kinds[type(value[0])]
    return ARRAY, (INT32 if kind == UINT32 else kind, value)


def tokenizer():
    _, tokens = vocabulary()
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [text for text, _ in tokens],
        "tokenizer.ggml.scores": [float(len(text)) for text, _ in tokens],
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def shape_of(layers, heads, kv_heads, size, **more):
    return {
        "context_length": TRAINED_CONTEXT,
        "embedding_length": EMBEDDING,
        "block_count": layers,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": size,
        "attention.value_length": size,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": size,
        **more,
    }


def llama(heads, kv_heads, size, noise=0.0, bias=None):
    """bias: one matrix of queries, keys and values, with a bias of theirs ("qkv"), or with one of each ("k")."""
    model = Model("llama", shape_of(LAYERS, heads, kv_heads, size), noise)
    model.add_tokens(is_tied=False)
    for layer in range(LAYERS):
        model.add_norm(f"blk.{layer}.attn_norm", EMBEDDING)
        if bias:
            model.add_fused_attention(layer, heads * size, kv_heads * size, bias == "qkv")
        else:
            model.add_attention(layer, heads, kv_heads, size)
        model.add_feed_forward(layer)
    model.add_norm("output_norm", EMBEDDING)
    return model


def gemma2():
    """Every other layer within a window, scores and logits softly capped."""
    heads, kv_heads, size, layers = 3, 1, 64, 4
    more = {"attention.sliding_window": WINDOW, "attn_logit_softcapping": 6.0, "final_logit_softcapping": 30.0}
    model = Model("gemma2", shape_of(layers, heads, kv_heads, size, **more))
    model.add_tokens(is_tied=True, gain=1)  # which are multiplied by math.sqrt(EMBEDDING)
    for layer in range(layers):
        model.add_norm(f"blk.{layer}.attn_norm", EMBEDDING)
        model.add_attention(layer, heads, kv_heads, size)
        model.add_norm(f"blk.{layer}.post_attention_norm", EMBEDDING, 10)
        model.add_feed_forward(layer)
        model.add_norm(f"blk.{layer}.post_ffw_norm", EMBEDDING, 10)
    model.add_output_norm(LOGITS)
    return model


def deepseek2():
    """Latent attention (MLA): a cache of keys alone, whose first part are the values."""
    heads, latent, rotated, plain, value, query = 4, 512, 64, 64, 64, 64
    more = {
        "attention.q_lora_rank": query,
        "attention.kv_lora_rank": latent,
        "attention.key_length_mla": plain + rotated,
        "attention.value_length_mla": value,
        "attention.value_length": latent,
        "rope.dimension_count": rotated,
        "leading_dense_block_count": LAYERS,
        "expert_feed_forward_length": FEED_FORWARD,
        "expert_shared_count": 1,
    }
    model = Model("deepseek2", shape_of(LAYERS, heads, 1, latent + rotated, **more))
    model.add_tokens(is_tied=False)
    for layer in range(LAYERS):
        model.add_norm(f"blk.{layer}.attn_norm", EMBEDDING)
        model.add(f"blk.{layer}.attn_q_a", (EMBEDDING, query))
        model.add_norm(f"blk.{layer}.attn_q_a_norm", query)
        model.add(f"blk.{layer}.attn_q_b", (query, heads * (plain + rotated)), SHARP)
        model.add(f"blk.{layer}.attn_kv_a_mqa", (EMBEDDING, latent + rotated), SHARP)
        model.add_norm(f"blk.{layer}.attn_kv_a_norm", latent)
        model.add(f"blk.{layer}.attn_k_b", (plain, latent, heads), SHARP)
        model.add(f"blk.{layer}.attn_v_b", (latent, value, heads), 2)
        model.add(f"blk.{layer}.attn_output", (heads * value, EMBEDDING), 2)
        model.add_feed_forward(layer)
    model.add_norm("output_norm", EMBEDDING)
    return model


def lfm2():
    """Short convolutions, whose state is no cache, and attention in turn."""
    heads, kv_heads, size, layers = 3, 1, 64, 4
    of_layers = [0, kv_heads] * (layers // 2)
    model = Model("lfm2", shape_of(layers, heads, of_layers, size, **{"shortconv.l_cache": 3}))
    model.add_tokens(is_tied=False)
    for layer in range(layers):
        model.add_norm(f"blk.{layer}.attn_norm", EMBEDDING)
        if of_layers[layer]:
            model.add_attention(layer, heads, kv_heads, size)
            model.add_norm(f"blk.{layer}.attn_q_norm", size, SHARP)
            model.add_norm(f"blk.{layer}.attn_k_norm", size, SHARP)
        else:
            model.add(f"blk.{layer}.shortconv.conv", (3, EMBEDDING))
            model.add(f"blk.{layer}.shortconv.in_proj", (EMBEDDING, 3 * EMBEDDING))
            model.add(f"blk.{layer}.shortconv.out_proj", (EMBEDDING, EMBEDDING))
        model.add_feed_forward(layer)
    model.add_norm("token_embd_norm", EMBEDDING)
    return model


def openelm():
    """Layers with one and with two heads of keys and values, three of queries for each."""
    kv_heads, size = [1, 2, 1], 64
    heads = [3 * count for count in kv_heads]
    model = Model("openelm", shape_of(len(kv_heads), heads, kv_heads, size))
    model.add_tokens(is_tied=True)
    for layer, count in enumerate(kv_heads):
        model.add_norm(f"blk.{layer}.attn_norm", EMBEDDING)
        model.add(f"blk.{layer}.attn_qkv", (EMBEDDING, 5 * count * size), 2)
        model.add_norm(f"blk.{layer}.attn_q_norm", size, SHARP)
        model.add_norm(f"blk.{layer}.attn_k_norm", size, SHARP)
        model.add(f"blk.{layer}.attn_output", (3 * count * size, EMBEDDING), 2)
        model.add_feed_forward(layer)
    model.add_output_norm(LOGITS / math.sqrt(EMBEDDING))
    return model


def llama4():
    """Three layers in chunks of 8,192 tokens, which the architecture does not let a file choose, and one without."""
    heads, kv_heads, size, layers = 3, 1, 64, 4
    more = {"interleave_moe_layer_step": 0, "expert_count": 1, "expert_used_count": 1,
            "expert_feed_forward_length": FEED_FORWARD}
    model = Model("llama4", shape_of(layers, heads, kv_heads, size, **more))
    model.add_tokens(is_tied=False)
    for layer in range(layers):
        model.add_norm(f"blk.{layer}.attn_norm", EMBEDDING)
        model.add_attention(layer, heads, kv_heads, size)
        model.add_feed_forward(layer)
    model.add_norm("output_norm", EMBEDDING)
    return model


def mpt():
    """Distances in the mask (ALiBi) instead of rotated keys, so that a shift turns none."""
    heads, size = EMBEDDING // 64, 64
    more = {"attention.max_alibi_bias": 8.0, "attention.layer_norm_epsilon": 1e-5}
    model = Model("mpt", shape_of(LAYERS, heads, heads, size, **more))
    model.add_tokens(is_tied=False)
    for layer in range(LAYERS):
        model.add_norm(f"blk.{layer}.attn_norm", EMBEDDING)
        model.add(f"blk.{layer}.attn_qkv", (EMBEDDING, 3 * EMBEDDING), SHARP)
        model.add(f"blk.{layer}.attn_output", (EMBEDDING, EMBEDDING), 2)
        model.add_norm(f"blk.{layer}.ffn_norm", EMBEDDING)
        model.add(f"blk.{layer}.ffn_up", (EMBEDDING, FEED_FORWARD))
        model.add(f"blk.{layer}.ffn_down", (FEED_FORWARD, EMBEDDING))
    model.add_norm("output_norm", EMBEDDING)
    return model


def gpt_oss():
    """A sink of each head in the softmax, and every other layer within a window."""
    heads, kv_heads, size, experts = 3, 1, 64, 2
    more = {"attention.sliding_window": WINDOW, "expert_count": experts, "expert_used_count": 1,
            "expert_feed_forward_length": FEED_FORWARD}
    model = Model("gpt-oss", shape_of(LAYERS, heads, kv_heads, size, **more))
    model.add_tokens(is_tied=False)
    for layer in range(LAYERS):
        model.add_norm(f"blk.{layer}.attn_norm", EMBEDDING)
        model.add_attention(layer, heads, kv_heads, size)
        for name, width in (("q", heads * size), ("k", kv_heads * size), ("v", kv_heads * size), ("output", EMBEDDING)):
            model.add_bias(f"blk.{layer}.attn_{name}", (width,))
        model.add_norm(f"blk.{layer}.attn_sinks", heads, 2)
        model.add_norm(f"blk.{layer}.post_attention_norm", EMBEDDING)
        model.add_experts(layer, experts)
    model.add_norm("output_norm", EMBEDDING)
    return model


def gemma_embedding():
    """An encoder without a cache: tokens see those behind them, too, in every other layer within a window."""
    heads, kv_heads, size = 3, 1, 64
    more = {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": 2}
    model = Model("gemma-embedding", shape_of(LAYERS, heads, kv_heads, size, **more))
    model.add_tokens(is_tied=True, gain=1)
    for layer in range(LAYERS):
        model.add_norm(f"blk.{layer}.attn_norm", EMBEDDING)
        model.add_attention(layer, heads, kv_heads, size)
        model.add_norm(f"blk.{layer}.attn_q_norm", size, SHARP)
        model.add_norm(f"blk.{layer}.attn_k_norm", size, SHARP)
        model.add_norm(f"blk.{layer}.post_attention_norm", EMBEDDING)
        model.add_feed_forward(layer)
        model.add_norm(f"blk.{layer}.post_ffw_norm", EMBEDDING)
    model.add_output_norm()
    return model


FAMILIES = {
    "plain": lambda: llama(3, 1, 64),
    "draft": lambda: llama(3, 1, 64, noise=0.03),  # which mostly says what "plain" says
    "grouped": lambda: llama(8, 2, 128),
    "multi_head": lambda: llama(3, 3, 80),
    "windows": gemma2,
    "latent": deepseek2,
    "hybrid": lfm2,
    "uneven": openelm,
    "chunked": llama4,
    "alibi": mpt,
    "sinks": gpt_oss,
    "encoder": gemma_embedding,
}

# How many caches llama.cpp makes and Winnow has of a family: one more for layers with windows or chunks, or one for
# each number of heads.
CACHES = {"windows": 2, "chunked": 2, "sinks": 2, "uneven": 2, "encoder": 0}


def caches(family):
    return CACHES.get(family, 1)


def make(family, folder):
    """The path of the family's file, made if it is not there."""
    return FAMILIES[family]().write(folder / f"random-{family}.gguf")
