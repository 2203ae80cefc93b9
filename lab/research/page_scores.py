"""What scores of pages miss: of the attention of a query, the share that lies in cold pages which recall would not pick
by them. Scores of what a signature tells, and of what it could tell, on keys and queries of a model.

    page_scores.py --llama-cpp DIR --plugin libwinnow_ggml.so --model M.gguf --text FILE [--part second]

The model reads some contexts of the text with its full cache (llama-perplexity); the keys and each 64th query of their
second halves, in each fourth layer, are what is looked at. Nothing is packed. Needs tools/calibrate/requirements.txt.
"""

import argparse
import math
from dataclasses import dataclass

import numpy
import recorded_rows
from recorded_rows import softmax

SINKS, RESIDUAL = 4, 16  # tokens that stay dense
NEWEST = 16  # packed tokens that are always picked
EVERY = 64  # queries, of which one is looked at
LAYERS = 4  # likewise
F16 = 2  # bytes
ROW_BITS = 4, 3  # of an element of K and of V: turbo4 and turbo3; a row has a norm, too
SLOT, FRAME = 4, 4  # bytes of a row's slot; of a page
LEVELS = numpy.array([0.4528, 1.5104])  # of two bits, in standard deviations, and where they part
PARTS_AT = 0.9816
OLDEST, ALL = -1, 1 << 30  # tokens: as many as the largest power of two


@dataclass
class Pages:
    """The cold pages of a head, for one query: what may be known of them."""

    mean: numpy.ndarray  # [page][element]
    deviation: numpy.ndarray  # [page][element], from the mean
    keys: numpy.ndarray  # [page][token][element]
    center: numpy.ndarray
    rotation: numpy.ndarray

    def rest(self):
        return (self.mean - self.center) @ self.rotation

    def signs(self, q, is_shared=True):
        """A bit an element beside a center, and one magnitude for all pages, or one of each."""
        rest = self.rest()
        sizes = numpy.abs(rest).mean(axis=None if is_shared else 1)
        return q @ self.center[:, None] + (q @ self.rotation) @ numpy.sign(rest).T * sizes

    def two_bits(self, q):
        rest = self.rest()
        sigma = rest.std()
        level = LEVELS[(numpy.abs(rest) > PARTS_AT * sigma).astype(int)] * sigma
        return q @ self.center[:, None] + (q @ self.rotation) @ (numpy.sign(rest) * level).T

    def exact(self, q):
        return q @ self.mean.T

    def with_deviation(self, q, factor):
        return q @ self.mean.T + factor * numpy.sqrt(q ** 2 @ (self.deviation ** 2).T)

    def larger(self, q):
        return numpy.einsum("gd,pkd->gpk", q, self.keys).max(axis=2)


def of_sum(z):
    return softmax(z).sum(axis=0)


def of_largest_softmax(z):
    return softmax(z).max(axis=0)


def of_largest(z):
    return z.max(axis=0)


@dataclass(frozen=True)
class Score:
    name: str
    logits: object  # of (pages, queries of a group)
    of_heads: object = of_sum
    page: int = 2  # tokens
    bits: float = 1  # of an element that a signature has; 0: not counted
    more: int = 0  # bytes of a signature beside them
    center: int = OLDEST  # of so many of the oldest packed tokens; 0: none


SCORES = (
    Score("largest head, a magnitude for each page", lambda p, q: p.signs(q, False), of_largest, more=2),
    Score("largest head", Pages.signs, of_largest),
    Score("largest head of the softmax", Pages.signs, of_largest_softmax),
    Score("sum of the heads' softmax (as it is)", Pages.signs),
    Score("the same, beside no center", Pages.signs, center=0),
    Score("the same, a center of the first 48 keys", Pages.signs, center=48),
    Score("the same, a center of all", Pages.signs, center=ALL),
    Score("the same, pages of one token", Pages.signs, page=1),
    Score("the same, pages of four", Pages.signs, page=4),
    Score("the same, two bits an element", Pages.two_bits, bits=2),
    Score("mean key, not counted", Pages.exact, bits=0),
    Score("mean key + 1/2 deviation, not counted", lambda p, q: p.with_deviation(q, 0.5), bits=0),
    Score("mean key + deviation, not counted", lambda p, q: p.with_deviation(q, 1), bits=0),
    Score("larger key, not counted", Pages.larger, bits=0),
)


def row_bytes(size):
    """Of a packed row, of K and of V."""
    return [bits * size // 8 + F16 for bits in ROW_BITS]


def pages_picked(score, context, size, share):
    """How many pages a budget of f16's bytes leaves room for, beside signatures of all of them."""
    dense = 2 * size * F16
    signatures = context // score.page * (score.bits * size / 8 + score.more)
    if score.bits == 0:  # as if it took what signs do
        signatures = context // score.page * size / 8
    left = context * dense * share - (SINKS + RESIDUAL) * dense - signatures - (size + 1) * F16
    return max(int(left / (sum(row_bytes(size)) + SLOT + FRAME / score.page)), 0) // score.page


def rotation(size):
    """A Hadamard matrix with random signs."""
    made = numpy.ones((1, 1))
    while len(made) < size & -size:
        made = numpy.block([[made, made], [made, -made]])
    blocks = numpy.kron(numpy.eye(size // len(made)), made) / math.sqrt(len(made))
    return numpy.random.default_rng(1).choice([-1.0, 1.0], size)[:, None] * blocks


def pages_of(keys, score, turn):
    count = (len(keys) - SINKS) // score.page
    rows = keys[SINKS:SINKS + count * score.page].reshape(count, score.page, -1)
    mean = rows.mean(axis=1)
    oldest = 1 << (count * score.page).bit_length() - 1 if score.center == OLDEST else score.center
    center = keys[SINKS:SINKS + count * score.page][:oldest]
    return Pages(mean, rows.std(axis=1), rows, center.mean(axis=0) if oldest else numpy.zeros(keys.shape[1]), turn)


def missed(score, keys, queries, positions, share, turn):
    """What each query of a head misses; queries [query][head][element]."""
    context, size = keys.shape
    most = pages_picked(score, context, size, share)
    found = []
    for q, position in zip(queries, positions):
        seen = keys[:position + 1]
        weights = softmax(q @ seen.T / math.sqrt(size))
        pages = pages_of(seen[:len(seen) - RESIDUAL], score, turn)
        scores = score.of_heads(score.logits(pages, q) / math.sqrt(size))
        scores[len(scores) - min(NEWEST // score.page, most // 2):] = math.inf
        picked = numpy.argsort(-scores, kind="stable")[:most]
        cold = weights[:, SINKS:SINKS + len(pages.mean) * score.page].reshape(len(q), len(pages.mean), score.page)
        cold = cold.sum(axis=2)
        found.append((cold.sum(axis=1) - cold[:, picked].sum(axis=1)).mean())
    return found


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    recorded_rows.add_options(parser)
    recorded_rows.add_part(parser)
    parser.add_argument("--share", type=float, default=1 / 16, help="of f16's bytes (default: 1/16)")
    return parser.parse_args()


def main():
    given = options()
    layers = recorded_rows.record(given, given.part)[::LAYERS]
    first = given.context // 2
    positions = range(first, given.context, EVERY)
    some = slice(first // recorded_rows.EVERY, None, EVERY // recorded_rows.EVERY)
    print(f"{'score of a page':42} tokens  missed")
    for score in SCORES:
        found = []
        for part in (part for parts in layers for part in parts):
            turn = rotation(part[0].shape[2])
            for keys, _, queries in recorded_rows.heads(*part):
                found += missed(score, keys, queries[some], positions, given.share, turn)
        picked = pages_picked(score, given.context, keys.shape[1], given.share) * score.page
        print(f"{score.name:42} {picked:6}  {numpy.mean(found):.4f}", flush=True)


if __name__ == "__main__":
    main()
