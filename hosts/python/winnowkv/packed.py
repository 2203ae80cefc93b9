"""Rows in a storage format, in memory of a device."""

from __future__ import annotations

import ctypes
import itertools
import math
import weakref
from collections.abc import Callable
from ctypes import byref, c_char, c_void_p
from typing import Any

from winnowkv import _abi, _arrays
from winnowkv._dlpack import View
from winnowkv._arrays import whole
from winnowkv.context import Context, Owner, default_context, default_library
from winnowkv.errors import InvalidArgument


_numbers = itertools.count()


class NoBuffer:
    """In the place of memory, for a question whether an operation is supported."""

    handle = 0

    def __init__(self, context: Context, size: int) -> None:
        self.context, self.size, self.number = context, size, next(_numbers)


class Buffer:
    """Zeroed memory of a context's device."""

    def __init__(self, context: Context, size: int) -> None:
        core = context._core
        handle = c_void_p()
        with core:
            desc = _abi.BufferDesc(kind=_abi.BUFFER_ALLOCATE, size=size)
            core.check(core.functions["buffer_create"](core.open(), byref(desc), byref(handle)))
            self.handle = core.own(handle, core.functions["buffer_destroy"])
        self.context, self.size, self.number = context, size, next(_numbers)
        weakref.finalize(self, core.dispose, self.handle)


class Packed(Owner):
    """Rows of K or V in a storage format: [batch, heads, rows, size] or [heads, rows, size].

    `quantize` makes one of an array; Packed(shape, type) is one of zeros, to which `kv_append` stores rows.
    `sdpa` takes it as k or v. It lies in memory of its context's device."""

    def __init__(self, shape: tuple[int, ...], type: str, *, context: Context | None = None,
                 _buffer: Callable[[Context, int], Buffer | NoBuffer] | None = None) -> None:
        """shape: in elements. type: a name of docs/formats.md, "q8_0", or a dense one, "f16". Raises InvalidArgument,
        also where the last axis is no multiple of the format's block, and OutOfMemory."""
        shape = tuple(whole(length, f"shape[{axis}]", 1, (1 << 31) - 1) for axis, length in enumerate(shape))
        if len(shape) not in (3, 4):
            raise InvalidArgument(f"shape is {list(shape)}, expected [batch, heads, rows, size] or [heads, rows, size]")
        context = context or default_context()
        self.type, self.shape = type, shape
        self.row_bytes = context._core.library.row_bytes(type, shape[-1])
        self._number = _abi.TYPES[type]
        strides = [self.row_bytes, _abi.SIZES.get(self._number, 0)]
        for length in reversed(shape[1:-1]):
            strides.insert(0, strides[0] * length)
        self._strides = tuple(strides)
        size = whole(strides[0] * shape[0], "the size in bytes", 1)
        self._buffer = (_buffer or Buffer)(context, size)
        self._library: _arrays.Arrays | None = None  # of what `dequantize` makes; None: numpy if it is installed

    @property
    def context(self) -> Context:
        return self._buffer.context

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.row_bytes * math.prod(self.shape[:-1])

    def first(self, rows: int) -> Packed:
        """The first rows of each head, in the same memory: attention over a cache that is not full yet."""
        rows = whole(rows, "rows", 1, self.shape[-2])
        view = Packed.__new__(Packed)
        view.__dict__.update(self.__dict__, shape=(*self.shape[:-2], rows, self.shape[-1]))
        return view

    def to_bytes(self) -> bytes:
        """The rows as they lie in memory, docs/formats.md. Raises Error."""
        memory = (c_char * self._whole("to_bytes"))()
        self._pass("buffer_read", memory)
        return memory.raw

    def from_bytes(self, data: bytes) -> None:
        """Takes what to_bytes gave of rows of the same shape and type. Raises InvalidArgument."""
        size = self._whole("from_bytes")
        if len(data) != size:
            raise InvalidArgument(f"data has {len(data)} bytes, expected {size}")
        self._pass("buffer_write", (c_char * size).from_buffer_copy(data))

    def __repr__(self) -> str:
        return f"<Packed {list(self.shape)} in {self.type}, {self.nbytes} bytes>"

    def _whole(self, call: str) -> int:
        if self.nbytes != self._buffer.size:
            raise InvalidArgument(f"{call} takes all rows, and these are the first ones of others")
        return self._buffer.size

    def _pass(self, name: str, memory: ctypes.Array[c_char]) -> None:
        core = self.context._core
        with core:
            core.open()
            core.check(core.functions[name](self._buffer.handle, 0, memory, len(memory)))

    def _view(self) -> View:
        return View(self._number, self.type, 0, self.shape, self._strides, True, None, self._buffer.handle)


class _PackedArrays(_arrays.Arrays):
    """How a Slot sees Packed rows."""

    def __init__(self) -> None:
        self.key = lambda rows: (rows._buffer.number, rows._number, rows.shape, rows._strides)

    def address_of(self, array: Packed) -> Callable[[Packed], int]:
        return lambda rows: 0

    def view(self, array: Packed) -> View:
        return array._view()


_arrays._known[Packed] = _PackedArrays()


def row_bytes(type: str, elements: int) -> int:
    """Bytes of a row of so many elements in a storage format. It needs no device. Raises InvalidArgument."""
    return default_library().row_bytes(type, whole(elements, "elements", 1))
