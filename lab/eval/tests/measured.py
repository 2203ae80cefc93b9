"""What the tests that measure share: `winnow eval` as a user starts it, on few tokens."""

import argparse
import json
import os
import subprocess
from pathlib import Path


def parser(description):
    made = argparse.ArgumentParser(description=description.split("\n")[0])
    for option in ("--winnow", "--plugin", "--llama-cpp", "--model", "--text"):
        made.add_argument(option, type=Path, required=True)
    made.add_argument("--task-model", type=Path, required=True, help="a model that understands what it is asked")
    made.add_argument("--all", action="store_true", help="all that otherwise a sample is taken of")
    return made


def expect(condition, text):
    if not condition:
        raise SystemExit(f"FAILED: {text}")


class Eval:
    """`winnow eval` with a model, a text, a host and a folder for results."""

    def __init__(self, options, out):
        self.options, self.out = options, Path(out)
        self.environment = {key: value for key, value in os.environ.items()
                            if key not in ("GGML_BACKEND_PATH", "WINNOW_LLAMA_CPP_BIN")}
        self.environment.setdefault("WINNOW_DEVICE", "Portable Computing Language")
        # Threads that wait busily for each other take many times as long where something else runs.
        self.environment.setdefault("OMP_WAIT_POLICY", "passive")

    def command(self, *arguments, **other):
        settings = {"model": self.options.model, "text": self.options.text, "llama-cpp": self.options.llama_cpp,
                    "plugin": self.options.plugin, "out": self.out} | other
        if settings["model"] is not None:
            settings["threads"] = 1  # two would wait for each other where another test runs beside this one
        given = [word for key, value in settings.items() if value is not None for word in (f"--{key}", value)]
        return [str(word) for word in (self.options.winnow, "eval", *given, *arguments)]

    def run(self, *arguments, environment=None, **other):
        """(status, stdout, stderr), which are also printed."""
        command = self.command(*arguments, **other)
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment | (environment or {}),
                              stdin=subprocess.DEVNULL)
        print(f"$ {' '.join(command[1:])}\n{done.stdout}{done.stderr}", flush=True)
        return done.returncode, done.stdout, done.stderr

    def good(self, *arguments, **other):
        """stdout of a call that has to succeed."""
        status, out, err = self.run(*arguments, **other)
        expect(status == 0, f"exit status {status}: {err}")
        return out

    def refused(self, words, *arguments, **other):
        """A call that has to fail with a message of these words, and without having measured anything."""
        status, _, err = self.run(*arguments, **other)
        expect(status == 1 and "Traceback" not in err, f"expected a refusal, got status {status}: {err}")
        for word in words:
            expect(word in err, f"the refusal does not say \"{word}\": {err}")
        expect(not self.runs("kld") and not self.runs("needle"), "something was measured before the refusal")

    def runs(self, kind):
        """{name: time of the last change} of the finished runs of a kind."""
        return {path.name: path.stat().st_mtime_ns for path in (self.out / "runs").glob(f"{kind}-*.json")}

    def results(self):
        return json.loads((self.out / "results.json").read_text())
