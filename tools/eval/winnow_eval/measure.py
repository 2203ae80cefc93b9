"""winnow-measure: one process with the model and the text in it, which runs one configuration after another."""

import contextlib
import functools
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from winnow_eval import Failure, store
from winnow_eval.host import Run, essence

PROGRAM = "winnow-measure"


@dataclass(frozen=True)
class Measured:
    """One configuration over one context, token by token."""

    nll: list  # -ln of the probability of the token that came, of each scored token
    kld: list  # KL divergence from the base; empty for the base itself
    same_top: list  # 1 where the most likely token is the base's, else 0; empty for the base itself
    run: Run  # the seconds are those of llama.cpp's batches alone


def find_program():
    """winnow-measure, beside `winnow`."""
    path = os.environ.get("WINNOW_EVAL_MEASURE", "")
    if not Path(path).is_file():
        raise Failure(f"no {PROGRAM} beside winnow; build Winnow with -DWINNOW_LLAMA_CPP_DIR=<source of llama.cpp>, "
                      "of which include/llama.h has to be there, or run ci/eval, which does")
    return path


@functools.cache
def identity():
    """Of the program that makes the numbers."""
    return store.sha256_of(find_program())


class Measure:
    """The process; use as a context manager. `tokens`, `contexts` and `vocabulary` say what the text has."""

    def __init__(self, host, model, text, context, first_scored):
        self.host = host
        self.command = [find_program(), "--llama-cpp", host.programs, "--plugin", host.plugin, "--model", model,
                        "--text", text, "--context", context, "--from", first_scored,
                        "--batch", min(host.batch, context), "--ubatch", min(host.ubatch, host.batch, context),
                        "--threads", host.threads]
        self.process = self.errors = None

    def __enter__(self):
        environment = dict(self.host.environment)
        if self.host.device:
            environment["WINNOW_DEVICE"] = self.host.device
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        try:
            self.process = subprocess.Popen([str(part) for part in self.command], env=environment, text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
            found = self._answer()
        except BaseException:
            self.__exit__()
            raise
        self.tokens, self.contexts, self.vocabulary = (found[key] for key in ("tokens", "contexts", "vocabulary"))
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):  # of what was not read any more
                self.process.stdin.close()
            self.process.stdout.close()
        self.errors.close()

    def _log(self):
        self.errors.seek(0)
        return self.errors.read()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line.endswith("\n"):  # it ended, perhaps within a line
            raise Failure(self._complaint(self.process.wait()))
        return json.loads(line)

    def _complaint(self, status):
        said = self._log()
        if "failed to load model" in said or "error loading model" in said:
            return f"llama.cpp cannot load {self.host.model}; it said:\n{essence(said)}"
        text = f"{PROGRAM} ended with status {status}:\n{essence(said)}"
        if "does not take" in said:
            text += (f"\nis {self.host.plugin} built for this version of llama.cpp, and does the device "
                     f"\"{self.host.device or 'default'}\" exist? `winnow info` lists devices")
        return text

    def run(self, config, context, base=False, decode_from=None):
        """A configuration over context number `context` of the text. base: what follows is compared with it.

        decode_from: the position from which on a policy's cache takes tokens one at a time.
        """
        environment = dict(config.environment)
        if not config.rotate:
            environment["LLAMA_ATTN_ROT_DISABLE"] = "1"
        if decode_from is not None:
            environment["WINNOW_DECODE_FROM"] = str(decode_from)
        request = {"context": context, "base": base,
                   "configuration": {"backend": config.backend, "k": config.k, "v": config.v, "kv": config.kv,
                                     "environment": environment}}
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure(self._complaint(self.process.wait())) from None
        answer = self._answer()
        if "error" in answer:
            more = f"\n{essence(self._log())}" if answer["error"].startswith("llama") else ""  # whose log says why
            raise Failure(f"{config}: {answer['error']}{more}")
        report = answer["report"]
        if config.backend != "winnow":
            if report["attention_calls"] or report["sdpa_calls"]:
                raise Failure(f"{config}: {report['attention_calls']} attentions were Winnow's, expected none")
            report = None
        return Measured(answer["nll"], answer["kld"], answer["same_top"],
                        Run("", answer["log"], report, answer["seconds"], 0))
