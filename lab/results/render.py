"""Fills the pages on quality from the kept results beside this file, and draws their pictures.

    render.py            writes the tables between the markers of the pages, and their pictures
                         (needs tools/calibrate/requirements.txt)
    render.py --check    only says whether the tables are what the results give (needs Python alone)

A marker is a pair of lines, and what stands between them is this script's:

    <!-- begin NAME PIECE -->        NAME: results in NAME.json; PIECE: one of PIECES, and its context length,
                                     and "decode" for what was decoded; or task, its name and one of OF_TASKS; or
                                     "with" and more names, which get a column each: then one of BESIDE, or
                                     "lead" over a window, or "ways": of each text a name of what was read in batches
                                     and one of what was decoded, or "choices": the table of docs/choosing.md
    <!-- end -->
"""

import argparse
import json
import math
import os
import re
import statistics
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "eval"))

from winnow_eval import report  # noqa: E402  after its path

LAB = FOLDER.parent
DOCS = LAB.parent / "docs"
MARKED = re.compile(r"<!-- begin (\w+) ([\w ]+?) -->\n(.*?)<!-- end -->\n", re.S)


class Failure(Exception):
    """Something to be said without a traceback."""


# KL divergences at a context of 2048 of WikiText: what a numpy prototype of the same policies had, with a decay of
# .998, and what is wanted. (configuration, what it is, prototype, goal)
GOALS = [("none:k=q8_0,v=q8_0", "8 bits", 0.0004, 0.0003),
         ("winnow:v=turbo4,center=on", "4 bits", 0.0073, 0.005),
         ("winnow", "4 and 3 bits", 0.0105, 0.008),
         ("winnow:budget=922", "packed, an eighth", 0.055, 0.04),
         ("winnow:budget=376", "packed, a sixteenth", 0.153, 0.11),
         ("winnow:budget=1/4,k=f16,v=f16", "f16, a quarter", 0.126, 0.1),
         ("window:budget=1/4", "f16, a quarter, window", 0.174, None),
         ("h2o:budget=1/4", "f16, a quarter, h2o", 0.226, None),
         ("random:budget=1/4", "f16, a quarter, random", 0.193, None)]


def goals_table(results, setting):
    """What was measured beside the prototype's figure and the goal."""
    rows = {row["name"]: row for row in report.rows_of(results, setting)}
    lines = [[f"`{name}`", label, report.measured(rows[name]["kld"], rows[name]["kld_se"], 4, 6), f"{prototype}",
              f"{goal or '-'}"] for name, label, prototype, goal in GOALS if name in rows]
    if not lines:
        raise Failure(f"no row of {report.named_setting(setting)} has a goal")
    return report.table(["configuration", "what it is", "mean KLD", "prototype", "goal"], lines)


# What may stand between two markers; {} is a context length.
PIECES = {"command": report.command, "setting": report.setting, "refused": report.refused_table,
          "tasks": report.tasks_table, "full cache": report.full_caches,
          "quality {}": report.quality_table, "cost {}": report.cost_table, "paired {}": report.paired_table,
          "goals {}": goals_table}
OF_TASKS = {"table": report.task_table, "depths": report.depths_table, "full cache": report.full_cache,
            "other tools": report.others_table}  # after "task" and the task's name
PICTURES = {"picture bytes {}": "bytes_{}", "picture contexts": "contexts", "picture tasks": "tasks"}
DESCRIPTIONS = {"bytes_{}": "Loss over bytes of cache at context {}, with the Pareto front",
                "contexts": "Loss over context length", "tasks": "What was retrieved, by task and context"}


def task_piece(name, results, task, words=""):
    """The text of a marker about a task: one of OF_TASKS, or a picture of what was found or resident."""
    if report.task_of(results, task) is None:
        raise Failure(f"{name}.json has no task {task}")
    if words in OF_TASKS:
        return OF_TASKS[words](results, task)
    pictures = {"picture": (f"Task {task}: what was retrieved, by depth and context", task),
                "picture resident": (f"Task {task}: what of the facts was resident in each layer and head",
                                     f"resident_{task}")}
    if words not in pictures:
        raise Failure(f"unknown piece {words!r} of a task; there are {', '.join([*OF_TASKS, *pictures])}")
    description, picture = pictures[words]
    return f"![{description}](results/{name}_{picture}.png)\n"


WINDOW = "window:budget=1/4"  # the policy to be better than, in f16
# What somebody chooses among, and what it is compared with.
MAIN = ("cpu:k=f16,v=f16", "inplace:k=q8_0,v=q8_0", "inplace:k=q4_0,v=q4_0", "winnow", "winnow:v=turbo4",
        "winnow:v=turbo4,center=on", "winnow:budget=1/8,recall=host", "winnow:budget=1/16,recall=host",
        "winnow:budget=1/2", "winnow:budget=1/4", "winnow:budget=1/8", "winnow:budget=1/16",
        "winnow:budget=1/4,k=f16,v=f16", WINDOW, "tova:budget=1/4", "random:budget=1/4", "h2o:budget=1/4",
        "kvpress:snapkv,keep=512,interval=128")
# What may be compared of several results: what it is called, the keys of a row, decimals at least and most, a sign; and
# of which rows, None for all.
BESIDE = {"kld": ("mean KLD", "kld", "kld_se", 4, 6, "", None),
          "main": ("mean KLD", "kld", "kld_se", 4, 6, "", MAIN),
          "increase": ("perplexity more, %", "ppl_increase_percent", "ppl_increase_se", 2, 4, "+", None)}
WITH = re.compile(rf"with ([\w ]+) ({'|'.join([*BESIDE, 'lead', 'ways', 'choices', 'codes'])}) (\d+)( decode)?")
TEXTS = {"wiki": "WikiText", "book": "book", "code": "code"}  # by the last word of a name


def text_title(name):
    return TEXTS.get(name.rsplit("_", 1)[-1], name)


def usual_contexts(rows):
    """How many contexts a column has, which are those of Winnow's rows; other tools' may have been measured on less."""
    return max(row["contexts"] for row in rows if row["role"] != "other")


def beside_table(named, quantity, setting):
    """A column for each of the results, {name: results}: what their rows lost. Where a row has another number of
    contexts than its column, it stands behind the figure."""
    title, key, error, fewest, most, sign, chosen = BESIDE[quantity]
    found = {name: {row["name"]: row for row in report.rows_of(results, setting)} for name, results in named.items()}
    rows = {}
    for name, of_results in found.items():
        if not of_results:
            raise Failure(f"{name}.json has no {report.named_setting(setting)}")
        for row in of_results.values():
            rows.setdefault(row["name"], row)  # the bytes of packed rows differ by a few per mille between texts
    if chosen is not None:
        rows = {one: rows[one] for one in chosen if one in rows}
    full = next((row["kv_bytes_per_token"] for row in rows.values() if row["role"] == "control"), None)
    counts = {name: usual_contexts(its.values()) for name, its in found.items()}

    def cell(name, row):
        if row is None:
            return "-"
        less = "" if row["contexts"] == counts[name] else f" ({row['contexts']})"
        return report.measured(row[key], row[error], fewest, most, sign) + less

    def share(row, *sizes):
        """Of the full cache's bytes; another tool may not say all of its own."""
        if full is None or any(row.get(size) is None for size in sizes):
            return None
        return sum(row[size] for size in sizes) / row["kv_bytes"] * row["kv_bytes_per_token"] / full

    lines = [[report.titled(row), report.number(row["kv_bytes_per_token"], 0),
              report.number(share(row, "kv_bytes"), 3),
              report.number(share(row, "kv_bytes", "kv_metadata_bytes"), 3),
              *(cell(name, its.get(row["name"])) for name, its in found.items())] for row in rows.values()]
    heads = [f"{text_title(name)}, {count} contexts" for name, count in counts.items()]
    return report.table(["configuration", "bytes/token", "share", "all counted",
                         *(f"{title}: {head}" for head in heads)], lines)


def lead(row, window):
    """By how much less a row lost than the window, context by context, and in how many contexts it did."""
    if row is None or not row["per_context"]["kld"]:
        return "-"
    mean, error, wins, count = report.paired(window, row)
    return f"{report.measured(mean, error, 4, 6, '+')} ({wins}/{count})"


def lead_table(named, setting):
    """A column for each of the results, {name: results}: by how much the rows of the window's bytes lost less."""
    found = {name: {row["name"]: row for row in report.rows_of(results, setting)} for name, results in named.items()}
    for name, its in found.items():
        if WINDOW not in its:
            raise Failure(f"{name}.json has no {WINDOW} in {report.named_setting(setting)}")
    size = min(its[WINDOW]["kv_bytes_per_token"] for its in found.values())
    names = dict.fromkeys(row["name"] for its in found.values() for row in its.values() if row["name"] != WINDOW
                          and abs(row["kv_bytes_per_token"] / size - 1) <= report.SAME_BYTES)
    lines = [[f"`{name}`", *(lead(its.get(name), its[WINDOW]) for its in found.values())] for name in names]
    return report.table([f"configuration, {report.number(size, 0)} bytes/token", *map(text_title, found)], lines)


def way(batch, decoded):
    """By how many percent more a row lost in batches than decoded, over the contexts that were measured in both."""
    if batch is None or decoded is None or not batch["per_context"]["kld"] or not decoded["per_context"]["kld"]:
        return "-"
    mean, error, _, count = report.paired(batch, decoded)
    if error is None:
        return "-"
    percent = 100 / statistics.fmean(decoded["per_context"]["kld"][:count])
    return report.measured(mean * percent, error * percent, 1, 2, "+")


def ways_table(named, context):
    """A column for each text: by how much more the rows lost in batches than decoded. `named` has two results of each
    text: the first was read in batches, the last decoded."""
    texts = {}
    for name, results in named.items():
        mode = "decode" if text_title(name) in texts else "batch"
        rows = {row["name"]: row for row in report.rows_of(results, (context, mode)) if row["role"] == "row"}
        if not rows:
            raise Failure(f"{name}.json has no {report.named_setting((context, mode))}")
        texts.setdefault(text_title(name), []).append(rows)
    for title, its in texts.items():
        if len(its) != 2:
            raise Failure(f"of {title} there are {len(its)} results, expected one in batches and one decoded")
    names = dict.fromkeys(name for its in texts.values() for name in its[0])
    lines = [[f"`{name}`", *(way(batch.get(name), decoded.get(name)) for batch, decoded in texts.values())]
             for name in names]
    return report.table(["more in batches, % of what is lost decoded", *texts],
                        [line for line in lines if set(line[1:]) != {"-"}])


# What docs/choosing.md shows, and the memory that `winnow plan` computes for an 8B model with it.
CHOICES = ("cpu:k=f16,v=f16", "cpu:k=q8_0,v=q8_0", "cpu:k=q8_0,v=q5_0", "cpu:k=q8_0,v=q4_0", "cpu:k=q5_1,v=q5_1",
           "cpu:k=q5_0,v=q5_0", "cpu:k=q4_1,v=q4_1", "cpu:k=q4_0,v=q4_0", "winnow:v=turbo4", "winnow",
           "winnow:budget=1/2", "winnow:budget=1/4", "winnow:budget=1/8", "winnow:budget=1/8,recall=host",
           "winnow:budget=1/16,recall=host")
CHOICES_PLAN = DOCS / "choosing_plan.json"


def choices_table(named, setting):
    """Memory, loss and numbers found of CHOICES, each from the first of the results, {name: results}, that has it.
    Loss is over the contexts that all rows have."""
    planned = json.loads(CHOICES_PLAN.read_text(encoding="utf-8"))["configurations"]
    rows, numbers = {}, {}
    for results in named.values():
        for row in report.rows_of(results, setting):
            rows.setdefault(row["name"], row)
        task = report.task_of(results, "needle")
        for result in task["results"] if task else ():
            numbers.setdefault(result["name"], f"{result['retrieved']}/{result['trials']}")
    count = min(rows[name]["contexts"] for name in CHOICES)

    def loss(name, quantity, scale, *decimals):
        values = [scale(value) for value in rows[name]["per_context"][quantity][:count]]
        return report.measured(statistics.fmean(values), statistics.stdev(values) / count**.5, *decimals)

    lines = []
    for name in CHOICES:
        plan = planned[name]
        lines.append([f"`{name}`", report.number(plan["bytes"] / 2**20, 0),
                      report.number(plan["cold_bytes"] / 2**20, 0) if plan["cold_bytes"] else "-",
                      loss(name, "kld", float, 4, 5),
                      loss(name, "ln_ratio", lambda ratio: 100 * math.expm1(ratio), 2, 2, "+"),
                      numbers.get(name, "not asked")])
    return report.table(["configuration", "cache, MiB", "RAM outside the budget, MiB", f"KLD, {count} contexts",
                         f"perplexity more, %, {count} contexts", "numbers found"], lines)


# What lab/codes.md shows of the adapter for codes, and how it calls them. Bases: of spectral keys with turbo3's bytes.
CODES = {"k=turbo4,v=turbo3": "turbo4 / turbo3 (`winnow`)",
         "k=turbo4,v=turbo3,center=model": "the same, mean of the model",
         "k=turbo4,v=turbo3,center=turned": "the same, turned mean",
         "k=turbo3,v=turbo3": "turbo3 / turbo3", "k=turbo3,v=turbo3,center=context": "mean of the context",
         "k=turbo3,v=turbo3,center=model": "mean of the model", "k=turbo3,v=turbo3,center=turned": "turned mean",
         "k=turbo3,v=turbo3,center=turned_context": "turned mean of the context"}
SPECTRAL = re.compile(r"k=spectral_as_turbo3,v=turbo3,center=\w+(,basis=\w+)?")
MODELS = {"smollm2": "SmolLM2", "qwen": "Qwen2.5"}
FULL_CODE = "k=f32,v=f32"  # the full cache of the adapter for codes


def codes_table(named, setting):
    """A column for each of the results, {name: results}: KLD of CODES, and of spectral keys of the same bytes."""
    found = {name: {row["name"]: row for row in report.rows_of(results, setting)} for name, results in named.items()}
    rows, lines = {}, []
    for name, its in found.items():
        full = report.full_bytes(named[name], setting)
        for row in its.values():
            rows.setdefault(row["name"], 100 * row["kv_bytes_per_token"] / full)
    for name in [*(name for name in CODES if name in rows), *filter(SPECTRAL.fullmatch, rows)]:
        words = name.removeprefix("k=spectral_as_turbo3,v=turbo3,")
        words = words.replace("center=model", "mean of the model").replace("center=turned", "turned mean")
        title = CODES.get(name, f"spectral, {words.replace(',', ', ').replace('basis=', '')}")
        lines.append([title, report.number(rows[name], 1), *(
            report.measured(its[name]["kld"], its[name]["kld_se"], 4, 5) if name in its else "-"
            for its in found.values())])
    heads = [f"KLD: {MODELS[name.split('_')[0]]}, {text_title(name)}" for name in found]
    return report.table(["keys / values", "% of f16", *heads], lines)


def made_of(quantity, named, context, mode):
    """The text of a marker with several names."""
    if quantity == "codes":
        return codes_table(named, (context, mode))
    if quantity == "ways":
        return ways_table(named, context)
    if quantity == "choices":
        return choices_table(named, (context, mode))
    return lead_table(named, (context, mode)) if quantity == "lead" else beside_table(named, quantity, (context, mode))


def piece(name, results, words):
    """The text of one marker."""
    mode = "decode" if words.endswith(" decode") else "batch"
    words = words.removesuffix(" decode")
    context = next((int(word) for word in words.split() if word.isdigit()), None)
    pattern = " ".join("{}" if word.isdigit() else word for word in words.split())
    settings = report.settings_of(results)
    if context is not None and (context, mode) not in settings:
        raise Failure(f"{name}.json has no {report.named_setting((context, mode))}; it has "
                      f"{'; '.join(map(report.named_setting, settings))}")
    if pattern.startswith("task "):
        return task_piece(name, results, *words.split(maxsplit=2)[1:])
    if pattern in PICTURES:
        picture = PICTURES[pattern]
        suffix = "_decode" if mode == "decode" else ""
        return f"![{DESCRIPTIONS[picture].format(context)}](results/{name}_{picture.format(context)}{suffix}.png)\n"
    if pattern not in PIECES:
        raise Failure(f"unknown piece {words!r}; there are {', '.join([*PIECES, *PICTURES])} and task NAME ...")
    return PIECES[pattern](results) if context is None else PIECES[pattern](results, (context, mode))


def filled(page, kept, used, at="results"):
    """The text of a page with its tables; adds the names of the results that appear there to the set `used`. at: where
    the results are, seen from the page."""
    def fill(match):
        name, words, _ = match.groups()
        beside = WITH.fullmatch(words)
        names = [name, *(beside[1].split() if beside else [])]
        for one in names:
            if one not in kept:
                raise Failure(f"{one} is named, but results/{one}.json is not there")
        used.update(names)
        if beside:
            made = made_of(beside[2], {one: kept[one] for one in names}, int(beside[3]),
                           "decode" if beside[4] else "batch")
        else:
            made = piece(name, kept[name], words).replace("](results/", f"]({at}/")
        return f"<!-- begin {name} {words} -->\n\n{made}\n<!-- end -->\n"

    text = MARKED.sub(fill, page)
    if page.count("<!-- begin") != len(MARKED.findall(page)) or page.count("<!-- end -->") != len(MARKED.findall(page)):
        raise Failure("a marker without its other half")
    return text


def filled_pages(pages, kept, folder):
    """The same of {path: text}; every kept result, all of which are in `folder`, has to appear on one of them."""
    used, texts = set(), {}
    for path, page in pages.items():
        try:
            texts[path] = filled(page, kept, used, os.path.relpath(folder, path.parent))
        except Failure as failure:
            raise Failure(f"{path.name}: {failure}") from None
    if set(kept) - used:
        raise Failure(f"no page shows anything of {', '.join(sorted(set(kept) - used))}")
    return texts


def kept_results(folder):
    """All of a folder, {name: results}; those of the adapter for codes are in a folder of their own."""
    made = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    for path in sorted((folder / "codes").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if path.stem in made:
            raise Failure(f"there is a {path.name} in {folder} and in its folder codes")
        made[path.stem] = content | {"rows": [row | {
            "role": "control" if row["name"] == FULL_CODE else "other", "kv_metadata_bytes": 0}
            for row in content["rows"] if "kld" in row]}
    return made


def pictures(text):
    """The names of those that a page shows."""
    return re.findall(r"\]\((?:\S+/)?results/(\w+\.png)\)", text)


def marked_pages():
    """The pages of the tree that show results."""
    return [path for folder in (DOCS, LAB) for path in sorted(folder.glob("*.md"))
            if MARKED.search(path.read_text(encoding="utf-8"))]


def differences(name, page, text):
    """What is out of date on a page, in lines."""
    for number, (now, wanted) in enumerate(zip(page.splitlines(), text.splitlines()), start=1):
        if now != wanted:
            yield f"{name}, line {number}: {now!r}, the results give {wanted!r}"
            return
    if page != text:
        yield f"{name} is shorter or longer than what the results give"


def missing_pictures(named, folder):
    """Pictures that are named and not there, and the other way round."""
    for picture in named:
        if not (folder / picture).is_file():
            yield f"results/{picture} is not there"
    for path in sorted(folder.glob("*.png")):
        if path.name not in named:
            yield f"results/{path.name} is on no page; delete it"


def main():
    parser = argparse.ArgumentParser(prog="render.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if something is out of date")
    parser.add_argument("--pages", type=Path, nargs="+", default=marked_pages(), metavar="FILE",
                        help="default: those of docs/ and lab/ that have a marker")
    parser.add_argument("--results", type=Path, default=FOLDER, metavar="FOLDER", help="default: lab/results")
    options = parser.parse_args()
    pages = {path: path.read_text(encoding="utf-8") for path in options.pages}
    kept = kept_results(options.results)
    texts = filled_pages(pages, kept, options.results)
    named = [picture for text in texts.values() for picture in pictures(text)]
    if not options.check:
        from winnow_eval import plots  # only here: --check runs without matplotlib
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        for name, results in kept.items():
            plots.draw(results, options.results, prefix=f"{name}_", formats=("png",), only=named)
        pages = texts
    complaints = [line for path, text in texts.items() for line in differences(path.name, pages[path], text)]
    complaints += missing_pictures(named, options.results)
    if complaints:
        raise Failure("\n".join([*complaints, *(["run lab/results/render.py"] if options.check else [])]))
    print(f"{', '.join(path.name for path in pages)}: as {', '.join(kept) or 'no results, there are none yet'} say")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"render.py: {failure}")
