"""Where the memory of an object lies: by DLPack, or by the buffer protocol. Nothing is copied."""

from __future__ import annotations

import ctypes
import sys
from ctypes import (POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p, py_object)
from typing import Any, NamedTuple

from winnowkv import _abi
from winnowkv.errors import InvalidArgument

HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
DEVICE_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed", 14: "oneapi"}
TYPE_CODES = {(2, 32): _abi.F32, (2, 16): _abi.F16, (4, 16): _abi.BF16, (0, 32): _abi.I32, (0, 64): _abi.I64,
              (6, 8): _abi.BOOL}  # of kDLInt 0, kDLFloat 2, kDLBfloat 4, kDLBool 6
CODE_NAMES = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}
FORMATS = {"f": _abi.F32, "e": _abi.F16, "i": _abi.I32, "l": _abi.I64, "q": _abi.I64, "?": _abi.BOOL}
READ_ONLY, IS_COPIED = 1, 2
FULL_READ_ONLY = 0x11C  # PyBUF_FULL_RO


class View(NamedTuple):
    """Memory as a tensor sees it, with as many axes as the object has."""

    type: int | None  # WINNOW_TYPE_*; None: `kind` is none of them
    kind: str  # as its library says it
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    is_writable: bool
    keep: object = None  # what has to live as long as the memory is used
    buffer: int | None = None  # a winnow_buffer, in whose memory the rest lies


class OnDevice(Exception):
    """The memory is on a device, which is named."""


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", c_int32), ("device_number", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", _Tensor)]


class _Buffer(ctypes.Structure):
    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int),
                ("ndim", c_int), ("format", c_char_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's own, which keeps the GIL."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_capsule = _python("PyCapsule_IsValid", c_int, py_object, c_char_p)
_pointer_of = _python("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_get_buffer = _python("PyObject_GetBuffer", c_int, py_object, c_void_p, c_int)
_release_buffer = _python("PyBuffer_Release", None, c_void_p)


def dlpack_view(array: Any) -> View:
    """By DLPack. Raises OnDevice for memory that is not the host's, and what the array's library raises."""
    device = int(array.__dlpack_device__()[0])
    if device not in HOST_DEVICES:
        raise OnDevice(DEVICE_NAMES.get(device, f"DLPack's device {device}"))
    try:  # with a version first: only since version 1 DLPack can say that memory may not be written
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = array.__dlpack__()
    flags = 0
    if _is_capsule(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        if versioned.major > 1:
            raise InvalidArgument(f"a tensor of DLPack {versioned.major}.{versioned.minor}, expected version 1")
        tensor, flags = versioned.tensor, versioned.flags
    else:
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    size = max(1, tensor.bits // 8)
    if tensor.strides:
        strides = tuple(size * tensor.strides[axis] for axis in range(tensor.ndim))
    else:
        strides = contiguous(shape, size)
    number = TYPE_CODES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    kind = f"{CODE_NAMES.get(tensor.code, 'unknown')}{tensor.bits}"
    # The capsule owns the tensor, and gives it back when it goes.
    is_writable = not flags & (READ_ONLY | IS_COPIED)
    return View(number, kind, (tensor.data or 0) + tensor.byte_offset, shape, strides, is_writable, capsule)


def buffer_view(array: Any) -> View:
    """By the buffer protocol. Raises TypeError where the object has none."""
    memory = memoryview(array)
    raw = _Buffer()
    _get_buffer(memory, byref(raw), FULL_READ_ONLY)
    address = raw.buf or 0
    _release_buffer(byref(raw))  # `memory` holds it
    kind = memory.format.lstrip("@=<" if sys.byteorder == "little" else "@=>")
    number = FORMATS.get(kind)
    if number is not None and _abi.SIZES[number] != memory.itemsize:
        number = {4: _abi.I32, 8: _abi.I64}.get(memory.itemsize) if kind in ("i", "l", "q") else None
    return View(number, f"of the format {memory.format!r}", address, memory.shape or (), memory.strides or (),
                not memory.readonly, memory)


def contiguous(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The strides of an array in C's order, in bytes."""
    strides = []
    for length in reversed(shape):
        strides.append(size)
        size *= max(1, length)
    return tuple(reversed(strides))
