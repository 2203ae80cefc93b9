"""What other tools measured, in a file of rows.schema.json, beside the results of this one."""

from collections import Counter

from winnow_eval import Failure, given

SCHEMA = "rows.schema.json"
OPTIONAL = ("scored_tokens", "kv_bytes", "kld_se", "kld_p99", "ppl", "ppl_base", "ppl_increase_percent",
            "ppl_increase_se", "same_top_percent", "same_top_se", "prompt_tokens_per_second",
            "generation_tokens_per_second")
PER_CONTEXT = ("kld", "ln_ratio", "same_top")


def read(path):
    """A file of another tool's rows, which is one."""
    found = given.read(path, "--with", SCHEMA)
    for number, one in enumerate(found.get("tasks", [])):
        for key in ("retrieved", "trials") if "by_context" in one else ():
            if sum(cell[key] for cell in one["by_context"]) != one[key]:
                raise Failure(f"--with: {path}, tasks[{number}]: {key} of by_context do not add up to {one[key]}")
    return found


def expect_the_same(path, found, results):
    """Fails where another model or text was measured than `model` and `text` of the results say: its figures would
    stand beside others of which they are not."""
    if found["model"]["sha256"] != results["model"]["sha256"]:
        raise Failure(f"--with: {path} is of {found['model']['file']}, sha256 {found['model']['sha256'][:16]}, the "
                      f"results of {results['model']['file']}, {results['model']['sha256'][:16]}")
    measured = any("refused" not in row for row in found.get("rows", []))
    text = found.get("text") or {}
    if measured and (text.get("sha256"), text.get("part")) != (results["text"]["sha256"], results["text"]["part"]):
        raise Failure(f"--with: {path} is of the text {text.get('file')}, part {text.get('part')}, sha256 "
                      f"{str(text.get('sha256'))[:16]}; the results are of {results['text']['file']}, part "
                      f"{results['text']['part']}, {results['text']['sha256'][:16]}")


def _row(row, tool):
    """A row as results.json has them."""
    made = dict.fromkeys(OPTIONAL) | row
    made["kv_bytes"] = made["kv_bytes"] or row["kv_bytes_per_token"] * row["context"]
    made["per_context"] = {key: row.get("per_context", {}).get(key, []) for key in PER_CONTEXT}
    return made | {"role": "other", "tool": tool, "attention_calls": 0, "config": {
        "backend": tool, "k": "", "v": "", "rotate": True, "kv": "", "environment": {}}}


def add(results, paths):
    """The results with what these files have; what is of a setting or a task that the results have not comes as one
    more. Fails, and nothing is changed, where a file is no such or of another model or text."""
    files = [(path, read(path)) for path in paths]
    for path, found in files:
        expect_the_same(path, found, results)
    made = results | {"rows": list(results["rows"]), "tasks": [dict(task) for task in results["tasks"]],
                      "refused": list(results.get("refused", [])), "remarks": list(results.get("remarks", []))}
    for path, found in files:
        tool = f"{found['tool']['name']} {found['tool']['version']}"
        made["remarks"] += [f"{tool}: {remark}" for remark in found.get("remarks", [])]
        for row in found.get("rows", []):
            if "refused" in row:
                what = f"context {row['context']}, {row['mode']}"
                made["refused"].append({"name": row["name"], "what": what, "refused": row["refused"]})
            else:
                made["rows"].append(_row(row, tool))
        for one in found.get("tasks", []):
            if "refused" in one:
                made["refused"].append({"name": one["name"], "what": one["task"], "refused": one["refused"]})
            else:
                _task(made["tasks"], one)
    _expect_once("rows", [f"{row['name']}, context {row['context']}, {row['mode']}" for row in made["rows"]])
    _expect_once("answers", [f"{one['name']}, {task['task']}" for task in made["tasks"]
                             for one in (*task["results"], *task.get("others", []))])
    _expect_once("refusals", [f"{one['name']}, {one['what']}" for one in made["refused"]])
    return made


def _expect_once(what, names):
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice:
        raise Failure(f"--with: two {what} are called {twice}; has the file been added before?")


def _task(tasks, one):
    lengths = {cell["context"] for cell in one.get("by_context", [])}
    task = next((task for task in tasks if task["task"] == one["task"]), None)
    if task is None:
        task = {"task": one["task"], "meaning": "asked by another tool", "contexts": [], "depths": [None],
                "results": [], "trials": []}
        tasks.append(task)
    if not task["results"]:  # of ours, which say at which lengths it was asked
        task["contexts"] = sorted({*task["contexts"], *lengths})
    task["others"] = [*task.get("others", []), one]
