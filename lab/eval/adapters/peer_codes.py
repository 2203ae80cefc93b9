"""Codes of other projects for a KV cache: what K or V of one KV head is after coding and decoding, and its bytes.

Written from the published definitions for comparisons at equal bytes; each class names its source, and says what was
assumed where the source leaves something open. Only numpy is needed.

    code = PEERS["kivi:k=2,v=2"]
    decoded = code.encode_decode(rows, positions, "k", statistics)
    code.bytes("k", rows.shape[1], len(rows))

Rows are [tokens, n], of K (after RoPE) or V of consecutive tokens. All of them are coded: the caller applies the dense
window and the sinks, `residual` and `sink`. A code that needs whole groups of tokens returns the rows of an incomplete
group at the end as they are, and does not count them in `bytes`.

`statistics` is read by Oscar alone; None serves the others. No code here works before RoPE. Not here: QJL estimates
products of queries and keys and has no decoded keys, and the levels of KVQuant need gradients of the model.
"""

from dataclasses import dataclass, field, replace

import numpy

SIDES = ("k", "v")


def half(values):
    """The values as IEEE halves, in float32."""
    return values.astype(numpy.float16).astype(numpy.float32)


def hadamard(n):
    """The orthonormal Hadamard matrix in Sylvester's order, which is its own inverse."""
    if n < 1 or n & (n - 1):
        raise ValueError(f"a Hadamard matrix of size {n}: the size has to be a power of 2")
    matrix = numpy.ones((1, 1), numpy.float32)
    while len(matrix) < n:
        matrix = numpy.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / numpy.sqrt(n)).astype(numpy.float32)


def groups_of(n, size):
    """How many groups of `size` elements a row of n has; 0 is the whole row."""
    if size and n % size:
        raise ValueError(f"rows of {n} elements do not divide into groups of {size}")
    return n // size if size else 1


@dataclass(frozen=True)
class Code:
    """What all codes share: the bits of a code for K and V, and the tokens kept dense, newest and first."""

    k: int
    v: int
    residual: int = 0
    sink: int = 0

    def bits(self, side):
        if side not in SIDES:
            raise ValueError(f"side {side!r}: k or v")
        return self.k if side == "k" else self.v

    def group_tokens(self, side):
        """The tokens that are coded together; 1 if any number of tokens can be coded."""
        return 1

    def chunk_tokens(self, side):
        """The tokens that leave the dense window at once."""
        return self.group_tokens(side)

    def encode_decode(self, x, positions, side, statistics=None):
        """x after coding and decoding, with the rows of an incomplete group at the end as they are."""
        x = numpy.asarray(x, numpy.float32)
        whole = len(x) - len(x) % self.group_tokens(side)
        if not whole:
            return x.copy()
        coded = self._coded(x[:whole], positions, side, statistics)
        return numpy.concatenate([coded, x[whole:]]) if whole < len(x) else coded

    def bytes(self, side, n, tokens):
        """All bytes of the whole groups among `tokens` tokens: codes, scales, zero points."""
        return float(self._bytes(side, n, tokens - tokens % self.group_tokens(side)))

    def bytes_of_constants(self, n):
        """Bytes beside the rows, once for a layer's KV head, K and V together."""
        return 0.0


@dataclass(frozen=True)
class Kivi(Code):
    """KIVI: K by channel over groups of tokens, V by token over groups of elements, each with a step and a least value.

    Source: arXiv 2402.02750 and jy-yuan/KIVI, quant/new_pack.py (codes, the least value of a group and a step
    (max - min) / (2^bits - 1) in f16, the type of the model) and models/llama_kivi.py (what stays dense): K after RoPE.
    Stored: codes, and two halves for each group.
    Dense: V of the newest `residual` tokens. K is packed in chunks of `residual` tokens, so that between 0 and
    residual - 1 of the newest stay dense. 2 bits, groups of 32 and a residual of 128 are the paper's for LongBench, as
    its authors say in issue 8 of the repository; example.py has a residual of 32.
    Assumed: groups without a spread decode to their least value (the original divides 0 by 0 there).
    """

    group: int = 32
    residual: int = 128

    def chunk_tokens(self, side):
        return self.residual if side == "k" else 1

    def group_tokens(self, side):
        return self.group if side == "k" else 1

    def _coded(self, x, positions, side, statistics):
        tokens, n = x.shape
        levels = 2 ** self.bits(side) - 1
        if side == "k":
            grouped, axis = x.reshape(-1, self.group, n), 1
        else:
            grouped, axis = x.reshape(tokens, groups_of(n, self.group), self.group), 2
        grouped = half(grouped)
        least = grouped.min(axis, keepdims=True)
        step = half((grouped.max(axis, keepdims=True) - least) / levels)
        codes = (grouped - least) / numpy.where(step > 0, step, 1)
        return (numpy.rint(numpy.clip(codes, 0, levels)) * step + least).reshape(tokens, n)

    def _bytes(self, side, n, tokens):
        count = tokens // self.group * n if side == "k" else tokens * groups_of(n, self.group)
        return tokens * n * self.bits(side) / 8 + 4 * count


@dataclass(frozen=True)
class Kvarn(Code):
    """KVarN: a Hadamard rotation, variances made equal over tokens and channels of a tile, then round to nearest.

    Source: arXiv 2606.03458 (its abstract), huawei-csl/KVarN (README.md, and the reference in
    ascend_kernel/kvarn_store_tile_k/api_test.py) and its pull request to vllm-project/vllm (config.py and sinkhorn.py
    in vllm/model_executor/layers/quantization/kvarn, ops/kvarn_store.py, backends/kvarn_attn.py).
    A tile is `group` tokens of one head, after RoPE, times the Hadamard matrix in Sylvester's order without signs.
    Scales of tokens and channels are found in logarithms: in turn, tokens and channels (K), or channels and tokens (V)
    are divided by their standard deviations (n - 1 in the denominator, kept within 1e-3 and 1e3); logarithms stay
    within -0.3 and 10. Of all passes, the one with the least sum of the ratios of the largest to the smallest deviation
    counts. Codes are round to nearest between the least and the greatest value: of a channel of the tile for K, of a
    token for V. That step and least value, times the scale of the same channel or token, and the scale of the other
    axis are stored as halves.
    Dense: the first 128 tokens, and the tile that is not complete (`group_tokens`), so that `residual` is 0.
    16 passes are the paper's by a comment in config.py; later versions of it take 8. Published presets have 4 bits for
    K and 4 or 2 for V; 2 and 2 is what the abstract's "2-bit precision" is taken to be, with the same tiles. A whole
    record of K and V is rounded up to 8 bytes there, and for n from 256 on its bytes for each token to a power of 2;
    neither is counted.
    """

    group: int = 128
    passes: int = 16
    sink: int = 128

    def group_tokens(self, side):
        return self.group

    def _coded(self, x, positions, side, statistics):
        rotation = hadamard(x.shape[1])
        tiles = (x @ rotation).reshape(-1, self.group, x.shape[1])
        if side == "k":
            tiles = tiles.transpose(0, 2, 1)  # rows are channels, and tokens of V: what has the step
        rows, columns = balance(tiles, self.passes)
        levels = 2 ** self.bits(side) - 1
        balanced = tiles / columns[:, None, :] / rows[:, :, None]
        least = balanced.min(2, keepdims=True)
        step = numpy.maximum((balanced.max(2, keepdims=True) - least) / levels, 1e-10)
        codes = numpy.clip(numpy.rint((balanced - least) / step), 0, levels)
        rows = rows[:, :, None]
        decoded = (codes * half(step * rows) + half(least * rows)) * half(columns)[:, None, :]
        if side == "k":
            decoded = decoded.transpose(0, 2, 1)
        return decoded.reshape(x.shape) @ rotation

    def _bytes(self, side, n, tokens):
        halves = 2 * n + self.group if side == "k" else n + 2 * self.group
        return tokens * n * self.bits(side) / 8 + tokens // self.group * 2 * halves


def balance(tiles, passes):
    """KVarN's scales ([tiles, rows], [tiles, columns]) of tiles [tiles, rows, columns], in float32."""
    # Deviations of scaled tiles follow from sums over the unscaled ones, so that no scaled tile has to be made.
    tiles = numpy.ascontiguousarray(tiles, numpy.float64)
    squares = tiles * tiles

    def deviations_of_columns(rows, columns):
        return _deviations((rows[:, None, :] @ tiles)[:, 0], (rows[:, None, :] ** 2 @ squares)[:, 0],
                           tiles.shape[1]) * columns

    def deviations_of_rows(rows, columns):
        return _deviations((tiles @ columns[:, :, None])[:, :, 0], (squares @ columns[:, :, None] ** 2)[:, :, 0],
                           tiles.shape[2]) * rows

    def spread(deviations):
        return deviations.max(1) / numpy.maximum(deviations.min(1), 1e-8)

    def moved(logarithms, deviations):
        return numpy.clip(logarithms + numpy.log(numpy.clip(deviations, 1e-3, 1e3)), -0.3, 10)

    log_rows, log_columns = numpy.zeros(tiles.shape[:2]), numpy.zeros((len(tiles), tiles.shape[2]))
    best_rows, best_columns = log_rows, log_columns
    rows, columns = numpy.ones_like(log_rows), numpy.ones_like(log_columns)  # factors, 1 / scale
    of_columns = deviations_of_columns(rows, columns)
    best = spread(of_columns) + spread(deviations_of_rows(rows, columns))
    for _ in range(passes):
        log_columns = moved(log_columns, of_columns)
        columns = numpy.exp(-log_columns)
        of_rows = deviations_of_rows(rows, columns)
        log_rows = moved(log_rows, of_rows)
        of_rows = of_rows / rows
        rows = numpy.exp(-log_rows)
        of_columns = deviations_of_columns(rows, columns)
        now = spread(of_columns) + spread(of_rows * rows)
        better = (now <= best)[:, None]
        best = numpy.minimum(now, best)
        best_rows = numpy.where(better, log_rows, best_rows)
        best_columns = numpy.where(better, log_columns, best_columns)
    return numpy.exp(best_rows).astype(numpy.float32), numpy.exp(best_columns).astype(numpy.float32)


def _deviations(sums, squares, count):
    return numpy.sqrt(numpy.maximum(squares - sums * sums / count, 0) / (count - 1))


@dataclass(frozen=True)
class Tcq(Code):
    """TCQ of buun-llama-cpp (turbo3_tcq, turbo2_tcq): unit vectors of 128 elements, rotated, in a trellis code.

    Source: spiritbuun/buun-llama-cpp: README.md, ggml/src/ggml-common.h (blocks), turbo-quant-cuda.cuh (packing),
    set-rows.cu and fattn.cu (alpha) in ggml/src/ggml-cuda, src/llama-kv-cache.cpp (padding).
    A head's row is filled with zeros to a multiple of 128 elements. Each group is divided by its length, multiplied by
    signs, a Hadamard matrix and signs again, and coded by a trellis of 2^L states, L = bits + 6, whose first state is
    free. Stored: the codes and the 6 bits of the first state, a half, and a byte that fills the block: 52 bytes of 128
    elements for 3 bits, 36 for 2. The half is the group's length over the length of the decoded vector, so that lengths
    are kept. Reading V multiplies by a factor that depends on the tokens in the cache: 1.1484 - 0.01443 ln(tokens)
    within 0.98 and 1.06 for 3 bits, 0.8865 + 0.0195 ln(tokens) within 1 and 1.12 for 2 bits; `alpha=False` leaves it
    out. Nothing is kept dense by default.
    `trellis` is a function (rows, bits, L) -> decoded rows, for rows [count, group] of mean square 1. Its table is the
    caller's and not the published codebook, which was trained on products of queries and keys.
    Assumed: signs of our own generator (the published ones are two fixed arrays of random signs), and the tokens in the
    cache are the last position + 1 (there, what is allocated and read, a multiple of a block). `group` other than 128
    is not published: with 64, heads of 64 elements need no zeros, and blocks are filled to an even number of bytes as
    the published ones are. Their scaling of channels of K before the rotation is off by default and not here.
    """

    group: int = 128
    alpha: bool = True
    trellis: object = field(default=None, compare=False)

    def _coded(self, x, positions, side, statistics):
        if self.trellis is None:
            raise ValueError("a code of TCQ needs its trellis: dataclasses.replace(code, trellis=function)")
        tokens, n = x.shape
        bits, group = self.bits(side), self.group
        padded = -(-n // group) * group
        units = numpy.zeros((tokens, padded), numpy.float32)
        units[:, :n] = x
        units = units.reshape(-1, group)
        length = numpy.sqrt((units.astype(numpy.float64) ** 2).sum(1, keepdims=True))
        units = units / numpy.where(length > 1e-10, length, numpy.inf)
        before, after = numpy.random.default_rng(42).choice(numpy.float32([-1, 1]), (2, group))
        rotation = before[:, None] * hadamard(group) * after
        rows = (units @ rotation * numpy.sqrt(group)).astype(numpy.float32)
        decoded = numpy.asarray(self.trellis(rows, bits, bits + 6), numpy.float32)
        decoded_length = numpy.sqrt((decoded.astype(numpy.float64) ** 2).sum(1, keepdims=True))
        scale = half(length / numpy.where(decoded_length > 1e-10, decoded_length, 1))
        scale = scale * numpy.float32(self._read_alpha(side, positions))
        return ((decoded * scale) @ rotation.T).reshape(tokens, padded)[:, :n]

    def _read_alpha(self, side, positions):
        if not self.alpha or side == "k":
            return 1.0
        logarithm = numpy.log(max(1, int(numpy.max(positions)) + 1))
        if self.v == 3:
            return min(max(1.1484 - 0.01443 * logarithm, 0.98), 1.06)
        return min(max(0.8865 + 0.0195 * logarithm, 1.0), 1.12) if self.v == 2 else 1.0

    def _bytes(self, side, n, tokens):
        block = 2 + -(-(6 + self.group * self.bits(side)) // 8)
        return tokens * -(-n // self.group) * (block + block % 2)


@dataclass(frozen=True)
class Oscar(Code):
    """OSCAR: a rotation from the covariance of queries (K) or of V as attention weighs it, clipping, 2 bits by token.

    Source: arXiv 2605.17757 (its abstract and tables as the repository repeats them) and FutureMLS-Lab/OSCAR: README.md
    (how rotations are found, what is set for serving), rotation/compute_kv_rotation.py, and python/sglang/QuantKernel/
    oscar_rotation_clip_int2_kv.py (clipping and codes).
    Rows after RoPE are multiplied by R H P: R has the eigenvectors of the second moment, ascending; H is the Hadamard
    matrix; P puts the column of the i-th largest eigenvalue where the bits of i, reversed, say. A row is clipped to
    +-t, where t is its sorted absolute value of index int(0.96 n) for K and int(0.92 n) for V. Groups of 128 elements,
    or the row if it is shorter, have codes trunc(x / step + zero + 0.5) with step = (max - min) / 3 and
    zero = -min / step.
    Stored: codes, and step and zero of each group. Halves give the 2.25 bits for n = 128 (2.28 with windows) that the
    paper counts; its serving command stores them in f32 (`scales=4`: 2.5 bits).
    Dense: 64 first and 256 newest tokens, as in the README.
    `statistics.cov_q` is the second moment about 0 of the queries after RoPE, averaged over the query heads of the KV
    head. `value="sst"`, the published one for V, needs `statistics.cov_v_by_score`, which `score_weighted` computes
    from calibration rows; `value="vtv"` is their script's other choice, the second moment of V itself, from cov_v and
    mean_v. They take one rotation for all KV heads of a layer by default, and one for each head for some models:
    statistics that are averaged over heads give the former.
    Not here: their Lloyd-Max variant, which some models use.
    Constants: two rotations in f32 (that of V can be put into the model's weights, which is not assumed).
    """

    scales: int = 2
    value: str = "sst"
    sink: int = 64
    residual: int = 256

    def _coded(self, x, positions, side, statistics):
        if self.bits(side) != 2:
            raise ValueError(f"OSCAR with {self.bits(side)} bits: 2 are published")
        tokens, n = x.shape
        rotation = oscar_rotation(self._moment(side, statistics)).astype(numpy.float32)
        rows = x @ rotation
        index = min(n - 1, int((0.96 if side == "k" else 0.92) * n))
        limit = numpy.partition(numpy.abs(rows), index, axis=1)[:, index:index + 1]
        rows = numpy.clip(rows, -limit, limit).reshape(tokens, self._groups(n), -1)
        least = rows.min(2, keepdims=True)
        step = numpy.maximum(rows.max(2, keepdims=True) - least, 1e-8) / 3
        zero = -least / step
        codes = numpy.clip(numpy.trunc(rows / step + zero + 0.5), 0, 3)
        if self.scales == 2:
            step, zero = half(step), half(zero)
        return ((codes - zero) * step).reshape(tokens, n) @ rotation.T

    def _groups(self, n):
        return groups_of(n, 128) if n > 128 else 1

    def _moment(self, side, statistics):
        if side == "k":
            return statistics.cov_q
        if self.value == "sst":
            return statistics.cov_v_by_score
        return statistics.cov_v + numpy.outer(statistics.mean_v, statistics.mean_v)

    def _bytes(self, side, n, tokens):
        return tokens * (n * self.bits(side) / 8 + self._groups(n) * 2 * self.scales)

    def bytes_of_constants(self, n):
        return 2.0 * 4 * n * n


def oscar_rotation(moment):
    """R H P of a second moment [n, n], in float64: rows are multiplied by it from the right."""
    n = len(moment)
    values, vectors = numpy.linalg.eigh((moment + moment.T) / 2)
    order = numpy.argsort(-values, kind="stable")
    width = n.bit_length() - 1
    columns = numpy.empty(n, int)
    for rank in range(n):
        columns[int(f"{rank:0{width}b}"[::-1], 2) if width else 0] = order[rank]
    return (vectors @ hadamard(n).astype(numpy.float64))[:, columns]


def score_weighted(cov_q, k, v):
    """The second moment of V rows in which a token counts by the mean square of its scores, with weights of mean 1."""
    k, v = numpy.asarray(k, numpy.float64), numpy.asarray(v, numpy.float64)
    weights = ((k @ cov_q) * k).sum(1)
    weights = weights / max(weights.sum(), 1e-12) * len(k)
    return (v * weights[:, None]).T @ v / len(k)


@dataclass(frozen=True)
class OpenVino(Code):
    """The u8 and u4 caches of OpenVINO's CPU plugin, by token; K by channel if `by_channel`.

    Source: openvinotoolkit/openvino: attn_quant.cpp in src/plugins/intel_cpu/src/nodes/kernels/scaled_attn (codes and
    layout), and in src/plugins/intel_cpu/src config.cpp, config.h and nodes/paged_attn.cpp (defaults: a group is the
    whole head, and "auto" is by token for K, too, in the version that was read).
    Stored: codes, and for each group a step (max - min) / (2^bits - 1) and a zero point -min / step, which is not
    rounded, both in f32; a step of 0 becomes 0.0001. By token a group is `group` elements of a row (0: all of them); by
    channel it is a channel of a block of 32 tokens. A block that is not full is coded with the tokens it has. There,
    OpenVINO decodes and codes it again as tokens come; here it is coded once, from the original rows.
    Nothing is dense. u4 for K is in later versions of attn_quant.cpp, whose functions are the same for both types; the
    earlier ones have it for V alone. Published is a group for each, here one for both. The GPU plugin has a code of its
    own, which is not here.
    """

    by_channel: bool = False
    group: int = 0

    def _by_channel(self, side):
        return self.by_channel and side == "k"

    def _coded(self, x, positions, side, statistics):
        tokens, n = x.shape
        bits = self.bits(side)
        if not self._by_channel(side):
            return self._affine(x.reshape(tokens, groups_of(n, self.group), -1), bits, 2).reshape(tokens, n)
        full = tokens - tokens % 32
        parts = [self._affine(x[:full].reshape(-1, 32, n), bits, 1).reshape(full, n)] if full else []
        if full < tokens:
            parts.append(self._affine(x[full:], bits, 0))
        return numpy.concatenate(parts)

    @staticmethod
    def _affine(x, bits, axis):
        levels = 2**bits - 1
        least = x.min(axis, keepdims=True)
        step = (x.max(axis, keepdims=True) - least) / numpy.float32(levels)
        step = numpy.where(step == 0, numpy.float32(0.0001), step)
        zero = -least / step
        return (numpy.clip(numpy.rint(x / step + zero), 0, levels) - zero) * step

    def _bytes(self, side, n, tokens):
        count = -(-tokens // 32) * n if self._by_channel(side) else tokens * groups_of(n, self.group)
        return tokens * n * self.bits(side) / 8 + 8 * count


PEERS = {
    "kivi:k=2,v=2": Kivi(2, 2),
    "kivi:k=4,v=2": Kivi(4, 2),
    "kivi:k=4,v=4": Kivi(4, 4),
    "kivi:k=2,v=2,group=64": Kivi(2, 2, group=64),
    "kvarn:k=2,v=2": Kvarn(2, 2),
    "kvarn:k=4,v=2": Kvarn(4, 2),
    "kvarn:k=4,v=4": Kvarn(4, 4),
    "kvarn:k=4,v=2,group=64": Kvarn(4, 2, group=64),
    "kvarn:k=4,v=4,group=64": Kvarn(4, 4, group=64),
    "tcq:k=2,v=2": Tcq(2, 2),
    "tcq:k=3,v=2": Tcq(3, 2),
    "tcq:k=3,v=3": Tcq(3, 3),
    "tcq:k=2,v=2,group=64": Tcq(2, 2, group=64),
    "tcq:k=3,v=3,group=64": Tcq(3, 3, group=64),
    "oscar:k=2,v=2": Oscar(2, 2),
    "oscar:k=2,v=2,value=vtv": Oscar(2, 2, value="vtv"),
    "oscar:k=2,v=2,scales=f32": Oscar(2, 2, scales=4),
    "openvino:k=u8,v=u8": OpenVino(8, 8),
    "openvino:k=u8,v=u4": OpenVino(8, 4),
    "openvino:k=u4,v=u4": OpenVino(4, 4),
    "openvino:k=u8,v=u4,by_channel=k": OpenVino(8, 4, by_channel=True),
    "openvino:k=u4,v=u4,by_channel=k": OpenVino(4, 4, by_channel=True),
}


def peers(trellis):
    """All codes by name, those of TCQ with this trellis."""
    return {name: replace(code, trellis=trellis) if isinstance(code, Tcq) else code for name, code in PEERS.items()}
