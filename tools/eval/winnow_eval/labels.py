"""Labels that neither collide with each other nor hide a point, and the same on every machine."""

import math
import re

from matplotlib.transforms import Bbox

GAP = 3  # pixels that stay free around a label
DISTANCES = (9, 13, 19, 27, 38, 52, 70, 92, 120)  # points from the middle of a marker, tried in this order
BESIDE = 13  # up to here nobody doubts which point a label belongs to
DIRECTIONS = [2 * math.pi * (step + 0.5) / 24 for step in range(24)]  # off the axes, where error bars and fronts run


def wrapped(name, width):
    """A long name in lines that end at commas."""
    lines = [""]
    for part in re.findall("[^,]*,|[^,]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def overlap(one, other):
    """The area that two boxes share."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width * height if width > 0 and height > 0 else 0.0


def boxes_of(points, radius):
    return [Bbox.from_extents(x - radius, y - radius, x + radius, y + radius) for x, y in points]


def along(line, step):
    """Points in pixels along a line of data points that were transformed to pixels."""
    for (x0, y0), (x1, y1) in zip(line, line[1:]):
        pieces = max(1, int(math.hypot(x1 - x0, y1 - y0) / step))
        for piece in range(pieces + 1):
            yield x0 + (x1 - x0) * piece / pieces, y0 + (y1 - y0) * piece / pieces


def place(axes, labels, points, lines):
    """Writes labels [(text, x, y, colour)] near their points, off all `points` and `lines` (all in data coordinates).

    Limits and scales of the axes have to be final. Each label takes the first of its places that is free, or else the
    one that hides least; a thin line leads to those that are not beside their point.
    """
    figure = axes.figure
    renderer = figure.canvas.get_renderer()
    pixels = figure.dpi / 72
    to_pixels = axes.transData.transform
    taken = boxes_of([to_pixels(point) for point in points], 4 * pixels)
    for line in lines:
        taken += boxes_of(along([to_pixels(point) for point in line], 4 * pixels), 1.5 * pixels)
    frame = axes.get_window_extent(renderer)
    for text, x, y, colour in sorted(labels, key=lambda label: (-label[2], label[1], label[0])):
        middle = to_pixels((x, y))
        drawn = axes.annotate(text, (x, y), (0, 0), textcoords="offset points", fontsize=8, color=colour, ha="center",
                              va="center", zorder=5)
        size = drawn.get_window_extent(renderer)
        half = (size.width / 2 + GAP, size.height / 2 + GAP)
        best = None
        for distance in DISTANCES:
            for direction in DIRECTIONS:
                # The edge of the box, not its middle, is that far away.
                offset = [distance * pixels * share + side * max(-1, min(1, 1.4 * share))
                          for share, side in zip((math.cos(direction), math.sin(direction)), half)]
                box = Bbox.from_extents(*(at + by - side for at, by, side in zip(middle, offset, half)),
                                        *(at + by + side for at, by, side in zip(middle, offset, half)))
                leader = _leader(middle, box, 4 * pixels) if distance > BESIDE else []
                outside = box.width * box.height - overlap(box, frame)
                cost = 4 * outside + sum(overlap(box, other) for other in taken) + 3 * sum(
                    overlap(piece, other) for piece in leader for other in taken)
                if best is None or cost < best[0] - 1:
                    best = (cost, offset, box, leader, distance)
            if best[0] < 1:
                break
        _, offset, box, leader, distance = best
        taken += [box, *leader]
        drawn.set_position([by / pixels for by in offset])
        if distance > BESIDE:
            axes.annotate("", (x, y), axes.transData.inverted().transform(_nearest(middle, box)), zorder=1,
                          arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkB": 4})


def _nearest(point, box):
    return [min(max(at, low + GAP), high - GAP) for at, low, high in zip(point, box.min, box.max)]


def _leader(point, box, clear):
    """Small boxes along the line from a label to its point, without the point's own surroundings."""
    line = along([point, _nearest(point, box)], 4)
    return boxes_of([at for at in line if math.dist(at, point) > 3 * clear], 1)[:-2]


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
