"""The picture of an allocation: how sensitive each layer is, and in which formats each configuration stores it."""

from winnow_eval.allocate import ERRORS, SIDES, formats
from winnow_eval.plots import COLOURS, draw_one  # which chooses a backend without a display

from matplotlib import patches, pyplot, ticker  # noqa: E402  after that choice

OF_FORMAT = dict(zip(ERRORS, ("#08519c", "#6baed6", "#fdae6b", "#a63603"), strict=True))  # finest first
TITLES = {"k": "keys", "v": "values"}


def picture(made):
    """Bars of the sensitivities over the layers above, a line of formats for each configuration and side below."""
    layers, allocations = made["shape"]["layers"], made["allocations"]
    height = 3.2 + 0.5 * len(allocations)
    figure, (bars, grid) = pyplot.subplots(2, 1, figsize=(max(7, 0.27 * layers + 3), height), sharex=True,
                                           height_ratios=[2, 0.5 * len(allocations)], layout="constrained")
    for at, side in enumerate(SIDES):
        bars.bar([layer + (at - 0.5) * 0.4 for layer in range(layers)],
                 [layer[side] for layer in made["sensitivities"]], 0.4, color=COLOURS[at], label=TITLES[side])
    bars.axhline(0, color="#3a3a3a", linewidth=0.6)
    bars.set_ylabel("KL divergence more\nwhere stored coarser")
    bars.legend(frameon=False, fontsize=8)
    labels = []
    for each in allocations:
        of_sides = formats(each["configuration"], layers)
        for side in SIDES:
            for layer, name in enumerate(of_sides[side]):
                grid.add_patch(patches.Rectangle((layer - 0.5, len(labels)), 1, 0.9, color=OF_FORMAT[name],
                                                 linewidth=0))
            labels.append(f"{each['share']:g} of the bytes, {TITLES[side]}")
    grid.set_xlim(-0.6, layers - 0.4)
    grid.set_ylim(len(labels), 0)
    grid.set_yticks([at + 0.45 for at in range(len(labels))], labels, fontsize=8)
    grid.tick_params(axis="y", length=0)
    grid.set_xlabel("layer")
    grid.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    figure.legend(handles=[patches.Patch(color=colour, label=name) for name, colour in OF_FORMAT.items()], ncols=4,
                  loc="outside lower center", frameon=False, fontsize=8)
    return figure


def draw(made, folder, formats=("png", "svg")):
    """Writes the picture and gives the paths."""
    return draw_one(lambda: picture(made), folder, "allocation", formats)
