"""ONNX Runtime with its attention in Winnow.

    import onnxruntime
    from winnowkv.onnxruntime import session_options

    session = onnxruntime.InferenceSession("model.onnx", session_options(kv="winnow:budget=1/4"))

Other hosts of ONNX Runtime, as onnxruntime-genai, register get_library_path() themselves. Nothing of ONNX Runtime is in
this package; it has to be 1.23 or later. hosts/onnxruntime/README.md says what is computed, and which options there
are.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from winnowkv import _files

PROVIDER = "WinnowExecutionProvider"


def get_library_path() -> str:
    """libwinnow_onnxruntime.so, for ONNX Runtime's register_execution_provider_library.

    Raises FileNotFoundError, which says where it was looked for."""
    return _files._find("plugin", "libwinnow_onnxruntime.so", "lib")


def register(name: str = "winnow", library: str | None = None) -> None:
    """Lets ONNX Runtime in this process load the plugin, under this name; once is enough. library: another file than
    get_library_path().

    Raises ImportError without onnxruntime or with one that is too old, FileNotFoundError without a plugin, and what
    ONNX Runtime raises where it refuses the plugin."""
    runtime: Any = importlib.import_module("onnxruntime")
    if not hasattr(runtime, "register_execution_provider_library"):
        raise ImportError(f"this is ONNX Runtime {runtime.__version__}, expected 1.23 or later, which takes execution "
                          "providers from libraries")
    if not _devices(runtime):
        _files.set_driver()
        # ONNX Runtime looks for a relative path in its own folder.
        runtime.register_execution_provider_library(name, os.path.abspath(library or get_library_path()))


def session_options(base: Any = None, **options: str | int) -> Any:
    """SessionOptions by which a session has its attention in Winnow: `base`, or new ones.

    options: those of the provider, kv, device, backend, report, max_tokens, max_batch and pressure. Registers the
    plugin if that was not done. Raises as register(); an option is refused where the session is made."""
    register()
    runtime: Any = importlib.import_module("onnxruntime")
    made = runtime.SessionOptions() if base is None else base
    made.add_provider_for_devices(_devices(runtime), {name: str(value) for name, value in options.items()})
    return made


def _devices(runtime: Any) -> list[Any]:
    return [device for device in runtime.get_ep_devices() if device.ep_name == PROVIDER]
