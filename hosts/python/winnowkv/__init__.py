"""Winnow: attention with a memory budget, as an OpenCL plugin.

    winnowkv.devices()             what Winnow can compute on
    winnowkv.llama_cpp.enable()    llama-cpp-python with its attention in Winnow (import winnowkv.llama_cpp)
    winnowkv.sdpa()                attention over arrays of numpy, torch, jax, mlx and others; and operations on rows
    winnowkv.KvCache               Winnow's cache: steps, budgets, policies of your own
    winnowkv.Context               a device with its settings, where the default one does not suit
    winnowkv.Experts               what tokens are worth by the experts of a model
    winnowkv.transformers          a cache for models of transformers (import winnowkv.transformers)
    winnowkv.compare               what configurations lose on a text (import winnowkv.compare)
    winnowkv.onnxruntime           ONNX Runtime with its attention in Winnow (import winnowkv.onnxruntime)
    winnowkv.get_library_path()    for hosts that open a backend by path, with get_include() for its header
    winnowkv.plugin_path()         for GGML_BACKEND_PATH

Importing the package loads no library and looks at no driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from winnowkv._files import get_include, get_library_path, plugin_path

if TYPE_CHECKING:
    from winnowkv._cache_calls import Tokens
    from winnowkv._step import Entry
    from winnowkv.context import Context, ContextInfo, ContextStats, default_context, set_default_context
    from winnowkv.description import (CacheStats, Description, LayerShape, Segment, WantedResource, describe,
                                      estimate)
    from winnowkv.errors import (DeviceError, Error, FileError, InternalError, InvalidArgument, NotFound, OutOfMemory,
                                 Unimplemented, Unsupported, VersionMismatch, WouldWait)
    from winnowkv.experts import Experts
    from winnowkv.kv_cache import KvCache
    from winnowkv.operations import (Support, dequantize, hadamard, kv_append, quantize, requantize, sdpa, supports)
    from winnowkv.packed import Packed, row_bytes

# What is imported when it is first used, because that takes time, and from which module.
_MODULES = {
    "_step": ["Entry"],
    "context": ["Context", "ContextInfo", "ContextStats", "default_context", "set_default_context"],
    "description": ["CacheStats", "Description", "LayerShape", "Segment", "WantedResource", "describe", "estimate"],
    "errors": ["DeviceError", "Error", "FileError", "InternalError", "InvalidArgument", "NotFound", "OutOfMemory",
               "Unimplemented", "Unsupported", "VersionMismatch", "WouldWait"],
    "experts": ["Experts"],
    "_cache_calls": ["Tokens"],
    "kv_cache": ["KvCache"],
    "operations": ["Support", "dequantize", "hadamard", "kv_append", "quantize", "requantize", "sdpa", "supports"],
    "packed": ["Packed", "row_bytes"],
}
__all__ = [
    "CacheStats", "Context", "ContextInfo", "ContextStats", "Description", "Device", "DeviceError", "Entry",
    "Error", "Experts", "FileError", "InternalError", "InvalidArgument", "KvCache", "LayerShape", "NotFound",
    "OutOfMemory", "Packed", "Segment", "Support", "Tokens", "Unimplemented", "Unsupported", "VersionMismatch",
    "WantedResource", "WouldWait", "default_context", "dequantize", "describe", "devices", "estimate",
    "get_include", "get_library_path", "hadamard", "kv_append", "plugin_path", "quantize", "requantize",
    "row_bytes", "sdpa", "set_default_context", "supports",
]

NO_DEVICE = ("no OpenCL driver offers a device; install one: pip install winnowkv_pocl-<...>.whl (CPUs, without root; "
             "ci/driver_wheel makes it), or the system's package (Debian, Ubuntu: apt install pocl-opencl-icd for "
             "CPUs, or that of the GPU's vendor); `winnow doctor` tells more")
TYPES = {1: "cpu", 2: "gpu", 3: "accelerator"}


class Device(NamedTuple):
    """A device of an OpenCL driver. `number` is what Context(device=...) and WINNOW_DEVICE take, as text."""

    number: int
    name: str
    type: str  # "cpu", "gpu", "accelerator" or "unknown"
    platform: str
    driver_version: str
    memory_size: int  # bytes


def devices() -> list[Device]:
    """The devices that Winnow can compute on, in the order in which their numbers name them.

    Where there is none, the list is empty, and a RuntimeWarning says what to install; one also says which driver of
    WINNOW_DRIVER failed beside another that has devices. Loads the OpenCL drivers into this process. Raises
    FileNotFoundError without a backend, winnowkv.Error where drivers fail and none has a device."""
    import os
    import warnings

    from winnowkv import _driver
    from winnowkv import _library

    library = _library.load(get_library_path())
    infos = library.device_infos()
    if not infos:
        warnings.warn(NO_DEVICE, RuntimeWarning, stacklevel=2)
    elif os.pathsep in os.environ.get(_driver.VARIABLE, ""):
        for line in library.warnings("0"):
            warnings.warn(line, RuntimeWarning, stacklevel=2)

    def text(value: bytes) -> str:
        return value.decode(errors="replace")

    return [Device(number, text(info.name), TYPES.get(info.type, "unknown"), text(info.platform),
                   text(info.driver_version), info.memory_size) for number, info in enumerate(infos)]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("winnowkv")
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            found = globals()[name] = getattr(import_module(f"winnowkv.{module}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
