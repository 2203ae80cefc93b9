"""Draws what runs of `ci/compare --json` wrote: memory of the process and tokens per second, over the length of the
context.

    compare_plot.py PICTURE.svg TITLE RESULTS.json...

Runs in the virtual environment of `winnow calibrate`, which has matplotlib.
"""

import json
import sys
from pathlib import Path

import matplotlib

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools" / "calibrate"))

from winnow_calibrate import drawing  # noqa: E402  which chooses a backend without a display

from matplotlib import pyplot, ticker  # noqa: E402  after that choice

COLOURS = ("#0072b2", "#56b4e9", "#8c8c8c", "#d55e00", "#e69f00", "#009e73", "#a2559c", "#8c6d00", "#3a3a3a")
STYLE = drawing.STYLE | {"svg.hashsalt": "winnow compare"}
PANELS = (("memory of the process (MiB)", lambda row: row["peak_bytes"] / 2**20),
          ("prompt (tokens/s)", lambda row: row["prompt_tokens_per_second"]),
          ("generation (tokens/s)", lambda row: row["tokens_per_second"]))


def picture(rows, title):
    """A panel for each figure, a line for each kind of cache; llama.cpp's own are dashed."""
    figure, panels = pyplot.subplots(1, len(PANELS), figsize=(10, 3.4))
    contexts = sorted({row["context"] for row in rows})
    for panel, (label, value) in zip(panels, PANELS):
        for number, kind in enumerate(dict.fromkeys(row["kind"] for row in rows)):
            own = [row for row in rows if row["kind"] == kind]
            panel.plot([row["context"] for row in own], [value(row) for row in own], marker="o", markersize=3.5,
                       linewidth=1.3, color=COLOURS[number % len(COLOURS)], label=kind,
                       linestyle="--" if kind.startswith("llama.cpp") else "-")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(ticker.FixedLocator(contexts))
        panel.xaxis.set_minor_locator(ticker.NullLocator())
        panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda cells, _: f"{cells:.0f}"))
        panel.set_ylim(bottom=0)
        panel.set_xlabel("cells of the context")
        panel.set_title(label, fontsize=9)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout(rect=(0, .16, 1, 1))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=5)
    return figure


def main():
    path, title, *results = sys.argv[1:]
    rows = [row for each in results for row in json.loads(Path(each).read_text(encoding="utf-8"))]
    with matplotlib.rc_context(STYLE):
        figure = picture(rows, title)
        drawing.save(figure, Path(path))


main()
