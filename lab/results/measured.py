"""Fills the losses of measured.json, which `winnow plan` carries, from the results kept beside this file.

    measured.py            writes them; what Winnow adds to a process (tests/ggml/plan_test.py) stays as it is
    measured.py --check    only says whether they are what the results give
"""

import argparse
import json
import re
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parent
MEASURED = RESULTS.parents[1] / "tools" / "plan" / "measured.json"
TEXT = "wiki.test.raw"  # by which configurations are compared with each other, as far as they were measured on it
MODEL = "SmolLM2-135M-Instruct"  # whose losses stand for those of a model that was not measured
# Files of models whose layers add a bias to their keys: few bits lose far more of such keys.
KEY_BIAS = {"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"}
KEYS = ("context", "contexts", "kld", "kld_se", "ppl_increase_percent", "ppl_increase_se")


def is_plain(row):
    """Whether a row's name says all of its configuration, and a file of the machine is no part of it."""
    return not row["config"]["environment"] and "files" not in row


def model_of(results):
    """Its name without the type of its weights, which were dequantized."""
    if results["model"]["weights"] != "f32":
        return results["model"]["file"].removesuffix(".gguf")
    return re.sub(r"([.-](I?Q\d\w*|B?F16|F32))?\.gguf$", "", results["model"]["file"], flags=re.I)


def losses(folder):
    """One row for each model, configuration and context: of one text if it can be; what was decoded before what was
    not, as that is what a user waits for; that of the most contexts; of half the text before the whole. Rows of
    other tools are none that the program could have.
    """
    best = {}
    for path in sorted(folder.glob("*.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        for row in results["rows"]:
            if row["role"] == "other" or not is_plain(row):
                continue
            if results["text"]["part"] == "first":  # by which defaults were chosen
                continue
            is_decoded = row["mode"] == "decode" or not row["config"]["kv"]  # without a policy both are the same
            rank = (results["text"]["file"] == TEXT, is_decoded, row["contexts"], results["text"]["part"] != "all")
            key = (model_of(results), row["name"], row["context"])
            if key not in best or rank > best[key][0]:
                made = {"name": row["name"]} | {name: row[name] for name in KEYS}
                made |= {"model": key[0], "text": results["text"]["file"], "part": results["text"]["part"],
                         "results": path.stem}
                if results["model"]["file"] in KEY_BIAS:
                    made["has_key_bias"] = True
                best[key] = (rank, made)
    compared = {(row["model"], row["name"]) for _, row in best.values() if row["text"] == TEXT}
    rows = [row for _, row in best.values() if row["text"] == TEXT or (row["model"], row["name"]) not in compared]
    used = sorted({row["results"] for row in rows})
    commands = {name: " ".join(json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["command"])
                for name in used}
    return {"commands": commands, "rows": sorted(rows, key=lambda row: (
        row["name"], row["context"], row["model"] != MODEL, row["model"]))}


def main():
    parser = argparse.ArgumentParser(prog="measured.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the losses are out of date")
    options = parser.parse_args()
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    found = losses(RESULTS)
    if options.check:
        if kept["losses"] != found:
            sys.exit("measured.json is not what lab/results has; run lab/results/measured.py")
        print(f"measured.json has {len(found['rows'])} losses, as lab/results")
        return
    kept["losses"] = found
    MEASURED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
