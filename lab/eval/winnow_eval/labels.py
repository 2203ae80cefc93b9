"""Labels beside points, clear of each other and of all that is drawn, the same on every machine."""

import math
import re
from dataclasses import dataclass

import numpy
from matplotlib.text import Annotation

STRIDE = 3  # pixels from one point to the next of a line that labels keep off: less than a letter is high
MARGIN = 5  # pixels around a label, of which a marker takes some
DISTANCES = (9, 14, 20, 28, 38, 50, 64, 80, 98, 120, 150, 200)  # pixels between a point and its label
OUTSIDE = 1000  # points that may be covered before a label leaves the axes
FAULT = 1000  # pixels that a label may be further away before it covers a point
LEADER = 15  # pixels, from which on a line leads from a label to its point
# On which side of a point the middle of a label is, in halves of its width and height.
SIDES = ((1, 0), (0, 1), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (.5, 1), (.5, -1), (-.5, 1), (-.5, -1),
         (1, .5), (1, -.5), (-1, .5), (-1, -.5))


def wrapped(name, width):
    """A long name in lines that end at commas."""
    lines = [""]
    for part in re.findall("[^,]*,|[^,]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def along(corners):
    """Points on a line through these corners, in pixels, no further than STRIDE from each other."""
    points = [corners[:1]]
    for begin, end in zip(corners, corners[1:]):
        steps = max(1, math.ceil(math.dist(begin, end) / STRIDE))
        points.append(begin + (end - begin) * numpy.arange(1, steps + 1)[:, None] / steps)
    return numpy.concatenate(points)


def drawn(axes):
    """Points on the lines in the axes, and on those that lead to annotations beside them, in pixels."""
    lines = [line.get_transform().transform(line.get_xydata()) for line in axes.lines]
    lines += [numpy.array([axes.transData.transform(text.xy), axes.transAxes.transform(text.get_position())])
              for text in axes.texts if isinstance(text, Annotation)]
    return numpy.concatenate([along(line) for line in lines])


def _inside(box, points):
    """How many points are in a box or near it."""
    return numpy.all((points > box[0] - MARGIN) & (points < box[1] + MARGIN), axis=1).sum()


@dataclass
class _Place:
    """Where a label may stand, in pixels."""

    distance: float  # from its point
    box: numpy.ndarray  # lower left and upper right corner
    leader: numpy.ndarray  # points of the line that leads to its point
    covered: int  # how many points of what is drawn; more where it leaves the axes

    def meets(self, other):
        """How much of another label it covers, and of the line that leads to it; or the other of its own."""
        shared = numpy.minimum(self.box[1], other.box[1]) - numpy.maximum(self.box[0], other.box[0]) + MARGIN
        return max(0, shared.min()) + _inside(self.box, other.leader) + _inside(other.box, self.leader)


def _places(point, size, frame, taken):
    """The places around a point for a label of this size, from the nearest one on."""
    for distance in DISTANCES:
        for side in numpy.array(SIDES):
            middle = point + side * size / 2 + distance * side / numpy.hypot(*side)
            box = numpy.array([middle - size / 2, middle + size / 2])
            edge = numpy.clip(point, *box)
            leader = along(numpy.array([edge, point + (edge - point) * MARGIN / distance]))
            leaves = numpy.any(box[0] < frame[0]) or numpy.any(box[1] > frame[1])
            yield _Place(distance, box, leader, _inside(box, taken) + (OUTSIDE if leaves else 0))


def _arranged(labels):
    """(what is wrong with it, {label: its place}): each stands at its nearest free place, the first ones first."""
    wrong, found = 0, {}
    for label, places in labels:
        best = None
        for place in places:
            faults = place.covered + sum(place.meets(other) for other in found.values())
            if best is None or faults < best[0]:
                best = faults, place
            if not faults:
                break
        faults, found[label] = best
        wrong += FAULT * faults + found[label].distance
    return wrong, found


def place(axes, labels):
    """Writes labels [(text, x, y, colour)] near their points in data coordinates, off each other and off all lines and
    markers that are in the axes, as far as there is room.

    Limits and scales of the axes have to be final. A thin line leads from a label to its point where that is not beside
    it. Each label goes first once, and the arrangement is taken in which labels are nearest to their points.
    """
    if not labels:
        return
    frame, taken, made = axes.get_window_extent().get_points(), drawn(axes), []
    for text, x, y, colour in labels:
        written = axes.text(0, 0, text, fontsize=8, color=colour, ha="center", va="center", zorder=5,
                            transform=axes.transAxes)
        low, high = written.get_window_extent().get_points()
        made.append((written, list(_places(axes.transData.transform((x, y)), high - low, frame, taken))))
    arranged = [_arranged([first, *(label for label in made if label is not first)]) for first in made]
    _, found = min(arranged, key=lambda each: each[0])
    to_axes = axes.transAxes.inverted().transform
    for written, chosen in found.items():
        written.set_position(to_axes(chosen.box.mean(axis=0)))
        if chosen.distance > LEADER:
            axes.plot(*to_axes(chosen.leader[[0, -1]]).T, color="#888888", linewidth=0.6, zorder=1,
                      transform=axes.transAxes)


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
