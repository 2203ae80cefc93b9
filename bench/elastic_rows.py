"""What elastic zeroing takes from a model's keys: how many elements, how much of their L1 and L2, what attention makes
of the rest, and the same where as many elements become zero at random, or tokens are evicted instead.

    elastic_rows.py --llama-cpp DIR --plugin libwinnow_ggml.so --model M.gguf --text FILE [--part second]

The rule is that of docs/policies.md; the keys are those at the end of some contexts of the text, rotated to their
positions, in each fourth layer, and the queries that look at them are of the last eighth of a context. Needs
tools/eval/requirements.txt.
"""

import argparse
import math

import numpy
import recorded_rows
from recorded_rows import attention, softmax

LAYERS = 4  # one of so many
SINKS = 64  # the first positions, which stay as they are
SCALES = {"on: .35": 0.35, "sweet: .45": 0.45, "aggressive: .50": 0.50}  # of keys
SHARE = 1 / 4  # of the tokens stay where they are evicted, half of them the newest
FIGURES = ("elements", "L1", "L2", "above 2 tau", "their L2", "entropy", "KL", "at random: entropy", "KL")


def threshold(keys, scale):
    sizes = numpy.abs(keys)
    return scale * max(sizes.std() / 2, sizes.mean())


def entropy(weights):
    return -(weights * numpy.log(numpy.maximum(weights, 1e-300))).sum(axis=-1).mean()


def divergence(weights, others):
    ratio = numpy.log(numpy.maximum(weights, 1e-300)) - numpy.log(numpy.maximum(others, 1e-300))
    return (weights * ratio).sum(axis=-1).mean()


def zeroed(keys, queries, positions, scale, random):
    """FIGURES of a head."""
    rest = keys[SINKS:]
    sizes, tau = numpy.abs(rest), threshold(rest, scale)
    is_small, is_large = sizes < tau, sizes > 2 * tau
    weights = attention(keys, queries, positions)

    def without(mask):
        changed = keys.copy()
        changed[SINKS:][mask] = 0
        others = attention(changed, queries, positions)
        return entropy(others), divergence(weights, others)

    drawn = numpy.zeros(rest.size, bool)
    drawn[random.permutation(rest.size)[:is_small.sum()]] = True
    return [is_small.mean(), sizes[is_small].sum() / sizes.sum(), (sizes[is_small] ** 2).sum() / (sizes ** 2).sum(),
            is_large.mean(), (sizes[is_large] ** 2).sum() / (sizes ** 2).sum(), *without(is_small),
            *without(drawn.reshape(rest.shape))]


def evicted(keys, queries, positions, statistic):
    """(elements, L1, L2, attention) that go with the tokens of a head which an importance puts last."""
    weights = attention(keys, queries, positions)
    kept = int(len(keys) * SHARE)
    order = statistic(weights[:-1], positions[:-1])
    order[-(kept // 2):] = math.inf
    gone = numpy.argsort(-order, kind="stable")[kept:]
    sizes = numpy.abs(keys)
    return [len(gone) / len(keys), sizes[gone].sum() / sizes.sum(), (sizes[gone] ** 2).sum() / (sizes ** 2).sum(),
            weights[-1][:, gone].sum(axis=-1).mean()]


def by_sum(weights, positions):
    """h2o's: what a token got."""
    return weights.sum(axis=(0, 1))


def by_count(weights, positions):
    """scissorhands': how often it got at least what all would get alike."""
    return sum((row >= 1 / (position + 1)).sum(axis=0) for row, position in zip(weights, positions)).astype(float)


def heads(layers):
    """(keys, all recorded queries [query][head of the group][element], their positions) of each head."""
    for part in (part for parts in layers for part in parts):
        for keys, _, queries in recorded_rows.heads(*part):
            yield keys, queries, numpy.arange(len(queries)) * recorded_rows.EVERY


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    recorded_rows.add_options(parser)
    recorded_rows.add_part(parser)
    given = parser.parse_args()
    layers = recorded_rows.record(given, given.part)[::LAYERS]
    random = numpy.random.default_rng(1)
    last = given.context // recorded_rows.EVERY // 8
    full = numpy.mean([entropy(attention(keys, queries[-last:], positions[-last:]))
                       for keys, queries, positions in heads(layers)])
    print(f"entropy of the attention: {full:.3f} nats")
    print(f"{'zeroed':16} {'  '.join(FIGURES)}  elements, fewest and most of a head")
    for name, scale in SCALES.items():
        found = numpy.array([zeroed(keys, queries[-last:], positions[-last:], scale, random)
                             for keys, queries, positions in heads(layers)])
        print(f"{name:16}", "  ".join(f"{value:.4f}" for value in found.mean(axis=0)),
              f" {found[:, 0].min():.3f} {found[:, 0].max():.3f}", flush=True)
    print(f"{'evicted to 1/4':16} elements  L1  L2  attention of the next query")
    for name, statistic in (("h2o", by_sum), ("scissorhands", by_count)):
        found = numpy.mean([evicted(*head, statistic) for head in heads(layers)], axis=0)
        print(f"{name:16}", "  ".join(f"{value:.4f}" for value in found), flush=True)


if __name__ == "__main__":
    main()
