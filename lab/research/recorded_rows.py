"""Keys and queries of a model while it reads a text with its full cache, for programs that look at them."""

import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "eval"))

import winnow_eval  # noqa: F401, E402  which has tools/calibrate in the path
from winnow_calibrate import codebooks, profile, text  # noqa: E402  after its path
from winnow_calibrate.host import Host, find_plugin, find_programs  # noqa: E402

EVERY = 8  # every so many queries are recorded


def add_files(parser):
    """What a program that runs a model over a text takes."""
    for name, what in (("llama-cpp", "folder of llama.cpp's programs"), ("plugin", "libwinnow_ggml.so"),
                       ("model", "GGUF file"), ("text", "UTF-8")):
        parser.add_argument(f"--{name}", type=Path, required=True, help=what)


def add_options(parser):
    """What record() needs of the command line."""
    add_files(parser)
    parser.add_argument("--context", type=int, default=2048, help="tokens (default: %(default)s)")
    parser.add_argument("--count", type=int, default=2, help="contexts (default: %(default)s)")


def add_part(parser):
    """The part of the text, for record()."""
    parser.add_argument("--part", choices=text.PARTS, default="second", help="of the text (default: %(default)s)")


def read(path, context):
    """Of each layer [(keys and values [KV head][token][element], queries [query head][recorded query][element])] of its
    contexts."""
    layers = {}
    for name, *arrays in codebooks.records(path):
        parts = layers.setdefault(name, [[]])
        if sum(keys.shape[1] for keys, *_ in parts[-1]) == context:
            parts.append([])
        parts[-1].append([array.astype(numpy.float32) for array in arrays])
    return [[[numpy.concatenate(each, axis=1) for each in zip(*part)] for part in parts] for parts in layers.values()]


def record(options, part, is_whole=False):
    """read() of what llama-perplexity makes of a part of the text, by add_options(); with values and all queries, or
    with no elements of values and each query of EVERY."""
    host = Host(find_programs(options.llama_cpp), find_plugin(options.plugin), options.model, threads=1)
    with tempfile.TemporaryDirectory(prefix="winnow-rows-") as work:
        source, _ = text.prepare(options.text, part, Path(work))
        rows = Path(work) / "rows"
        words = "profile,whole_rows" if is_whole else "profile"
        config = replace(profile.CONFIG, environment=(("WINNOW_REPORT_WITH", words), ("WINNOW_REPORT_ROWS", str(rows))))
        profile.record(host, source, options.context, options.count, config=config)
        return read(rows, options.context)


def heads(keys, values, queries):
    """Of each KV head of a layer and context its keys and values, and queries [query][head of the group][element]."""
    group = len(queries) // len(keys)
    for head, (its_keys, its_values) in enumerate(zip(keys, values)):
        yield its_keys, its_values, queries[head * group:(head + 1) * group].transpose(1, 0, 2)


def attention(keys, queries, positions, scale=None):
    """Of each query of a group the probabilities of the tokens up to its own, 0 behind it: [query][head][token].
    scale: 1 / sqrt(elements), if it is None."""
    scale = scale or 1 / math.sqrt(keys.shape[1])
    found = numpy.zeros((*queries.shape[:2], len(keys)))
    for row, q, position in zip(found, queries, positions):
        row[:, :position + 1] = softmax(q @ keys[:position + 1].T * scale)
    return found


def softmax(z):
    power = numpy.exp(z - z.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True)
