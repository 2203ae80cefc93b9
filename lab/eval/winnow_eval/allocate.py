"""Which layers, or KV heads of layers, are worth more bits, and which bear fewer.

Each layer, or each head, in turn stores its keys, and then its values, in the next coarser format, and all else stays
as it is: how much that adds to the divergence from the full cache is its sensitivity. Loss grows with the squared error
of what is stored, so that a sensitivity also says what a finer format would gain. Then the two lists that a
configuration may have, `fine` and `coarse`, are filled so that the predicted loss is least within a number of bytes.
Sensitivities may come from a file instead, measured before or written by hand.

A unit is (layer, head), and a head of None stands for all heads of the layer.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy

from winnow_calibrate.storage import write_json
from winnow_eval import Failure, given, layer_lists

POLICY = "winnow"
FORMAT = 2
SIDES = ("k", "v")
# What is stored, what is measured in its place, and what else may be: of keys and of values.
USUAL = {"k": "turbo4", "v": "turbo3"}
COARSER = {"k": "turbo3", "v": "turbo2"}
FINER = {"k": "q8_0", "v": "turbo4"}
ERRORS = {"q8_0": 0.0, "turbo4": 0.0093, "turbo3": 0.0340, "turbo2": 0.1161}  # lab/formats.md, of the variance
LISTS = ("fine", "coarse")
BY = ("layers", "heads")
MOST_HEADS = 64  # of a layer whose heads a list names
MOST = 1e9  # nats, of what is given


@dataclass(frozen=True)
class Kind:
    """A change of a layer or a head: one side in another format."""

    side: str
    format: str

    def key(self, which):
        return f"{self.side}_{which}={self.format}"


KINDS = tuple(Kind(side, table[side]) for table in (FINER, COARSER) for side in SIDES)


def units(shape, by):
    """What is measured apart."""
    heads = range(shape["kv_heads"]) if by == "heads" else [None]
    return [(layer, head) for layer in range(shape["layers"]) for head in heads]


def expect_listed(shape, where):
    """Fails where layers have more heads than a list can name."""
    if shape["kv_heads"] > MOST_HEADS:
        raise Failure(f"{where}: layers have {shape['kv_heads']} KV heads, expected at most {MOST_HEADS}, which is as "
                      "many as a list can name")


def measured(unit, side, kv_heads):
    """The configuration in which a unit stores a side coarser."""
    return f"{POLICY}:coarse={layer_lists.spell([unit], kv_heads)},{Kind(side, COARSER[side]).key('coarse')}"


def rows(shape, by):
    return [POLICY, *(measured(unit, side, shape["kv_heads"]) for unit in units(shape, by) for side in SIDES)]


def string(lists, kv_heads):
    """The configuration of [(kind, its units)]."""
    pairs = [f"{which}={layer_lists.spell(its, kv_heads)},{kind.key(which)}"
             for which, (kind, its) in zip(LISTS, [each for each in lists if each[1]], strict=False)]
    return POLICY + (":" + ",".join(pairs) if pairs else "")


def formats(configuration, shape):
    """What a configuration of this module's stores: {side: of each layer the format of each head}."""
    keys = dict(each.split("=") for each in configuration.partition(":")[2].split(",") if each)
    found = {side: [[USUAL[side]] * shape["kv_heads"] for _ in range(shape["layers"])] for side in SIDES}
    for which in LISTS:
        for layer, head in layer_lists.read(keys.get(which, ""), shape["kv_heads"]):
            for side in SIDES:
                found[side][layer][head] = keys.get(f"{side}_{which}", found[side][layer][head])
    return found


def change(kind, sensitivity):
    """What a kind adds to the loss of a layer or a head; less than 0 where it gains."""
    usual = ERRORS[USUAL[kind.side]]
    return sensitivity * (ERRORS[kind.format] - usual) / (ERRORS[COARSER[kind.side]] - usual)


def least_sums(changes):
    """The least sum of none of some numbers, of one, and so on."""
    return numpy.concatenate([[0], numpy.cumsum(numpy.sort(changes))])


def sums_before(changes):
    """[place, length]: the least sum of so many of the numbers before a place; infinity where there are fewer."""
    size = len(changes) + 1
    sums = numpy.full((size, size), numpy.inf)
    for place in range(size):
        sums[place, :place + 1] = least_sums(changes[:place])
    return sums


def first_least(sums, starts):
    """(the least of each run of sums, which begin at `starts`, where it is first)."""
    least = numpy.minimum.reduceat(sums, starts)
    hits = numpy.flatnonzero(sums == numpy.repeat(least, numpy.diff(starts, append=len(sums))))
    return least, hits[numpy.searchsorted(hits, starts)]


def best_lists(first, second, costs, most):
    """(the least sum, its bytes, the lengths of both lists, the place between them) of units in order of preference.

    The best place moves behind with the first list's length and before with the second's, as the longer list gains more
    by more units to choose from. So, of lists with one unit more together, it lies between the best places of those
    that lack it in the first and in the second list, and for all lengths together few places are tried.
    """
    count = len(first)
    before, behind = sums_before(first), sums_before(second[::-1])
    found, places = (numpy.inf,), numpy.zeros(0, int)
    for together in range(count + 1):
        firsts = numpy.arange(together + 1)
        seconds = together - firsts
        low, high = firsts.copy(), count - seconds
        low[1:] = numpy.maximum(low[1:], places)
        high[:-1] = numpy.minimum(high[:-1], places)
        lengths = numpy.maximum(high - low, 0) + 1  # rounding may put one past the other
        starts = numpy.cumsum(lengths) - lengths
        tried = numpy.arange(lengths.sum()) + numpy.repeat(low - starts, lengths)
        sums = before[tried, numpy.repeat(firsts, lengths)] + behind[count - tried, numpy.repeat(seconds, lengths)]
        least, where = first_least(sums, starts)
        places = tried[where]
        added = firsts * costs[0] + seconds * costs[1]
        least[added > most] = numpy.inf
        alike = numpy.flatnonzero(least == least.min())
        at = alike[numpy.argmin(added[alike])]
        found = min(found, (least[at], added[at], firsts[at], seconds[at], places[at]))
    return found


def fill(changes, costs, most):
    """(predicted change of the loss, bytes, [numbers of the units of each kind]) of the best two lists, or None.

    changes: of each unit what each of two kinds adds to the loss; costs: bytes that each adds; most: of all together.
    A unit is in one list at most. Of those that are in a list the first has the ones that prefer it most, or two could
    be exchanged. So, where all units are in order of that preference, the first list is before some place and the
    second behind it, and each has the units there that change least. Of ways that are alike it is the one of fewer
    bytes, then of the shorter first list.
    """
    both = numpy.array(changes, float)
    order = numpy.argsort(both[:, 0] - both[:, 1], kind="stable")
    first, second = both[order].T
    total, *rest = best_lists(first, second, costs, most)
    if total == numpy.inf:
        return None
    added, *lengths, place = rest
    lists = (order[:place][numpy.argsort(first[:place], kind="stable")[:lengths[0]]],
             order[place:][numpy.argsort(second[place:], kind="stable")[:lengths[1]]])
    return float(total), int(added), [sorted(map(int, each)) for each in lists]


def allocate(found, most):
    """(predicted change of the loss, bytes a token more, the configuration) of what a file has."""
    shape, by = found["shape"], by_of(found)
    its_units = units(shape, by)
    lost = [each for layer in found["sensitivities"] for each in layer.get("heads", [layer])]
    sizes = {name: size * (1 if by == "heads" else shape["kv_heads"])
             for name, size in row_bytes(shape["head_size"]).items()}
    allocations = []
    for at, first in enumerate(KINDS):
        for second in KINDS[at + 1:]:
            pair = (first, second)
            costs = [sizes[kind.format] - sizes[USUAL[kind.side]] for kind in pair]
            filled = fill([[change(kind, each[kind.side]) for kind in pair] for each in lost], costs, most)
            if filled is not None:
                total, added, lists = filled
                listed = [(kind, [its_units[number] for number in numbers])
                          for kind, numbers in zip(pair, lists, strict=True)]
                allocations.append((total, added, string(listed, shape["kv_heads"])))
    if not allocations:
        raise Failure(f"--shares: no lists of finer and coarser formats take {-most} bytes a token less than usual; "
                      "expected larger shares")
    return min(allocations)


def row_bytes(head_size):
    """Of a format's rows, scales and all."""
    return {"q8_0": head_size // 32 * 34} | {f"turbo{bits}": head_size * bits // 8 + 2 for bits in (2, 3, 4)}


def sensitivities(results, shape, by):
    """Of each layer, or of each of its heads, by side: how much more is lost where it is stored coarser."""
    lost = {row["name"]: row["kld"] for row in results["rows"]}
    found = [{side: lost[measured(unit, side, shape["kv_heads"])] - lost[POLICY] for side in SIDES}
             for unit in units(shape, by)]
    if by == "layers":
        return found
    return [{"heads": list(heads)} for heads in zip(*[iter(found)] * shape["kv_heads"], strict=True)]


def measured_of(results, shape, by):
    """What allocation.json has of what was measured."""
    base = next(row for row in results["rows"] if row["name"] == POLICY)
    return {"format": FORMAT, "model": results["model"], "text": results["text"], "shape": shape, "kld": base["kld"],
            "sensitivities": sensitivities(results, shape, by)}


def read(path):
    """The same of an allocation.json, measured before or written by hand."""
    found = given.read(path, "--from", "allocation.schema.json")
    found["shape"] = {key: int(value) for key, value in found["shape"].items()}  # which may be written as 3.0
    layers, kv_heads, all_layers = found["shape"]["layers"], found["shape"]["kv_heads"], found["sensitivities"]
    if len(all_layers) != layers:
        raise Failure(f"--from: {path}, sensitivities: of {len(all_layers)} layers, expected one for each of {layers}")
    _expect_number(path, "kld", found["kld"])
    by = by_of(found)
    if by == "heads":
        expect_listed(found["shape"], f"--from: {path}, shape.kv_heads")
    for layer, its in enumerate(all_layers):
        where = f"sensitivities[{layer}]"
        if ("heads" in its) != (by == "heads"):
            raise Failure(f"--from: {path}, {where}: of {'its KV heads' if 'heads' in its else 'the whole layer'}, "
                          f"expected {by} as in the first layer")
        if by == "heads" and len(its["heads"]) != kv_heads:
            raise Failure(f"--from: {path}, {where}.heads: of {len(its['heads'])} KV heads, expected one for each of "
                          f"{kv_heads}")
        for number, lost in enumerate(its.get("heads", [its])):
            of_head = f".heads[{number}]" if by == "heads" else ""
            for side in SIDES:
                _expect_number(path, f"{where}{of_head}.{side}", lost[side])
    return found


def _expect_number(path, where, value):
    if not -MOST <= value <= MOST:  # nor NaN
        raise Failure(f"--from: {path}, {where}: {value}, expected a number of at most {MOST:g}")


def by_of(found):
    """By what the sensitivities of a file are."""
    return "heads" if "heads" in found["sensitivities"][0] else "layers"


def report(found, shares, folder):
    """Writes allocation.json of what was measured, or read; (its path, what is in it)."""
    shape, sizes = found["shape"], row_bytes(found["shape"]["head_size"])
    usual = shape["layers"] * shape["kv_heads"] * sum(sizes[USUAL[side]] for side in SIDES)
    allocations = []
    for share in shares:
        more, added, configuration = allocate(found, math.floor(round(share * usual, 6)) - usual)
        allocations.append({"share": share, "configuration": configuration, "predicted_kld": found["kld"] + more,
                            "bytes_per_token": usual + added})
    made = found | {"usual_bytes_per_token": usual, "allocations": allocations}
    path = Path(folder) / "allocation.json"
    write_json(path, made)
    return path, made


def expect_shares(text):
    """The shares of a list like 1,1.05."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if not shares or not all(0.5 <= share <= 2 for share in shares):
        raise Failure(f'--shares: "{text}", expected numbers from 0.5 to 2 like 1,1.05')
    return shares
