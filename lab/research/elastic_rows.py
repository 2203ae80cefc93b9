"""What elastic zeroing takes from a model's keys and values, beside what evicting tokens takes: per layer and KV head
the shares of elements, L1 and L2 below the threshold tau, up to 2 tau and above it; how much attention suffers at each
scale, under other rules for the threshold, and where as many elements become zero at random.

    elastic_rows.py --llama-cpp DIR --plugin libwinnow_ggml.so --model M.gguf --text FILE [--layers N] [--out DIR]

Writes haze.json, haze.png and haze.svg. docs/policies.md has the rule. The rows are those at the end of each context,
keys rotated to their positions; the queries are of the last eighth. Needs tools/calibrate/requirements.txt.
"""

import argparse
import math
from pathlib import Path

import elastic_plot
import numpy
import recorded_rows
from recorded_rows import attention

from winnow_eval import Failure
from winnow_calibrate import storage

SINKS = 64  # first positions, which stay as they are
FEWEST = 2 * SINKS  # tokens of a context
SIDES = ("K", "V")
SWEET = {"K": 0.45, "V": 0.5}  # scales of elastic=sweet, by which the bands are measured
SCALES = (0.1, 0.17, 0.25, 0.35, 0.45, 0.5, 0.6, 0.8, 1.0)
BANDS = ("below tau", "tau to 2 tau", "above 2 tau")
MEASURES = ("elements", "L1", "L2")
LOSS = {"K": "KL divergence of the attention (nats)", "V": "squared error of the output, relative"}
KEPT = (1 / 2, 1 / 4)  # shares of the tokens that stay where tokens are evicted, half of them the newest
BINS = numpy.geomspace(1e-3, 1e2, 101)  # of |x| / tau


def policy_unit(sizes, axis):
    """The policy's threshold at a scale of 1."""
    return numpy.maximum(sizes.std(axis, keepdims=True) / 2, sizes.mean(axis, keepdims=True))


# Thresholds at a scale of 1, of sizes [head][token][element] of a layer. The first rule is the policy's.
RULES = {
    "max(sigma / 2, mu) of a head": lambda sizes: policy_unit(sizes, (1, 2)),
    "mu of a head": lambda sizes: sizes.mean((1, 2), keepdims=True),
    "sigma / 2 of a head": lambda sizes: sizes.std((1, 2), keepdims=True) / 2,
    "max(sigma / 2, mu) of a layer": lambda sizes: policy_unit(sizes, (0, 1, 2)),
    "max(sigma / 2, mu) of a token": lambda sizes: policy_unit(sizes, (2,)),
    "max(sigma / 2, mu) of a channel": lambda sizes: policy_unit(sizes, (1,)),
    "one number for the model": lambda sizes: numpy.ones((1, 1, 1)),
}
POLICY = next(iter(RULES))
RANDOM = "random elements"


def ratios(rule, sizes):
    """|x| by the threshold at a scale of 1; infinite where that is 0, so that such elements stay."""
    units = numpy.broadcast_to(RULES[rule](sizes), sizes.shape)
    return numpy.divide(sizes, units, out=numpy.full(sizes.shape, math.inf), where=units > 0)


def band_sums(ratio, sizes):
    """[band][measure] of elements whose sizes are so many thresholds."""
    band = ((ratio >= 1).astype(numpy.intp) + (ratio > 2)).ravel()
    size = sizes.ravel()
    return numpy.stack([numpy.bincount(band, weights, len(BANDS)) for weights in (None, size, size * size)], axis=1)


def shares(part, whole):
    """Sums by band and measure as shares of all of a measure; 0 where there is nothing."""
    totals = numpy.broadcast_to(whole.sum(axis=-2, keepdims=True), part.shape)
    return numpy.divide(part, totals, out=numpy.zeros(part.shape), where=totals > 0)


def entropy(weights):
    return -(weights * numpy.log(numpy.maximum(weights, 1e-300))).sum(axis=-1).mean()


def divergence(weights, others):
    ratio = numpy.log(numpy.maximum(weights, 1e-300)) - numpy.log(numpy.maximum(others, 1e-300))
    return (weights * ratio).sum(axis=-1).mean()


def by_sum(weights, positions):
    """h2o's: what a token got."""
    return weights.sum(axis=(0, 1))


def by_count(weights, positions):
    """scissorhands': how often it got at least what all would get alike."""
    return sum((row >= 1 / (position + 1)).sum(axis=0) for row, position in zip(weights, positions)).astype(float)


STATISTICS = {"h2o": by_sum, "scissorhands": by_count}


class Head:
    """A KV head at the end of a context, with its recorded queries [query][head of the group][element]."""

    def __init__(self, keys, values, queries, positions):
        self.rows = {"K": keys, "V": values}
        self.queries, self.positions = queries, positions
        self.weights = attention(keys, queries, positions)
        self.last = max(1, len(positions) // 8)

    def loss(self, side, gone):
        """[LOSS of the side where elements behind the sinks become zero, for keys also the attention's entropy]."""
        rows = self.rows[side].copy()
        rows[SINKS:][gone] = 0
        weights = self.weights[-self.last:]
        if side == "K":
            others = attention(rows, self.queries[-self.last:], self.positions[-self.last:])
            return [divergence(weights, others), entropy(others)]
        output, others = weights @ self.rows[side], weights @ rows
        whole = (output ** 2).sum()
        return [((output - others) ** 2).sum() / whole if whole > 0 else 0.0]

    def evicted(self, statistic, share):
        """(positions that go, attention of the next query to them)."""
        kept = int(len(self.rows["K"]) * share)
        order = statistic(self.weights[:-1], self.positions[:-1])
        order[len(order) - kept // 2:] = math.inf
        gone = numpy.argsort(-order, kind="stable")[kept:]
        return gone, self.weights[-1][:, gone].sum(axis=-1).mean()


def sizes_of(context, side):
    """[head][token][element] of |x| behind the sinks."""
    return numpy.abs(context[SIDES.index(side)][:, SINKS:].astype(numpy.float64))


def rule_scales(layers):
    """{(side, rule): scale} by which each rule zeroes as many elements of the model as the policy's does; None where
    all elements stay at any scale."""
    scales = {}
    for side in SIDES:
        sizes = [sizes_of(context, side) for contexts in layers.values() for context in contexts]
        for rule in RULES:
            pooled = numpy.concatenate([ratios(rule, each).ravel() for each in sizes])
            if rule == POLICY:
                count = min((pooled < SWEET[side]).sum(), len(pooled) - 1)
            scale = float(numpy.partition(pooled, count)[count])
            scales[side, rule] = scale if math.isfinite(scale) else None
    return scales


def head_figures(head, side, ratio_of, size, scales, random):
    """Of a head and side what measure() gathers."""
    def zeroed(gone):
        return band_sums(numpy.where(gone, 0, 1), size)[0], head.loss(side, gone)[0]

    def at_random(gone):
        return random.permutation(gone.ravel()).reshape(gone.shape)

    unscaled = ratio_of[POLICY]
    ratio = unscaled / SWEET[side]
    rules = {rule: zeroed(each < (scales[side, rule] or 0)) for rule, each in ratio_of.items()}
    rules[RANDOM] = zeroed(at_random(ratio < 1))
    clipped = numpy.clip(ratio, BINS[0], BINS[-1])
    evictions = {}
    for policy, statistic in STATISTICS.items():
        for share in KEPT:
            gone, lost = head.evicted(statistic, share)
            gone = gone[gone >= SINKS] - SINKS
            evictions[policy, share] = band_sums(ratio[gone], size[gone]), lost
    return {"bands": band_sums(ratio, size), "evicted": evictions, "rules": rules,
            "histogram": [numpy.histogram(clipped, BINS, weights=weights)[0] for weights in (None, size * size)],
            "scales": {scale: (band_sums(unscaled / scale, size), head.loss(side, unscaled < scale),
                               head.loss(side, at_random(unscaled < scale))) for scale in SCALES},
            "is_sigma": size.std() / 2 > size.mean(), "entropy": entropy(head.weights[-head.last:])}


def found_heads(layers, random):
    """{side: {(layer, KV head): [head_figures() of each context]}}."""
    scales = rule_scales(layers)
    found = {side: {} for side in SIDES}
    for layer, contexts in layers.items():
        for context in contexts:
            sizes = {side: sizes_of(context, side) for side in SIDES}
            of_rules = {side: {rule: ratios(rule, sizes[side]) for rule in RULES} for side in SIDES}
            for at, (keys, values, queries) in enumerate(recorded_rows.heads(*context)):
                step = recorded_rows.EVERY
                head = Head(keys, values, queries[::step], numpy.arange(len(queries))[::step])
                for side in SIDES:
                    ratio_of = {rule: each[at] for rule, each in of_rules[side].items()}
                    found[side].setdefault((layer, at), []).append(
                        head_figures(head, side, ratio_of, sizes[side][at], scales, random))
    return found, scales


def mean_of(heads, key):
    """The mean over heads of shares that go, and the same of all heads' sums together: [band][measure] each."""
    parts = numpy.array([key(head) for head in heads])
    wholes = numpy.array([head["bands"] for head in heads])
    return {"mean": shares(parts, wholes).mean(axis=0).tolist(),
            "together": shares(parts.sum(axis=0), wholes.sum(axis=0)).tolist()}


def mean_rule(heads, rule):
    """What a rule for the threshold takes and costs."""
    parts = numpy.array([head["rules"][rule][0] for head in heads])
    taken = shares(parts[:, None], numpy.array([head["bands"] for head in heads]))[:, 0]
    losses = [head["rules"][rule][1] for head in heads]
    return {"elements": taken[:, 0].mean(), "fewest": taken[:, 0].min(), "most": taken[:, 0].max(),
            "L2": taken[:, 2].mean(), "loss": numpy.mean(losses), "median": numpy.median(losses)}


def mean_scale(heads, scale):
    """What the policy takes and costs at a scale, and what as many zeros at random cost."""
    found = {"scale": scale, "bands": mean_of(heads, lambda head: head["scales"][scale][0])}
    for kind, name in ((1, ""), (2, "random_")):
        losses = numpy.array([head["scales"][scale][kind] for head in heads])
        found |= {f"{name}loss": losses[:, 0].mean(), f"{name}median": numpy.median(losses[:, 0])}
        found |= {f"{name}entropy": losses[:, 1].mean()} if losses.shape[1] > 1 else {}
    return found


def side_figures(of_heads, scales, side):
    """Of a side, over its heads and contexts."""
    heads = [each for contexts in of_heads.values() for each in contexts]

    def mean(key):
        return float(numpy.mean([key(head) for head in heads]))

    counts, energy = (numpy.array([head["histogram"][kind] for head in heads], float) for kind in (0, 1))
    return {
        "bands": mean_of(heads, lambda head: head["bands"]),
        "entropy": mean(lambda head: head["entropy"]), "sigma_decides": mean(lambda head: head["is_sigma"]),
        "heads": [{"layer": layer, "head": at, "bands": mean_of(contexts, lambda head: head["bands"])["together"],
                   "loss": mean_rule(contexts, POLICY)["loss"]} for (layer, at), contexts in of_heads.items()],
        "scales": [mean_scale(heads, scale) for scale in SCALES],
        "rules": [{"rule": rule, "scale": scales.get((side, rule)), **mean_rule(heads, rule)}
                  for rule in (*RULES, RANDOM)],
        "evicted": [{"policy": policy, "kept": share, "attention": mean(lambda head: head["evicted"][policy, share][1]),
                     "bands": mean_of(heads, lambda head: head["evicted"][policy, share][0])}
                    for policy in STATISTICS for share in KEPT],
        "histogram": {"elements": (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0).tolist(),
                      "L2": (energy / numpy.maximum(energy.sum(axis=1, keepdims=True), 1e-300)).mean(axis=0).tolist()}}


def measure(layers, random):
    """All figures by side, of {layer: [(keys, values [KV head][token][element], queries [query head][token][element])
    of each context]}."""
    for layer, contexts in layers.items():
        if not all(numpy.isfinite(rows).all() for context in contexts for rows in context):
            raise Failure(f"layer {layer}: recorded rows with elements that are not finite")
        if min(context[0].shape[1] for context in contexts) < FEWEST:
            raise Failure(f"layer {layer}: recorded rows of too short a context, expected at least {FEWEST} tokens, of "
                          f"which {SINKS} are sinks")
    found, scales = found_heads(layers, random)
    return {side: side_figures(found[side], scales, side) for side in SIDES}


def show(setting, sides):
    def percents(values):
        return "  ".join(f"{100 * value:6.2f}" for value in values)

    step = "all layers" if setting["step"] == 1 else f"one layer of {setting['step']}"
    print(f"{setting['model']}, {setting['text']}: contexts of {setting['context']} tokens: {setting['contexts']}, "
          f"{step}; % are means over heads, in brackets of all heads' sums together")
    for side, found in sides.items():
        print(f"\n{side}, scale {SWEET[side]}: sigma / 2 is above mu in {100 * found['sigma_decides']:.0f}% of the "
              f"heads; entropy of the attention {found['entropy']:.3f} nats")
        print(f"{'of':24} {'  '.join(f'{measure:>6}' for measure in MEASURES)}")
        for band, mean, together in zip(BANDS, found["bands"]["mean"], found["bands"]["together"]):
            print(f"{band:24} {percents(mean)}  ({percents(together)})")
        for row in found["evicted"]:
            name = f"{row['policy']}, {row['kept']} stay"
            mean, together = (numpy.sum(row["bands"][kind], axis=0) for kind in ("mean", "together"))
            print(f"{name:24} {percents(mean)}  ({percents(together)})  attention of the next query "
                  f"{100 * row['attention']:.2f}%")
        losses = f"{LOSS[side]}, mean and median of heads"
        print(f"{'scale':24} elements  L1  L2  above 2 tau: elements  L2 (%)  {losses}; at random"
              f"{'; entropies' if side == 'K' else ''}")
        for row in found["scales"]:
            below, _, above = row["bands"]["mean"]
            entropies = [f"{row[name]:.3f}" for name in ("entropy", "random_entropy") if name in row]
            print(f"{row['scale']:<24} {percents([*below, above[0], above[2]])}  {row['loss']:.5f} "
                  f"{row['median']:.5f}  {row['random_loss']:.4f} {row['random_median']:.4f} ", *entropies)
        print(f"{'rule, as many elements':34} scale  elements, fewest and most of a head  L2 (%)  {losses}")
        for row in found["rules"]:
            scale = "-" if row["scale"] is None else f"{row['scale']:.3f}"
            print(f"{row['rule']:34} {scale}  {percents([row['elements'], row['fewest'], row['most'], row['L2']])}  "
                  f"{row['loss']:.5f} {row['median']:.5f}")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    recorded_rows.add_options(parser)
    recorded_rows.add_part(parser)
    parser.add_argument("--layers", type=int, default=1, metavar="N", help="each n-th layer (default: all)")
    parser.add_argument("--out", type=Path, default=Path("winnow-haze"), help="folder (default: %(default)s)")
    given = parser.parse_args()
    for option, value, least in (("--layers", given.layers, 1), ("--context", given.context, FEWEST)):
        if value < least:
            parser.error(f"{option}: {value}, expected {least} or more")
    return given


def main():
    given = options()
    layers = dict(list(enumerate(recorded_rows.record(given, given.part, is_whole=True)))[::given.layers])
    setting = {"model": given.model.name, "text": given.text.name, "part": given.part, "context": given.context,
               "contexts": given.count, "step": given.layers, "sinks": SINKS, "sweet": SWEET}
    sides = measure(layers, numpy.random.default_rng(1))
    show(setting, sides)
    made = {"format": 1, "setting": setting, "bands": BANDS, "loss": LOSS, "bins": BINS.tolist(), "sides": sides}
    storage.write_json(given.out / "haze.json", made)
    for path in elastic_plot.draw(made, given.out):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
