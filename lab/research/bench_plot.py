"""Draws what `winnow bench --json` wrote: attention against the machine's limit and ggml over the number of keys
(sdpa_vector), and how the cost of a token grows with those before it (growth), as time and memory of a whole model.

    bench_plot.py RESULTS.json PICTURE.svg|.png [--layers N] [--table]

Runs in the virtual environment of `winnow eval`, which has matplotlib.
"""

import argparse
import json
import sys
from pathlib import Path

import matplotlib

sys.path.append(str(Path(__file__).resolve().parent.parent / "eval"))

import winnow_eval  # noqa: F401, E402  which has tools/calibrate in the path
from winnow_calibrate import drawing  # noqa: E402  which chooses a backend without a display

from matplotlib import pyplot, ticker  # noqa: E402  after that choice

COLOURS = ("#3a3a3a", "#8c8c8c", "#c4c4c4", "#d55e00", "#e69f00", "#009e73", "#0072b2", "#56b4e9", "#a2559c")
STYLE = drawing.STYLE | {"svg.hashsalt": "winnow bench"}
PICTURES = (".svg", ".png")
GIB = 1 << 30


def shape_of(row):
    return row["head_size"], row["group"]


def time_of(row):
    """Of the cache, or under the name of what it is beside: read_seconds, ggml_seconds."""
    return next(value for key, value in row.items() if key.endswith("seconds"))


def has_cache(row):
    """Not what reads the f16 cache, too."""
    return row["cache"] == "f16" or row["cache"].startswith("winnow")


def which(row):
    """Of several devices or variants that one report has."""
    return "".join(f", {row[key]}" for key in ("device", "variants") if key in row)


def grown(layers):
    """(label, value of a row, whether a row has it) of a model with so many such layers."""
    return ((f"attention of a token, {layers} layers (ms)", lambda row: time_of(row) * layers * 1e3, bool),
            (f"cache in memory, {layers} layers (GiB)", lambda row: row["bytes"] * layers / GIB, has_cache))


def lengths(panel, rows):
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_locator(ticker.FixedLocator(sorted({row["keys"] for row in rows})))
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda keys, _: f"{keys:.0f}"))
    panel.tick_params(axis="x", labelrotation=30)


def lines(panel, rows, name, value, has=bool):
    for number, kind in enumerate(dict.fromkeys(map(name, rows))):
        own = [row for row in rows if name(row) == kind and has(row)]
        if not own:
            continue
        panel.plot([row["keys"] for row in own], [value(row) for row in own], marker="o", markersize=3.5, linewidth=1.3,
                   color=COLOURS[number % len(COLOURS)], label=kind)


def draw_growth(rows, layers):
    """A line of panels for each shape: time, and memory."""
    shapes = sorted(set(map(shape_of, rows)))
    figure, panels = pyplot.subplots(len(shapes), 2, figsize=(10, 3.2 * len(shapes)), squeeze=False)
    for line, shape in zip(panels, shapes):
        own = [row for row in rows if shape_of(row) == shape]
        for panel, (label, value, has) in zip(line, grown(layers)):
            lines(panel, own, lambda row: row["cache"] + which(row), value, has)
            lengths(panel, own)
            panel.set_yscale("log")
            panel.set_title(f"{label}; {shape[1]} query heads to a KV head of {shape[0]}", fontsize=9)
            panel.set_xlabel("tokens of the context")
    return figure, panels


def draw_attention(rows, _):
    """A line of panels for each head size: share of the bandwidth, and times ggml's speed."""
    sizes = sorted({row["head_size"] for row in rows})
    figure, panels = pyplot.subplots(len(sizes), 2, figsize=(10, 3.2 * len(sizes)), squeeze=False)
    for line, size in zip(panels, sizes):
        of_size = [row for row in rows if row["head_size"] == size]
        for panel, key, factor, label in zip(line, ("fraction_of_bandwidth", "times_ggml"), (100, 1),
                                             ("% of what a plain read reaches", "times ggml's speed")):
            own = [row for row in of_size if key in row]
            lines(panel, own, lambda row: f"{row['k_type']}/{row['v_type']}, {row['group']} to a KV head" + which(row),
                  lambda row, key=key, factor=factor: row[key] * factor)
            if not own:  # without OpenCL there is no plain read, and ggml has not every format
                panel.text(.5, .5, "not measured", ha="center", transform=panel.transAxes)
            lengths(panel, own)
            panel.set_ylim(bottom=0)
            panel.set_title(f"{label}; head size {size}", fontsize=9)
            panel.set_xlabel("keys")
    return figure, panels


DRAWN = {"growth": draw_growth, "sdpa_vector": draw_attention}


def three_digits(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(rows, layers):
    """The figures of `growth` in Markdown, a table for each shape and figure."""
    for shape in sorted(set(map(shape_of, rows))):
        own = [row for row in rows if shape_of(row) == shape]
        keys = sorted({row["keys"] for row in own})
        for label, value, has in grown(layers):
            print(f"\n| {label}, G={shape[1]}, D={shape[0]} | {' | '.join(map(str, keys))} |")
            print(f"|---|{'---|' * len(keys)}")
            for kind in dict.fromkeys(row["cache"] + which(row) for row in own if has(row)):
                of_kind = {row["keys"]: value(row) for row in own if row["cache"] + which(row) == kind}
                print(f"| {kind} | {' | '.join(three_digits(of_kind[each]) for each in keys)} |")


def main():
    parser = argparse.ArgumentParser(prog="bench_plot.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--layers", type=int, default=1, help="of the model whose growth is drawn")
    parser.add_argument("--table", action="store_true", help="prints the growth, too, in Markdown")
    options = parser.parse_args()
    if options.picture.suffix not in PICTURES:
        parser.error(f"{options.picture}: expected a name that ends in {' or '.join(PICTURES)}")
    if options.layers < 1:
        parser.error(f"--layers: {options.layers}, expected 1 or more")
    report = json.loads(options.results.read_text(encoding="utf-8"))
    found = [name for name in DRAWN if report.get(name)]
    if len(found) != 1:
        sys.exit(f"bench_plot.py: {options.results} has {' and '.join(found) or 'none'} of {', '.join(DRAWN)}, "
                 f"expected one of them: measured with --filter and without --repeat")
    with matplotlib.rc_context(STYLE):
        figure, panels = DRAWN[found[0]](report[found[0]], options.layers)
        figure.suptitle(f"{report['device']}, {report['platform']}", fontsize=9)
        handles = {label: handle for panel in panels.flat for handle, label in zip(*panel.get_legend_handles_labels())}
        height = figure.get_figheight()
        figure.tight_layout(rect=(0, .55 / height, 1, 1))
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=4)
        drawing.save(figure, options.picture)
    if options.table and found == ["growth"]:
        table(report["growth"], options.layers)


main()
