"""Codes for rows of keys and values: encoding, decoding and sizes.

A code has encode_decode(x, positions, side, head), of consecutive rows [token][element] of one KV head, float32, `side`
"k" or "v"; bytes(side, n, tokens), of codes and scales; constants(side, n), bytes of the model's constants for each KV
head; and identity(), all that determines what it gives beside its input. `head` has the statistics of a calibration
text (code_statistics.Head).
"""

import ctypes
import dataclasses
import os
import shlex
import subprocess
from pathlib import Path

import numpy as np

import peer_codes
import winnowkv
from code_statistics import largest_pairs, roots
from peer_codes import half
from winnow_eval import Failure

HALF, MOST_BITS, CHUNK = 2, 5, 8
SINK, RESIDUAL = 4, 48  # dense rows, as Winnow has them
# Mean squared errors of the codes of Lloyd and Max for a normal number, by bits.
ERRORS = (1, 0.36338, 0.11748, 0.03454, 0.009501, 0.002505)
SOURCES = [Path(__file__).resolve().parents[2] / "codes" / name for name in ("scalar.cpp", "trellis.cpp")]
SLOW = 16  # pairs of a basis that is dense on slow pairs alone
LEAST_VARIANCE = 1e-6
SEED, PASSES = 4, 100  # of the training of a trellis


class Library:
    """lab/codes: codes that a row's elements are searched for, in C++."""

    def __init__(self, folder):
        file, compiler = folder / "libwinnow_lab_codes.so", shlex.split(os.environ.get("CXX") or "c++")
        command = [*compiler, "-std=c++20", "-O3", "-march=native", "-fno-trapping-math", "-shared", "-fPIC", "-o",
                   file, *SOURCES]
        try:
            made = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise Failure(f"cannot compile lab/codes with {compiler[0]}: {error.strerror}; install a C++ compiler, or "
                          "name one in CXX") from error
        if made.returncode:
            raise Failure(f"cannot compile lab/codes: {made.stderr.strip()[-600:]}")
        self._library = ctypes.CDLL(str(file))
        self._tables = {}

    def scalar(self, rows, bits, weights, search):
        """Rows of numbers of variance 1, each with a scale in half precision, coded element by element."""
        return self._call("winnow_lab_scalar_code", rows, bits, weights, ctypes.c_int(search))

    def trellis(self, rows, bits, weights, states, has_scale=True):
        """The same along a trellis of 2 ** states states, or without a scale."""
        tables = np.zeros((7, 1 << states), np.float32)
        for each in set(int(value) for value in bits) - {0}:
            tables[each] = self._table(states, each)
        return self._call("winnow_lab_trellis_code", rows, bits, weights, tables.ctypes.data_as(ctypes.c_void_p),
                          ctypes.c_int(states), ctypes.c_int(has_scale))

    def _table(self, states, bits):
        if (states, bits) not in self._tables:
            table, error = np.zeros(1 << states, np.float32), ctypes.c_double()
            status = self._library.winnow_lab_trellis_train_passes(
                ctypes.c_int(states), ctypes.c_int(bits), ctypes.c_uint64(SEED), ctypes.c_int(PASSES),
                table.ctypes.data_as(ctypes.c_void_p), ctypes.byref(error))
            if status:
                raise Failure(f"a trellis of {states} and {bits} bits cannot be trained ({status})")
            self._tables[states, bits] = table
        return self._tables[states, bits]

    def _call(self, name, rows, bits, weights, *rest):
        rows = np.ascontiguousarray(rows, np.float32)
        bits, weights = np.ascontiguousarray(bits, np.int32), np.ascontiguousarray(weights, np.float32)
        made = np.empty_like(rows)
        pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (rows, made)]
        status = getattr(self._library, name)(
            *pointers, ctypes.c_int64(len(rows)), ctypes.c_int(rows.shape[1]), bits.ctypes.data_as(ctypes.c_void_p),
            weights.ctypes.data_as(ctypes.c_void_p), *rest)
        if status:
            wrong = {1: "an argument", 2: "a row that is not of finite numbers"}.get(status, status)
            raise Failure(f"{name} refuses {wrong}")
        return made


class Code:
    """What codes have in common, which are dataclasses."""

    def constants(self, side, n):
        return 0

    def identity(self):
        """The kind, and the fields that say what it gives."""
        return {"kind": type(self).__name__} | {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}


@dataclasses.dataclass
class Winnows(Code):
    """A format that Winnow or ggml has, packed and read by Winnow's backend."""

    context: winnowkv.Context = dataclasses.field(repr=False)
    type: str

    def encode_decode(self, x, positions, side, head):
        packed = winnowkv.quantize(np.ascontiguousarray(x)[None, None], self.type, context=self.context)
        return np.asarray(winnowkv.dequantize(packed))[0, 0]

    def bytes(self, side, n, tokens):
        row = np.zeros((1, 1, 1, n), np.float32)
        return tokens * winnowkv.quantize(row, self.type, context=self.context).nbytes


@dataclasses.dataclass
class Peers(Code):
    """A code of another project (peer_codes.py)."""

    code: peer_codes.Code = dataclasses.field(repr=False)
    name: str

    def encode_decode(self, x, positions, side, head):
        return self.code.encode_decode(x, positions, side, head)

    def bytes(self, side, n, tokens):
        return self.code.bytes(side, n, tokens)

    def constants(self, side, n):
        return self.code.bytes_of_constants(n) / 2


@dataclasses.dataclass
class Centred(Code):
    """Another code, of rows less a mean.

    kind: `model`, the mean of the calibration text; `turned`, that of its keys before their rotation, turned to the
    position of the row; `context` and `turned_context`, the same of the context's first rows, as center=on has it. A
    turned mean has its `pairs` largest pairs of elements; the others are those of `model`. Values are not turned.
    length: of the offsets over which the mean of `model` is averaged. rounded: whether a turned mean is added with
    cosines and sines in half precision, from angles in single precision, as a kernel might have them."""

    code: object
    kind: str
    length: int
    first_rows: int
    pairs: int
    rounded: bool = False

    def encode_decode(self, x, positions, side, head):
        context = x[:self.first_rows]
        if side == "v":
            mean = added = half(context.mean(0) if "context" in self.kind else head.value_mean)
        elif self.kind == "context":
            mean = added = half(context.mean(0))
        elif self.kind == "model":
            mean = added = half(head.of_keys(self.length).mean)
        else:
            if self.kind == "turned":
                bare = head.bare_mean("out", self.pairs)
                rest = half(head.rest_of_mean("out", self.pairs, self.length))
            else:
                bare = largest_pairs(head.unrope(context, positions[:self.first_rows]).mean(0), self.pairs)
                rest = 0
            mean = head.turned_mean(half(bare), positions) + rest
            added = head.turned_mean(half(bare), positions, rounded=True) + rest if self.rounded else mean
        return self.code.encode_decode(x - mean, positions, side, head) + added

    def bytes(self, side, n, tokens):
        return self.code.bytes(side, n, tokens)

    def constants(self, side, n):
        return self.code.constants(side, n) + HALF * n

    def identity(self):
        return super().identity() | {"code": self.code.identity()}


def signs_and_hadamard(n):
    """An orthogonal matrix that mixes all elements, as the rotation of turbo formats does."""
    return np.where(np.random.default_rng(1).random(n) < 0.5, -1, 1)[:, None] * peer_codes.hadamard(n)


def bits_of(variances, total):
    """Bits of each element: a bit more for the chunk of elements that gains most by it, until `total` are spent or all
    have the most. variances: descending."""
    chunks = np.asarray(variances).reshape(-1, CHUNK).mean(1)
    bits = np.zeros(len(chunks), int)
    for _ in range(min(total // CHUNK, MOST_BITS * len(chunks))):
        gains = [chunk * (ERRORS[b] - ERRORS[b + 1]) if b < MOST_BITS else -1 for chunk, b in zip(chunks, bits)]
        bits[int(np.argmax(gains))] += 1
    return np.repeat(bits, CHUNK)


def _int8(matrix):
    scale = half(np.abs(matrix).max(1, keepdims=True) / 127)
    return np.rint(matrix / np.where(scale, scale, 1)).clip(-127, 127) * scale


def rescaled(coded, rows, weights, scale):
    """Coded rows whose scale is not that of the least error (`least`): one that keeps the length of a row (`length`),
    or its product with itself (`slope`). Lengths and products are weighted."""
    if scale == "least":
        return coded
    own, crossed, square = ((a * b * weights).sum(1, keepdims=True)
                            for a, b in ((rows, rows), (rows, coded), (coded, coded)))
    factor = np.sqrt(own / np.maximum(square, 1e-30)) if scale == "length" else own / np.maximum(crossed, 1e-30)
    return (coded * factor).astype(np.float32)


@dataclasses.dataclass
class Spectral(Code):
    """Keys in a basis in which each element has bits by its variance, weighted by what queries make of it.

    code_bytes: of a row's codes, without its scale, in the mean of all heads. length: of the offsets of the rotary
    embedding to average over. basis: `dense`, the eigenvectors; `slow`, the same on the SLOW slowest pairs of the
    rotary embedding and axes on the others; `int8`, dense in 8 bits; `axes`, the elements as they are; `rotated`,
    elements mixed by Hadamard's matrix. weight: M, see Head. shrink: the part of I in A. floor: the least variance, as
    a part of the largest. turned: pairs of the mean that are turned to a row's position; 0: it is not turned. scale:
    see rescaled."""

    library: Library = dataclasses.field(repr=False)
    code_bytes: float
    length: int
    basis: str = "dense"
    weight: str = "out"
    shrink: float = 0.0
    floor: float = LEAST_VARIANCE
    turned: int = 0
    scale: str = "least"
    _made: dict = dataclasses.field(default_factory=dict, repr=False)

    def encode_decode(self, x, positions, side, head):
        if head not in self._made:  # heads share the bytes that are left over
            code_bytes = int(self.code_bytes * (head.index + 1)) - int(self.code_bytes * head.index)
            self._made[head] = self._constants(head, code_bytes)
        mean, rest, forth, back, bits, weights = self._made[head]
        mean = head.turned_mean(mean, positions) + rest if self.turned else mean
        z = (x - mean) @ forth
        return rescaled(self.library.scalar(z, bits, weights, True), z, weights, self.scale) @ back + mean

    def _constants(self, head, code_bytes):
        if self.turned:
            found = head.of_bare_keys(self.length, self.weight, self.turned)
            mean, rest = head.bare_mean(self.weight, self.turned), found.mean
        else:
            found = head.of_keys(self.length, self.weight)
            mean, rest = found.mean, np.zeros(len(found.mean))
        n = len(mean)
        a = (1 - self.shrink) * found.queries + self.shrink * np.eye(n)
        c = found.covariance
        mix = np.eye(n)
        if self.basis == "rotated":
            mix = signs_and_hadamard(n)
            a, c = mix.T @ a @ mix, mix.T @ c @ mix
        dense = {"axes": 0, "rotated": 0, "slow": SLOW}.get(self.basis, n // 2)  # pairs
        pair = np.arange(n) % (n // 2)
        keep = (pair[:, None] >= n // 2 - dense) & (pair >= n // 2 - dense) | np.eye(n, dtype=bool)
        a, c = a * keep, c * keep
        root, inverse = roots(a)
        values, vectors = np.linalg.eigh(root @ c @ root)
        order = np.argsort(-values, kind="stable")
        values, vectors = np.maximum(values, values.max() * self.floor)[order], vectors[:, order]
        forth, back = root @ vectors / np.sqrt(values), (vectors * np.sqrt(values)).T @ inverse
        store = _int8 if self.basis == "int8" else half
        forth, back = store((mix @ forth).T).T, store(back @ mix.T)
        bits = bits_of(values, code_bytes * 8)
        return (half(mean), half(rest), forth.astype(np.float32), back.astype(np.float32), bits,
                values / values.mean())

    def bytes(self, side, n, tokens):
        return tokens * (self.code_bytes + HALF)

    def constants(self, side, n):
        return constants_of(self.basis, n)


def constants_of(basis, n):
    """Bytes of a basis and its inverse or of scales, of the mean, lambda, from which the elements' order follows, and
    the bits of chunks."""
    dense = {"axes": 0, "rotated": 0, "slow": min(2 * SLOW, n)}.get(basis, n)
    square = dense * (dense + HALF) if basis == "int8" else HALF * dense * dense
    return 2 * (square + HALF * (n - dense)) + 2 * HALF * n + n // CHUNK


@dataclasses.dataclass
class Mixed(Code):
    """Rows turned by Hadamard's matrix, coded element by element or along a trellis, with a scale in half precision.

    states: of the trellis, as a power of 2; 0: element by element. scale: see rescaled."""

    library: Library = dataclasses.field(repr=False)
    bits: int
    states: int
    scale: str = "least"

    def encode_decode(self, x, positions, side, head):
        n = x.shape[1]
        mix = signs_and_hadamard(n).astype(np.float32)
        rows, bits, ones = x @ mix, np.full(n, self.bits), np.ones(n, np.float32)
        if self.states:
            coded = self.library.trellis(rows, bits, ones, self.states)
        else:
            coded = self.library.scalar(rows, bits, ones, True)
        return rescaled(coded, rows, ones, self.scale) @ mix.T

    def bytes(self, side, n, tokens):
        return tokens * (n * self.bits / 8 + HALF)
