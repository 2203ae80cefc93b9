"""Tensor structs that are kept from call to call, one for each argument of a function.

A call with arrays of the same library, type, shape and strides as the last one only refreshes addresses: that takes a
tenth of the time of new structs.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from winnowkv import _abi, _arrays
from winnowkv._arrays import Arrays
from winnowkv._dlpack import OnDevice, View, contiguous
from winnowkv.errors import InvalidArgument

FLOATS = (_abi.F32, _abi.F16, _abi.BF16)
MASKS = (_abi.F32, _abi.F16, _abi.BOOL)
INTEGERS = (_abi.I32, _abi.I64)
NO_ARRAY = object()
_pack = struct.Struct("@IIPPQ8q").pack_into  # a winnow_tensor
_SIZE = ctypes.sizeof(_abi.Tensor)


class Slot:
    """The struct of one argument."""

    types: tuple[int, ...] | None  # None: every storage format

    def __init__(self, name: str, axes: str, types: tuple[int, ...] | None = FLOATS, ranks: tuple[int, ...] = (3, 4),
                 is_output: bool = False) -> None:
        """name, axes: for messages; axes are those of an array with the most, as "[batch, heads, tokens, size]"."""
        self.name, self.axes, self.types, self.ranks, self.is_output = name, axes, types, ranks, is_output
        self.tensor = _abi.Tensor()
        self.pointer = ctypes.pointer(self.tensor)
        self.arrays = _arrays.PLAIN  # of the array that was put last
        self.shape: tuple[int, ...] = ()  # of all four axes
        self.rank = 0
        self.type = 0
        self.keep: object = None  # what has to live until the call is over
        self.held: list[Slot] | None = None  # takes the slot where it has something to keep
        self._kind: type | None = None
        self._key: object = NO_ARRAY
        self._key_of: Any = None
        self._address_of: Any = None
        self._made: object = None

    def put(self, array: Any) -> None:
        """Describes an array. Raises InvalidArgument or TypeError, with the argument's name."""
        if type(array) is self._kind and self._key_of(array) == self._key:
            if not self.is_output or self.arrays.may_write(array):
                self.tensor.data = self._address_of(array)
                return
        arrays = _arrays.of(array, self.name)
        try:
            view = arrays.view(array)
        except OnDevice as device:
            raise InvalidArgument(f"{self.name} is in memory of {device}, expected the host's memory; copy it there "
                                  f"before") from None
        except InvalidArgument as error:
            raise InvalidArgument(f"{self.name} is {error}") from None
        except BufferError as error:
            raise InvalidArgument(f"{self.name} cannot be taken as it lies: {error}; expected {arrays.copy}") from None
        self.place(view, arrays)
        if arrays.key is not None and not getattr(array, "requires_grad", False):
            self._key_of, self._address_of, self._key = arrays.key, arrays.address_of(array), arrays.key(array)
            self._kind = type(array)  # the last one: until then the next array is looked at anew
            self.keep = None
        elif self.keep is not None and self.held is not None:
            self.held.append(self)

    def make(self, arrays: Arrays, shape: tuple[int, ...], number: int) -> Any:
        """A new array for an output, which `arrays.finished` turns into the result."""
        raw, address = arrays.empty(shape, number)
        self.lay(arrays, address, shape, number)
        return raw

    def lay(self, arrays: Arrays, address: int, shape: tuple[int, ...], number: int) -> None:
        """Describes memory of our own, in C's order, that an output goes to."""
        made = arrays, shape, number
        if made == self._made:
            self.tensor.data = address
        else:
            self.place(View(number, "", address, shape, contiguous(shape, _abi.SIZES[number]), True), arrays)
            self._made = made

    def place(self, view: View, arrays: Arrays) -> None:
        """Fills the struct. Raises InvalidArgument."""
        self._kind = self._made = None
        shape, strides, name = view.shape, list(view.strides), self.name
        if view.type is None or view.type not in (self.types or FLOATS) and (self.types or view.buffer is None):
            accepted = _arrays.type_list(self.types or FLOATS) + ("" if self.types else ", or Packed")
            raise InvalidArgument(f"{name} is {view.kind}, expected {accepted}")
        if len(shape) not in self.ranks:
            without = "" if len(self.ranks) == 1 else ", or without the first axes"
            raise InvalidArgument(f"{name} has the shape {list(shape)}, expected {self.axes}{without}")
        if 0 in shape:
            raise InvalidArgument(f"{name} has the shape {list(shape)}, expected 1 at least in each axis")
        if view.buffer is None:
            size = _abi.SIZES[view.type]
            strides = [stride if length > 1 else size for stride, length in zip(strides, shape)]
            if strides[-1] != size:
                raise InvalidArgument(f"{name} has elements {strides[-1]} bytes apart along its last axis, expected "
                                      f"{size}, one after the other; {arrays.copy} has that order")
            if min(strides) < 0:
                raise InvalidArgument(f"{name} has the strides {strides} in bytes, expected none below 0; "
                                      f"{arrays.copy} has none")
        if self.is_output and not view.is_writable:
            otherwise = "; without out= a new one is made" if name == "out" else ""
            raise InvalidArgument(f"{name} may not be written, expected an array that may be{otherwise}")
        pad = 4 - len(shape)
        self.shape, self.rank, self.type, self.arrays = (1,) * pad + tuple(shape), len(shape), view.type, arrays
        _pack(self.tensor, 0, _SIZE, view.type, view.buffer or 0, view.address, 0, *self.shape,
              *[strides[0] * shape[0]] * pad, *strides)
        self.keep = view.keep


class Numbers(Slot):
    """Numbers and indices: an array of such a type as it lies; another array of one axis, and any sequence, copied."""

    def __init__(self, name: str, types: tuple[int, ...] = (_abi.F32,), places: tuple[int, ...] = (3,),
                 axes: str = "one axis") -> None:
        """places: which axes of the struct the last axes of an array are."""
        super().__init__(name, axes, types, tuple(range(1, len(places) + 1)))
        self._places = places

    def put(self, array: Any) -> None:
        try:
            super().put(array)
            return
        except (TypeError, InvalidArgument):
            if getattr(array, "ndim", 1) != 1:
                raise
            types = self.types or FLOATS
            numbers: Any = (_arrays.floats(array, self.name) if types == (_abi.F32,) else
                            _arrays.integers(array, self.name, types[-1]))
        if not len(numbers):
            raise InvalidArgument(f"{self.name} is empty, expected 1 number at least")
        self.place(_arrays.PLAIN.view(numbers), _arrays.PLAIN)

    def place(self, view: View, arrays: Arrays) -> None:
        super().place(view, arrays)
        if self.rank > 1:
            tensor, size = self.tensor, _abi.SIZES[self.type]
            shape, stride = list(tensor.shape), list(tensor.stride)
            tensor.shape[:], tensor.stride[:] = [1] * 4, [size] * 4
            for place, axis in zip(self._places[-self.rank:], range(4 - self.rank, 4)):
                tensor.shape[place], tensor.stride[place] = shape[axis], stride[axis]
            self.shape = tuple(tensor.shape)


def row_numbers(name: str, types: tuple[int, ...] = INTEGERS) -> Numbers:
    """[batch, heads, rows] or [rows], where the struct has [batch, heads, 1, rows]."""
    return Numbers(name, types, (0, 1, 3), "[batch, heads, rows] or [rows]")
