"""Winnow: attention with a memory budget, as an OpenCL plugin.

    winnowkv.devices()             what Winnow can compute on
    winnowkv.llama_cpp.enable()    llama-cpp-python with its attention in Winnow (import winnowkv.llama_cpp)
    winnowkv.Context, Cache        Winnow's cache from Python
    winnowkv.Experts               what tokens are worth to it by the experts of a model
    winnowkv.get_library_path()    for hosts that open a backend by path, with get_include() for its header
    winnowkv.plugin_path()         for GGML_BACKEND_PATH

Importing the package loads no library and looks at no driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from winnowkv._files import get_include, get_library_path, plugin_path

if TYPE_CHECKING:
    from winnowkv.cache import Cache, Context, Error
    from winnowkv.experts import Experts

__all__ = ["Cache", "Context", "Device", "Error", "Experts",
           "devices", "get_include", "get_library_path", "plugin_path"]

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
    from winnowkv.cache import Library

    library = Library(get_library_path())
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
    """What takes time to import is imported when it is first used: what needs ctypes, and __version__."""
    if name == "__version__":
        from importlib.metadata import version

        return version("winnowkv")
    if name in ("Cache", "Context", "Error"):
        from winnowkv import cache

        return getattr(cache, name)
    if name == "Experts":
        from winnowkv.experts import Experts

        return Experts
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
