"""Draws docs/memory.svg: what an 8B model takes with each cache, computed by `winnow plan` (choosing_plan.json).

    ci/python docs/memory.py
"""

import json
import sys
from pathlib import Path

import matplotlib

DOCS = Path(__file__).resolve().parent
sys.path.append(str(DOCS.parent / "lab" / "eval"))

from winnow_eval import plots  # noqa: E402  which chooses a backend without a display

from matplotlib import pyplot  # noqa: E402  after that choice

GIB = 2**30
WEIGHTS = 8.03e9 * 4.5 / 8 / GIB  # Llama 3.1 8B in Q4_0: 18 bytes for 32 weights
ROWS = (("llama.cpp, f16", "cpu:k=f16,v=f16"), ("llama.cpp, q8_0", "cpu:k=q8_0,v=q8_0"),
        ("llama.cpp, q4_0", "cpu:k=q4_0,v=q4_0"), ("winnow", "winnow"),
        ("winnow:budget=1/8,recall=/folder", "winnow:budget=1/8,recall=/tmp"),
        ("winnow:budget=1/4", "winnow:budget=1/4"))
COLOURS = {"llama.cpp": "#0072b2", "winnow": "#d55e00"}


def picture(planned):
    """A bar for each cache, beside the weights, which are the same for all."""
    figure, panel = pyplot.subplots(figsize=(7.6, 2.7))
    for name, config in ROWS:
        sizes = planned[config]
        cache = sizes["bytes"] / GIB
        colour = COLOURS["llama.cpp" if name.startswith("llama.cpp") else "winnow"]
        panel.barh(name, WEIGHTS, color="#c9ced6")
        panel.barh(name, cache, left=WEIGHTS, color=colour)
        disk = f", and {sizes['disk_bytes'] / GIB:.1f} in a file" if sizes["disk_bytes"] else ""
        panel.text(WEIGHTS + cache, name, f"  cache {cache:.1f} GiB{disk}", va="center", fontsize=9)
    panel.text(WEIGHTS / 2, 0, f"weights {WEIGHTS:.1f} GiB", va="center", ha="center", fontsize=9)
    panel.invert_yaxis()
    panel.set_xlim(0, 10.5)
    panel.set_xlabel("GiB (less is better)")
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_title("Llama 3.1 8B (Q4_0), a full context of 32,768 tokens, computed", fontsize=10)
    figure.tight_layout()
    return figure


def main():
    planned = json.loads((DOCS / "choosing_plan.json").read_text(encoding="utf-8"))["configurations"]
    with matplotlib.rc_context(plots.STYLE | {"svg.hashsalt": "winnow memory"}):
        plots.save(picture(planned), DOCS / "memory.svg")


main()
