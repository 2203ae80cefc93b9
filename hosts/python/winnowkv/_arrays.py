"""The array libraries: how each tells of its arrays, and how results of its kind are made.

An object of Arrays is one library. `of(array)` finds it by the array's type, without an import.
"""

from __future__ import annotations

import ctypes
import math
import operator
import reprlib
import sys
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char, c_float, c_int32, c_int64
from importlib import import_module
from typing import Any

from winnowkv import _abi
from winnowkv._dlpack import OnDevice, View, buffer_view, dlpack_view
from winnowkv._library import TYPE_NAMES
from winnowkv.errors import InvalidArgument

TYPES_BY_NAME = {"float32": _abi.F32, "float16": _abi.F16, "bfloat16": _abi.BF16, "int32": _abi.I32, "int64": _abi.I64,
                 "bool": _abi.BOOL}
NAMES_BY_TYPE = {number: name for name, number in TYPES_BY_NAME.items()}
FORMATS = {_abi.F32: "f", _abi.F16: "H", _abi.BF16: "H", _abi.I32: "i", _abi.I64: "q", _abi.BOOL: "?"}
LIBRARIES = "an array of numpy, torch, jax or mlx, or another object with DLPack or the buffer protocol"
_from_buffer = c_char.from_buffer


_cast: Any = memoryview.cast


class Arrays:
    """A library of which nothing is known but that its arrays have the buffer protocol; results are memoryviews."""

    name = "memoryview"
    key: Callable[[Any], object] | None = None  # tells all of a view but the address; without it no view is kept
    copy = "a contiguous copy of it"  # what to hand over instead of an array in another order

    def view(self, array: Any) -> View:
        return buffer_view(array)

    def address_of(self, array: Any) -> Callable[[Any], int]:
        """What tells the address of arrays that are like this one. Only where there is a key."""
        raise NotImplementedError

    def may_write(self, array: Any) -> bool:
        """Of an array whose view was writable when it was made."""
        return True

    def result_type(self, number: int) -> int:
        """The type of a result whose inputs are of this type."""
        return _abi.F32

    def empty(self, shape: tuple[int, ...], number: int) -> tuple[Any, int]:
        """Memory for a result, in C's order, and its address. `finished` makes the result of it once it is written."""
        memory = (c_char * (math.prod(shape) * _abi.SIZES[number]))()
        return self.shaped(memoryview(memory).cast("B"), shape, number), addressof(memory)

    def shaped(self, memory: memoryview, shape: tuple[int, ...], number: int = _abi.F32) -> Any:
        """Memory that begins and ends with an array, as that array; the bytes are shared where the library can."""
        return _cast(memory, FORMATS[number], shape)

    def finished(self, raw: Any) -> Any:
        return raw

    def as_f32(self, array: Any) -> Any:
        """The same numbers in F32; itself where they are. Nested sequences of numbers, too."""
        if isinstance(array, Sequence) and not isinstance(array, (memoryview, str, bytes)):
            shape: list[int] = []
            numbers: Any = array
            while isinstance(numbers, Sequence):
                shape.append(len(numbers))
                numbers = numbers[0] if numbers else None
            flat = array
            for _ in shape[1:]:
                flat = [each for inner in flat for each in inner]
            return memoryview((c_float * len(flat))(*flat)).cast("B").cast("f", shape)
        return array


def _interface_address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class Numpy(Arrays):
    """numpy."""

    name = "numpy"
    copy = "numpy.ascontiguousarray(...)"

    def __init__(self) -> None:
        numpy = self._numpy = import_module("numpy")
        self._dtypes: dict[int, Any] = {number: numpy.dtype(name) for number, name in NAMES_BY_TYPE.items()
                                        if name != "bfloat16"}
        self._numbers = {dtype: number for number, dtype in self._dtypes.items()}
        self.key = operator.attrgetter("dtype", "shape", "strides")

    @staticmethod
    def _address(array: Any) -> int:
        try:
            return addressof(_from_buffer(array))
        except (TypeError, ValueError, BufferError):  # not writable, not contiguous, or bfloat16
            return _interface_address(array)

    def address_of(self, array: Any) -> Callable[[Any], int]:
        return self._address if array.flags.carray else _interface_address

    def may_write(self, array: Any) -> bool:
        writeable: bool = array.flags.writeable
        return writeable

    def view(self, array: Any) -> View:
        if isinstance(array, self._numpy.ma.MaskedArray):
            raise InvalidArgument("a masked array, whose mask would be passed over, expected a plain array")
        dtype, flags = array.dtype, array.flags
        number = self._numbers.get(dtype)
        if number is not None:
            name = NAMES_BY_TYPE[number]
        else:
            name = dtype.name if dtype.isnative else f"{dtype.name} in the other order of bytes"
            number = TYPES_BY_NAME.get(name)
        address = self._address(array) if flags.carray else _interface_address(array)
        return View(number, name, address, array.shape, array.strides, flags.writeable, array)

    def result_type(self, number: int) -> int:
        return number

    def dtype(self, number: int) -> Any:
        """A dtype; bfloat16 is that of ml_dtypes. Raises ImportError without ml_dtypes."""
        if number not in self._dtypes:
            self._dtypes[number] = self._numpy.dtype(import_module("ml_dtypes").bfloat16)
        return self._dtypes[number]

    def empty(self, shape: tuple[int, ...], number: int) -> tuple[Any, int]:
        raw = self._numpy.empty(shape, self._dtypes.get(number) or self.dtype(number))
        return raw, self._address(raw)

    def shaped(self, memory: memoryview, shape: tuple[int, ...], number: int = _abi.F32) -> Any:
        return self._numpy.frombuffer(memory, self.dtype(number)).reshape(shape)

    def as_f32(self, array: Any) -> Any:
        return self._numpy.ascontiguousarray(array, self._numpy.float32)


class Torch(Arrays):
    """torch, on the CPU."""

    name = "torch"
    copy = ".contiguous()"

    def __init__(self) -> None:
        torch = self._torch = import_module("torch")
        self._dtypes = {number: getattr(torch, name) for number, name in NAMES_BY_TYPE.items()}
        self._numbers = {dtype: number for number, dtype in self._dtypes.items()}
        self.key = lambda array: (array.dtype, array.shape, array.stride(), array.device, array.requires_grad)

    def address_of(self, array: Any) -> Callable[[Any], int]:
        address: Callable[[Any], int] = self._torch.Tensor.data_ptr
        return address

    def view(self, array: Any) -> View:
        if not array.is_cpu:
            raise OnDevice(str(array.device))
        if array.requires_grad and self._torch.is_grad_enabled():
            raise InvalidArgument("a tensor that wants a gradient, which Winnow does not compute: call it within "
                                  "torch.no_grad(), or give .detach()")
        size = array.element_size()
        strides = tuple(size * stride for stride in array.stride())
        return View(self._numbers.get(array.dtype), str(array.dtype), array.data_ptr(), tuple(array.shape), strides,
                    True, array)

    def result_type(self, number: int) -> int:
        return number

    def empty(self, shape: tuple[int, ...], number: int) -> tuple[Any, int]:
        raw = self._torch.empty(shape, dtype=self._dtypes[number])
        return raw, raw.data_ptr()

    def shaped(self, memory: memoryview, shape: tuple[int, ...], number: int = _abi.F32) -> Any:
        return self._torch.frombuffer(memory, dtype=self._dtypes[number]).reshape(shape)

    def as_f32(self, array: Any) -> Any:
        return self._torch.as_tensor(array, dtype=self._torch.float32, device="cpu").detach().contiguous()


class Dlpack(Arrays):
    """Any other library with DLPack. Results are numpy's if it is there, else memoryviews."""

    name = "DLPack"

    def view(self, array: Any) -> View:
        try:
            return dlpack_view(array)
        except OnDevice:
            try:
                return buffer_view(array)  # as MLX's on a GPU that shares the host's memory
            except (TypeError, BufferError):
                pass
            raise

    def result_type(self, number: int) -> int:
        return own().result_type(number)

    def empty(self, shape: tuple[int, ...], number: int) -> tuple[Any, int]:
        return own().empty(shape, number)

    def shaped(self, memory: memoryview, shape: tuple[int, ...], number: int = _abi.F32) -> Any:
        return own().shaped(memory, shape, number)

    def as_f32(self, array: Any) -> Any:
        return array


class Jax(Dlpack):
    """jax, on the CPU. Its arrays are immutable: results are new ones."""

    name = "jax"
    copy = "jax.device_put(jax.numpy.copy(...))"

    def __init__(self) -> None:
        self._jax = import_module("jax")
        self._device = self._jax.local_devices(backend="cpu")[0]

    def view(self, array: Any) -> View:
        if isinstance(array, self._jax.core.Tracer):
            raise InvalidArgument("a tracer of jax, expected an array: call it outside of jit and grad")
        return super().view(array)._replace(is_writable=False)

    def finished(self, raw: Any) -> Any:
        return self._jax.device_put(raw, self._device)

    def shaped(self, memory: memoryview, shape: tuple[int, ...], number: int = _abi.F32) -> Any:
        return self.finished(own().shaped(memory, shape, number).copy())

    def as_f32(self, array: Any) -> Any:
        return self._jax.device_put(array, self._device).astype("float32")


class Mlx(Dlpack):
    """mlx, in memory that the host reaches. Results are new arrays."""

    name = "mlx"
    copy = "mlx.core.contiguous(...)"

    def __init__(self) -> None:
        self._mlx = import_module("mlx.core")

    def view(self, array: Any) -> View:
        self._mlx.eval(array)
        return super().view(array)._replace(is_writable=False)

    def result_type(self, number: int) -> int:
        return number

    def empty(self, shape: tuple[int, ...], number: int) -> tuple[Any, int]:
        raw, address = PLAIN.empty(shape, number)
        return (raw, number), address

    def finished(self, raw: Any) -> Any:
        memory, number = raw
        return self._mlx.array(memory).view(getattr(self._mlx, NAMES_BY_TYPE[number].replace("bool", "bool_")))

    def shaped(self, memory: memoryview, shape: tuple[int, ...], number: int = _abi.F32) -> Any:
        return self.finished((_cast(memory, FORMATS[number], shape), number))

    def as_f32(self, array: Any) -> Any:
        return self._mlx.contiguous(self._mlx.array(array).astype(self._mlx.float32))


PLAIN = Arrays()
_known: dict[type, Arrays] = {}
_libraries: dict[type[Arrays], Arrays] = {}


def library(kind: type[Arrays]) -> Arrays:
    """The one object of a library, which is imported with it."""
    if kind not in _libraries:
        _libraries[kind] = kind()
    return _libraries[kind]


def own() -> Arrays:
    """Where no array says which library the results are to be of: numpy if it is installed."""
    try:
        return library(Numpy)
    except ImportError:
        return PLAIN


NAMED = {"numpy": Numpy, "torch": Torch, "jax": Jax, "mlx": Mlx}


def named(name: str | None) -> Arrays:
    """By its name; None: numpy if it is installed, else memoryviews. Raises InvalidArgument and ImportError."""
    if name is None:
        return own()
    if name == PLAIN.name:
        return PLAIN
    if name not in NAMED:
        raise InvalidArgument(f"library is {name!r}, expected one of {', '.join([*NAMED, PLAIN.name])}")
    return library(NAMED[name])


def _find(kind: type) -> Arrays | None:
    for name, class_name, of in (("numpy", "ndarray", Numpy), ("torch", "Tensor", Torch)):
        module = sys.modules.get(name)
        if module is not None and issubclass(kind, getattr(module, class_name, ())):
            return library(of)
    origin = kind.__module__.partition(".")[0]
    if origin in ("jax", "jaxlib"):
        return library(Jax)
    if origin == "mlx":
        return library(Mlx)
    return library(Dlpack) if hasattr(kind, "__dlpack__") else None


def of(array: Any, name: str) -> Arrays:
    """The library of an array. Raises TypeError, with the argument's name, for what is none."""
    kind = type(array)
    found = _known.get(kind)
    if found is None:
        found = _find(kind)
        if found is None:
            try:
                memoryview(array)
            except TypeError:
                raise TypeError(f"{name} is of type {kind.__name__}, expected {LIBRARIES}") from None
            found = PLAIN
        _known[kind] = found
    return found


def type_list(types: Sequence[int]) -> str:
    """The names of types as the array libraries write them, for a message."""
    *others, last = (NAMES_BY_TYPE.get(number, TYPE_NAMES[number]) for number in types)
    return f"{', '.join(others)} or {last}" if others else last


def is_single(value: Any) -> bool:
    """Whether it is a whole number, and no array of them."""
    return hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0


def whole(value: Any, name: str, least: int = -1 << 63, most: int = (1 << 63) - 1) -> int:
    """A whole number of any type but bool. Raises InvalidArgument."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} is {reprlib.repr(value)}, expected a whole number") from None
    if not least <= number <= most:
        raise InvalidArgument(f"{name} is {number}, expected {least} to {most}")
    return number


def real(value: Any, name: str) -> float:
    """A number of any type but bool. Raises InvalidArgument."""
    try:
        if isinstance(value, (bool, str, bytes, bytearray)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{name} is {reprlib.repr(value)}, expected a number") from None


def factor(value: Any, name: str) -> float:
    """A number that is not 0, which would mean that none is given. Raises InvalidArgument."""
    number = real(value, name)
    if number == 0:
        raise InvalidArgument(f"{name} is {value}, expected another number than 0; None leaves {name} at its default")
    return number


def text(value: Any, name: str) -> bytes:
    """A text for the plugin, where a NUL would end it. Raises InvalidArgument."""
    if not isinstance(value, str) or "\0" in value:
        raise InvalidArgument(f"{name} is {value!r}, expected a str without NUL")
    return value.encode()


def integers(values: Any, name: str, number: int = _abi.I64) -> ctypes.Array[Any]:
    """Whole numbers of any sequence or array, copied as I64 or I32. Raises InvalidArgument."""
    flat = values if isinstance(values, range) else _flat(values, name, "whole numbers")
    bits = 8 * _abi.SIZES[number]
    least, most = -1 << bits - 1, (1 << bits - 1) - 1
    checked = [each if type(each) is int and least <= each <= most else whole(each, f"{name}[{at}]", least, most)
               for at, each in enumerate(flat)]
    return ((c_int64 if number == _abi.I64 else c_int32) * len(checked))(*checked)


def floats(values: Any, name: str) -> ctypes.Array[c_float]:
    """Numbers of any sequence or array, copied as F32. Raises InvalidArgument."""
    flat = [each if type(each) is float else real(each, f"{name}[{at}]")
            for at, each in enumerate(_flat(values, name, "numbers"))]
    return (c_float * len(flat))(*flat)


def _flat(values: Any, name: str, what: str) -> list[Any]:
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError
        return list(values.tolist() if hasattr(values, "tolist") else values)
    except TypeError:
        raise InvalidArgument(f"{name} is {reprlib.repr(values)}, expected {what} in one row") from None
