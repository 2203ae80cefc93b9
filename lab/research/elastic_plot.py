"""The picture of what elastic_rows.py measured: a line of panels for keys and one for values."""

import numpy
import recorded_rows  # noqa: F401  which has lab/eval in the path

from winnow_calibrate.drawing import COLOURS, draw_one  # which chooses a backend without a display

from matplotlib import colors, pyplot, ticker  # noqa: E402  after that choice

TITLES = {"K": "keys", "V": "values"}
OF_BAND = ("#c6dbef", "#6baed6", "#08519c")  # the larger the elements the darker
MAPS = (("elements\nbelow tau (%)", 0, 0), ("L2\nbelow tau (%)", 0, 2), ("L2\nabove 2 tau (%)", 2, 2))  # band, measure


def histogram(axes, made, side):
    """Where elements and L2 lie, by |x| / tau."""
    found, bins = made["sides"][side], numpy.array(made["bins"])
    for key, colour in (("elements", COLOURS[0]), ("L2", COLOURS[1])):
        values = 100 * numpy.array(found["histogram"][key])
        axes.stairs(values, bins, fill=True, alpha=0.35, color=colour, label=key)
        axes.stairs(values, bins, color=colour, linewidth=1)
    for limit in (1, 2):
        axes.axvline(limit, color="#3a3a3a", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xscale("log")
    axes.set_xlim(1e-2, bins[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("|x| / tau")
    axes.set_ylabel(f"{TITLES[side]}: % of each bin")
    lines = [f"{name}: {100 * mean[0]:.1f}; {100 * mean[2]:.2f} ({100 * together[2]:.2f})" for name, mean, together in
             zip(made["bands"], found["bands"]["mean"], found["bands"]["together"])]
    scale = made["setting"]["sweet"][side]
    axes.set_title("\n".join([f"scale {scale}: % of elements; of L2 (of heads' sum)", *lines[::2]]), fontsize=8)
    axes.legend(loc="upper left")


def head_map(axes, found, title, value, norm=None):
    """What `value` gives of a head, over layers and KV heads."""
    heads = {(each["layer"], each["head"]): value(each) for each in found["heads"]}
    layers, count = list(dict.fromkeys(layer for layer, _ in heads)), 1 + max(at for _, at in heads)
    grid = [[heads.get((layer, at), float("nan")) for at in range(count)] for layer in layers]
    axes.grid(False)
    image = axes.imshow(grid, cmap="viridis", aspect="auto", interpolation="nearest", norm=norm)
    scale = axes.figure.colorbar(image, ax=axes, fraction=0.12, pad=0.06)
    scale.solids.set_rasterized(True)  # 256 paths of an SVG otherwise
    scale.ax.tick_params(labelsize=7)
    scale.ax.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_title(title, fontsize=8)
    axes.set_xlabel("KV head")
    axes.set_xticks(range(count))
    axes.yaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda at, _: str(layers[int(at)]) if 0 <= at < len(layers) else "")


def taken(axes, made, side):
    """L2 that goes: by zeroing, and with the tokens that policies evict."""
    found = made["sides"][side]
    bars = [(f"elastic,\nscale {made['setting']['sweet'][side]}", [found["bands"]["mean"][0][2], 0, 0])]
    bars += [(f"{row['policy']},\n{row['kept']} stay", [band[2] for band in row["bands"]["mean"]])
             for row in found["evicted"]]
    left = numpy.zeros(len(bars))
    for band, colour in enumerate(OF_BAND):
        widths = numpy.array([100 * values[band] for _, values in bars])
        axes.barh(range(len(bars)), widths, left=left, color=colour, label=made["bands"][band])
        left += widths
    for at, width in enumerate(left):
        axes.text(width + 1, at, f"{width:.1f}", va="center", fontsize=7)
    axes.set_yticks(range(len(bars)), [name for name, _ in bars], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of L2 that goes")
    axes.legend(loc="upper right", fontsize=7)


def curve(axes, made, side):
    """What it costs over the share of elements that become zero."""
    found = made["sides"][side]
    share = [100 * row["bands"]["mean"][0][0] for row in found["scales"]]
    for key, name, colour, style in (("loss", "below tau, mean", COLOURS[0], "-"),
                                     ("median", "below tau, median", COLOURS[0], "--"),
                                     ("random_loss", "random, mean", COLOURS[7], "-"),
                                     ("random_median", "random, median", COLOURS[7], "--")):
        axes.plot(share, [row[key] for row in found["scales"]], style, marker="o", markersize=3, linewidth=1.2,
                  color=colour, label=name)
    axes.set_yscale("log")
    axes.set_xlabel("% of the elements that become zero")
    axes.set_title(made["loss"][side].replace(", ", ",\n").replace(" (", "\n("), fontsize=8)
    axes.legend(loc="lower right", fontsize=6.5)


def picture(made):
    setting, sides = made["setting"], made["sides"]
    layers = len({each["layer"] for found in sides.values() for each in found["heads"]})
    height = 2 * max(3.2, 1.4 + 0.09 * layers)
    figure, panels = pyplot.subplots(len(sides), 8, figsize=(16, height), squeeze=False,
                                     width_ratios=(2.4, 0.9, 0.9, 0.9, 0.9, 0.1, 1.9, 2))
    figure.subplots_adjust(left=0.04, right=0.99, top=1 - 0.9 / height, bottom=0.5 / height, wspace=0.5, hspace=0.38)
    step = "" if setting["step"] == 1 else f", one layer of {setting['step']}"
    figure.suptitle(f"{setting['model']}, {setting['text']}; contexts of {setting['context']} tokens: "
                    f"{setting['contexts']}{step}; behind the {setting['sinks']} sinks; means over KV heads",
                    fontsize=9)
    for line, side in zip(panels, sides):
        histogram(line[0], made, side)
        for axes, (title, band, measure) in zip(line[1:4], MAPS):
            head_map(axes, sides[side], title, lambda head: 100 * head["bands"][band][measure])
        head_map(line[4], sides[side], made["loss"][side].partition(" (")[0].replace(" of ", "\nof "),
                 lambda head: head["loss"] or float("nan"), colors.LogNorm())
        line[1].set_ylabel("layer")
        line[5].set_visible(False)  # room for the labels of the bars
        taken(line[6], made, side)
        curve(line[7], made, side)
    return figure


def draw(made, folder, formats=("png", "svg")):
    """Writes the picture and gives the paths."""
    return draw_one(lambda: picture(made), folder, "haze", formats)
