"""Kept results as CSV and as Markdown tables. The standard library only, so that documents can be checked anywhere."""

import csv
import io
import math
import shlex
import statistics
import textwrap
from pathlib import Path

from winnow_eval import resident

MIB = 1024 * 1024
MODES = {"batch": "in batches", "decode": "decoded"}
COMMAND_COLUMNS = 100
SAME_BYTES = 0.02  # rows whose sizes differ by less are compared
CSV_COLUMNS = ("name", "role", "backend", "k", "v", "rotate", "kv", "context", "mode", "contexts", "scored_tokens",
               "kv_bytes_per_token", "kv_bytes", "ppl", "ppl_base", "ppl_increase_percent", "ppl_increase_se", "kld",
               "kld_se", "kld_p99", "same_top_percent", "same_top_se", "prompt_tokens_per_second",
               "generation_tokens_per_second", "attention_calls", "needle_retrieved",
               "needle_trials")


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


def mode_of(row):
    """What has no modes was measured in batches."""
    return row.get("mode", "batch")


def settings_of(results):
    """(context length, mode) of each table."""
    return sorted({(row["context"], mode_of(row)) for row in results["rows"]})


def named_setting(setting):
    context, mode = setting
    return f"context {context}, {MODES[mode]}"


def counted_contexts(rows):
    """How many contexts the rows have: "8", or "8 to 16" where some were decided before the others."""
    counts = sorted({row["contexts"] for row in rows})
    return f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"


def rows_of(results, setting):
    """The rows of a context length and mode, the control run first."""
    rows = [row for row in results["rows"] if (row["context"], mode_of(row)) == setting]
    return sorted(rows, key=lambda row: row["role"] != "control")


def titled(row):
    return f"control: `{row['name']}`" if row["role"] == "control" else f"`{row['name']}`"


def titled_needle(results, result):
    """The name of a configuration of the needle test, marked if it is that of the control run."""
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
    """Lists of rows with about the same bytes, each list and its rows from the best on; no row stands alone."""
    rows = sorted((row for row in rows_of(results, setting) if row["role"] != "control"),
                  key=lambda row: row["kv_bytes_per_token"])
    groups = []
    for row in rows:
        if groups and row["kv_bytes_per_token"] <= (1 + SAME_BYTES) * groups[-1][0]["kv_bytes_per_token"]:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [sorted(group, key=lambda row: row["kld"]) for group in groups if len(group) > 1]


def paired_table(results, setting):
    """Rows of about the same bytes against the best of them, context by context."""
    lines = []
    for best, *others in of_same_bytes(results, setting):
        for row in others:
            pairs = zip(row["per_context"]["kld"], best["per_context"]["kld"])  # those that both have
            differences = [worse - better for worse, better in pairs]
            error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else None
            wins = sum(difference > 0 for difference in differences)
            lines.append([f"{titled(row)} against {titled(best)}", number(row["kv_bytes_per_token"], 0),
                          measured(statistics.fmean(differences), error, 4, 6, "+"), f"{wins}/{len(differences)}"])
    return table(["configurations", "bytes/token", "mean KLD, difference", "contexts in which it is worse"], lines)


def cost_table(results, setting):
    """What the same runs took of time."""
    lines = [[titled(row), number(row["prompt_tokens_per_second"], 1),
              number(row["generation_tokens_per_second"], 1),
              str(row["attention_calls"]) if row["attention_calls"] else "-"] for row in rows_of(results, setting)]
    return table(["configuration", "text, tokens/s", "generation, tokens/s", "Winnow's calls per layer"], lines)


def found(needle, result, **cell):
    """(right answers, trials that count) of one configuration where the trial has these values."""
    right = [result["answers"][trial["id"]]["correct"] for trial in needle["trials"]
             if trial["full_cache_answers"] and all(trial[key] == value for key, value in cell.items())]
    return sum(right), len(right)


def needle_table(results):
    """Needles retrieved, in all and for each context length; of policies, what of their tokens is resident."""
    needle = results["needle"]
    lines, watched = [], any(resident.shares(result["answers"].values()) for result in needle["results"])
    for result in needle["results"]:
        cells = [found(needle, result, context=context) for context in needle["contexts"]]
        lines.append([titled_needle(results, result), f"{result['retrieved']}/{result['trials']}",
                      *[f"{right}/{trials}" for right, trials in cells]])
        if watched:
            share = resident.mean(result["answers"].values())
            lines[-1].append(number(None if share is None else 100 * share, 1))
    return table(["configuration", "retrieved", *[f"context {context}" for context in needle["contexts"]],
                  *(["of the facts resident, %"] if watched else [])], lines)


def conversation_table(results):
    """Facts of the opening still known in each turn; of policies what is resident, and what a fresh run gives."""
    talked = results["conversation"]
    lines = []
    for result in talked["results"]:
        pairs = list(zip(result["retrieved"], result["trials"]))
        policy = "resident" in result
        lines.append([titled_needle(results, result), f"{sum(result['retrieved'])}/{sum(result['trials'])}",
                      *[f"{right}/{trials}" for right, trials in pairs],
                      number(100 * result["resident"] if policy else None, 1),
                      f"{result['same_as_fresh']}/{talked['conversations']}" if policy else "-"])
    return table(["configuration", "retrieved", *[f"turn {turn}" for turn in range(1, 1 + talked["turns"])],
                  "of the opening resident, %", "last answer as when read anew"], lines)


def full_cache(results):
    """How many of the questions that were asked the full cache answers: the others say nothing about a cache."""
    needle = results["needle"]
    shares = []
    for context in needle["contexts"]:
        answered = [trial["full_cache_answers"] for trial in needle["trials"] if trial["context"] == context]
        shares.append(f"{sum(answered)} of {len(answered)} at {context} tokens")
    text = f"The full cache answered {', '.join(shares)}. Only what it answered counts."
    return textwrap.fill(text, 120) + "\n"


def setting(results):
    """What was measured, with what."""
    model, text, host, device = (results[key] for key in ("model", "text", "host", "device"))
    weights = "dequantized to F32" if model["weights"] == "f32" else "as they are in the file"
    part = "all of it" if text["part"] == "all" else f"its {text['part']} half"
    counts = sorted({(row["context"], row["contexts"], row["scored_tokens"]) for row in results["rows"]})
    sizes = [f"- {contexts} contexts of {context} tokens, {scored:,} tokens scored"
             for context, contexts, scored in counts]
    lines = [f"- model: {model['file']} (sha256 {model['sha256'][:16]}), weights {weights}",
             f"- text: {text['file']} (sha256 {text['sha256'][:16]}), {part}", *sizes,
             f"- llama.cpp {host['version']}, batches of {host['batch']}, micro-batches of {host['ubatch']}, "
             f"{host['threads']} threads"]
    if device:
        lines.append(f"- Winnow on {device['device']} ({device['platform']}, driver {device['driver_version']})")
    lines.append(f"- base: `{results['base']}`; ± is one standard error over contexts, paired with the base")
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
    if results["needle"]:
        parts += ["Needles in a haystack:\n", full_cache(results), needle_table(results)]
    if results.get("conversation"):
        parts += ["Conversations:\n", conversation_table(results)]
    return "\n".join(parts)


def csv_text(results):
    """One line for each configuration, context length and mode; what the needle test found is of the configuration."""
    needles = {result["name"]: result for result in (results["needle"] or {"results": []})["results"]}
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for setting in settings_of(results):
        for row in rows_of(results, setting):
            needle = needles.get(row["name"], {})
            values = row["config"] | row | {"mode": mode_of(row), "needle_retrieved": needle.get("retrieved"),
                                            "needle_trials": needle.get("trials")}
            writer.writerow(["" if values[key] is None else values[key] for key in CSV_COLUMNS])
    return output.getvalue()


def write(results, folder):
    """Writes results.csv and results.md into a folder, and gives their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = {folder / "results.csv": csv_text(results), folder / "results.md": markdown(results)}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return list(written)
