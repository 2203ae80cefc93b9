"""`winnow profile`, and `winnow eval` of policies, on a small text: a profile divides a budget, what of a fact is
resident is said, and a conversation goes on in a cache that has forgotten.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import measured
from measured import expect

LAYERS, QUERY_HEADS, KV_HEADS = 30, 9, 3  # of SmolLM2-135M
CONTEXT = 128
WINDOW = "window:budget=1/4"
SIZES = ("--contexts", CONTEXT, "--count", 4, "--batch", 128, "--ubatch", 64, "--no-generation", "--needle-contexts",
         "128", "--needle-trials", 2, "--conversations", 1, "--conversation-context", 512)


def profile(work, folder):
    """The file for the policy, made by `winnow profile`."""
    command = [word if word != "eval" else "profile" for word in work.command("--context", CONTEXT, "--count", 2,
                                                                             out=folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=work.environment, stdin=subprocess.DEVNULL)
    print(f"$ {' '.join(command[1:])}\n{done.stdout}{done.stderr}", flush=True)
    expect(done.returncode == 0, f"winnow profile ended with status {done.returncode}")
    found = json.loads((folder / "profile.json").read_text())
    expect([layer["name"] for layer in found["layers"]] == [f"cache_k_l{layer}" for layer in range(LAYERS)], "layers")
    expect(all(len(layer["entropy"]) == QUERY_HEADS for layer in found["layers"]), "query heads")
    expect(str(folder.parent) not in (folder / "profile.json").read_text(), "a path in profile.json")
    for kind in ("csv", "png", "svg"):
        expect((folder / f"profile.{kind}").stat().st_size > 1000, f"profile.{kind} is empty")
    return folder / "profile.txt"


def main():
    options = measured.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = measured.Eval(options, Path(folder) / "out")
        adaptive = f"adaptive_budget:budget=1/4,policy=window,profile_file={profile(work, Path(folder) / 'profile')}"
        work.good(*SIZES, WINDOW, adaptive)
        results = work.results()

        def row(name, mode="batch"):
            return next(row for row in results["rows"] if (row["name"], row["mode"]) == (name, mode))

        window, divided = row(WINDOW), row(adaptive)
        decoded, control = row(WINDOW, "decode"), row("cpu:k=f16,v=f16")
        expect(decoded["per_context"] != window["per_context"], "decoding evicts as a prompt does")
        expect(row("cpu:k=f16,v=f16", "decode") | {"mode": "batch"} == control, "the full cache differs by mode")
        expect(window["kld"] > 0 and divided["kld"] > 0, "a quarter of the tokens costs nothing")
        expect(window["per_context"] != divided["per_context"], "the division of the budget changes nothing")
        expect(0.8 * window["kv_bytes"] <= divided["kv_bytes"] <= window["kv_bytes"],
               f"{divided['kv_bytes']} bytes, with the same budget for each layer {window['kv_bytes']}")
        for result in results["needle"]["results"]:
            for answer in result["answers"].values():
                is_policy = bool(result["config"]["kv"])
                expect(("resident" in answer) == is_policy, f"{result['name']}: {answer}")
                if is_policy:
                    counts = [count for layer in answer["resident"]["layers"] for count in layer]
                    expect(len(counts) == LAYERS * KV_HEADS, f"{len(counts)} heads")
                    expect(max(counts) <= answer["resident"]["tokens"], f"more are resident than there were: {answer}")
        talked = {result["name"]: result for result in results["conversation"]["results"]}
        opening = talked[WINDOW]["resident"]
        expect(0.05 < opening < 0.5, f"{opening} of the opening is resident in a quarter")
        expect("resident" not in talked["cpu:k=f16,v=f16"], "the control run is no policy")
        before = work.runs("*")
        work.good(*SIZES, WINDOW, adaptive)
        expect(before == work.runs("*"), "something was measured again")


main()
