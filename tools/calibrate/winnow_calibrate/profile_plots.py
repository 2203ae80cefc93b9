"""The pictures of a profile: each number over layers and heads, and its mean and spread in each layer."""

from winnow_calibrate.drawing import draw_one, padded  # which chooses a backend without a display
from winnow_calibrate.profile import means

from matplotlib import pyplot, ticker  # noqa: E402  after that choice

TITLES = {"entropy": "entropy (nats)", "concentration": "share of the largest tenth",
          "variance": "variance over time", "newest_100": "share of the newest 100"}


def picture(profile):
    """A column for each number: layers over query heads above, the layers' means and the range of heads below."""
    layers, setting = profile["layers"], profile["setting"]
    above, between, below = 0.13 * len(layers) + 0.5, 0.55, 1.7  # inches of both lines and what is between them
    height = above + between + below + 1.1
    figure, panels = pyplot.subplots(2, len(TITLES), figsize=(13, height), squeeze=False,
                                     height_ratios=[above, below])
    figure.subplots_adjust(left=0.06, right=0.98, top=1 - 0.6 / height, bottom=0.5 / height, wspace=0.22,
                           hspace=between / ((above + below) / 2))
    figure.suptitle(f"{setting['model']}, attention on {setting['text']}; {setting['contexts']} contexts of "
                    f"{setting['context']} tokens", fontsize=9)
    for (grid, curve), key in zip(panels.T, TITLES):
        heads = [layer[key] for layer in layers]
        grid.grid(False)
        image = grid.imshow(padded(heads), cmap="viridis", aspect="auto", interpolation="nearest")
        figure.colorbar(image, ax=grid, fraction=0.05, pad=0.02)
        grid.set_title(TITLES[key], fontsize=9)
        grid.set_xlabel("query head")
        grid.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        numbers = range(len(layers))
        curve.fill_between(numbers, [min(each) for each in heads], [max(each) for each in heads], color="#0072b2",
                           alpha=0.2, linewidth=0)
        curve.plot(numbers, [means(layer)[key] for layer in layers], color="#0072b2", linewidth=1.2)
        curve.set_ylim(bottom=0)
        curve.set_xlabel("layer (line: mean, area: all heads)")
        curve.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    panels[0, 0].set_ylabel("layer")
    return figure


def draw(profile, folder, formats=("png", "svg")):
    """Writes the picture and gives the paths."""
    return draw_one(lambda: picture(profile), folder, "profile", formats)
