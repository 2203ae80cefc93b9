"""Draws the pictures of docs/ from kept results: what a cache loses over its bytes (loss.svg), where recall's bytes are
(recall.svg), how the time of attention grows (growth.svg), what an 8B model takes (memory.svg), and for lab/codes.md
what codes lose over their bytes (codes.svg).

    ci/python lab/pictures.py [FOLDER]          # FOLDER: docs, if none is named
"""

import json
import re
import sys
from pathlib import Path

import matplotlib

LAB = Path(__file__).resolve().parent
DOCS = LAB.parent / "docs"
RESULTS = LAB / "results"
SPEED = LAB / "performance.md"
sys.path.append(str(LAB / "eval"))

from winnow_eval import plots, report  # noqa: E402  which chooses a backend without a display

from matplotlib import pyplot, ticker  # noqa: E402  after that choice

GIB = 2**30
WEIGHTS = 8.03e9 * 4.5 / 8 / GIB  # Llama 3.1 8B in Q4_0: 18 bytes for 32 weights
# Each colour as it is on light and on dark paper. Blue, orange and green are apart for the colour-blind, too.
INK, PAPER, GRID, GREY = "#1f2328", "#ffffff", "#d9dee4", "#c9ced6"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
DARK = {INK: "#e6edf3", PAPER: "#0d1117", GRID: "#30363d", GREY: "#57606a",
        BLUE: "#58b2f0", ORANGE: "#ff9248", GREEN: "#35d0a2"}
STYLE = plots.STYLE | {
    "svg.hashsalt": "winnow pictures", "svg.fonttype": "none", "font.family": ["sans-serif"], "font.size": 13,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.facecolor": PAPER, "figure.facecolor": PAPER, "savefig.facecolor": PAPER, "grid.color": GRID,
    "axes.titlesize": 13, "axes.titlelocation": "left", "legend.fontsize": 12, "hatch.linewidth": 1.2}

# Points of loss.svg: (row, label, marker, colour, where the label is: its offset in points and its end at the point).
CIRCLE, DIAMOND, SQUARE, TRIANGLE = ("o", GREEN), ("D", ORANGE), ("s", BLUE), ("^", INK)
KINDS = {CIRCLE: "Winnow", SQUARE: "llama.cpp", TRIANGLE: "kvpress, f16",
         DIAMOND: "Winnow with recall (without cold rows)"}
POINTS = (("winnow:v=turbo4", "v=turbo4", CIRCLE, (8, -6), "left"),
          ("winnow", "winnow", CIRCLE, (-8, -5), "right"),
          ("winnow:budget=1/2", "budget=1/2", CIRCLE, (4, -17), "left"),
          ("winnow:budget=1/4", "budget=1/4", CIRCLE, (0, 9), "center"),
          ("winnow:budget=1/8,recall=host", "budget=1/8", DIAMOND, (0, -19), "center"),
          ("winnow:budget=1/16,recall=host", "1/16", DIAMOND, (0, -19), "center"),
          ("inplace:k=q8_0,v=q8_0", "q8_0", SQUARE, (0, 9), "center"),
          ("inplace:k=q4_0,v=q4_0", "q4_0", SQUARE, (8, -5), "left"),
          ("kvpress:lagkv,keep=512,interval=128", "lagkv", TRIANGLE, (8, -5), "left"),
          ("kvpress:keydiff,keep=512,interval=128", "keydiff", TRIANGLE, (8, 2), "left"),
          ("kvpress:expected-attention,keep=512,interval=128", "expected attention", TRIANGLE, (8, -9), "left"),
          ("kvpress:tova,keep=512,interval=128", "tova", TRIANGLE, (-7, 2), "right"),
          ("kvpress:snapkv,keep=512,interval=128", "snapkv", TRIANGLE, (-7, -11), "right"))
# Bars of recall.svg and memory.svg: (label, name in choosing_plan.json).
RECALLED = (("llama.cpp, q4_0", "cpu:k=q4_0,v=q4_0"), ("winnow", "winnow"),
            ("1/8, recall=host", "winnow:budget=1/8,recall=host"),
            ("1/8, recall=/folder", "winnow:budget=1/8,recall=/tmp"), ("winnow:budget=1/4", "winnow:budget=1/4"))
PLANNED = (("llama.cpp, f16", "cpu:k=f16,v=f16"), ("llama.cpp, q8_0", "cpu:k=q8_0,v=q8_0"),
           ("llama.cpp, q4_0", "cpu:k=q4_0,v=q4_0"), ("winnow", "winnow"),
           ("1/8, recall=/folder", "winnow:budget=1/8,recall=/tmp"), ("winnow:budget=1/4", "winnow:budget=1/4"))
# Lines of growth.svg: (row of the table, label, colour, marker, line, where the label is: points above its end).
GROWN = (("f16", "f16", BLUE, "s", "-", 9), ("`winnow`", "winnow", GREEN, "o", "--", -9),
         ("`winnow:budget=1024`", "budget=1024", ORANGE, "D", "-.", 0))


def plan():
    return json.loads((DOCS / "choosing_plan.json").read_text(encoding="utf-8"))["configurations"]


def share(row, full):
    """Bytes in % of f16 with all that belongs to a cache; another tool tells those of keys and values alone."""
    belongs = row.get("kv_metadata_bytes", 0) / row["kv_bytes"] if "kv_bytes" in row else 0
    return 100 * (1 + belongs) * row["kv_bytes_per_token"] / full


def framed(figure, panel, kinds, legend):
    """A picture of loss over bytes with its axes, and a legend of kinds of points in so much of its height."""
    for (shape, colour), label in kinds.items():
        panel.plot([], [], marker=shape, color=colour, markersize=8, linestyle="none", label=label)
    panel.set_yscale("log")
    panel.set_xlim(0, 60)
    panel.set_xlabel("bytes of the cache, % of f16 (less is better)")
    panel.set_ylabel("mean KL divergence, nats (less is better)")
    panel.set_title("SmolLM2-135M, a book, 2,048 tokens")
    figure.tight_layout(rect=(0, legend, 1, 1))
    figure.legend(loc="lower center", ncols=2)
    return figure


def loss():
    """Loss over bytes, decoded, on the book."""
    results = json.loads((RESULTS / "book.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in report.rows_of(results, (2048, "decode"))}
    full = next(row["kv_bytes_per_token"] for row in rows.values() if row["role"] == "control")
    figure, panel = pyplot.subplots(figsize=(6.6, 5.4))
    for name, label, (shape, colour), offset, end in POINTS:
        row = rows[name]
        at = share(row, full), row["kld"]
        panel.plot(*at, marker=shape, color=colour, markersize=8, linestyle="none")
        panel.annotate(label, at, offset, textcoords="offset points", ha=end, color=colour)
    panel.set_ylim(1e-4, 1)
    return framed(figure, panel, KINDS, .13)


# Points of codes.svg, as POINTS; rows of the adapter for codes, and of winnow eval.
CODE_KINDS = {CIRCLE: "Winnow's formats", DIAMOND: "codes that are only tried", SQUARE: "llama.cpp",
              TRIANGLE: "other projects"}
CODE_POINTS = (("k=turbo4,v=turbo3", "winnow", CIRCLE, (8, 0), "left"),
               ("k=turbo3,v=turbo3", "turbo3", CIRCLE, (8, 0), "left"),
               ("k=turbo2,v=turbo2", "turbo2", CIRCLE, (-8, 0), "right"),
               ("k=turbo4,v=turbo3,center=turned", "winnow, turned mean", DIAMOND, (8, 0), "left"),
               ("k=turbo3,v=turbo3,center=turned", "turbo3, turned mean", DIAMOND, (-8, 0), "right"),
               ("k=spectral_as_turbo3,v=turbo3,center=turned,basis=axes", "bits by variance, turned", DIAMOND,
                (-8, 0), "right"),
               ("kivi:k=2,v=2", "KIVI 2", TRIANGLE, (8, 0), "left"),
               ("kivi:k=4,v=4", "KIVI 4", TRIANGLE, (8, 0), "left"),
               ("kvarn:k=2,v=2", "KVarN 2", TRIANGLE, (8, 0), "left"),
               ("kvarn:k=4,v=2", "KVarN 4/2", TRIANGLE, (0, 11), "center"),
               ("kvarn:k=4,v=4", "KVarN 4", TRIANGLE, (-8, -5), "right"),
               ("tcq:k=3,v=3,group=64", "TCQ 3", TRIANGLE, (0, -13), "center"),
               ("tcq:k=2,v=2,group=64", "TCQ 2", TRIANGLE, (8, 0), "left"),
               ("oscar:k=2,v=2", "OSCAR 2", TRIANGLE, (8, 0), "left"),
               ("openvino:k=u8,v=u4", "OpenVINO u8/u4", TRIANGLE, (8, 0), "left"),
               ("openvino:k=u4,v=u4", "OpenVINO u4", TRIANGLE, (8, 0), "left"))
LLAMA_POINTS = (("cpu:k=q8_0,v=q8_0", "q8_0", SQUARE, (8, 0), "left"),
                ("cpu:k=q8_0,v=q5_0", "q8_0/q5_0", SQUARE, (8, 0), "left"),
                ("cpu:k=q5_1,v=q5_1", "q5_1", SQUARE, (8, 0), "left"),
                ("cpu:k=q4_1,v=q4_1", "q4_1", SQUARE, (8, 0), "left"),
                ("cpu:k=q4_0,v=q4_0", "q4_0", SQUARE, (-8, 0), "right"))


def codes():
    """Loss over bytes of codes, decoded, on the book."""
    kept = ("codes/smollm2_2048_book", CODE_POINTS), ("choosing", LLAMA_POINTS)
    figure, panel = pyplot.subplots(figsize=(6.6, 6.4))
    for name, points in kept:
        results = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        rows = {row["name"]: row for row in results["rows"] if (row["context"], row["mode"]) == (2048, "decode")}
        full = results["rows"][0]["kv_bytes_per_token"]
        for row, label, (shape, colour), offset, end in points:
            at = 100 * rows[row]["kv_bytes_per_token"] / full, rows[row]["kld"]
            panel.plot(*at, marker=shape, color=colour, markersize=8, linestyle="none")
            panel.annotate(label, at, offset, textcoords="offset points", ha=end, va="center", color=colour,
                           fontsize=11)
    return framed(figure, panel, CODE_KINDS, .11)


def bars(panel, names, parts):
    """A bar for each name, of parts (label, sizes, colour, hatch) side by side; gives the length of each."""
    ends = [0] * len(names)
    for label, sizes, colour, hatch in parts:
        panel.barh(names, sizes, left=ends, color=colour, hatch=hatch, edgecolor=PAPER, linewidth=0, label=label,
                   height=.62)
        ends = [end + size for end, size in zip(ends, sizes)]
    panel.invert_yaxis()
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    return ends


def recall():
    """Where the bytes of a cache are with recall, and without."""
    planned = plan()
    full = planned["cpu:k=f16,v=f16"]["bytes"]
    sizes = [planned[name] for _, name in RECALLED]
    figure, panel = pyplot.subplots(figsize=(6.6, 3.9))
    ends = bars(panel, [label for label, _ in RECALLED],
                (("the cache, in RAM", [100 * one["bytes"] / full for one in sizes], BLUE, None),
                 ("cold rows, in RAM too", [100 * one["cold_bytes"] / full for one in sizes], ORANGE, None),
                 ("cold rows, in a file", [100 * one["disk_bytes"] / full for one in sizes], GREY, "//")))
    for row, (one, end) in enumerate(zip(sizes, ends)):
        cold = one["cold_bytes"] or one["disk_bytes"]
        text = f"{100 * one['bytes'] / full:.1f}" + (f" + {100 * cold / full:.1f}" if cold else "")
        panel.annotate(f"{text}%", (end, row), (5, 0), textcoords="offset points", va="center")
    panel.set_xlim(0, 50)
    panel.set_xlabel("bytes, % of f16 (less is better)")
    panel.set_title("Llama 3.1 8B, 32,768 tokens, computed")
    figure.tight_layout(rect=(0, .1, 1, 1))
    figure.legend(loc="lower center", ncols=3, columnspacing=1.2, handlelength=1.4)
    return figure


def table(page, corner):
    """{first cell: numbers} of the table whose first cell is `corner`, and the numbers of its head."""
    lines = page[page.index(f"| {corner} |"):].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [int(cell) for cell in cells[0][1:]], {row[0]: [float(cell) for cell in row[1:]] for row in cells[2:]}


def growth():
    """Time of one token's attention over the length of the context."""
    lengths, rows = table(SPEED.read_text(encoding="utf-8"), "attention of a token, 32 layers, ms")
    figure, panel = pyplot.subplots(figsize=(6.6, 4.4))
    for name, label, colour, shape, line, above in GROWN:
        times = rows[name]
        panel.plot(lengths, times, color=colour, marker=shape, markersize=8, linewidth=2.2, linestyle=line)
        panel.annotate(f"{label}\n{times[-1]:.0f} ms", (lengths[-1], times[-1]), (11, above),
                       textcoords="offset points", color=colour, va="center", annotation_clip=False)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.xaxis.set_major_locator(ticker.FixedLocator(lengths[1::2]))
    panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda keys, _: f"{keys:,.0f}"))
    panel.yaxis.set_major_formatter(ticker.FuncFormatter(lambda time, _: f"{time:g}"))
    panel.set_xlabel("tokens of the context")
    panel.set_ylabel("attention of a token, ms (less is better)")
    panel.set_title("Shape of Llama 3.1 8B, two CPU cores")
    figure.tight_layout(rect=(0, 0, .96, 1))
    return figure


def memory():
    """What an 8B model takes with each cache, beside the weights, which are the same for all."""
    planned = plan()
    caches = [planned[name]["bytes"] / GIB for _, name in PLANNED]
    full = max(caches)
    figure, panel = pyplot.subplots(figsize=(6.6, 3.9))
    ends = bars(panel, [label for label, _ in PLANNED],
                (("weights (Q4_0)", [WEIGHTS] * len(caches), GREY, None),
                 ("KV cache, GiB and % of f16", caches, BLUE, None)))
    for row, (cache, end) in enumerate(zip(caches, ends)):
        panel.annotate(f"{cache:.1f} GiB, {100 * cache / full:.0f}%", (end, row), (5, 0), textcoords="offset points",
                       va="center")
    panel.set_xlim(0, 12)
    panel.set_xlabel("memory, GiB (less is better)")
    panel.set_title("Llama 3.1 8B, 32,768 tokens, computed")
    figure.tight_layout(rect=(0, .1, 1, 1))
    figure.legend(loc="lower center", ncols=2)
    return figure


PICTURES = {"loss": loss, "recall": recall, "growth": growth, "memory": memory, "codes": codes}


def themed(text):
    """An SVG whose colours follow the reader's choice of light or dark."""
    rules = "".join(f'[style*="{key}: {light}"],[{key}="{light}"]{{{key}:{dark} !important}}'
                    for light, dark in DARK.items() for key in ("fill", "stroke"))
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    return re.sub(r"(<svg [^>]*>)", lambda match: match[1] + style, text, count=1)


def draw(folder):
    """Writes all pictures; the same results give the same files."""
    with matplotlib.rc_context(STYLE):
        for name, make in PICTURES.items():
            figure, path = make(), Path(folder) / f"{name}.svg"
            plots.save(figure, path)
            pyplot.close(figure)
            path.write_text(themed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    draw(sys.argv[1] if len(sys.argv) > 1 else DOCS)
