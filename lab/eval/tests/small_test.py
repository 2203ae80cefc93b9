"""`winnow eval` from the command to the pictures, on a small text: two configurations, two lengths, two needles.

The numbers have to be those of these caches: sizes to the byte, attention calls to the call, no loss where there is
none to have, and more loss with fewer bits. A second call measures nothing again, a further configuration only itself.
"""

import csv
import tempfile
from pathlib import Path

import measured
from measured import expect

CONTEXTS = {128: 2, 192: 3}  # and their micro-batches
COUNT = 2
ROW = 6 * 3 * 64  # elements of a token's K: layers that are left of SmolLM2-135M, heads, head size
BYTES = {"cpu:k=f16,v=f16": 4 * ROW, "cpu:k=q4_0,v=q4_0": 2 * ROW * 18 // 32,
         "inplace:k=q8_0,v=q8_0": 2 * ROW * 34 // 32}
PICTURES = ("bytes_128", "bytes_192", "contexts", "needle", "tasks")
SIZES = ("--contexts", "128,192", "--count", COUNT, "--mode", "batch", "--batch", 128, "--ubatch", 64,
         "--task-contexts", "128", "--task-trials", 2)
SHORT = "inplace:k=f16,v=q8_0"


def expect_row(row):
    name = row["name"]
    context = row["context"]
    # llama.cpp says its own caches' bytes in hundredths of a MiB.
    near = 0 if name.startswith("inplace") else 0.005 * 2**20
    expect(abs(row["kv_bytes"] - 256 * BYTES[name]) <= near and row["kv_bytes_per_token"] * 256 == row["kv_bytes"],
           f"{name}: {row['kv_bytes_per_token']} bytes a token, {row['kv_bytes']} in all, expected {BYTES[name]}")
    expect(row["contexts"] == COUNT and row["scored_tokens"] == COUNT * (context // 2 - 1), f"{name}: sizes")
    calls = COUNT * CONTEXTS[context] if name.startswith("inplace") else 0
    expect(row["attention_calls"] == calls, f"{name}: {row['attention_calls']} calls, expected {calls}")
    expect(all(len(values) == COUNT for values in row["per_context"].values()), f"{name}: values of each context")
    expect(row["prompt_tokens_per_second"] > 1 and row["generation_tokens_per_second"] > 0.1, f"{name}: speeds")
    low, high, least_same = {"cpu:k=f16,v=f16": (0, 1e-5, 99.0), "inplace:k=q8_0,v=q8_0": (1e-5, 0.01, 93.0),
                             "cpu:k=q4_0,v=q4_0": (0.01, 0.3, 60.0)}[name]
    expect(low <= row["kld"] <= high, f"{name}: KL divergence {row['kld']}, expected {low} to {high}")
    expect(row["same_top_percent"] >= least_same, f"{name}: same top token {row['same_top_percent']}%")
    expect(abs(row["ppl"] / row["ppl_base"] - 1 - row["ppl_increase_percent"] / 100) < 1e-4, f"{name}: the increase")


def main():
    options = measured.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = measured.Eval(options, Path(folder) / "out")
        text = work.good(*SIZES, "cpu:k=q4_0,v=q4_0", "inplace:k=q8_0,v=q8_0")
        results = work.results()
        for context in CONTEXTS:
            rows = [row for row in results["rows"] if row["context"] == context]
            expect([row["role"] for row in rows] == ["control", "row", "row"], "the control run is not first")
            for row in rows:
                expect_row(row)
        expect(results["device"] and results["base"] == "inplace:k=f16,v=f16", "device or base")
        expect(folder not in str(results) and str(options.text.parent) not in str(results), "a path in results.json")
        needle, = results["tasks"]
        full = sum(trial["full_cache_finds"] == [[True]] for trial in needle["trials"])
        expect([result["name"] for result in needle["results"]] == [row["name"] for row in results["rows"][:3]],
               f"needle of {needle['results']}")
        expect(all(result["trials"] == full for result in needle["results"]), "trials that the full cache answers")
        for name in ("control: cpu:k=f16,v=f16", "cpu:k=q4_0,v=q4_0", "retrieved"):
            expect(name in text, f"the terminal shows no \"{name}\"")
        table = list(csv.DictReader((work.out / "results.csv").open()))
        expect([row["name"] for row in table] == [row["name"] for row in results["rows"]], "results.csv")
        names = {path.name for path in work.out.iterdir()}
        wanted = {f"{stem}.{kind}" for stem in PICTURES for kind in ("png", "svg")}
        expect(wanted <= names, f"pictures: {sorted(names)}, expected {sorted(wanted)}")
        expect("base" not in names, "the logits of the base were left behind")

        before = work.runs("*")
        out = work.good(*SIZES, "cpu:k=q4_0,v=q4_0", "inplace:k=q8_0,v=q8_0", SHORT, "--contexts", "128")
        expect("finished runs are kept" in out, "nothing is said of what was kept")
        after = work.runs("*")
        expect(before.items() <= after.items(), "something was measured again")
        made = sorted(name.split("-")[0] for name in after.keys() - before.keys())
        # The further configuration: its contexts, its speed, and each fact that the full cache finds.
        expect(made == ["generation", *["kld"] * COUNT, *["needle"] * full], f"made was {made}")

        again = measured.Eval(options, Path(folder) / "again")
        shown = again.good(**{"from": work.out}, model=None, text=None, plugin=None, **{"llama-cpp": None})
        expect(shown.split("wrote")[0] in out, "--from shows another table")
        for name in ("results.csv", "results.md", "needle.svg"):
            expect((again.out / name).read_text() == (work.out / name).read_text(), f"--from writes another {name}")


main()
