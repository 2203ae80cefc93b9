"""llama-cpp-python with its attention in Winnow.

    from llama_cpp import Llama
    from winnowkv.llama_cpp import enable

    llm = Llama("model.gguf", n_ctx=8192, **enable("winnow"))

enable() loads libwinnow_ggml.so into the llama.cpp that llama-cpp-python has loaded, and says by which arguments a
model takes it. report() tells whether Winnow was called.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
from collections.abc import Iterator
from typing import Any

from winnowkv import _files

_LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_COMPLAINTS = (3, 4)  # GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR
_PREFIX = "winnow: "  # of what the plugin logs
_plugin: _Plugin | None = None


class Error(RuntimeError):
    """What the plugin refused, in its words."""


def enable(kv: str = "winnow", device: str | None = None) -> dict[str, Any]:
    """Lets each Llama that is made from now on keep its KV cache in Winnow.

    kv: the configuration of caches, as WINNOW_KV has it: policy, budget and formats, for example "winnow" (all tokens,
    at a quarter of f16's bytes) or "winnow:budget=1/4" (a quarter of the tokens); "" leaves caches in place, as
    llama.cpp stores them. device: an OpenCL device as WINNOW_DEVICE names it; by default that variable, else the first
    GPU, else a CPU.

    Returns the arguments by which a Llama takes Winnow, {"n_gpu_layers": -1, "flash_attn": True}: without them
    llama-cpp-python gives a model no device and turns flash attention off. Models themselves stay where they were.

    Called again with the same arguments it returns the same. A callback of llama_log_set stays; llama-cpp-python before
    0.3.17 needs it set again, because ggml does not tell it there. Raises Error with the plugin's message where it
    refuses the configuration, the device or this version of ggml, FileNotFoundError without a plugin, RuntimeError
    after a Llama was made, which runs without Winnow, and where other arguments were given before.
    """
    global _plugin
    if _plugin is None:
        _plugin = _load(device)
    elif _plugin.device != device or _plugin.kv not in (None, kv):
        raise RuntimeError(f"enable{_plugin.kv, _plugin.device} was called before, and this process keeps to it; "
                           f"expected the same arguments, not {(kv, device)}")
    if _plugin.kv is None:
        _plugin.set_kv(kv)
    return {"n_gpu_layers": -1, "flash_attn": True}


def report() -> dict[str, Any]:
    """What Winnow did in this process: the report that hosts/ggml/variables.md describes.

    "graphs", "attention_calls" and "caches" count every Llama that was closed (Llama.close()); "living" has the caches
    of those that are open, with "config", "bytes" and the "steps" that were computed. Not to be called while a Llama
    computes. Raises RuntimeError before enable().
    """
    if _plugin is None:
        raise RuntimeError("winnowkv.llama_cpp.enable() has to be called before report()")
    found: dict[str, Any] = json.loads(_plugin.text("winnow_ggml_report"))
    found["living"] = json.loads(_plugin.text("winnow_ggml_caches"))
    return found


class _Plugin:
    """The plugin that llama.cpp has loaded."""

    def __init__(self, ggml: ctypes.CDLL, registration: int, device: str | None) -> None:
        self._find = ggml.ggml_backend_reg_get_proc_address
        self._find.restype, self._find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
        self._registration = registration
        self.device = device
        self.kv: str | None = None  # until the plugin has accepted one

    def set_kv(self, kv: str) -> None:
        message = ctypes.create_string_buffer(4096)
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
        if function(self._find(self._registration, b"winnow_ggml_set_kv"))(kv.encode(), message, len(message)) != 0:
            raise Error(f"{kv}: {message.value.decode(errors='replace')}")
        self.kv = kv

    def text(self, name: str) -> str:
        """What a function of the plugin writes."""
        function = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)(
            self._find(self._registration, name.encode()))
        text = ctypes.create_string_buffer(function(None, 0) + 1)
        function(text, len(text))
        return text.value.decode(errors="replace")


def _load(device: str | None) -> _Plugin:
    llama_cpp: Any = importlib.import_module("llama_cpp")
    if getattr(llama_cpp.Llama, "_Llama__backend_initialized", False):
        raise RuntimeError("a Llama was made before enable(), and runs without Winnow; call enable() before the first")
    path = _files.plugin_path()
    _files.set_driver()
    before = os.environ.get("WINNOW_DEVICE")
    if device is not None:
        os.environ["WINNOW_DEVICE"] = device
    ggml = llama_cpp.llama_cpp._lib  # libllama, through which the functions of the libraries it needs are found
    ggml.ggml_backend_load.restype, ggml.ggml_backend_load.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    if ggml.ggml_backend_reg_count() == 0:  # llama.cpp loads its own backends only while there is none
        ggml.ggml_backend_load_all()
    try:
        with _log(ggml, llama_cpp) as lines:
            registration = ggml.ggml_backend_load(path.encode())
        if not registration:
            own = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
            raise Error((own or lines or [f"llama.cpp could not load {path}"])[-1])
        return _Plugin(ggml, registration, device)
    except BaseException:
        if device is not None:
            os.environ.pop("WINNOW_DEVICE") if before is None else os.environ.update(WINNOW_DEVICE=before)
        raise


@contextlib.contextmanager
def _log(ggml: ctypes.CDLL, llama_cpp: Any) -> Iterator[list[str]]:
    """Gathers what is logged as a warning or an error. Afterwards the callback before is there again, or that of
    llama-cpp-python where ggml does not tell (no ggml_log_get)."""
    lines: list[str] = []

    def note(level: int, text: bytes, _: object) -> None:
        if level in _COMPLAINTS and text.strip():
            lines.append(text.decode(errors="replace").strip())

    gather = _LOG_CALLBACK(note)
    before, user_data = _LOG_CALLBACK(), ctypes.c_void_p()
    if hasattr(ggml, "ggml_log_get"):
        ggml.ggml_log_get(ctypes.byref(before), ctypes.byref(user_data))
    else:
        before = llama_cpp._logger.llama_log_callback
    ggml.ggml_log_set(gather, None)
    try:
        yield lines
    finally:
        ggml.ggml_log_set(before, user_data)
