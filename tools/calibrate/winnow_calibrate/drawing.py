"""What all pictures share: colours that can be told apart with weak colour vision, a style, and how to save."""

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402  after the choice of a backend without a display

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a2559c", "#8c6d00", "#3a3a3a", "#1f9fd6", "#b3002d", "#5b7f00", "#6a4fb3")
STYLE = {"svg.hashsalt": "winnow", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
         "axes.grid": True, "grid.color": "#e2e2e2", "grid.linewidth": 0.6, "axes.axisbelow": True,
         "legend.frameon": False, "legend.fontsize": 8, "savefig.facecolor": "white"}


def save(figure, path, dpi=110):
    """Without date and program: the same results shall give the same file."""
    metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
    figure.savefig(path, dpi=dpi, metadata=metadata, bbox_inches="tight", pad_inches=0.08)


def draw_one(make, folder, name, formats):
    """Writes the figure that `make` makes and gives the paths; the same figure gives the same SVG."""
    with matplotlib.rc_context(STYLE):
        figure = make()
        paths = [folder / f"{name}.{kind}" for kind in formats]
        for path in paths:
            save(figure, path)
        pyplot.close(figure)
    return paths


def padded(layers):
    """The numbers of heads, layer by layer, as a picture needs them: with NaN where a layer has fewer heads than
    another one."""
    most = max(map(len, layers))
    return [[*heads, *[float("nan")] * (most - len(heads))] for heads in layers]
