"""A backend's shared object and the functions of its tables."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from winnowkv import _abi, _files
from winnowkv.errors import InvalidArgument, error_of

VARIABLE = "WINNOW_BACKEND"
Function = Callable[..., int]


def functions_of(table: ctypes.Structure, arguments: dict[str, tuple[Any, ...]]) -> dict[str, Function]:
    """The functions of a table that the package calls. ctypes releases the GIL while one runs."""
    return {name: ctypes.CFUNCTYPE(c_int32, *types)(getattr(table, name)) for name, types in arguments.items()}


class Library:
    """A backend that is loaded."""

    def __init__(self, path: str) -> None:
        """Opens it. Raises OSError where it cannot be loaded, VersionMismatch where it has another version."""
        _files.set_driver()
        self._object = ctypes.CDLL(path)
        text, table = ctypes.create_string_buffer(4096), POINTER(_abi.Api)()
        host = _abi.HostInfo(min_version=_abi.VERSION, max_version=_abi.VERSION, host_name=b"Python")
        status = self._object.winnow_get_api(byref(host), byref(table), text, c_size_t(len(text)))
        if status != 0:
            raise error_of(status, text.value.decode(errors="replace"))
        self._table = table.contents
        self.name = (self._table.backend_name or b"").decode()
        self.version = (self._table.backend_version or b"").decode()
        self.functions = functions_of(self._table, _abi.ARGUMENTS)
        self.message: Callable[[c_void_p], bytes] = ctypes.CFUNCTYPE(c_char_p, c_void_p)(self._table.context_message)

    @functools.cached_property
    def cache_functions(self) -> dict[str, Function]:
        """Those of the cache's table. Raises Unimplemented where the backend has no caches."""
        table = c_void_p()
        self.ask("get_table", b"winnow_cache", _abi.CACHE_VERSION, byref(table))
        return functions_of(ctypes.cast(table, POINTER(_abi.CacheApi)).contents, _abi.CACHE_ARGUMENTS)

    def ask(self, name: str, *arguments: object) -> None:
        """Calls a function that takes a text for the reason of its failure. Raises Error with that reason."""
        text = ctypes.create_string_buffer(4096)
        status = self.functions[name](*arguments, text, len(text))
        if status != 0:
            raise error_of(status, text.value.decode(errors="replace"))

    def device_infos(self) -> list[_abi.DeviceInfo]:
        """What the backend tells of each device, in the order in which a number names one. Raises Error."""
        count = c_uint32()
        self.ask("device_count", byref(count))
        infos = [_abi.DeviceInfo() for _ in range(count.value)]
        for number, info in enumerate(infos):
            self.ask("device_info", number, byref(info))
        return infos

    def warnings(self, device: str) -> list[str]:
        """What the backend warns of while it makes a context on the device, as of a driver that it leaves out."""
        lines: list[str] = []

        def note(_: object, level: int, text: bytes) -> None:
            lines.append(text.decode(errors="replace"))

        handle = c_void_p()
        desc = _abi.ContextDesc(device=device.encode(), log=_abi.LOG(note))
        if self.functions["context_create"](byref(desc), byref(handle), None, 0) == 0:
            self.functions["context_destroy"](handle)
        return lines

    def row_bytes(self, type: str, elements: int) -> int:
        """Bytes of a row. Raises InvalidArgument."""
        size = c_uint64()
        self.ask("row_bytes", type_number(type), elements, byref(size))
        return size.value


@functools.cache
def load(path: str) -> Library:
    """The backend of a path, which stays loaded."""
    return Library(path)


def find(backend: str | os.PathLike[str] | None = None) -> Library:
    """A backend by its short name or path; None: what WINNOW_BACKEND says, else "opencl".

    Raises FileNotFoundError, OSError or VersionMismatch."""
    name = os.fspath(backend if backend is not None else os.environ.get(VARIABLE) or "opencl")
    return load(os.path.abspath(name) if os.sep in name else _files.get_library_path(name))


def type_number(name: str) -> int:
    """The number of a type or storage format. Raises InvalidArgument."""
    try:
        return _abi.TYPES[name]
    except (KeyError, TypeError):
        raise InvalidArgument(f"type is {name!r}, expected one of {', '.join(_abi.TYPES)}") from None


def dtype_number(name: str) -> int:
    """The number of an array's type, "float32" or "f32" and so on. Raises InvalidArgument."""
    numbers = {"float32": _abi.F32, "float16": _abi.F16, "bfloat16": _abi.BF16, "f32": _abi.F32, "f16": _abi.F16,
               "bf16": _abi.BF16}
    try:
        return numbers[name]
    except (KeyError, TypeError):
        raise InvalidArgument(f"dtype is {name!r}, expected one of {', '.join(numbers)}") from None


TYPE_NAMES = {number: name for name, number in _abi.TYPES.items()}
