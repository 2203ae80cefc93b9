"""`winnow profile`, and `winnow eval` of policies, on a small text: a profile divides a budget, and tasks are asked,
where a policy says what of the facts is resident: with --all every one, otherwise those that are asked in a way of
their own (tasks_test.py makes each, and small_test.py asks a needle).
"""

import json
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

import measured
from measured import expect

LAYERS, QUERY_HEADS, KV_HEADS = 30, 9, 3  # of SmolLM2-135M, which is asked
LAYERS_LEFT = 6  # of the model that is profiled
CONTEXT = 128
WINDOW = "window:budget=1/4"
TASK_CONTEXT = 256
SIZES = ("--contexts", CONTEXT, "--count", 2, "--batch", 128, "--ubatch", 64, "--no-generation", "--no-pictures",
         "--weights", "as-is")
TASKS = ("needle", "chat", "lookup", "several", "code", "conversation")
OF_A_SAMPLE = ("chat", "several", "conversation")  # as a chat, with many questions, and read anew


def profile(work, folder):
    """The file for the policy, made by `winnow profile`."""
    command = [word if word != "eval" else "profile" for word in work.command("--context", CONTEXT, "--count", 2,
                                                                             out=folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=work.environment, stdin=subprocess.DEVNULL)
    print(f"$ {' '.join(command[1:])}\n{done.stdout}{done.stderr}", flush=True)
    expect(done.returncode == 0, f"winnow profile ended with status {done.returncode}")
    found = json.loads((folder / "profile.json").read_text())
    names = [layer["name"] for layer in found["layers"]]
    expect(names == [f"cache_k_l{layer}" for layer in range(LAYERS_LEFT)], f"layers {names}")
    expect(all(len(layer["entropy"]) == QUERY_HEADS for layer in found["layers"]), "query heads")
    expect(str(folder.parent) not in (folder / "profile.json").read_text(), "a path in profile.json")
    for kind in ("csv", "png", "svg"):
        expect((folder / f"profile.{kind}").stat().st_size > 1000, f"profile.{kind} is empty")
    return folder / "profile.txt"


def expect_task(task):
    """Somebody knows something, and policies say what they hold of it."""
    known = sum(any(any(found) for found in trial["full_cache_finds"]) for trial in task["trials"])
    print(f"{task['task']}: the full cache knows {known} of {len(task['trials'])}, "
          f"{ {result['name']: (result['retrieved'], result['trials']) for result in task['results']} }")
    expect(len({result["trials"] for result in task["results"]}) == 1, f"{task['task']}: other trials counted")
    control = task["results"][0]
    expect(control["retrieved"] == control["trials"], f"{task['task']}: the full cache on the CPU answers otherwise")
    for trial in task["trials"]:
        expect(0.7 * TASK_CONTEXT < trial["tokens"] <= TASK_CONTEXT or len(trial["questions"]) > 1,
               f"{task['task']}: a prompt of {trial['tokens']} tokens")
    for result in task["results"]:
        is_policy = bool(result["config"]["kv"])
        for answer in result["answers"].values():
            expect(("resident" in answer) == is_policy, f"{task['task']}, {result['name']}: {answer}")
            if is_policy and task["task"] == "conversation":  # of which the whole opening is looked for
                share = answer["resident"]["share"]
                expect(0.05 < share < 0.7, f"{share} of the opening is resident in a quarter")
        expect(("resident" in result) == (is_policy and bool(result["answers"])), f"{result['name']}: not counted")
        if "resident" in result:
            counts = [count for layer in result["resident"]["layers"] for count in layer]
            expect(len(counts) == LAYERS * KV_HEADS, f"{len(counts)} heads")
            expect(max(counts) <= result["resident"]["tokens"], f"more are resident than there were: {counts}")


def main():
    options = measured.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = measured.Eval(options, Path(folder) / "out")
        path = profile(work, Path(folder) / "profile")
        divided_by = f"policy=window,profile_file={path}"
        adaptive = f"adaptive_budget:budget=1/4,{divided_by}"
        work.good(*SIZES, "--tasks", "none", WINDOW, adaptive)
        results = work.results()

        def row(name, mode="batch"):
            return next(row for row in results["rows"] if (row["name"], row["mode"]) == (name, mode))

        window, divided = row(WINDOW), row(adaptive)
        expect((window["family"], divided["family"]) == ("window", f"adaptive_budget:{divided_by}"),
               f"families {window['family']} and {divided['family']}")
        expect("files" not in window and divided["files"] == {str(path): sha256(path.read_bytes()).hexdigest()},
               f"the profile is not named: {divided.get('files')}")
        decoded, control = row(WINDOW, "decode"), row("cpu:k=f16,v=f16")
        expect(decoded["per_context"] != window["per_context"], "decoding evicts as a prompt does")
        expect(row("cpu:k=f16,v=f16", "decode") | {"mode": "batch"} == control, "the full cache differs by mode")
        expect(window["kld"] > 0 and divided["kld"] > 0, "a quarter of the tokens costs nothing")
        expect(window["per_context"] != divided["per_context"], "the division of the budget changes nothing")
        expect(0.8 * window["kv_bytes"] <= divided["kv_bytes"] <= window["kv_bytes"],
               f"{divided['kv_bytes']} bytes, with the same budget for each layer {window['kv_bytes']}")
        asked = {"model": options.task_model, "out": Path(folder) / "asked"}
        few = (*SIZES, "--mode", "batch")  # the calls before have compared both
        work = measured.Eval(options, asked["out"])
        asked_for = TASKS if options.all else OF_A_SAMPLE
        work.good(*few, "--tasks", "all" if options.all else ",".join(OF_A_SAMPLE), "--task-contexts", TASK_CONTEXT,
                  "--task-trials", 1, WINDOW, **asked)
        expect(not list(work.out.glob("*.png")), "drawn against --no-pictures")
        tasks = work.results()["tasks"]
        names = [task["task"] for task in tasks]
        expect(names == list(asked_for), f"tasks {names}")
        for task in tasks:
            expect_task(task)
        talked = {result["name"]: result["answers"] for result in tasks[-1]["results"]}
        expect(all("as_anew" in answer for answer in talked[WINDOW].values()), "nothing was read anew")


main()
