"""The results as tables on the terminal."""

from rich import box
from rich.markup import escape
from rich.table import Table

from winnow_eval.report import counted_contexts, measured, named_setting, number, rows_of, settings_of

MIB = 2**20
HEADS = ("configuration", "KV bytes/token", "KV MiB", "perplexity", "increase %", "KL divergence", "99% KLD",
         "same top %", "text t/s", "gen. t/s", "calls")


def _cells(row):
    control = row["role"] == "control"
    return [f"control: {row['name']}" if control else row["name"], number(row["kv_bytes_per_token"], 0),
            number(row["kv_bytes"] / MIB, 2), number(row["ppl"], 3),
            measured(row["ppl_increase_percent"], row["ppl_increase_se"], 2, 4, "+"),
            measured(row["kld"], row["kld_se"], 4, 6), number(row["kld_p99"], 4),
            measured(row["same_top_percent"], row["same_top_se"], 1, 2), number(row["prompt_tokens_per_second"], 1),
            number(row["generation_tokens_per_second"], 1), number(row["attention_calls"], 0)]


def _table(heads):
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, head in enumerate(heads):
        made.add_column(head, justify="right" if index else "left", no_wrap=index > 0, overflow="fold")
    return made


def show(results, console):
    """Prints a table for each context length and mode, the control run first, and one for each task."""
    for setting in settings_of(results):
        rows = rows_of(results, setting)
        console.print(f"{named_setting(setting)}: {counted_contexts(rows)} contexts, against "
                      f"{results['base']}", style="bold", highlight=False, markup=False)
        made = _table(HEADS)
        for row in rows:
            made.add_row(*map(escape, _cells(row)), style="dim" if row["role"] == "control" else "")
        console.print(made)
    for task in results["tasks"]:
        console.print(f"{task['task']}: {task['meaning']}; of what the full cache finds", style="bold", highlight=False,
                      markup=False)
        made = _table(("configuration", "retrieved"))
        for result in [*task["results"], *task.get("others", [])]:
            made.add_row(escape(result["name"]), f"{result['retrieved']}/{result['trials']}")
        console.print(made)
    for row in results.get("refused", []):
        console.print(f"not measured: {row['name']}, {row['what']}: {row['refused']}", highlight=False, markup=False)
