"""winnow-measure: one process with the model and the text in it, which runs one configuration after another."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from winnow_calibrate import storage
from winnow_calibrate.host import Run, essence
from winnow_eval import Failure
from winnow_eval.child_process import ChildProcess

PROGRAM = "winnow-measure"


@dataclass(frozen=True)
class Measured:
    """One configuration over one context, token by token."""

    nll: list  # -ln of the probability of the token that came, of each scored token
    kld: list  # KL divergence from the base; empty for the base itself
    same_top: list  # 1 where the most likely token is the base's, else 0; empty for the base itself
    run: Run  # the seconds are those of llama.cpp's batches alone


@dataclass(frozen=True)
class Answered:
    """What a configuration answered."""

    texts: list  # of each turn
    prompt_tokens: int  # of the first
    question: int  # position of the first token of its question
    evaluated: int  # tokens, of prompts and answers
    found: list  # of each text that was to be found, the positions of its tokens
    micro_batches: int
    run: Run


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
    return storage.sha256_of(find_program())


class Measure(ChildProcess):
    """The process; use as a context manager. `vocabulary` says how many tokens the model knows, `trained_context` on
    how long contexts it was trained, `no_chat` why it cannot be asked in a chat template, or ""."""

    def __init__(self, host, model):
        self.host, self.model = host, model
        command = [find_program(), "--llama-cpp", host.programs, "--plugin", host.plugin, "--model", model,
                   "--batch", host.batch, "--ubatch", min(host.ubatch, host.batch), "--threads", host.threads]
        super().__init__(command, host.environment | ({"WINNOW_DEVICE": host.device} if host.device else {}))

    def __enter__(self):
        super().__enter__()
        self.vocabulary, self.trained_context, self.no_chat = (
            self.first[key] for key in ("vocabulary", "trained_context", "no_chat"))
        return self

    def read(self, text, context, first_scored, first_alone=None):
        """Takes a text to compare on, in contexts of so many tokens; gives how many tokens it has.

        first_alone: the position from which on llama.cpp gets each token in a batch of its own, as it does when it
        generates; None: batches are whole.
        """
        return self._request(f"{text}", {"text": str(text), "context": context, "from": first_scored,
                                         "alone_from": first_alone})["tokens"]

    def let_go(self):
        """Of the text, and of the memory that the base's logits take."""
        self._request("the text", {"text": None})

    def failure(self, said, status):
        if "failed to load model" in said or "error loading model" in said:
            return Failure(f"llama.cpp cannot load {self.host.model}; it said:\n{essence(said)}")
        text = f"{PROGRAM} ended with status {status}:\n{essence(said)}"
        if "does not take" in said:
            text += (f"\nis {self.host.plugin} built for this version of llama.cpp, and does the device "
                     f"\"{self.host.device or 'default'}\" exist? `winnow info` lists devices")
        return Failure(text)

    def _request(self, about, request):
        """The answer to a request; a Failure says what it was about."""
        answer = self.ask(request)
        if "error" in answer:
            more = f"\n{essence(self.log())}" if answer["error"].startswith("llama") else ""  # whose log says why
            raise Failure(f"{about}: {answer['error']}{more}")
        return answer

    def _run(self, config, request, environment=()):
        """(answer, Run) of a configuration."""
        environment = dict(config.environment) | dict(environment)
        if not config.rotate:
            environment["LLAMA_ATTN_ROT_DISABLE"] = "1"
        answer = self._request(config, request | {"configuration": {
            "backend": config.backend, "k": config.k, "v": config.v, "kv": config.kv, "environment": environment}})
        report = answer["report"]
        if config.backend != "winnow":
            if report["attention_calls"] or report["sdpa_calls"]:
                raise Failure(f"{config}: {report['attention_calls']} attentions were Winnow's, expected none")
            report = None
        return answer, Run("", answer["log"], report, answer["seconds"], 0)

    def run(self, config, context, base=False, decode_from=None):
        """A configuration over context number `context` of the text. base: what follows is compared with it.

        decode_from: the position from which on a policy's cache takes tokens one at a time.
        """
        environment = {} if decode_from is None else {"WINNOW_DECODE_FROM": str(decode_from)}
        answer, run = self._run(config, {"context": context, "base": base}, environment)
        return Measured(answer["nll"], answer["kld"], answer["same_top"], run)

    def answer(self, config, dialogue):
        """What a configuration answers in a dialogue (winnow-measure --help)."""
        answer, run = self._run(config, {"dialogue": dialogue})
        return Answered(run=run, **{key: answer[key] for key in ("texts", "prompt_tokens", "question", "evaluated",
                                                                 "found", "micro_batches")})

    def count_tokens(self, text):
        """How many tokens a text has, with those that a model wants around it."""
        return self._request("a text", {"count": text})["tokens"]


class Process:
    """A Measure with the host's model, started when it is first needed; use as a context manager."""

    def __init__(self, host):
        self.host, self.process = host, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.__exit__()
            self.process = None

    def get(self):
        if self.process is None:
            self.process = Measure(self.host, self.host.model).__enter__()
        return self.process
