"""Models in the shapes of real ones, as GGUF files with random weights in Q4_0: they take the memory and the time of
the real ones, and what they write means nothing.
"""

import array
import math
import random
import struct
from dataclasses import dataclass, replace

from random_models import F32, NORMAL, header, padding, tokenizer, vocabulary

Q4_0 = 2  # ggml's type of weights: blocks of 32, an f16 scale and 16 bytes
BLOCK, BLOCK_BYTES = 32, 18
SCALE = struct.pack("<e", 1 / 256)
PATTERN_BLOCKS = 65521  # a prime number, so that the pattern begins elsewhere in each row


@dataclass
class Shape:
    """What decides about memory and time."""

    architecture: str
    embedding: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int
    is_tied: bool
    has_head_norms: bool = False


SHAPES = {
    "llama-3.2-1b": Shape("llama", 2048, 16, 32, 8, 64, 8192, 128256, is_tied=True),
    "qwen3-4b": Shape("qwen3", 2560, 36, 32, 8, 128, 9728, 151936, is_tied=True, has_head_norms=True),
    "llama-3.1-8b": Shape("llama", 4096, 32, 32, 8, 128, 14336, 128256, is_tied=False),
}


def pattern():
    """Blocks of random weights, enough that no two rows are alike."""
    generator = random.Random(1)
    return b"".join(SCALE + generator.randbytes(BLOCK_BYTES - len(SCALE)) for _ in range(PATTERN_BLOCKS))


def matrices(shape):
    """[(name, shape)] of all that is in Q4_0."""
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield "token_embd", (shape.embedding, shape.vocabulary)
    if not shape.is_tied:
        yield "output", (shape.embedding, shape.vocabulary)
    for layer in range(shape.layers):
        for name, size in (("attn_q", (shape.embedding, queries)), ("attn_k", (shape.embedding, keys)),
                           ("attn_v", (shape.embedding, keys)), ("attn_output", (queries, shape.embedding)),
                           ("ffn_gate", (shape.embedding, shape.feed_forward)),
                           ("ffn_up", (shape.embedding, shape.feed_forward)),
                           ("ffn_down", (shape.feed_forward, shape.embedding))):
            yield f"blk.{layer}.{name}", size


def norms(shape):
    """[(name, width)] of all that is in F32."""
    yield "output_norm", shape.embedding
    for layer in range(shape.layers):
        yield f"blk.{layer}.attn_norm", shape.embedding
        yield f"blk.{layer}.ffn_norm", shape.embedding
        if shape.has_head_norms:
            yield f"blk.{layer}.attn_q_norm", shape.head_size
            yield f"blk.{layer}.attn_k_norm", shape.head_size


def values_of(shape, context):
    values = {
        "context_length": context,
        "embedding_length": shape.embedding,
        "block_count": shape.layers,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_size,
        "attention.value_length": shape.head_size,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape.head_size,
    }
    _, known = vocabulary()
    words = tokenizer()
    more = shape.vocabulary - len(known)
    words["tokenizer.ggml.tokens"] += [f"unused{number}" for number in range(more)]
    words["tokenizer.ggml.scores"] += [-1e6] * more
    words["tokenizer.ggml.token_type"] += [NORMAL] * more
    return {"general.architecture": shape.architecture,
            **{f"{shape.architecture}.{key}": value for key, value in values.items()}, **words}


def write(shape, path, context=131072):
    """Writes the file of a shape, and returns its path."""
    tensors = [(f"{name}.weight", size, Q4_0, math.prod(size) // BLOCK * BLOCK_BYTES) for name, size in matrices(shape)]
    tensors += [(f"{name}.weight", (width,), F32, 4 * width) for name, width in norms(shape)]
    weights = pattern()
    partial = path.with_suffix(".part")
    with open(partial, "wb") as file:
        file.write(header(values_of(shape, context), tensors))
        for _, size, kind, count in tensors:
            if kind == F32:
                file.write(array.array("f", [1]) * size[0])
            else:
                write_repeated(file, weights, count)
            file.write(padding(count))
    partial.rename(path)
    return path


def write_repeated(file, data, count):
    whole, rest = divmod(count, len(data))
    for _ in range(whole):
        file.write(data)
    file.write(data[:rest])


def written(shape, path):
    return path if path.exists() else write(shape, path)


def make(name, folder):
    """The path of the model's file, made if it is not there."""
    return written(SHAPES[name], folder / f"sized-{name}.gguf")


def make_thin(name, folder):
    """The same for a model of one layer that is as small as can be around the same heads: it has the same kernels
    compiled, and reads a prompt in no time.
    """
    thin = replace(SHAPES[name], embedding=256, layers=1, feed_forward=256, vocabulary=len(vocabulary()[1]))
    return written(thin, folder / f"thin-{name}.gguf")
