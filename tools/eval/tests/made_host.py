"""A made-up llama.cpp that answers at once, and notes what it was asked."""

import contextlib
import json
import re
import struct
from pathlib import Path

import made_log
from winnow_eval import Failure, perplexity
from winnow_eval.host import Host, Run

LAYERS = 2
CELLS = 4096
COUNT = 3
NLL, LN_RATIO = [3.9, 4.0, 3.7], [0.01, 0.03, 0.02]  # of the base; of all others against it
VOCABULARY = 99
STORED = {"k_bytes": 4 * CELLS, "v_bytes": 3 * CELLS, "dense_bytes": CELLS, "bytes": 10 * CELLS}  # of a policy's cache
BYTES = {"f16": 384, "q8_0": 204, "q4_0": 108}  # of 192 elements


def logits_bytes(context, count):
    """The size of llama-perplexity's file of logits: a head, the tokens, 16 bits a word and 8 bytes a row."""
    return 20 + 4 * context * count + 2 * count * (context - context // 2 - 1) * (VOCABULARY + 1 + 4)


class MadeHost(Host):
    """Answers as llama.cpp and the plugin would."""

    def __init__(self, folder):
        super().__init__(folder, folder / "plugin.so", folder / "model.gguf", batch=64, ubatch=32)
        self.asked = []
        self.fails = None  # the name of a configuration whose runs fail
        self.short_calls = 0  # attention calls that are missing
        self.policies = []  # that the plugin carries out
        self.in_place_calls = 0  # with a policy
        self.plugin_version = 1
        self.cut = 0  # bytes that are missing of the logits, as on a full disk

    def identity(self, config):
        return {"config": config.settings(), "plugin": self.plugin_version if config.backend == "winnow" else None}

    def run_program(self, program, arguments, config, on_output=None, batch=None):
        self.settings(program, config, batch)
        arguments = list(map(str, arguments))
        if program == "llama-completion":
            return self.complete(arguments, config)
        context = int(arguments[arguments.index("-c") + 1]) if "-c" in arguments else None
        if program == "llama-bench":
            self.asked.append(f"speed {config}")
            report = self.report(config, 1 + 2 * perplexity.GENERATED)
            return Run(json.dumps([{"avg_ts": 12.5}]), "", report, 1.0, 1)
        if "--kl-divergence" in arguments:
            self.asked.append(f"{config} {context}")
            contexts = COUNT
            assert Path(arguments[-4]).exists(), "no logits of the base"
            out = made_log.divergence(NLL, LN_RATIO, [0.004, 0.005, 0.006], [90.0, 91.0, 92.0])
        elif "--kl-divergence-base" in arguments:
            self.asked.append(f"base {context}")
            contexts = COUNT
            self.write_logits(Path(arguments[arguments.index("--kl-divergence-base") + 1]), context)
            out = made_log.base(NLL)
        else:
            self.asked.append(f"probe {config}")
            contexts = 1
            out = made_log.base(NLL[:1])
        if config.name == self.fails:
            raise Failure(f"made-up failure of {config}")
        calls = contexts * perplexity.micro_batches(self, context) - self.short_calls
        return Run(out, made_log.log(CELLS, LAYERS, config.k, config.v, BYTES[config.k], BYTES[config.v]),
                   self.report(config, calls), 1.0, 7 * 2**20)

    def write_logits(self, path, context):
        """A file with holes of the size that llama-perplexity's has."""
        path.write_bytes(struct.pack("=8sIii", b"_logits_", context, VOCABULARY, COUNT))
        with open(path, "r+b") as file:
            file.truncate(logits_bytes(context, COUNT) - self.cut)

    def complete(self, arguments, config):
        """llama-completion: every needle is found."""
        prompt = Path(arguments[arguments.index("-f") + 1]).read_text()
        tokens, generated = len(prompt) // 5, int(arguments[arguments.index("-n") + 1])
        if generated == 0:
            return Run("", f"number of tokens in prompt = {tokens}\n", None, 1.0, 1)
        self.asked.append(f"needle {config}")
        question = prompt[prompt.rindex("The pass number"):]
        calls = perplexity.micro_batches(self, tokens) + generated - 1
        times = f"prompt eval time = 10 ms / {tokens} tokens\n       eval time = 10 ms / {generated - 1} runs\n"
        return Run(re.search(re.escape(question) + r" (\d+)", prompt)[1], times, self.report(config, calls), 1.0, 1)

    def report(self, config, calls):
        if config.backend != "winnow":
            return None
        tensors = {f"cache_{name}_l{layer}": {"type": kind, "attention_calls": calls}
                   for layer in range(LAYERS) for name, kind in (("k", config.k), ("v", config.v))}
        made = {"device": "made up", "platform": "made up", "driver_version": "1", "attention_calls": LAYERS * calls,
                "sdpa_calls": LAYERS * calls, "tensors": tensors}
        if config.kv not in self.policies:
            return made
        caches = [{"steps": LAYERS * calls} | STORED]
        return made | {"kv": config.kv, "sdpa_calls": self.in_place_calls, "caches": caches}


class Progress:
    @contextlib.contextmanager
    def step(self, *_):
        yield lambda share: None
