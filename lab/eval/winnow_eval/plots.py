"""The pictures of a results.json: loss over bytes with the Pareto front, loss over context length, facts retrieved.

Each is written as PNG and as SVG; the same results give the same SVG.
"""

from pathlib import Path

from winnow_calibrate.drawing import COLOURS, STYLE, padded, save  # which chooses a backend without a display
from winnow_eval import labels, report, resident

import matplotlib  # noqa: E402  after that choice
from matplotlib import pyplot, ticker  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from PIL import Image  # noqa: E402

KLD_FLOOR = 1e-6  # below it there is only the order in which llama.cpp adds
FLOOR_WORDS = "1e-6 or less"
CROWD = 4  # labels at the same bytes; more of them stand in a list beside the axes
CONTROL_TEXT = "#666666"
SUFFIXES = {"batch": "", "decode": "_decode"}  # of pictures' names
INCREASE = ("ppl_increase_percent", "ppl_increase_se", "perplexity increase (%)")
KLD = ("kld", "kld_se", "mean KL divergence (nats)")


def group(row):
    """What a colour stands for: the format or policy, whichever backend computes it; what has more settings, and what
    another tool measured, itself."""
    config = row["config"]
    if config["environment"] or row["role"] == "other":
        return row["name"]
    if config["kv"]:
        return config["kv"]
    return config["k"] if config["k"] == config["v"] else f"{config['k']}/{config['v']}"


def family(row):
    """The group, with all budgets of a policy together."""
    return row["family"] if "family" in row and not row["config"]["environment"] else group(row)


def colours(rows, key=group):
    """{key of a row: colour}, in the order of the rows."""
    groups = dict.fromkeys(key(row) for row in rows)
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(groups)}


def marker(row):
    if row["role"] == "other":
        return "^"
    return "o" if row["config"]["backend"] == "winnow" else "s"


def filled(row):
    return row["config"]["rotate"]


def pareto(points):
    """Of points (bytes, loss), those that no other beats or equals with as few bytes; by growing bytes."""
    front = []
    for size, loss in sorted(points):
        if not front or loss < front[-1][1]:
            front.append((size, loss))
    return front


def shown(quantity, value):
    """The value as drawn: KLD has a logarithmic axis, which ends at the floor."""
    return max(value, KLD_FLOOR) if quantity is KLD else value


def at_floor(quantity, value):
    """Whether what is drawn is not the value, which is less."""
    return quantity is KLD and value <= KLD_FLOOR


def _scale(axes, quantity, values):
    key, _, label = quantity
    axes.set_ylabel(label)
    if key == "kld":
        axes.set_yscale("log")
        axes.set_ylim(min(values) / 3, max(values) * 6)
        return
    # Differences below 1% are drawn to scale, those above it logarithmically.
    axes.set_yscale("symlog", linthresh=1, linscale=1)
    low, high = min(values), max(values)
    axes.set_ylim(min(-0.6, low * 1.8 if low < 0 else low - 0.5), max(1.2, high * 3.5))
    axes.yaxis.set_major_locator(ticker.FixedLocator(
        [sign * number for sign in (-1, 1) for number in (0.5, 1, 3, 10, 30, 100, 300, 1000, 10000)] + [0]))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.axhline(0, color="#888888", linewidth=0.8, zorder=1)


def _error_bar(axes, quantity, x, y, error, colour):
    """A bar of one standard error each way."""
    if not error:
        return
    low, high = shown(quantity, y - error), shown(quantity, y + error)
    axes.plot([x, x], [low, high], color=colour, linewidth=1, zorder=2)


def _draw_front(axes, quantity, rows, right):
    """The steps of the Pareto front: the least loss that so many bytes buy."""
    front = pareto([(row["kv_bytes_per_token"], shown(quantity, row[quantity[0]])) for row in rows])
    line = []
    for size, loss in front:
        if line:
            line.append((size, line[-1][1]))
        line.append((size, loss))
    line.append((right, line[-1][1]))
    axes.plot(*zip(*line), color="#555555", linewidth=1.2, zorder=1.5)


def _told(axes, rows, quantity):
    """The rows that tell a quantity, which another tool's may not; axes without any say so."""
    rows = [row for row in rows if row[quantity[0]] is not None]
    if not rows:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"{quantity[2]}: not measured", ha="center", va="center", transform=axes.transAxes)
    return rows


def _bytes_panel(axes, rows, quantity, palette):
    key, error_key, _ = quantity
    rows = _told(axes, rows, quantity)
    if not rows:
        return
    sizes = [row["kv_bytes_per_token"] for row in rows]
    axes.set_xscale("log")
    axes.set_xlim(min(sizes) / 1.35, max(sizes) * 1.35)
    axes.set_xlabel("KV cache (bytes per token)")
    axes.xaxis.set_major_locator(ticker.LogLocator(base=2, numticks=12))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    values = [shown(quantity, row[key]) for row in rows]
    _scale(axes, quantity, values)
    best, families = {}, {}
    for row, size, value in zip(rows, sizes, values):
        control = row["role"] == "control"
        colour = "#888888" if control else palette[family(row)]
        _error_bar(axes, quantity, size, value, row[error_key], colour)
        axes.plot([size], [value], "D" if control else marker(row), color=colour, markersize=6, zorder=3,
                  markerfacecolor=colour if filled(row) and not control else "white")
        if not control:
            families.setdefault(family(row), []).append((size, value, row))
    for name, members in families.items():
        size, value, row = min(members, key=lambda member: member[1])
        swept = len(members) > 1 and row["config"]["kv"]
        best[name if swept or not row["config"]["kv"] else row["name"]] = (size, value, palette[name])
        if swept:
            line = sorted((size, value) for size, value, _ in members)
            axes.plot(*zip(*line), color=palette[name], linewidth=1, zorder=2)
    candidates = [row for row in rows if row["role"] != "control"]
    if candidates:
        _draw_front(axes, quantity, candidates, axes.get_xlim()[1])
    control = next((row for row in rows if row["role"] == "control"), None)
    if control is not None and quantity is KLD:
        level = shown(quantity, control[key])
        axes.axhline(level, color="#888888", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    names = [(name, *point) for name, point in best.items()]
    crowd = _crowded(names)
    named = [(labels.wrapped(name, 26), *point) for name, *point in names if name not in crowd]
    if control is not None and at_floor(quantity, control[key]):
        named.append((f"control run ({FLOOR_WORDS})", control["kv_bytes_per_token"], level, CONTROL_TEXT))
    if crowd:
        _end_labels(axes, [one for one in names if one[0] in crowd])
    labels.place(axes, named)


def _crowded(names):
    """Which of the labels (name, bytes, ...) are too many to stand around points of the same bytes."""
    found = set()
    for _, size, *_ in names:
        there = {name for name, other, *_ in names if abs(other / size - 1) <= report.SAME_BYTES}
        found |= there if len(there) > CROWD else set()
    return found


def _legend(figure, rows, front):
    """The meaning of the markers that occur."""
    kinds = {}
    for row in rows:
        if row["role"] == "control":
            kinds["control run: the base against itself on the CPU backend"] = ("D", False, "#888888")
        elif row["role"] == "other":
            kinds[row["tool"]] = (marker(row), True, "black")
        else:
            text = "Winnow" if row["config"]["backend"] == "winnow" else "llama.cpp's CPU backend"
            text += "" if filled(row) else ", without llama.cpp's rotation"
            kinds[text] = (marker(row), filled(row), "black")
    handles = [Line2D([], [], linestyle="none", marker=shape, color=colour, markersize=6, label=text,
                      markerfacecolor=colour if full else "white") for text, (shape, full, colour) in kinds.items()]
    if front:
        handles.append(Line2D([], [], color="#555555", linewidth=1.2, label="Pareto front"))
    figure.legend(handles=handles, loc="lower center", ncols=3)


def title(results, setting=None, mode=None):
    """What was measured, in a line."""
    model, text = results["model"], results["text"]
    weights = {"f32": ", weights in F32"}.get(model["weights"], "")
    part = "" if text["part"] == "all" else f", {text['part']} half"
    return f"{model['file']}{weights}; {text['file']}{part}" + (
        f"; {report.named_setting(setting)}" if setting else "") + (f", {report.MODES[mode]}" if mode else "")


def rows_over_bytes(results, setting):
    """What another tool's full cache differs from itself by says nothing beside the control run."""
    return [row for row in report.rows_of(results, setting) if row["role"] != "other" or row["kld"] > KLD_FLOOR]


def over_bytes(results, setting):
    rows = rows_over_bytes(results, setting)
    sizes = [(name, row["kv_bytes_per_token"]) for name, row in
             {family(row): row for row in rows if row["role"] != "control"}.items()]
    listed = bool(_crowded(sizes))
    figure, panels = pyplot.subplots(2, 1, figsize=(10, 10.4)) if listed else pyplot.subplots(1, 2, figsize=(10, 5.2))
    figure.suptitle(f"{title(results, setting)} ({report.counted_contexts(rows)} contexts, bars: one standard error)",
                    fontsize=9)
    if listed:
        figure.subplots_adjust(left=0.07, right=0.66, top=0.96, bottom=0.12, hspace=0.2)
    else:
        figure.subplots_adjust(left=0.07, right=0.985, top=0.92, bottom=0.22, wspace=0.18)
    palette = colours([row for row in results["rows"] if row["role"] != "control"], family)
    for axes, quantity in zip(panels, (INCREASE, KLD)):
        _bytes_panel(axes, rows, quantity, palette)
    _legend(figure, rows, front=any(row["role"] != "control" for row in rows))
    return figure


def _contexts_panel(axes, rows, quantity, palette):
    key, error_key, _ = quantity
    rows = _told(axes, rows, quantity)
    if not rows:
        return
    contexts = sorted({row["context"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xlim(contexts[0] / 1.15, contexts[-1] * 1.15)
    axes.set_xticks(contexts, [f"{context:,}" for context in contexts])
    axes.set_xlabel("context (tokens)")
    _scale(axes, quantity, [shown(quantity, row[key]) for row in rows])
    ends = []
    for role, name in dict.fromkeys((row["role"], row["name"]) for row in rows):
        own = sorted((row for row in rows if (row["role"], row["name"]) == (role, name)),
                     key=lambda row: row["context"])
        control = role == "control"
        colour = "#888888" if control else palette[group(own[0])]
        values = [shown(quantity, row[key]) for row in own]
        for row, value in zip(own, values):
            _error_bar(axes, quantity, row["context"], value, row[error_key], colour)
        axes.plot([row["context"] for row in own], values, color=colour, linewidth=1.1, zorder=3,
                  linestyle="-" if filled(own[0]) and not control else (0, (4, 2)),
                  marker="D" if control else marker(own[0]),
                  markersize=5, markerfacecolor=colour if filled(own[0]) and not control else "white")
        low = f" ({FLOOR_WORDS})" if control and at_floor(quantity, own[-1][key]) else ""
        ends.append((f"control: {name}{low}" if control else name, own[-1]["context"], values[-1], colour))
    _end_labels(axes, ends)


def _end_labels(axes, ends):
    """Names to the right of the axes, at the height of the lines' ends as far as they have room."""
    height = 8 * 1.35 * axes.figure.dpi / 72
    frame = axes.get_window_extent()
    wanted = [axes.transData.transform((x, y))[1] for _, x, y, _ in ends]
    moved = labels.spread(wanted, height)
    shift = min(0, frame.y1 - max(moved)) or max(0, frame.y0 - min(moved))
    for (text, x, y, colour), pixel in zip(ends, moved):
        level = (pixel + shift - frame.y0) / frame.height
        axes.annotate(text, (x, y), (1.05, level), textcoords="axes fraction", fontsize=8, color=colour, va="center",
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6, "shrinkB": 5,
                                  "shrinkA": 1, "relpos": (0, 0.5)})


def over_contexts(results, mode):
    rows = [row for row in results["rows"] if row["mode"] == mode]
    names = len({(row["role"], row["name"]) for row in rows})
    figure, panels = pyplot.subplots(2, 1, figsize=(8, 2 * max(3.2, 0.7 + 0.17 * names)))
    figure.suptitle(f"{title(results, mode=mode)} (bars: one standard error)", fontsize=9)
    figure.subplots_adjust(left=0.09, right=0.64, top=0.95, bottom=0.07, hspace=0.2)
    palette = colours([row for row in rows if row["role"] != "control"])
    for axes, quantity in zip(panels, (INCREASE, KLD)):
        _contexts_panel(axes, rows, quantity, palette)
    return figure


def depths(results, task):
    """One heat map for each configuration: depth of the fact over length of the context."""
    contexts, depths, kinds = task["contexts"], task["depths"], task["results"]
    columns = min(4, len(kinds))
    lines = -(-len(kinds) // columns)
    cell = max(0.62, 1.9 / len(contexts))
    title_lines = 1 + max(labels.wrapped(result["name"], 32).count("\n") + 1 for result in kinds)
    above = 0.35 + 0.14 * title_lines  # inches over each map: its title and the lengths of the map above
    width, height = 0.9 + columns * (0.35 + cell * len(contexts)), 0.85 + lines * (above + 0.3 * len(depths))
    figure, panels = pyplot.subplots(lines, columns, figsize=(width, height), squeeze=False, sharex=True, sharey=True)
    figure.suptitle(f"{results['model']['file']}: {task['task']}, retrieved of what the full cache retrieves",
                    fontsize=9, y=1 - 0.12 / height)
    figure.subplots_adjust(left=0.8 / width, right=1 - 0.1 / width, top=1 - (above + 0.1) / height,
                           bottom=0.5 / height, wspace=0.14, hspace=above / (0.3 * len(depths)))
    for axes, result in zip(panels.flat, kinds):
        axes.grid(False)
        shares = [[report.found(task, result, context=context, depth=depth) for context in contexts]
                  for depth in depths]
        axes.imshow([[right / trials if trials else float("nan") for right, trials in line] for line in shares],
                    cmap="Blues", vmin=-0.1, vmax=1.25, aspect="auto")
        for y, line in enumerate(shares):
            for x, (right, trials) in enumerate(line):
                dark = trials and right / trials > 0.6
                axes.text(x, y, f"{right}/{trials}" if trials else "none", ha="center", va="center", fontsize=8,
                          color="white" if dark else "black")
        name = report.titled_result(results, result).replace("`", "")
        axes.set_title(f"{labels.wrapped(name, 32)}\nretrieved {result['retrieved']}/{result['trials']}", fontsize=8)
        axes.set_xticks(range(len(contexts)), [f"{context:,}" for context in contexts])
        axes.set_yticks(range(len(depths)), [f"{100 * depth:.0f}%" for depth in depths])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    for index, axes in enumerate(panels.flat):
        axes.set_visible(index < len(kinds))
        axes.tick_params(labelbottom=index + columns >= len(kinds))  # nothing stands below it
    figure.supxlabel("context (tokens)", fontsize=9, y=0.1 / height)
    figure.supylabel("depth of the fact (0%: the beginning)", fontsize=9, x=0.1 / width)
    return figure


def holdings(results, task):
    """One heat map for each policy: what each layer and head still holds of the facts' tokens."""
    kinds = [(result, padded(resident.shares(result["resident"]))) for result in task["results"]
             if "resident" in result]
    columns = min(6, len(kinds))
    lines = -(-len(kinds) // columns)
    layers, heads = max(len(shares) for _, shares in kinds), max(len(shares[0]) for _, shares in kinds)
    titled = {result["name"]: labels.wrapped(result["name"], 20) for result, _ in kinds}
    above = 0.35 + 0.12 * max(title.count("\n") + 2 for title in titled.values())  # inches over each map
    width, height = 0.6 + columns * max(1.5, 0.2 * heads), 0.4 + lines * (above + 0.11 * layers)
    figure, panels = pyplot.subplots(lines, columns, figsize=(width + 0.7, height), squeeze=False)
    figure.suptitle(f"{results['model']['file']}: {task['task']}, share of the facts' tokens resident in each head "
                    "at the end", fontsize=9)
    figure.subplots_adjust(left=0.5 / width, right=0.9, top=1 - above / height, bottom=0.4 / height, wspace=0.3,
                           hspace=above / (0.11 * layers))
    for axes, (result, shares) in zip(panels.flat, kinds):
        axes.grid(False)
        image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.set_title(f"{titled[result['name']]}\n"
                       f"{100 * resident.mean(result['answers'].values()):.0f}% resident", fontsize=7)
        axes.set_xticks(range(len(shares[0])))
        axes.tick_params(labelsize=7, length=2)
    for axes in list(panels.flat)[len(kinds):]:
        axes.set_visible(False)
    figure.supxlabel("KV head", fontsize=9)
    figure.supylabel("layer", fontsize=9)
    figure.colorbar(image, ax=panels, fraction=0.03, pad=0.02)
    return figure


def overview(results):
    """One heat map: what each configuration retrieved in each task and context length, and what other tools did."""
    columns = [(task, context) for task in results["tasks"]
               for context in [*task["contexts"], *([None] if task.get("others") else [])]]  # None: all together
    names = list(dict.fromkeys(result["name"] for task in results["tasks"]
                               for result in [*task["results"], *task.get("others", [])]))
    figure, axes = pyplot.subplots(figsize=(3.2 + 0.62 * len(columns), 1.1 + 0.27 * len(names)))
    axes.set_title(f"{results['model']['file']}: retrieved of what the full cache retrieves", fontsize=9)
    shares = [[float("nan")] * len(columns) for _ in names]
    for x, (task, context) in enumerate(columns):
        if context is None:
            found = {result["name"]: (result["retrieved"], result["trials"])
                     for result in [*task["results"], *task["others"]]}
        else:
            found = {result["name"]: report.found(task, result, context=context) for result in task["results"]}
        for y, name in enumerate(names):
            right, trials = found.get(name, (0, 0))
            shares[y][x] = right / trials if trials else float("nan")
            axes.text(x, y, f"{right}/{trials}" if trials else "", ha="center", va="center", fontsize=7,
                      color="white" if trials and right / trials > 0.6 else "black")
    axes.grid(False)
    axes.imshow(shares, cmap="Blues", vmin=-0.1, vmax=1.25, aspect="auto")
    axes.set_xticks(range(len(columns)), [f"{task['task']}\n{f'{context:,}' if context else 'all'}"
                                          for task, context in columns], fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def figures(results):
    """(name, function that draws it) of each picture that these results give."""
    for setting in report.settings_of(results):
        context, mode = setting
        if rows_over_bytes(results, setting):
            yield f"bytes_{context}{SUFFIXES[mode]}", lambda setting=setting: over_bytes(results, setting)
    for mode in sorted({row["mode"] for row in results["rows"]}):
        yield f"contexts{SUFFIXES[mode]}", lambda mode=mode: over_contexts(results, mode)
    for task in results["tasks"]:
        if task["results"] and task["depths"] != [None]:
            yield task["task"], lambda task=task: depths(results, task)
        if any("resident" in result for result in task["results"]):
            yield f"resident_{task['task']}", lambda task=task: holdings(results, task)
    if results["tasks"]:
        yield "tasks", lambda: overview(results)


def _shrink(path):
    """Few colours are enough for lines on white, and make a third of the size."""
    Image.open(path).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def draw(results, folder, prefix="", formats=("png", "svg"), only=None):
    """Writes the pictures into a folder, or only those with these file names, and gives their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, make in figures(results):
            paths = [folder / f"{prefix}{name}.{kind}" for kind in formats]
            paths = [path for path in paths if only is None or path.name in only]
            if not paths:
                continue
            figure = make()
            for path in paths:
                save(figure, path, dpi=150)
                if path.suffix == ".png":
                    _shrink(path)
            written += paths
            pyplot.close(figure)
    return written
