"""Greedy decoding of a model in ONNX: with past and present, in buffers of their own or shared, or without them; with
Winnow's provider or ORT's own kernels; and by onnxruntime-genai.

    decode.py MODEL [--prompt 1,2,3] [--new 32] [--shared] [--winnow LIBRARY --set kv=winnow --set device=0 ...]
    decode.py GENAI_FOLDER --genai [...]

prints the new tokens. A model without past and present needs --winnow.
"""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

import numpy as np

from winnowkv.onnxruntime import PROVIDER, register, session_options

NAME = "winnow"  # of the registration


def session(path, library=None, options=None, threads=0, arena=True):
    """An onnxruntime.InferenceSession. library: Winnow's provider, None for ORT's own kernels. options: its settings.
    threads: of ORT; 0: as many as there are cores."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.enable_cpu_mem_arena = arena
    settings.log_severity_level = 3  # a warning says that not all nodes are Winnow's
    if library is None:
        return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    register(NAME, str(library))
    settings = session_options(settings, **options or {})
    return onnxruntime.InferenceSession(path, settings, enable_fallback=0)  # no second try without Winnow


class Sequence:
    """Sequences of one length, as rows of a batch. Their cache is what the model hands back, or the provider's where
    the model has no past."""

    def __init__(self, session, shared=0, rows=1):
        """shared: tokens of one buffer that is past and present; 0: each call makes a present of its own."""
        from onnxruntime import OrtValue

        self.session, self.rows, self.length, self._make = session, rows, 0, OrtValue.ortvalue_from_numpy
        self._outputs = [output.name for output in session.get_outputs()]
        self._binding = session.io_binding() if shared else None
        self._past = {}
        for value in session.get_inputs():
            if value.name.startswith("past"):
                kind = np.float16 if value.type == "tensor(float16)" else np.float32
                self._past[value.name] = self._make(np.zeros((rows, value.shape[1], shared, value.shape[3]), kind))
        if shared and not self._past:
            raise ValueError("the model has no past that could be shared")
        for name, value in zip(self._outputs[1:], self._past.values()):
            if self._binding:
                self._binding.bind_ortvalue_output(name, value)

    def step(self, tokens):
        """Appends tokens, [rows, tokens]; returns logits, [rows, tokens, vocabulary], or of the last one alone where
        the model makes no others."""
        tokens = np.array(tokens, np.int64).reshape(self.rows, -1)
        self.length += tokens.shape[1]
        inputs = {"input_ids": self._make(tokens),
                  "attention_mask": self._make(np.ones((self.rows, self.length), np.int64)), **self._past}
        if not self._binding:
            logits, *present = self.session.run_with_ort_values(self._outputs, inputs)
            self._past = dict(zip(self._past, present))
            return logits.numpy()
        for name, value in inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        self._binding.bind_output(self._outputs[0])
        self.session.run_with_iobinding(self._binding)
        return self._binding.get_outputs()[-1].numpy()

    def prompt(self, tokens, chunk=0):
        """Logits of the last token, [rows, vocabulary]. chunk: the most tokens of a call; 0: all at once."""
        tokens = np.array(tokens, np.int64).reshape(self.rows, -1)
        size = chunk or tokens.shape[1]
        for begin in range(0, tokens.shape[1], size):
            logits = self.step(tokens[:, begin:begin + size])
        return logits[:, -1]


def greedy(sequence, prompt, new, chunk=0):
    """(new tokens of each row, seconds until the first, seconds of each later one)"""
    times = [time.perf_counter()]
    logits, tokens = sequence.prompt(prompt, chunk), []
    while True:
        tokens.append(logits.argmax(axis=-1))
        times.append(time.perf_counter())
        if len(tokens) == new:
            return np.stack(tokens, axis=1).tolist(), times[1] - times[0], np.diff(times[1:])
        logits = sequence.step(tokens[-1])[:, -1]


def genai(folder, prompt, new, library=None, options=None):
    """New tokens, by onnxruntime-genai. The providers are those of the folder's genai_config.json, unless options are
    given for Winnow's. With its library Winnow's provider is registered first."""
    import onnxruntime_genai

    if library is not None:
        onnxruntime_genai.register_execution_provider_library(NAME, os.path.abspath(library))
    config = onnxruntime_genai.Config(str(folder))
    if options is not None:
        config.clear_providers()
        config.append_provider(PROVIDER)
        for name, value in options.items():
            config.set_provider_option(PROVIDER, name, value)
    model = onnxruntime_genai.Model(config)
    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(max_length=len(prompt) + new, do_sample=False)
    generator = onnxruntime_genai.Generator(model, parameters)
    generator.append_tokens(np.array([prompt], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)[len(prompt):]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompt", default="1,2,3,4", help="tokens")
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--chunk", type=int, default=0, help="the most tokens of a call of the prompt")
    parser.add_argument("--threads", type=int, default=0, help="of ORT")
    parser.add_argument("--shared", action="store_true", help="one buffer as past and present")
    parser.add_argument("--genai", action="store_true", help="by onnxruntime-genai; MODEL is its folder")
    parser.add_argument("--winnow", metavar="LIBRARY", type=Path, help="Winnow's provider")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="an option of the provider")
    options = parser.parse_args()
    prompt = [int(token) for token in options.prompt.split(",")]
    settings = dict(each.split("=", 1) for each in options.set)
    if options.genai:
        print(*genai(options.model, prompt, options.new, options.winnow, settings if options.winnow else None))
        return
    made = session(str(options.model), options.winnow, settings, options.threads)
    shared = len(prompt) + options.new if options.shared else 0
    [tokens], first, later = greedy(Sequence(made, shared), prompt, options.new, options.chunk)
    print(*tokens)
    print(f"first {first:.3f} s, later {1e3 * np.median(later) if len(later) else 0:.2f} ms")


if __name__ == "__main__":
    main()
