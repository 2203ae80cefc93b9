"""Labels that adjustText moves off each other and off the points, the same on every machine."""

import re

from adjustText import adjust_text

STEPS = 150  # of adjustText; a number, because a limit of time would depend on the machine


def wrapped(name, width):
    """A long name in lines that end at commas."""
    lines = [""]
    for part in re.findall("[^,]*,|[^,]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def along(line, count=10):
    """Points on a line, `count` on each of its pieces."""
    for (x0, y0), (x1, y1) in zip(line, line[1:]):
        for step in range(count):
            yield x0 + (x1 - x0) * step / (count - 1), y0 + (y1 - y0) * step / (count - 1)


def place(axes, labels, points, lines):
    """Writes labels [(text, x, y, colour)] near their points, off all `points` and `lines` (all in data coordinates).

    Limits and scales of the axes have to be final. A thin line leads from a label to its point where that is not beside
    it.
    """
    if not labels:
        return
    texts = [axes.text(x, y, text, fontsize=8, color=colour, ha="center", va="center", zorder=5)
             for text, x, y, colour in labels]
    taken = [*points, *(at for line in lines for at in along(line))]
    adjust_text(texts, *zip(*taken), ax=axes, target_x=[x for _, x, _, _ in labels],
                target_y=[y for _, _, y, _ in labels], expand=(1.2, 1.6), iter_lim=STEPS,
                arrowprops={"arrowstyle": "-", "color": "#888888", "linewidth": 0.6, "zorder": 1})


def spread(positions, height):
    """Positions along one axis moved so far apart that texts of this height stand clear, in their old order.

    Neighbours that would touch form a block around the mean of what its members want.
    """
    blocks = []  # [members, their wanted middle]
    for index in sorted(range(len(positions)), key=lambda index: positions[index]):
        blocks.append([[index], positions[index]])
        while len(blocks) > 1:
            (lower, low), (upper, high) = blocks[-2:]
            if high - low >= height * (len(lower) + len(upper)) / 2:
                break
            members = lower + upper
            blocks[-2:] = [[members, sum(positions[member] for member in members) / len(members)]]
    moved = list(positions)
    for members, middle in blocks:
        for place_in_block, member in enumerate(members):
            moved[member] = middle + height * (place_in_block - (len(members) - 1) / 2)
    return moved
