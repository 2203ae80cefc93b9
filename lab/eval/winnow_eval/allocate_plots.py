"""The picture of an allocation: how sensitive each layer or KV head is, and in which formats each configuration stores
it.
"""

from winnow_calibrate.drawing import COLOURS, draw_one  # which chooses a backend without a display
from winnow_eval.allocate import ERRORS, SIDES, by_of, formats

from matplotlib import colors, patches, pyplot, ticker  # noqa: E402  after that choice

OF_FORMAT = dict(zip(ERRORS, ("#08519c", "#6baed6", "#fdae6b", "#a63603"), strict=True))  # finest first
TITLES = {"k": "keys", "v": "values"}


def lines_of(made):
    """[(what it is, of each layer the format of each head)]: a line for each configuration and side."""
    found = []
    for each in made["allocations"]:
        of_sides = formats(each["configuration"], made["shape"])
        found += [(f"{each['share']:g} of the bytes, {TITLES[side]}", of_sides[side]) for side in SIDES]
    return found


def of_layers(made):
    """Bars of the sensitivities over the layers above, a line of formats for each configuration and side below."""
    layers, lines = made["shape"]["layers"], lines_of(made)
    figure, (bars, grid) = pyplot.subplots(2, 1, figsize=(max(7, 0.27 * layers + 3), 3.2 + 0.25 * len(lines)),
                                           sharex=True, height_ratios=[2, 0.25 * len(lines)], layout="constrained")
    for at, side in enumerate(SIDES):
        bars.bar([layer + (at - 0.5) * 0.4 for layer in range(layers)],
                 [layer[side] for layer in made["sensitivities"]], 0.4, color=COLOURS[at], label=TITLES[side])
    bars.axhline(0, color="#3a3a3a", linewidth=0.6)
    bars.set_ylabel("KL divergence more\nwhere stored coarser")
    bars.legend(frameon=False, fontsize=8)
    for number, (_, line) in enumerate(lines):
        for layer, heads in enumerate(line):
            grid.add_patch(patches.Rectangle((layer - 0.5, number), 1, 0.9, color=OF_FORMAT[heads[0]], linewidth=0))
    grid.set_xlim(-0.6, layers - 0.4)
    grid.set_ylim(len(lines), 0)
    grid.set_yticks([at + 0.45 for at in range(len(lines))], [label for label, _ in lines], fontsize=8)
    grid.tick_params(axis="y", length=0)
    return figure, grid


def of_heads(made):
    """Maps over layers and heads: of the sensitivities of keys and values above, and of the formats of each
    configuration and side below."""
    shape, lines = made["shape"], lines_of(made)
    lost = {side: [[head[side] for head in layer["heads"]] for layer in made["sensitivities"]] for side in SIDES}
    most = max(abs(head) for its in lost.values() for layer in its for head in layer) or 1
    height = max(0.35, 0.14 * shape["kv_heads"])
    figure, panels = pyplot.subplots(len(SIDES) + len(lines), 1, sharex=True, layout="constrained",
                                     figsize=(max(7, 0.27 * shape["layers"] + 3), 1.2 + 1.2 * height *
                                              (len(SIDES) + len(lines))))

    def draw_map(panel, label, of_layers, **options):
        image = panel.imshow(list(zip(*of_layers, strict=True)), aspect="auto", interpolation="nearest", **options)
        panel.grid(False)
        panel.set_ylabel(label, fontsize=8, rotation=0, ha="right", va="center")
        panel.yaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
        panel.tick_params(axis="y", labelsize=6)
        return image

    for panel, side in zip(panels, SIDES, strict=False):
        image = draw_map(panel, f"more loss where\n{TITLES[side]} are coarser", lost[side], cmap="RdBu_r",
                         norm=colors.SymLogNorm(most / 20, vmin=-most, vmax=most))
    scale = figure.colorbar(image, ax=list(panels[:len(SIDES)]), pad=0.01, aspect=10, format="%.1g",
                            ticks=[-most, -most / 10, 0, most / 10, most])
    scale.ax.tick_params(labelsize=7)
    numbers = {name: number for number, name in enumerate(OF_FORMAT)}
    for panel, (label, line) in zip(panels[len(SIDES):], lines, strict=True):
        draw_map(panel, label.replace(", ", ",\n"), [[numbers[name] for name in heads] for heads in line],
                 cmap=colors.ListedColormap(list(OF_FORMAT.values())), vmin=-0.5, vmax=len(OF_FORMAT) - 0.5)
    return figure, panels[-1]


def picture(made):
    figure, lowest = (of_heads if by_of(made) == "heads" else of_layers)(made)
    lowest.set_xlabel("layer")
    lowest.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    figure.legend(handles=[patches.Patch(color=colour, label=name) for name, colour in OF_FORMAT.items()], ncols=4,
                  loc="outside lower center", frameon=False, fontsize=8)
    return figure


def draw(made, folder, formats=("png", "svg")):
    """Writes the picture and gives the paths."""
    return draw_one(lambda: picture(made), folder, "allocation", formats)
