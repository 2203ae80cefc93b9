"""What a calibration text says of a model's keys, queries and values, and constants of a code that follow from it.

All is of one KV head of one layer, in double. A row of keys is taken as attention reads it, after the rotary embedding,
whose pairs are the elements j and j + n / 2, as transformers has them.
"""

import functools
from dataclasses import dataclass

import numpy as np

SUMS = ("weight", "first", "second", "queries")  # of keys under one weight: sums of w, w k, w k k', and of u q q'
LEAST = 1e-6  # of the largest eigenvalue


def turned(rows, positions, frequencies, rounded=False):
    """Rows of keys turned by the rotary embedding to positions, which may be negative. rounded: see
    Head.turned_mean."""
    half = rows.shape[-1] // 2
    cos, sin = _phases(np.asarray(positions, np.int64).tobytes(), np.asarray(frequencies, float).tobytes(),
                       rows.dtype.char, rounded)
    a, b = rows[..., :half], rows[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


@functools.lru_cache(maxsize=4)
def _phases(positions, frequencies, dtype, rounded):
    """Cosines and sines of the angles, [position][pair]; every head of every layer asks for the same."""
    positions, frequencies = np.frombuffer(positions, np.int64)[:, None], np.frombuffer(frequencies)
    if rounded:
        angle = positions.astype(np.float32) * frequencies.astype(np.float32)
        return np.cos(angle).astype(np.float16).astype(dtype), np.sin(angle).astype(np.float16).astype(dtype)
    angle = positions * frequencies
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def largest_pairs(mean, pairs):
    """A mean of keys with all but its largest pairs of elements set to zero."""
    half = len(mean) // 2
    size = np.hypot(mean[:half], mean[half:])
    kept = np.zeros(half, bool)
    kept[np.argsort(-size, kind="stable")[:pairs]] = True
    return mean * np.tile(kept, 2)


def _mean_phase(angles, length):
    """The mean of exp(i d angle) over the offsets d = 0 .. length - 1."""
    sums = np.full(angles.shape, complex(length))
    large = np.abs(angles) > 1e-12
    some = angles[large]
    sums[large] = np.expm1(1j * length * some) / np.expm1(1j * some)
    return sums / length


def mean_over_offsets(first, second, frequencies, length):
    """First and second moments of rows, averaged over offsets of their positions below `length`, in closed form.

    A pair of a row is the complex number z. An offset d multiplies it by exp(i d frequency), so that the moments
    E[z z^H] and E[z z^T] are multiplied by means of phases, of differences and of sums of frequencies."""
    half = len(frequencies)
    aa, ab, ba, bb = second[:half, :half], second[:half, half:], second[half:, :half], second[half:, half:]
    hermitian = (aa + bb + 1j * (ba - ab)) * _mean_phase(frequencies[:, None] - frequencies, length)
    plain = (aa - bb + 1j * (ba + ab)) * _mean_phase(frequencies[:, None] + frequencies, length)
    total, rest = hermitian + plain, hermitian - plain
    moments = np.block([[total.real, -rest.imag], [total.imag, rest.real]]) / 2
    mean = (first[:half] + 1j * first[half:]) * _mean_phase(frequencies, length)
    return np.concatenate([mean.real, mean.imag]), moments


def roots(matrix):
    """The symmetric square root of a matrix, and its inverse."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.sqrt(np.maximum(values, values.max() * LEAST))
    return (vectors * values) @ vectors.T, (vectors / values) @ vectors.T


@dataclass
class Moments:
    """Mean and covariance of rows of keys, and the matrix A of the queries that read them, of trace n."""

    mean: np.ndarray
    covariance: np.ndarray
    queries: np.ndarray


def moments(sums, frequencies, length):
    """Half of the rows weighted by the error that they cause, and half of them alike (spectral keys, step 2), averaged
    over offsets below `length`, or as they were at length 0. sums: {"weighted", "alike": {name of SUMS: array}}."""
    first = second = queries = 0
    for each in sums.values():
        first = first + each["first"] / each["weight"] / len(sums)
        second = second + each["second"] / each["weight"] / len(sums)
        queries = queries + each["queries"] / np.trace(each["queries"]) / len(sums)
    if length:
        first, second = mean_over_offsets(first, second, frequencies, length)
        queries = mean_over_offsets(first, queries, frequencies, length)[1]
    return Moments(first, second - np.outer(first, first), queries * len(first))


@dataclass(eq=False)
class Head:
    """The statistics of one KV head. keys: {M: {kind: sums}}, M "out" (the output projection) or "one" (I);
    bare: the same of keys without their rotation, under M; value: sums of p^2 v and of p^2 over all packed rows."""

    keys: dict
    bare: dict
    value: dict
    frequencies: np.ndarray
    index: int = 0  # among all KV heads of all layers

    @functools.cache  # noqa: B019 (heads live as long as the program)
    def of_keys(self, length, weight="out"):
        return moments(self.keys[weight], self.frequencies, length)

    @functools.cache  # noqa: B019
    def of_bare_keys(self, length, weight, pairs):
        """As of_keys, of keys less their bare mean, turned to their position."""
        mean, sums = self.bare_mean(weight, pairs), {}
        for kind, each in self.bare[weight].items():
            crossed = np.outer(each["first"], mean)
            sums[kind] = each | {
                "first": each["first"] - each["weight"] * mean,
                "second": each["second"] - crossed - crossed.T + each["weight"] * np.outer(mean, mean)}
        return moments(sums, self.frequencies, length)

    def bare_mean(self, weight, pairs):
        """The mean of keys before their rotation, its largest pairs of elements."""
        sums = self.bare[weight].values()
        return largest_pairs(sum(each["first"] / each["weight"] for each in sums) / len(sums), pairs)

    def rest_of_mean(self, weight, pairs, length):
        """What the pairs of the mean that bare_mean leaves out are after the rotation, averaged over offsets."""
        rest = self.bare_mean(weight, len(self.frequencies)) - self.bare_mean(weight, pairs)
        return mean_over_offsets(rest, np.outer(rest, rest), self.frequencies, length)[0] if length else 0 * rest

    def turned_mean(self, mean, positions, rounded=False):
        """A mean of bare keys, turned to each position; rounded: with angles in single and cosines and sines in half
        precision."""
        return turned(np.broadcast_to(mean, (len(positions), len(mean))), positions, self.frequencies, rounded)

    @property
    def value_mean(self):
        return self.value["first"] / self.value["weight"]

    # As codes of other authors ask for them.
    @property
    def cov_q(self):
        return self.keys["one"]["alike"]["queries"]

    @property
    def mean_v(self):
        return self.value["plain_first"] / self.value["count"]

    @property
    def cov_v(self):
        return self.value["plain_second"] / self.value["count"] - np.outer(self.mean_v, self.mean_v)

    @property
    def cov_v_by_score(self):
        return self.value["score_second"] / self.value["count"]

    def rope(self, rows, positions):
        return turned(rows, positions, self.frequencies)

    def unrope(self, rows, positions):
        return turned(rows, -np.asarray(positions), self.frequencies)
