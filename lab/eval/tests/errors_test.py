"""What cannot be measured is refused with a reason before anything runs, and an interruption loses only one run."""

import signal
import subprocess
import tempfile
import time
from pathlib import Path

import made_model
import measured
from measured import expect

SIZES = ("--contexts", "128", "--count", 4, "--mode", "batch", "--tasks", "none", "--no-generation", "--weights",
         "as-is")
CONFIGURATIONS = ("cpu:k=q4_0,v=q4_0", "inplace:k=q8_0,v=q8_0")
POLICY = "h2o:budet=1/4"


def refusals(work, folder):
    options = work.options
    work.refused(["q9", "q8_0"], *SIZES, "cpu:k=q9")
    work.refused(["nothing", "there are"], *SIZES, "cpu:nothing=1")
    work.refused(["same settings"], *SIZES, "cpu:k=q8_0", "cpu:v=f16,k=q8_0")
    work.refused([POLICY, 'no key "budet"'], *SIZES, CONFIGURATIONS[0], POLICY)
    work.refused(["nonesuch.toml"], *SIZES, "--configs", folder / "nonesuch.toml")

    work.refused(["no file", "nonesuch.gguf"], *SIZES, model=folder / "nonesuch.gguf")
    work.refused(["not a GGUF file"], *SIZES, model=options.text)
    damaged = folder / "damaged.gguf"
    with open(options.model, "rb") as model:
        damaged.write_bytes(model.read(6_000_000))
    work.refused(["cannot load", "damaged.gguf"], *SIZES, model=damaged)
    strange = folder / "strange.gguf"
    made_model.write(strange, "nonesuch", ["a", "b"])  # well made, and of an architecture that nobody has
    work.refused(["cannot load", "nonesuch"], *SIZES, model=strange)

    work.refused(["2 contexts of 2048 tokens", "4 were asked for"], *SIZES, "--contexts", "512,2048")
    short = folder / "short.txt"
    short.write_text("Too short.")
    work.refused(["0 contexts of 128 tokens"], *SIZES, text=short)
    work.refused(["--count", "scored"], "--contexts", 64, "--count", 2, *SIZES[6:])
    work.refused(["--mode", "prompt", "batch, decode"], *SIZES, "--mode", "batch,prompt")
    work.refused(["--contexts", "512,x"], *SIZES, "--contexts", "512,x")
    work.refused(["--part", "third"], *SIZES, "--part", "third")
    work.refused(["--ubatch"], *SIZES, "--batch", 64, "--ubatch", 128)

    work.refused(["llama-completion", "ci/eval"], *SIZES, environment={"PATH": "/usr/bin:/bin"}, **{"llama-cpp": None})
    work.refused(["--llama-cpp", "llama-completion"], *SIZES, **{"llama-cpp": folder})
    work.refused(["--plugin", "nonesuch.so"], *SIZES, plugin=folder / "nonesuch.so")
    work.refused(["nonesuch device", "winnow info"], *SIZES, "--device", "nonesuch device")
    work.refused(["--from", "results.json"], model=None, text=None, **{"from": folder})


def interruption(work):
    """SIGINT after the first finished run; then the same again."""
    command = work.command(*SIZES, *CONFIGURATIONS)
    process = subprocess.Popen(command, env=work.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    while not work.runs("kld") and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    print(f"interrupted: {err}", flush=True)
    expect(process.returncode == 130 and "kept" in err, f"status {process.returncode} after an interruption: {err}")
    expect(not (work.out / "results.json").exists(), "there are results though it was interrupted")
    before = work.runs("kld")
    expect(1 <= len(before) < 12, f"{len(before)} of 12 runs were finished, so nothing was interrupted")
    out = work.good(*SIZES, "--no-pictures", *CONFIGURATIONS)
    expect(f"{len(before)} finished run" in out, "nothing is said of what was kept")
    expect(before.items() <= work.runs("kld").items(), "a finished run was made again")
    expect([row["name"] for row in work.results()["rows"]] == ["cpu:k=f16,v=f16", *CONFIGURATIONS], "rows are missing")


def main():
    options = measured.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        refusals(measured.Eval(options, Path(folder) / "refused"), Path(folder))
        interruption(measured.Eval(options, Path(folder) / "interrupted"))


main()
