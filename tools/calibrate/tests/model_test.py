"""`winnow calibrate` on a small model and text: what it writes, and that a text which is too short is said to be so.

    model_test.py --winnow PROGRAM --plugin FILE --llama-cpp DIR --model FILE --text FILE --out DIR
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

WRITTEN = ["codebooks.bin", "network.json", "profile.csv", "profile.json", "profile.png", "profile.svg", "profile.txt"]


def parse():
    parser = argparse.ArgumentParser()
    for option in ("winnow", "plugin", "llama-cpp", "model", "text", "out"):
        parser.add_argument(f"--{option}", type=Path, required=True)
    return parser.parse_args()


def run(options, command, out, *arguments):
    """(exit status, all that it says)"""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("GGML_BACKEND_PATH", "WINNOW_LLAMA_CPP_BIN")}
    environment.setdefault("WINNOW_DEVICE", "Portable Computing Language")
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    given = [options.winnow, command, "--plugin", options.plugin, "--llama-cpp", options.llama_cpp, "--model",
             options.model, "--text", options.text, "--out", out, "--threads", 1, "--part", "all", "--weights", "as-is",
             *arguments]
    done = subprocess.run([str(word) for word in given], capture_output=True, text=True, env=environment,
                          stdin=subprocess.DEVNULL)
    print(f"$ {' '.join(map(str, given[1:]))}\n{done.stdout}{done.stderr}", flush=True)
    return done.returncode, done.stdout + done.stderr


def expect(condition, text):
    if not condition:
        raise SystemExit(f"FAILED: {text}")


def main():
    options = parse()
    status, said = run(options, "calibrate", options.out, "--context", 512, "--count", 5)
    expect(status == 0, f"exit status {status}")
    expect("codebooks leave out" in said, "it does not say what codebooks leave out")
    names = sorted(path.name for path in options.out.iterdir())
    expect(names == WRITTEN, f"it wrote {names}")
    expect(json.loads((options.out / "network.json").read_text())["winnow_network"] == 1, "no networks")
    with tempfile.TemporaryDirectory() as folder:
        short = Path(folder) / "short.txt"
        short.write_text(options.text.read_text()[:1500])
        options.text = short
        for arguments, words in ((("--context", 4096), "--context: the text has less than 8192 tokens"),
                                 (("--context", 64, "--count", 99), "contexts of 64 tokens, 99 were asked for")):
            status, said = run(options, "profile", Path(folder) / "out", *arguments)
            expect(status == 1 and words in said and "Traceback" not in said, f"it ended with {status}")


main()
