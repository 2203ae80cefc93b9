"""`winnow allocate` on a small model: a configuration within its bytes that the plugin takes, the same one again from
what was kept, and a sensitivity of each layer; of heads from a file, since to measure them takes three times as long.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import measured
from measured import expect

LAYERS, HEADS = 6, 3  # of the model
USUAL = LAYERS * HEADS * (34 + 26)  # bytes a token in turbo4 and turbo3


def allocate(work, out):
    """(what it prints, allocation.json)"""
    command = [word if word != "eval" else "allocate" for word in
               work.command("--context", 128, "--count", 2, "--part", "all", "--weights", "as-is", "--shares", "1,1.2",
                            out=out)]
    done = subprocess.run(command, capture_output=True, text=True, env=work.environment, stdin=subprocess.DEVNULL)
    print(f"$ {' '.join(command[1:])}\n{done.stdout}{done.stderr}", flush=True)
    expect(done.returncode == 0, f"winnow allocate ended with status {done.returncode}")
    return done.stdout, json.loads((out / "allocation.json").read_text())


def by_heads(options, work, folder):
    """The configuration from a file of heads: whole layers, and some heads of others."""
    nothing, much = {"k": 0.001, "v": 0.001}, {"k": 0.1, "v": 0.001}
    layers = [[much] * HEADS, [nothing, much, nothing], *[[nothing] * HEADS] * (LAYERS - 2)]
    given = folder / "heads.json"
    given.write_text(json.dumps({"format": 2, "shape": {"layers": LAYERS, "kv_heads": HEADS, "head_size": 64},
                                 "kld": 0.1, "sensitivities": [{"heads": heads} for heads in layers]}))
    command = [options.winnow, "allocate", "--by", "heads", "--from", given, "--shares", "1.05", "--out",
               folder / "heads"]
    done = subprocess.run(command, capture_output=True, text=True, env=work.environment)
    expected = "winnow:fine=0+1.1,k_fine=q8_0,coarse="
    expect(done.returncode == 0 and expected in done.stdout, f"not {expected}...: {done.stdout}{done.stderr}")
    return json.loads((folder / "heads" / "allocation.json").read_text())["allocations"][0]["configuration"]


def main():
    options = measured.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = measured.Eval(options, Path(folder) / "out")
        printed, made = allocate(work, Path(folder) / "allocated")
        expect(made["usual_bytes_per_token"] == USUAL, f"{made['usual_bytes_per_token']} bytes")
        expect(len(made["sensitivities"]) == LAYERS, f"sensitivities of {len(made['sensitivities'])} layers")
        expect(any(abs(layer[side]) > 1e-5 for layer in made["sensitivities"] for side in "kv"), "no layer matters")
        for each in made["allocations"]:
            expect(each["bytes_per_token"] <= each["share"] * USUAL, f"too many bytes: {each}")
            expect(each["configuration"] in printed, f"not printed: {each}")
        expect(made["allocations"][1]["configuration"] != "winnow", "no layer is worth a fifth of the bytes")
        _, again = allocate(work, Path(folder) / "allocated")
        expect(again == made, "other results from what was kept")
        for name in ("allocation.png", "allocation.svg"):
            expect((Path(folder) / "allocated" / name).stat().st_size > 1000, f"no {name}")
        command = [options.winnow, "allocate", "--from", Path(folder) / "allocated" / "allocation.json", "--shares",
                   "1,1.2", "--out", Path(folder) / "from"]
        shown = subprocess.run(command, capture_output=True, text=True, env=work.environment)
        expect(shown.returncode == 0 and all(each["configuration"] in shown.stdout for each in made["allocations"]),
               f"--from: {shown.stdout}{shown.stderr}")
        expect(json.loads((Path(folder) / "from" / "allocation.json").read_text()) == made, "--from gives another one")
        of_heads = by_heads(options, work, Path(folder))
        work.good("--contexts", 128, "--count", 2, "--no-generation", "--no-pictures", "--weights", "as-is", "--mode",
                  "decode", "--tasks", "none", "winnow", made["allocations"][1]["configuration"],
                  "winnow:coarse=5.2,k_coarse=turbo3", of_heads)  # the second as heads are measured
        rows = {row["name"]: row for row in work.results()["rows"]}
        expect(rows[of_heads]["kv_bytes"] <= 1.05 * rows["winnow"]["kv_bytes"], f"too many bytes: {rows[of_heads]}")


main()
