"""Kept results as CSV and as Markdown tables. The standard library only, so that documents can be checked anywhere."""

import csv
import io
import math
import shlex
import statistics
import textwrap
from pathlib import Path

from winnow_calibrate import storage
from winnow_eval import resident

MIB = 1024 * 1024
MODES = {"batch": "in batches", "decode": "decoded"}
COMMAND_COLUMNS = 100
SAME_BYTES = 0.02  # rows whose sizes differ by less are compared
CSV_COLUMNS = ("name", "role", "backend", "k", "v", "rotate", "kv", "context", "mode", "contexts", "scored_tokens",
               "kv_bytes_per_token", "kv_bytes", "ppl", "ppl_base", "ppl_increase_percent", "ppl_increase_se", "kld",
               "kld_se", "kld_p99", "same_top_percent", "same_top_se", "prompt_tokens_per_second",
               "generation_tokens_per_second", "attention_calls", "misses_percent")
TASK_COLUMNS = ("task", "name", "context", "depth", "retrieved", "trials", "resident_share")


def number(value, decimals, sign=""):
    """A number with so many decimals, or a dash for one that was not measured."""
    return "-" if value is None else f"{value:{sign},.{decimals}f}"


def measured(value, error, fewest, most, sign=""):
    """value ± error, with as many decimals as show two digits of the error."""
    decimals = most
    if error is not None and error > 0:
        decimals = min(most, max(fewest, 1 - math.floor(math.log10(error))))
    return f"{number(value, decimals, sign)} ± {number(error, decimals)}"


def table(head, lines):
    """A Markdown table: the first column is words, the others are numbers."""
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def settings_of(results):
    """(context length, mode) of each table."""
    return sorted({(row["context"], row["mode"]) for row in results["rows"]})


def named_setting(setting):
    context, mode = setting
    return f"context {context}, {MODES[mode]}"


def counted_contexts(rows):
    """How many contexts the rows have: "8", or "8 to 16" where some were decided before the others."""
    counts = sorted({row["contexts"] for row in rows})
    return f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"


def rows_of(results, setting):
    """The rows of a context length and mode, the control run first."""
    rows = [row for row in results["rows"] if (row["context"], row["mode"]) == setting]
    return sorted(rows, key=lambda row: row["role"] != "control")


def titled(row):
    return f"control: `{row['name']}`" if row["role"] == "control" else f"`{row['name']}`"


def titled_result(results, result):
    """The name of a configuration of a task, marked if it is that of the control run."""
    nulls = {row["name"] for row in results["rows"] if row["role"] == "control"}
    return titled({"name": result["name"], "role": "control" if result["name"] in nulls else "row"})


def full_bytes(results, setting):
    """Bytes of a token in the f16 cache of the base, which the control run has as well."""
    return next((row["kv_bytes_per_token"] for row in rows_of(results, setting) if row["role"] == "control"), None)


def quality_table(results, setting):
    """What each configuration loses, and the bytes that it takes."""
    full, rows = full_bytes(results, setting), rows_of(results, setting)
    differ = len({row["contexts"] for row in rows}) > 1  # where some were decided before the others
    lines = [[titled(row), number(row["kv_bytes_per_token"], 0),
              number(None if full is None else row["kv_bytes_per_token"] / full, 3), number(row["kv_bytes"] / MIB, 1),
              number(row["ppl"], 3), measured(row["ppl_increase_percent"], row["ppl_increase_se"], 2, 4, "+"),
              measured(row["kld"], row["kld_se"], 4, 6), number(row["kld_p99"], 4),
              measured(row["same_top_percent"], row["same_top_se"], 1, 2), *([str(row["contexts"])] if differ else [])]
             for row in rows]
    return table(["configuration", "bytes/token", "share", "MiB in all", "perplexity", "increase, %", "mean KLD",
                  "99% KLD", "same top, %", *(["contexts"] if differ else [])], lines)


def of_same_bytes(results, setting):
    """Lists of rows with about the same bytes, each list and its rows from the best on; no row stands alone. Rows that
    do not say what they lost in each context, as another tool's may, are in none."""
    rows = sorted((row for row in rows_of(results, setting) if row["role"] != "control" and row["per_context"]["kld"]),
                  key=lambda row: row["kv_bytes_per_token"])
    groups = []
    for row in rows:
        if groups and row["kv_bytes_per_token"] <= (1 + SAME_BYTES) * groups[-1][0]["kv_bytes_per_token"]:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [sorted(group, key=lambda row: row["kld"]) for group in groups if len(group) > 1]


def paired(row, other):
    """By how much more a row lost than another: (mean over the contexts that both have, its standard error, in how many
    of them it did, how many there are)."""
    pairs = zip(row["per_context"]["kld"], other["per_context"]["kld"])
    differences = [mine - its for mine, its in pairs]
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else None
    return statistics.fmean(differences), error, sum(difference > 0 for difference in differences), len(differences)


def paired_table(results, setting):
    """Rows of about the same bytes against the best of them, context by context."""
    lines = []
    for best, *others in of_same_bytes(results, setting):
        for row in others:
            mean, error, worse, count = paired(row, best)
            lines.append([f"{titled(row)} against {titled(best)}", number(row["kv_bytes_per_token"], 0),
                          measured(mean, error, 4, 6, "+"), f"{worse}/{count}"])
    return table(["configurations", "bytes/token", "mean KLD, difference", "contexts in which it is worse"], lines)


def cost_table(results, setting):
    """What the same runs took of time."""
    lines = [[titled(row), number(row["prompt_tokens_per_second"], 1),
              number(row["generation_tokens_per_second"], 1),
              str(row["attention_calls"]) if row["attention_calls"] else "-"] for row in rows_of(results, setting)]
    return table(["configuration", "text, tokens/s", "generation, tokens/s", "Winnow's calls per layer"], lines)


def task_of(results, name):
    """What was found of a task; None where it was not asked."""
    return next((task for task in results["tasks"] if task["task"] == name), None)


def flat(found):
    """All answers of one trial, whichever turn they are of."""
    return [one for each in found for one in each]


def answers_of(task, result, **cell):
    """The answers of one configuration to the trials that have these values and that the full cache knows."""
    return [result["answers"][trial["id"]] for trial in task["trials"]
            if trial["id"] in result["answers"] and all(trial[key] == value for key, value in cell.items())]


def found(task, result, **cell):
    """(right answers, answers that count) of one configuration where the trial has these values."""
    right = [one for answer in answers_of(task, result, **cell) for one in flat(answer["found"])]
    return sum(right), len(right)


def _of_turn(task, result, turn):
    right = [one for answer in answers_of(task, result) for one in answer["found"][turn]]
    return f"{sum(right)}/{len(right)}"


def turns_of(task):
    return max((len(trial["questions"]) for trial in task["trials"]), default=1)


def task_table(results, name):
    """What was retrieved, in all and for each context length, or turn of a conversation; of policies, what of the
    facts' tokens is resident."""
    task = task_of(results, name)
    turns = turns_of(task)
    lines, watched = [], any("resident" in result for result in task["results"])
    for result in task["results"]:
        cells = [f"{right}/{trials}" for right, trials in (found(task, result, context=context)
                                                           for context in task["contexts"])]
        if turns > 1:
            cells = [_of_turn(task, result, turn) for turn in range(turns)]
        line = [titled_result(results, result), f"{result['retrieved']}/{result['trials']}", *cells]
        share = resident.mean(result["answers"].values())
        line += [number(None if share is None else 100 * share, 1)] if watched else []
        if turns > 1:
            anew = [answer["as_anew"] for answer in result["answers"].values() if "as_anew" in answer]
            line.append(f"{sum(anew)}/{len(anew)}" if anew else "-")
        lines.append(line)
    heads = [f"turn {turn + 1}" for turn in range(turns)] if turns > 1 else [f"context {context}"
                                                                            for context in task["contexts"]]
    heads = ["configuration", "retrieved", *heads, *(["of the facts resident, %"] if watched else []),
             *(["last answer as when read anew"] if turns > 1 else [])]
    for other in task.get("others", []):
        told = {f"context {cell['context']}": f"{cell['retrieved']}/{cell['trials']}"
                for cell in other.get("by_context", [])}
        lines.append([f"`{other['name']}`", f"{other['retrieved']}/{other['trials']}",
                      *(told.get(head, "-") for head in heads[2:])])
    return table(heads, lines)


def depths_table(results, name):
    """The same for each depth of the fact in its text, over all context lengths."""
    task = task_of(results, name)
    cells = [[f"{right}/{trials}" for right, trials in (found(task, result, depth=depth) for depth in task["depths"])]
             for result in task["results"]]
    return table(["configuration", *(f"at {depth:g} of the text" for depth in task["depths"])],
                 [[titled_result(results, result), *line] for result, line in zip(task["results"], cells)])


def _full_cache_answered(parts):
    """Of each part, trials and what they are of, how many of the answers that were asked for the full cache gives."""
    shares = []
    for trials, of in parts:
        answered = [one for trial in trials for one in flat(trial["full_cache_finds"])]
        shares.append(f"{sum(answered)} of {len(answered)} {of}")
    text = f"The full cache answered {', '.join(shares)}. Only what it answered counts."
    return textwrap.fill(text, 120) + "\n"


def full_cache(results, name):
    """How many answers of those that were asked for the full cache gives: the others say nothing about a cache."""
    task = task_of(results, name)
    return _full_cache_answered(([trial for trial in task["trials"] if trial["context"] == context],
                                 f"at {context} tokens") for context in task["contexts"])


def full_caches(results):
    """The same of all tasks, whatever their lengths."""
    return _full_cache_answered((task["trials"], f"in {task['task']}") for task in results["tasks"])


def tasks_table(results):
    """What was retrieved: a line for each configuration, a column for each task."""
    found = {}  # of each line: of each task
    for task in results["tasks"]:
        named = [(titled_result(results, result), result) for result in task["results"]]
        for title, result in [*named, *((f"`{other['name']}`", other) for other in task.get("others", []))]:
            found.setdefault(title, {})[task["task"]] = f"{result['retrieved']}/{result['trials']}"
    names = [task["task"] for task in results["tasks"]]
    return table(["configuration", *names], [[title, *(its.get(name, "-") for name in names)]
                                             for title, its in found.items()])


def others_table(results, name):
    """What other tools took for a task, beside what they answered."""
    def mib(value, decimals):
        return number(None if value is None else value / MIB, decimals)

    lines = [[f"`{other['name']}`", f"{other['retrieved']}/{other['trials']}", mib(other.get("cache_bytes_at_most"), 1),
              mib(other.get("peak_bytes"), 0), number(other.get("prompt_tokens_per_second"), 1),
              number(other.get("generation_tokens_per_second"), 1)]
             for other in task_of(results, name).get("others", [])]
    return table(["configuration", "retrieved", "cache at most, MiB", "process at most, MiB", "prompt, tokens/s",
                  "generation, tokens/s"], lines)


def refused_table(results):
    """What could not be run, and why."""
    lines = [[f"`{row['name']}`", row["what"], row["refused"]] for row in results.get("refused", [])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [["configuration", "of", "not measured, because"],
                                                           ["---"] * 3, *lines]) + "\n"


def setting(results):
    """What was measured, with what."""
    model, text, host, device = (results[key] for key in ("model", "text", "host", "device"))
    weights = "dequantized to F32" if model["weights"] == "f32" else "as they are in the file"
    part = "all of it" if text["part"] == "all" else f"its {text['part']} half"
    counts = sorted({(row["context"], row["contexts"], row["scored_tokens"]) for row in results["rows"]
                     if row["role"] != "other"})
    sizes = [f"- {contexts} contexts of {context} tokens, {scored:,} tokens scored"
             for context, contexts, scored in counts]
    lines = [f"- model: {model['file']} (sha256 {model['sha256'][:16]}), weights {weights}",
             f"- text: {text['file']} (sha256 {text['sha256'][:16]}), {part}", *sizes,
             f"- llama.cpp {host['version']}, batches of {host['batch']}, micro-batches of {host['ubatch']}, "
             f"{host['threads']} threads"]
    if device:
        elsewhere = f"; virtual caches on {device['virtual_caches']}" if "virtual_caches" in device else ""
        lines.append(f"- Winnow on {device['device']} ({device['platform']}, driver {device['driver_version']})"
                     f"{elsewhere}")
    lines.append(f"- base: `{results['base']}`; ± is one standard error over contexts, paired with the base")
    lines += [textwrap.fill(f"- {remark}", 120, subsequent_indent="  ") for remark in results.get("remarks", [])]
    return "\n".join(lines) + "\n"


def command(results):
    """The command that made these results, in lines that a page can hold."""
    lines, line = [], ""
    for word in map(shlex.quote, results["command"]):
        if line and len(line) + len(word) + 3 > COMMAND_COLUMNS:
            lines.append(f"{line} \\")
            line = f"    {word}"
        else:
            line = f"{line} {word}" if line else word
    return "\n".join(f"    {one}" for one in [*lines, line]) + "\n"


def markdown(results):
    """All tables of the results, as one text."""
    parts = [command(results), setting(results)]
    for each in settings_of(results):
        name = named_setting(each)
        parts += [f"{name[0].upper()}{name[1:]}:\n", quality_table(results, each), cost_table(results, each)]
    for task in results["tasks"]:
        parts += [f"Task {task['task']}, {task['meaning']}:\n",
                  *([full_cache(results, task["task"])] if task["trials"] else []), task_table(results, task["task"])]
    if results.get("refused"):
        parts += ["Not measured:\n", refused_table(results)]
    return "\n".join(parts)


def _csv(columns, lines):
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        writer.writerow(["" if line[key] is None else line[key] for key in columns])
    return output.getvalue()


def csv_text(results):
    """One line for each configuration, context length and mode."""
    return _csv(CSV_COLUMNS, ({"misses_percent": None} | row["config"] | row for setting in settings_of(results)
                              for row in rows_of(results, setting)))


def task_csv_text(results):
    """One line for each task, configuration, context length and depth."""
    lines = []
    for task in results["tasks"]:
        for result in task["results"]:
            for context in task["contexts"]:
                for depth in task["depths"]:
                    right, trials = found(task, result, context=context, depth=depth)
                    share = resident.mean(answers_of(task, result, context=context, depth=depth))
                    lines.append(dict(zip(TASK_COLUMNS, (task["task"], result["name"], context, depth, right, trials,
                                                         share))))
        lines += [dict.fromkeys(TASK_COLUMNS) | {key: other[key] for key in ("task", "name", "retrieved", "trials")}
                  for other in task.get("others", [])]
    return _csv(TASK_COLUMNS, lines)


def write(results, folder):
    """Writes results.csv, results.md and, if there are tasks, tasks.csv into a folder, and gives their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = {folder / "results.csv": csv_text(results), folder / "results.md": markdown(results)}
    if results["tasks"]:
        written[folder / "tasks.csv"] = task_csv_text(results)
    else:
        (folder / "tasks.csv").unlink(missing_ok=True)  # of an earlier run
    for path, text in written.items():
        storage.write_atomically(path, text)
    return list(written)
