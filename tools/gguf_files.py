"""The beginning of GGUF files, whole or broken: what tests of `winnow plan` need of a model, and what made-up models of
other tests begin with.
"""

import struct

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
FORMATS = {UINT8: "B", INT8: "b", UINT16: "H", INT16: "h", UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "?",
           UINT64: "Q", INT64: "q", FLOAT64: "d"}


def text(string):
    data = string.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    """With its type before it; a list is (kind of its elements, elements)."""
    if kind == ARRAY:
        of, elements = content
        body = b"".join(text(each) if of == STRING else struct.pack("<" + FORMATS[of], each) for each in elements)
        return struct.pack("<IIQ", ARRAY, of, len(elements)) + body
    return struct.pack("<I", kind) + (text(content) if kind == STRING else struct.pack("<" + FORMATS[kind], content))


def header(values, version=3, magic=b"GGUF", count=None, tensors=0):
    """values: [(key, kind, content)]; count: what the file says that there are."""
    head = magic + struct.pack("<IQQ", version, tensors, len(values) if count is None else count)
    return head + b"".join(text(key) + value(kind, content) for key, kind, content in values)



def tensors(names):
    """What follows the values: tensors of one dimension, whose numbers nobody reads."""
    return b"".join(text(name) + struct.pack("<IQIQ", 1, 64, 0, 0) for name in names)


def model(architecture="llama", **changes):
    """The values of a small model. changes: by the last part of the key another (kind, content), or None for no key."""
    names = {"block_count": "block_count", "context_length": "context_length", "embedding_length": "embedding_length",
             "head_count": "attention.head_count", "head_count_kv": "attention.head_count_kv",
             "key_length": "attention.key_length", "value_length": "attention.value_length",
             "window": "attention.sliding_window", "pattern": "attention.sliding_window_pattern",
             "kv_lora_rank": "attention.kv_lora_rank", "key_length_mla": "attention.key_length_mla",
             "recurrent_layers": "attention.recurrent_layers", "interval": "full_attention_interval",
             "predicting": "nextn_predict_layers", "feed_forward": "feed_forward_length",
             "kernel": "ssm.conv_kernel", "inner": "ssm.inner_size", "state": "ssm.state_size",
             "groups": "ssm.group_count", "linear_head": "kda.head_dim", "convolution": "shortconv.l_cache"}
    content = {"block_count": (UINT32, 30), "context_length": (UINT32, 8192), "embedding_length": (UINT32, 576),
               "head_count": (UINT32, 9), "head_count_kv": (UINT32, 3)} | changes
    made = [("general.architecture", STRING, architecture), ("general.name", STRING, "A model"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "", "ccc"])),
            ("tokenizer.ggml.scores", ARRAY, (FLOAT32, [0.5, 1.0]))]
    return made + [(f"{architecture}.{names[key]}", *each) for key, each in content.items() if each is not None]
