"""What a fixed number of tokens costs as contexts grow: perplexity of the full cache, of a window and of H2O in one
context of each length, for lengths at which several contexts, as `winnow eval` wants them, take too long.

    length_sweep.py --measure winnow-measure --llama-cpp DIR --plugin libwinnow_ggml.so --model M.gguf --text FILE \
        --contexts 4096,8192,16384 --out lengths.json

The last 2048 tokens of a context are scored, or its second half where that is shorter, decoded. Weights are as they are
in the file. --out keeps each row as soon as it is there, and a row that it has is not measured again.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
from pathlib import Path

import recorded_rows  # which has lab/eval in the path
from winnow_eval import configs, measure
from winnow_calibrate import text
from winnow_calibrate.host import Host, find_plugin, find_programs

POLICIES = ("window:budget=256", "h2o:budget=256")
SCORED, BATCH = 2048, 512


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=Path, required=True, help="winnow-measure")
    recorded_rows.add_files(parser)
    recorded_rows.add_part(parser)
    parser.add_argument("--contexts", required=True, help="lengths in tokens, separated by commas")
    parser.add_argument("--out", type=Path, required=True, help="JSON file of the rows")
    parser.add_argument("--threads", type=int, default=1, help="of llama.cpp (default: %(default)s)")
    parser.add_argument("config", nargs="*", default=POLICIES, help="policies (default: %(default)s)")
    return parser.parse_args()


def row_of(name, context, one):
    caches = one.run.report["caches"]
    return {"name": name, "context": context, "scored_tokens": len(one.nll), "seconds": one.run.seconds,
            "ppl": math.exp(statistics.fmean(one.nll)), "kld": statistics.fmean(one.kld) if one.kld else 0.0,
            "same_top_percent": 100 * statistics.fmean(one.same_top) if one.same_top else 100.0,
            "kv_bytes": sum(cache["bytes"] for cache in caches) or None,
            "decoded": sum(cache["decoded"] for cache in caches)}


def measure_length(process, source, context, names, keep):
    scored = min(SCORED, context // 2)
    process.read(source, context, context - scored)
    base = process.run(configs.BASE, 0, base=True)
    keep(row_of("full cache", context, base))
    for name in names:
        one = process.run(configs.parse(name), 0, decode_from=context - scored)
        row = row_of(name, context, one)
        if row["decoded"] != scored:
            raise SystemExit(f"{name}: {row['decoded']} tokens were decoded, expected {scored}")
        keep(row)


def main():
    given = options()
    os.environ["WINNOW_EVAL_MEASURE"] = str(given.measure)
    results = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {"rows": []}

    def keep(row):
        full = next((one["ppl"] for one in [row, *results["rows"]]
                     if (one["name"], one["context"]) == ("full cache", row["context"])))
        row["ppl_increase_percent"] = 100 * (row["ppl"] / full - 1)
        results["rows"] = [one for one in results["rows"]
                           if (one["name"], one["context"]) != (row["name"], row["context"])] + [row]
        given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"{row['context']} {row['name']}: perplexity {row['ppl']:.3f} ({row['ppl_increase_percent']:+.1f}%), "
              f"mean KLD {row['kld']:.4f}, {row['seconds']:.0f} s", flush=True)

    with tempfile.TemporaryDirectory(prefix="winnow-lengths-") as folder:
        source, identity = text.prepare(given.text, given.part, Path(folder))
        setting = {"model": given.model.name, "text": {"file": given.text.name} | identity, "base": str(configs.BASE)}
        if results["rows"] and not setting.items() <= results.items():
            raise SystemExit(f"--out: {given.out} has rows of another model or text, expected those of {setting}")
        results |= setting
        host = Host(find_programs(given.llama_cpp), find_plugin(given.plugin), given.model, BATCH, BATCH, given.threads)
        with measure.Measure(host, given.model) as process:
            for context in map(int, given.contexts.split(",")):
                kept = {one["name"] for one in results["rows"] if one["context"] == context}
                missing = [name for name in given.config if name not in kept]
                if missing:
                    measure_length(process, source, context, missing, keep)


if __name__ == "__main__":
    main()
