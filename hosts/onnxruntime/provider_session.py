"""Sessions with the plugin for ONNX Runtime and without it, for provider_test.py, whose arguments are read here."""

import copy
import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from attention_models import POSITIONS, make_model

LIBRARY, BACKEND, EXTENT = [*sys.argv[1:4], "all"][:3]
del sys.argv[1:4]
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
os.environ["WINNOW_PATH"] = str(Path(LIBRARY).parent)
import winnowkv.onnxruntime  # noqa: E402  once its folder is known

FOLDER, NUMBERS = tempfile.TemporaryDirectory(), itertools.count()
EXACT = "none:k=f32,v=f32"
onnxruntime.set_default_logger_severity(4)  # refusals are what is tested


def options(**provider):
    """Of a session with the plugin."""
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = 1
    made.log_severity_level = 4
    return winnowkv.onnxruntime.session_options(
        made, **{"kv": EXACT, "backend": BACKEND, "max_tokens": POSITIONS} | provider)


def make_session(model, settings, **named):
    """Without the second try on the CPU's kernels that onnxruntime makes where a provider is refused."""
    return onnxruntime.InferenceSession(model, settings, enable_fallback=0, **named)


def logged(call, severity=2):
    """What the runtime writes to stderr while call(severity) runs."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            call(severity)
        finally:
            os.dup2(before, 2)
            os.close(before)
        file.seek(0)
        return file.read().decode()


class Host:
    """A loop over a session: counts tokens by row, and hands present on as past."""

    def __init__(self, shape, session):
        self.shape, self.session = shape, session
        self.lengths, self.past = [], {}

    def run(self, rows, lengths, total=None, run_options=None):
        """The outputs of all layers. rows: queries, keys, values; lengths: of the rows of the batch after the Run."""
        batch, tokens = rows["q0"].shape[:2]
        total = max(lengths) if total is None else total
        feeds = {**rows, "seqlens_k": (np.array(lengths) - 1).astype(np.int32), "total": np.array(total, np.int32)}
        if self.shape.position_ids:
            feeds["position_ids"] = np.array([[length - tokens + i for i in range(tokens)] for length in lengths])
            if total == tokens:
                feeds["position_ids"][:] = np.arange(tokens)
        if self.shape.bias:
            feeds["bias"] = np.zeros((1, 1, tokens, total), self.shape.number)
        if self.shape.past:
            for layer, (_, kv_heads, size) in enumerate(self.shape.layers):
                for letter in "kv":
                    empty = np.zeros((batch, kv_heads, 0, size), self.shape.number)
                    past = self.past.get(f"present_{letter}{layer}", empty)
                    feeds[f"past_{letter}{layer}"] = past[:, :, :total - tokens]
        names = [output.name for output in self.session.get_outputs()]
        made = dict(zip(names, self.session.run(names, feeds, run_options)))
        self.past = {name: made[name] for name in names if name.startswith("present")}
        self.lengths = list(lengths)
        return [made[f"o{layer}"] for layer in range(len(self.shape.layers))]

    def prompt(self, rows, lengths, run_options=None):
        self.past = {}
        return self.run(rows, lengths, total=rows["q0"].shape[1], run_options=run_options)


class Session:
    """The plugin's session, with its report at the end."""

    def __init__(self, shape, severity=4, **provider):
        self.path = Path(FOLDER.name) / f"report_{next(NUMBERS)}.json"
        settings = options(report=self.path, **provider)
        settings.log_severity_level = severity
        self.session = make_session(make_model(shape), settings)
        self.host = Host(shape, self.session)

    def report(self):
        self.session = self.host.session = None
        return json.loads(self.path.read_text())


def anew():
    made = onnxruntime.RunOptions()
    made.add_run_config_entry("winnow.reset", "1")
    return made


def reference(shape):
    """A loop over a session of the runtime's own kernels. Those of 1.23 see a token more than the window has."""
    if shape.attributes.get("local_window_size") and onnxruntime.__version__.startswith("1.23."):
        shape = copy.copy(shape)
        shape.attributes = shape.attributes | {"local_window_size": shape.attributes["local_window_size"] - 1}
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = 1
    return Host(shape, make_session(make_model(shape), made, providers=["CPUExecutionProvider"]))
