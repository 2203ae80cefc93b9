"""A made-up llama.cpp that answers at once, and notes what it was asked."""

import json
import re
from pathlib import Path

import made_log
from winnow_eval import Failure, divergence
from winnow_calibrate.host import Host, Run, micro_batches
from winnow_eval.measure import Answered, Measured

LAYERS = 2
CELLS = 4096
COUNT = 3
NLL, LN_RATIO = [3.9, 4.0, 3.7], [0.01, 0.03, 0.02]  # of the base's contexts; of all others against it
KLD, SAME_TOP = [0.004, 0.005, 0.006], [90.0, 91.0, 92.0]
TOKENS = 10**6  # of the text
VOCABULARY = 99
TRAINED = 300  # tokens of a context
PROFILE = "profile.txt"  # in the folder of a made-up host, which policies read
STORED = {"k_bytes": 4 * CELLS, "v_bytes": 3 * CELLS, "dense_bytes": CELLS, "signature_bytes": 0,
          "bytes": 10 * CELLS}  # of a policy's cache
BYTES = {"f16": 384, "q8_0": 204, "q4_0": 108}  # of 192 elements


class MadeHost(Host):
    """Answers as llama.cpp and the plugin would."""

    def __init__(self, folder):
        super().__init__(folder, folder / "plugin.so", folder / "model.gguf", batch=64, ubatch=32)
        self.asked = []
        self.models = []  # what was asked of which file
        self.started = []  # the files of which a process was made
        self.fails = None  # the name of a configuration whose runs fail
        self.fails_at = 0  # in this context and later ones
        self.short_calls = 0  # attention calls that are missing
        self.policies = []  # that the plugin carries out
        self.profile = folder / PROFILE  # which they read if it is there
        self.in_place_calls = 0  # with a policy
        self.ignores_decoding = False
        self.plugin_version = 1
        self.kld = {}  # {name of a configuration: divergence of each context}, where it is not KLD
        self.takes = {}  # {name of a configuration: the fewest and the most tokens of a context that it takes}

    def identity(self, config):
        return {"config": config.settings(), "plugin": self.plugin_version if config.backend == "winnow" else None}

    def run_program(self, program, arguments, config, on_output=None, batch=None):
        self.settings(program, config, batch)
        assert program == "llama-bench", program
        self.asked.append(f"speed {config}")
        report = self.report(config, 1 + 2 * divergence.GENERATED)
        return Run(json.dumps([{"avg_ts": 12.5}]), "", report, 1.0, 1)

    def report(self, config, calls, decoded=0):
        if config.backend != "winnow":
            return None
        tensors = {f"cache_{name}_l{layer}": {"type": kind, "attention_calls": calls}
                   for layer in range(LAYERS) for name, kind in (("k", config.k), ("v", config.v))}
        made = {"device": "made up", "platform": "made up", "driver_version": "1", "attention_calls": LAYERS * calls,
                "sdpa_calls": LAYERS * calls, "tensors": tensors, "caches": []}
        if config.kv not in self.policies:
            return made
        caches = [{"name": "cache_k_l0", "device": "made up", "family": f"a family of {config.kv}",
                   "steps": LAYERS * calls, "decoded": decoded,
                   "profile_file": str(self.profile) if self.profile.exists() else ""} | STORED]
        return made | {"kv": config.kv, "sdpa_calls": self.in_place_calls, "caches": caches}


class MadeMeasure:
    """winnow-measure with a made-up host."""

    vocabulary, trained_context, no_chat = VOCABULARY, TRAINED, ""

    def __init__(self, host, model):
        self.host, self.model, self.context, self.base = host, Path(model), None, None
        host.started.append(self.model.name)

    def read(self, text, context, first_scored):
        self.context, self.first_scored, self.base = context, first_scored, None
        return TOKENS

    def let_go(self):
        self.context = self.base = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, config, context, base=False, decode_from=None):
        host, tokens = self.host, self.context - self.first_scored - 1
        decoded = "" if decode_from is None else f" from {decode_from}"
        host.asked.append(f"base {self.context} {context}" if base else f"{config} {self.context} {context}{decoded}")
        host.models.append(("base" if base else "row", self.model.name))
        if config.name == host.fails and context >= host.fails_at:
            raise Failure(f"made-up failure of {config}")
        if base:
            self.base = context
        assert self.base == context, "no base of this context"
        calls = micro_batches(host, self.context) - host.short_calls
        taken = 0 if decode_from is None or host.ignores_decoding else self.context - decode_from
        run = Run("", made_log.of_cache(CELLS, LAYERS, config.k, config.v, BYTES[config.k], BYTES[config.v]),
                  host.report(config, calls, taken), 2.0, 1)
        nll = NLL[context % COUNT] + (0 if base else LN_RATIO[context % COUNT])
        kld = host.kld.get(config.name, KLD)
        same = round(SAME_TOP[context % COUNT] * tokens / 100)
        return Measured([nll] * tokens, [] if base else [kld[context % len(kld)]] * tokens,
                        [] if base else [1] * same + [0] * (tokens - same), run)

    def count_tokens(self, text):
        return len(text) // 5

    def probe(self, config, cells):
        host = self.host
        host.asked.append(f"probe {config} {cells}")
        host.models.append(("probe", self.model.name))
        least, most = host.takes.get(config.name, (cells, cells))
        if not least <= cells <= most:
            raise Failure(f"{config}: made for {least} to {most} tokens")
        run = Run("", made_log.of_cache(cells, LAYERS, config.k, config.v, BYTES[config.k], BYTES[config.v]),
                  host.report(config, 2 - host.short_calls), 1.0, 1)
        return Answered([" boat"], 31, 30, 32, [], 2, run)

    def answer(self, config, dialogue):
        """Every needle is found."""
        if dialogue["turns"] == divergence.PROBE["turns"]:
            return self.probe(config, dialogue["cells"])
        self.host.asked.append(f"needle {config}")
        self.host.models.append(("needle", self.model.name))
        turn, = dialogue["turns"]
        text = re.search(re.escape(turn["question"].strip()) + r" (\d+)", turn["text"])[1]
        tokens = len(turn["text"]) // 5
        return Answered([text], tokens, tokens, tokens, [], 7, Run("", "", self.host.report(config, 7), 1.0, 1))
