"""Which layers are worth more bits, and which bear fewer.

Each layer in turn stores its keys, and then its values, in the next coarser format, and all else stays as it is: how
much that adds to the divergence from the full cache is the layer's sensitivity. Loss grows with the squared error of
what is stored, so that a sensitivity also says what a finer format would gain. Then the two lists of layers that a
configuration may have, `fine` and `coarse`, are filled so that the predicted loss is least within a number of bytes.
Sensitivities may come from a file instead, measured before or written by hand.
"""

from dataclasses import dataclass
from pathlib import Path

from winnow_eval import Failure, given
from winnow_eval.store import write_json

POLICY = "winnow"
FORMAT = 2
SIDES = ("k", "v")
# What is stored, what is measured in its place, and what else may be: of keys and of values.
USUAL = {"k": "turbo4", "v": "turbo3"}
COARSER = {"k": "turbo3", "v": "turbo2"}
FINER = {"k": "q8_0", "v": "turbo4"}
ERRORS = {"q8_0": 0.0, "turbo4": 0.0093, "turbo3": 0.0340, "turbo2": 0.1161}  # docs/formats.md, of the variance
LISTS = ("fine", "coarse")
MOST = 1e9  # nats, of what is given


@dataclass(frozen=True)
class Kind:
    """A change of a layer: one side in another format."""

    side: str
    format: str

    def key(self, which):
        return f"{self.side}_{which}={self.format}"


KINDS = tuple(Kind(side, table[side]) for table in (FINER, COARSER) for side in SIDES)


def measured(layer, side):
    """The configuration in which a layer stores a side coarser."""
    return f"{POLICY}:coarse={layer},{Kind(side, COARSER[side]).key('coarse')}"


def rows(layers):
    return [POLICY, *(measured(layer, side) for layer in range(layers) for side in SIDES)]


def ranges(layers):
    """As the key has them: 0-2+7."""
    found = []
    for layer in sorted(layers):
        if found and layer == found[-1][1] + 1:
            found[-1][1] = layer
        else:
            found.append([layer, layer])
    return "+".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def string(lists):
    """The configuration of [(kind, its layers)]."""
    pairs = [f"{which}={ranges(layers)},{kind.key(which)}"
             for which, (kind, layers) in zip(LISTS, [each for each in lists if each[1]], strict=False)]
    return POLICY + (":" + ",".join(pairs) if pairs else "")


def formats(configuration, layers):
    """What a configuration of this module's stores: {side: [the format of each layer]}."""
    keys = dict(each.split("=") for each in configuration.partition(":")[2].split(",") if each)
    found = {side: [USUAL[side]] * layers for side in SIDES}
    for which in LISTS:
        for part in keys.get(which, "").split("+"):
            first, _, last = part.partition("-")
            for side in SIDES:
                if part and f"{side}_{which}" in keys:
                    for layer in range(int(first), int(last or first) + 1):
                        found[side][layer] = keys[f"{side}_{which}"]
    return found


def change(kind, sensitivity):
    """What a kind adds to a layer's loss; less than 0 where it gains."""
    usual = ERRORS[USUAL[kind.side]]
    return sensitivity * (ERRORS[kind.format] - usual) / (ERRORS[COARSER[kind.side]] - usual)


def fill(changes, costs, most):
    """(predicted change of the loss, bytes, [layers of each kind]) of the best two lists.

    changes: of each layer what each of two kinds adds to the loss; costs: bytes that each adds; most: of all together.
    A layer is in one list at most.
    """
    best = {(0, 0): (0.0, None)}  # by how many layers are in each list: (sum, the layers as a chain)
    for layer, of_kinds in enumerate(changes):
        following = dict(best)
        for (first, second), (total, chain) in best.items():
            for which, more in enumerate(of_kinds):
                counts = (first + (which == 0), second + (which == 1))
                candidate = (total + more, (layer, which, chain))
                if counts not in following or candidate[0] < following[counts][0]:
                    following[counts] = candidate
        best = following
    allowed = [(total, counts[0] * costs[0] + counts[1] * costs[1], chain) for counts, (total, chain) in best.items()
               if counts[0] * costs[0] + counts[1] * costs[1] <= most]
    if not allowed:
        return None
    total, added, chain = min(allowed, key=lambda each: each[:2])
    lists = ([], [])
    while chain is not None:
        layer, which, chain = chain
        lists[which].append(layer)
    return total, added, [sorted(each) for each in lists]


def allocate(sensitivities, row_bytes, most):
    """(predicted change of the loss, bytes a token more, the configuration); sensitivities: of each layer by side."""
    found = []
    for at, first in enumerate(KINDS):
        for second in KINDS[at + 1:]:
            pair = (first, second)
            costs = [row_bytes[kind.format] - row_bytes[USUAL[kind.side]] for kind in pair]
            changes = [[change(kind, layer[kind.side]) for kind in pair] for layer in sensitivities]
            filled = fill(changes, costs, most)
            if filled is not None:
                total, added, lists = filled
                found.append((total, added, string(list(zip(pair, lists, strict=True)))))
    return min(found)


def row_bytes(head_size):
    """Of a format's rows, scales and all."""
    return {"q8_0": head_size // 32 * 34} | {f"turbo{bits}": head_size * bits // 8 + 2 for bits in (2, 3, 4)}


def sensitivities(results, layers):
    """Of each layer by side: how much more is lost where it is stored coarser."""
    lost = {row["name"]: row["kld"] for row in results["rows"]}
    return [{side: lost[measured(layer, side)] - lost[POLICY] for side in SIDES} for layer in range(layers)]


def measured_of(results, shape):
    """What allocation.json has of what was measured."""
    base = next(row for row in results["rows"] if row["name"] == POLICY)
    return {"format": FORMAT, "model": results["model"], "text": results["text"], "shape": shape, "kld": base["kld"],
            "sensitivities": sensitivities(results, shape["layers"])}


def read(path):
    """The same of an allocation.json, measured before or written by hand."""
    found = given.read(path, "--from", "allocation.schema.json")
    found["shape"] = {key: int(value) for key, value in found["shape"].items()}  # which may be written as 3.0
    layers, given_ones = found["shape"]["layers"], found["sensitivities"]
    if len(given_ones) != layers:
        raise Failure(f"--from: {path}, sensitivities: of {len(given_ones)} layers, expected one for each of {layers}")
    for number, layer in enumerate([{"kld": found["kld"]}, *given_ones]):
        for key, value in layer.items():
            if isinstance(value, (int, float)) and not -MOST <= value <= MOST:  # nor NaN
                where = key if number == 0 else f"sensitivities[{number - 1}].{key}"
                raise Failure(f"--from: {path}, {where}: {value}, expected a number of at most {MOST:g}")
    return found


def report(found, shares, folder):
    """Writes allocation.json of what was measured, or read; (its path, what is in it)."""
    shape, sizes = found["shape"], row_bytes(found["shape"]["head_size"])
    usual = shape["layers"] * shape["kv_heads"] * sum(sizes[USUAL[side]] for side in SIDES)
    allocations = []
    for share in shares:
        more, added, configuration = allocate(found["sensitivities"],
                                              {name: shape["kv_heads"] * size for name, size in sizes.items()},
                                              (share - 1) * usual)
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
