"""Codebooks by which recall makes signatures of codes, trained on keys and queries of a text that the model read.

For each KV head: mean keys of pages of two tokens are taken to coordinates y = A k in which an error of any direction
costs a query's score as much, on average over the text's queries: A A^T is their second moment. These coordinates are
divided among codebooks of 16 so that each gets as much of the spread, and k-means makes the centroids. A query is
compared with them by B q, B = A^-T. docs/recall.md has the file's format.
"""

import math
import struct
import zlib

import numpy

from winnow_calibrate import Failure
from winnow_calibrate.storage import write_bytes_atomically

MAGIC, VERSION, LONGEST_NAME = b"WNCODES\0", 1, 255
CENTROIDS, ELEMENTS = 256, 16
PAGE = 2  # tokens
SINKS = 4
ROUNDS = 10  # of k-means
MOST = 8192  # pages that it sees
FEWEST = 4 * CENTROIDS
LEAST_MOMENT = 1e-4  # of a direction, of the largest one's
ROWS = b"WNROWS2\0"
RECORD = struct.Struct("<8s64s9q")  # of WINNOW_REPORT_ROWS, hosts/ggml/row_recorder.hpp
CUT_SHORT = "the recorded rows are cut short"
TYPES = {1: numpy.float32, 2: numpy.float16}  # WINNOW_TYPE_F32, WINNOW_TYPE_F16


class Rows:
    """What is recorded of a layer: keys of each context [KV head][token][element], second moments of queries."""

    def __init__(self, kv_heads, size):
        self.parts, self.tokens = [], 0
        self.contexts = []
        self.moment, self.queries = numpy.zeros((kv_heads, size, size)), 0

    def add(self, keys, queries, context):
        self.parts.append(keys)
        self.tokens += keys.shape[1]
        if self.tokens >= context:
            self.contexts.append(numpy.concatenate(self.parts, axis=1)[:, :context])
            self.parts, self.tokens = [], 0
        rows = queries.reshape(len(self.moment), -1, queries.shape[2]).astype(numpy.float64)
        self.moment += rows.transpose(0, 2, 1) @ rows
        self.queries += rows.shape[1]


def _array(file, kind, shape):
    if kind not in TYPES:
        raise Failure(f"recorded rows of type {kind}, expected F32 or F16")
    count = math.prod(shape) * numpy.dtype(TYPES[kind]).itemsize
    data = file.read(count)
    if len(data) != count:
        raise Failure(CUT_SHORT)
    return numpy.frombuffer(data, TYPES[kind]).reshape(shape)


def records(path):
    """(layer's name, keys and values [KV head][token][element], queries [query head][recorded query][element]) of each
    attention that was recorded, in their order; values have no elements where they were not recorded."""
    with open(path, "rb") as file:
        while header := file.read(RECORD.size):
            if len(header) != RECORD.size:
                raise Failure(CUT_SHORT)
            mark, name, *numbers = RECORD.unpack(header)
            k_type, kv_heads, tokens, size, v_type, v_size, q_type, q_heads, q_tokens = numbers
            if mark != ROWS:
                raise Failure("the recorded rows have another form; the plugin is of another version than this program")
            yield (name.rstrip(b"\0").decode(), _array(file, k_type, (kv_heads, tokens, size)),
                   _array(file, v_type, (kv_heads, tokens, v_size)), _array(file, q_type, (q_heads, q_tokens, size)))


def read(path, context):
    """{layer's name: Rows} of contexts of so many tokens."""
    layers = {}
    for name, keys, _, queries in records(path):
        rows = layers.setdefault(name, Rows(keys.shape[0], keys.shape[2]))
        rows.add(keys.astype(numpy.float16), queries, context)
    if not layers:
        raise Failure("no rows were recorded; the plugin is older than WINNOW_REPORT_ROWS")
    return layers


def pages(contexts, head):
    """Mean keys of the pages of a KV head."""
    found = []
    for keys in contexts:
        its = keys[head].astype(numpy.float32)[SINKS:]
        found.append(its[:len(its) // PAGE * PAGE].reshape(-1, PAGE, its.shape[1]).mean(axis=1))
    return numpy.concatenate(found)


def matrix(moment, rows):
    """A, by columns: y = rows @ A."""
    values, vectors = numpy.linalg.eigh(moment)
    if values[-1] <= 0:
        values = numpy.ones_like(values)
    half = (vectors * numpy.sqrt(numpy.maximum(values, values[-1] * LEAST_MOMENT) / values[-1])) @ vectors.T
    spread, directions = numpy.linalg.eigh(half @ numpy.cov(rows.T.astype(numpy.float64)) @ half)
    order = numpy.argsort(-spread, kind="stable")
    least = max(spread[order[-1]], spread[order[0]] * 1e-12, 1e-30)
    parts = [[] for _ in range(len(values) // ELEMENTS)]
    sums = [0.0] * len(parts)
    for at in order:  # the product of each part's spreads is to be the same
        to = min((part for part in range(len(parts)) if len(parts[part]) < ELEMENTS), key=sums.__getitem__)
        parts[to].append(at)
        sums[to] += math.log(max(spread[at], least) / least + 1e-9)
    return half @ directions[:, sum(parts, [])]


def nearest(rows, centroids):
    return ((centroids * centroids).sum(axis=1) - 2 * rows @ centroids.T).argmin(axis=1)


def k_means(rows, random):
    """The centroids of a codebook: Lloyd's rounds from rows drawn at random; an empty one begins anew."""
    centroids = rows[random.permutation(len(rows))[:CENTROIDS]].copy()
    for _ in range(ROUNDS):
        code = nearest(rows, centroids)
        count = numpy.bincount(code, minlength=CENTROIDS)
        sums = numpy.stack([numpy.bincount(code, column, CENTROIDS) for column in rows.T], axis=1)
        has_rows = count > 0
        centroids[has_rows] = sums[has_rows] / count[has_rows, None]
        centroids[~has_rows] = rows[random.integers(0, len(rows), (~has_rows).sum())]
    return centroids


class Head:
    """The matrices [element][coordinate] and codebooks [codebook][centroid][element] of a KV head."""

    def __init__(self, rows, moment, random):
        self.of_keys = matrix(moment, rows)
        y = (rows @ self.of_keys).astype(numpy.float32)
        scale = numpy.sqrt((y * y).mean()) + 1e-30  # so that halves hold all of it
        self.of_keys /= scale
        self.of_queries = numpy.linalg.inv(self.of_keys).T
        y /= scale
        parts = y.reshape(len(y), -1, ELEMENTS).transpose(1, 0, 2)
        self.codebooks = numpy.stack([k_means(numpy.ascontiguousarray(part), random) for part in parts])

    def approximate(self, rows):
        """What the codes of rows stand for, in coordinates of B q."""
        parts = (rows @ self.of_keys).astype(numpy.float32).reshape(len(rows), -1, ELEMENTS).transpose(1, 0, 2)
        return numpy.concatenate([book[nearest(part, book)] for part, book in zip(parts, self.codebooks)], axis=1)

    def data(self):
        halves = [self.of_keys, self.of_queries, self.codebooks.transpose(0, 2, 1)]
        limit = float(numpy.finfo(numpy.float16).max)
        return b"".join(numpy.clip(each, -limit, limit).astype("<f2").tobytes() for each in halves)


def record(name, heads, size, context):
    """The bytes of a layer; context: the tokens of the contexts that its codebooks saw."""
    encoded = name.encode()
    if len(encoded) > LONGEST_NAME:
        raise Failure(f"{name}: a name of {len(encoded)} bytes, expected at most {LONGEST_NAME}")
    begin = MAGIC + struct.pack("<5I", VERSION, len(heads), size, len(encoded), context)
    body = encoded + b"".join(head.data() for head in heads)
    return begin + struct.pack("<I", zlib.crc32(begin, zlib.crc32(body))) + body


class Unsuited(Failure):
    """The model is none that codebooks can be made for; all else can be."""


def train(layers, advance=None):
    """The file's bytes, and how much of the scores' spread the codes leave out: of all layers and heads."""
    data, left_out, done = [], [], 0
    count = sum(len(layer.moment) for layer in layers.values())
    for name, layer in sorted(layers.items(), key=lambda each: (len(each[0]), each[0])):
        size = layer.moment.shape[1]
        if size % ELEMENTS != 0:
            raise Unsuited(f"{name}: keys of {size} elements, expected a multiple of {ELEMENTS}")
        if not layer.contexts or sum(keys.shape[1] for keys in layer.contexts) < PAGE * FEWEST:
            raise Failure(f"{name}: too few keys, expected at least {PAGE * FEWEST}: longer contexts, or more of them")
        heads = []
        for at, moment in enumerate(layer.moment / layer.queries):
            random = numpy.random.default_rng(at)
            rows = pages(layer.contexts, at)
            rows = rows[random.permutation(len(rows))[:MOST]]
            head = Head(rows, moment, random)
            y = rows @ head.of_keys
            weights = head.of_queries.T @ moment @ head.of_queries
            lost = y - head.approximate(rows)
            left_out.append((lost @ weights * lost).sum() / max((y @ weights * y).sum(), 1e-30))
            heads.append(head)
            done += 1
            if advance:
                advance(done / count)
        data.append(record(name, heads, size, layer.contexts[0].shape[1]))
    return b"".join(data), float(numpy.mean(left_out))


def write(data, folder):
    """codebooks.bin, which codebook_file=... of recall names; gives its path."""
    path = folder / "codebooks.bin"
    write_bytes_atomically(path, data)
    return path
