"""What a host calls on a cache beside its steps: edits of sequences, looks into it, rows and states."""

from __future__ import annotations

import array
import ctypes
import os
from collections.abc import Callable
from ctypes import byref, c_float, c_int32, c_int64, c_uint64
from typing import Any, NamedTuple

from winnowkv import _abi, _arrays
from winnowkv._arrays import real, text, whole
from winnowkv._library import Function, dtype_number
from winnowkv._policy import Runner
from winnowkv._slots import INTEGERS, Numbers, Slot
from winnowkv.context import Core
from winnowkv.description import CacheStats, Description, LayerShape, describe_desc, estimate_desc, stats_of
from winnowkv.errors import Error, InternalError, InvalidArgument


class Tokens(NamedTuple):
    """The tokens that a KV head holds, in ascending order of position (or cell). Entry i of each is the same token's.
    numpy.asarray and torch.frombuffer see these arrays without a copy."""

    positions: array.array[int]
    importance: array.array[float] | None  # None where the policy keeps none
    segments: array.array[int]  # 0: dense, as sinks and the newest are; 1: packed; 2, 3: further packed segments


class CacheCalls:
    """KvCache without its steps. Methods raise Error."""

    _core: Core
    _handle: int | None
    _functions: dict[str, Function]
    _desc: _abi.CacheDesc
    _last: _arrays.Arrays | None  # of the last step
    _runner: Runner | None = None
    _keeps: bool | None = None  # an importance
    has_importance_of_host = False  # by set_importance, or in a state that was loaded
    layer_shapes: list[LayerShape]
    max_tokens: int

    @property
    def config(self) -> str:
        """The configuration as it was given."""
        return (self._desc.config or b"").decode()

    # ---- Sequences --------------------------------------------------------------------------------------------

    def reserve(self, tokens: int, sequence: int = 0) -> None:
        """Takes the memory for so many tokens now, so that no step runs out of it. Raises OutOfMemory."""
        self._call("reserve", whole(sequence, "sequence"), whole(tokens, "tokens"))

    def truncate(self, length: int, sequence: int = 0) -> None:
        """Takes back all tokens from position `length` on, in every layer; the next token has this position. What was
        evicted stays so."""
        sequence = _sequence(sequence)
        self._call("truncate", sequence, whole(length, "length"))
        if self._runner is not None:
            self._runner.cut(sequence, length)

    def remove(self, begin: int = 0, end: int | None = None, sequence: int = 0) -> None:
        """Forgets the tokens (or cells) with positions in [begin, end); None: to the end. The others keep theirs. A
        sequence with no token left is as new, and gives its memory back: remove() ends a sequence."""
        self._edit("remove", _sequence(sequence), whole(begin, "begin"), _end(end))

    def copy(self, source: int, target: int) -> None:
        """Makes the sequence `target` a copy of `source`; what it held is gone."""
        self._call("copy", whole(source, "source"), whole(target, "target"))
        self._forget(target)

    def shift(self, delta: int, begin: int = 0, end: int | None = None, sequence: int = 0) -> None:
        """Adds delta to the positions in [begin, end). Keys stay as they are: rotate them before, by read and write.
        Raises InvalidArgument where two tokens would meet, or one become negative."""
        self._edit("shift", _sequence(sequence), whole(begin, "begin"), _end(end), whole(delta, "delta"))

    def anchor(self, positions: Any, sequence: int = 0) -> None:
        """Positions (or cells) whose tokens are never evicted, whether they are there or still to come."""
        where = _arrays.integers(positions, "positions")
        self._call("anchor", _sequence(sequence), where, len(where))

    def reset(self) -> None:
        """As a new cache, with the same configuration."""
        self._edit("reset")

    def set_config(self, config: str) -> None:
        """Another policy or budget from now on; formats, sink, residual window and centring have to stay."""
        encoded = text(config, "config")
        self._call("set_config", encoded)
        self._desc.config = encoded
        if self._runner is not None:
            self._runner.forget_config()

    def set_pressure(self, pressure: float) -> None:
        """Memory pressure, 0 (none) to 1; some policies evict more under it. Negative: ask the system."""
        self._call("set_pressure", real(pressure, "pressure"))

    # ---- What it holds ----------------------------------------------------------------------------------------

    def tokens(self, layer: int, head: int, sequence: int = 0) -> Tokens:
        """The tokens that a KV head holds. Raises InvalidArgument."""
        keeps = self._keeps_importance()
        core, look = self._core, _abi.CacheTokens()
        where = _sequence(sequence), whole(layer, "layer"), whole(head, "head")
        with core:
            self._call("tokens", *where, byref(look))
            count = look.count
            positions, segments = (c_int64 * count)(), (c_int32 * count)()
            importance = (c_float * count)() if keeps else None
            look = _abi.CacheTokens(capacity=count, positions=positions, importance=importance, segments=segments)
            self._call("tokens", *where, byref(look))
        return Tokens(array.array("q", bytes(positions)), array.array("f", bytes(importance)) if importance else
                      (array.array("f") if keeps else None), array.array("i", bytes(segments)))

    def positions(self, layer: int, head: int, sequence: int = 0) -> array.array[int]:
        """The positions (or cells) of the tokens that a KV head holds, in ascending order."""
        return self.tokens(layer, head, sequence).positions

    def importance(self, layer: int, head: int, sequence: int = 0) -> array.array[float]:
        """What the same tokens are worth. Raises InvalidArgument where the policy keeps no importance."""
        importance = self.tokens(layer, head, sequence).importance
        if importance is None:
            raise InvalidArgument(f"the configuration {self.config!r} keeps no importance")
        return importance

    def segments(self, layer: int, head: int, sequence: int = 0) -> array.array[int]:
        """Where the same tokens lie. 0: dense; 1: packed; 2, 3: the second and third packed segment."""
        return self.tokens(layer, head, sequence).segments

    def next_position(self, layer: int = 0, sequence: int = 0) -> int:
        """The position of the token that a layer gets next; with cells, how many tokens it has had."""
        look = _abi.CacheTokens()
        self._call("tokens", _sequence(sequence), whole(layer, "layer"), 0, byref(look))
        position: int = look.next_position
        return position

    def stats(self, sequence: int | None = None) -> CacheStats:
        """What it holds; of one sequence, for servers that give each of their users one."""
        raw = _abi.CacheStats()
        self._call("stats", _sequence(sequence), byref(raw))
        return stats_of(raw)

    def describe(self) -> Description:
        """What its configuration means."""
        return describe_desc(self._core, self._desc)

    def estimate(self, tokens: int | None = None) -> CacheStats:
        """What one sequence of so many tokens takes (None: of max_tokens)."""
        return estimate_desc(self._core, self._desc, self.max_tokens if tokens is None else tokens)

    # ---- Rows -------------------------------------------------------------------------------------------------

    def read(self, layer: int, positions: Any, sequence: int = 0, *, dtype: str = "float32",
             library: str | None = None) -> tuple[Any, Any]:
        """(k, v) of tokens as attention sees them: [kv_heads, count, size], NaN where a head does not hold the token.
        dtype: "float32", "float16" or "bfloat16". library: "numpy", "torch", "jax", "mlx" or "memoryview"; None: that
        of the last step, else numpy if it is installed."""
        return self._get_rows("read", layer, positions, sequence, dtype, library)

    def write(self, layer: int, positions: Any, k: Any = None, v: Any = None, sequence: int = 0) -> None:
        """Puts rows [kv_heads, count, size] in the place of those that a head holds, in their format. Where a head does
        not hold the token, or a row begins with NaN, nothing happens."""
        self._put_rows("write", layer, positions, k, v, sequence)

    def export_rows(self, layer: int, positions: Any, sequence: int = 0, *, dtype: str = "float16",
                    library: str | None = None) -> tuple[Any, Any]:
        """(k, v) of tokens without any loss, with their importance, for a state that a host keeps (docs/cache.md).
        dtype: "float16" or "bfloat16". Raises Unsupported where they do not fit into rows of this type."""
        return self._get_rows("export_rows", layer, positions, sequence, dtype, library)

    def import_rows(self, layer: int, k: Any, v: Any, sequence: int = 0, cells: Any = None) -> None:
        """Appends tokens from rows that export_rows or read gave. cells: theirs, in a cache with cells."""
        self._put_rows("import_rows", layer, cells, k, v, sequence)
        self._forget(sequence)

    def _get_rows(self, name: str, layer: int, positions: Any, sequence: int, dtype: str,
                  library: str | None) -> tuple[Any, Any]:
        number = dtype_number(dtype)
        arrays = (self._last if library is None else None) or _arrays.named(library)
        tokens = _tokens_slot(positions, "positions")
        count, slots, made, shape = tokens.shape[3], [], [], self._shape(layer)
        for which, size in (("k", shape.head_size), ("v", shape.v_head_size or shape.head_size)):
            slots.append(Slot(which, "", is_output=True))
            made.append(slots[-1].make(arrays, (shape.kv_heads, count, size), number))
        desc = _abi.CacheRowsDesc(layer=layer, sequence=_sequence(sequence), tokens=tokens.pointer, k=slots[0].pointer,
                                  v=slots[1].pointer)
        self._call(name, byref(desc))
        return arrays.finished(made[0]), arrays.finished(made[1])

    def _put_rows(self, name: str, layer: int, positions: Any, k: Any, v: Any, sequence: int) -> None:
        desc = _abi.CacheRowsDesc(layer=whole(layer, "layer"), sequence=_sequence(sequence))
        slots = []  # which keep what the description points to
        for which, given in (("k", k), ("v", v)):
            if given is not None:
                slots.append(Slot(which, "[1, kv_heads, count, size]"))
                slots[-1].put(given)
                setattr(desc, which, slots[-1].pointer)
        if positions is not None:
            slots.append(_tokens_slot(positions, "positions"))
            desc.tokens = slots[-1].pointer
        self._call(name, byref(desc))

    # ---- States -----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], sequence: int | None = None) -> None:
        """Writes a sequence (None: all) into a file. Raises FileError and NotFound; then the old file is as it was."""
        self._state("save", sequence, path=_path(path))

    def load(self, path: str | os.PathLike[str], sequence: int | None = None) -> None:
        """Replaces a sequence (None: all) by what a file has. Configuration, shape and resources have to be those of
        the cache that was saved. Raises FileError, NotFound, and InvalidArgument for what is no such file."""
        self._state("load", sequence, path=_path(path))
        self.has_importance_of_host = True
        self._forget(sequence)

    def to_bytes(self, sequence: int | None = None) -> bytes:
        """What `save` writes."""
        size, at = c_uint64(), 0

        def write(source: int, count: int) -> None:
            nonlocal at
            data[at:at + count] = ctypes.string_at(source, count)
            at += count

        with self._core:
            self._call("saved_size", _sequence(sequence), byref(size))
            data = bytearray(size.value)
            self._state("save", sequence, write=write)
        if at != len(data):
            raise InternalError(f"the saved state has {at} bytes, expected {len(data)}")
        return bytes(data)

    def from_bytes(self, data: Any, sequence: int | None = None) -> None:
        """As `load`, of what `to_bytes` gave: bytes, or anything else with the buffer protocol."""
        try:
            given = memoryview(data).cast("B")
        except TypeError as error:
            raise TypeError(f"data is of type {type(data).__name__}, expected bytes: {error}") from None
        at = 0

        def read(target: int, count: int) -> None:
            nonlocal at
            if count > len(given) - at:
                raise InternalError(f"{count} bytes are read behind byte {at}, expected {len(given) - at} at most")
            ctypes.memmove(target, bytes(given[at:at + count]), count)
            at += count

        self._state("load", sequence, read=read, size=len(given))
        self.has_importance_of_host = True
        self._forget(sequence)

    def _state(self, name: str, sequence: int | None, **where: Any) -> None:
        """Raises Error, and what a callback raised."""
        failures: list[BaseException] = []

        def guarded(callback: Callable[[int, int], None]) -> Any:
            def call(_: object, memory: int, count: int) -> int:
                try:
                    callback(memory, count)
                    return 0
                except BaseException as error:  # which ctypes would print, and pass over
                    failures.append(error)
                    return 1

            return _abi.PASS(call)

        for each in where.keys() & {"write", "read"}:
            where[each] = guarded(where[each])
        try:
            self._call(name, byref(_abi.CacheStateDesc(sequence=_sequence(sequence), **where)))
        except Error:
            if not failures:
                raise
        if failures:
            raise failures[0]

    # ---- Inside -----------------------------------------------------------------------------------------------

    def _call(self, name: str, *arguments: object) -> None:
        """Calls a function of winnow_cache.h on the cache. Raises Error."""
        core = self._core
        with core:
            core.open()
            if self._handle is None:
                raise Error("the cache is closed")
            core.check(self._functions[name](self._handle, *arguments))

    def _edit(self, name: str, *arguments: int) -> None:
        """Calls a function that changes which tokens of a sequence there are; without a sequence, of all."""
        self._call(name, *arguments)
        self._forget(arguments[0] if arguments else None)

    def _forget(self, sequence: int | None) -> None:
        if self._runner is not None:
            self._runner.forget(sequence)

    def _shape(self, layer: int) -> LayerShape:
        """Raises InvalidArgument."""
        return self.layer_shapes[whole(layer, "layer", 0, len(self.layer_shapes) - 1)]

    def _keeps_importance(self) -> bool:
        if self._keeps is None:
            self._keeps = self.describe().keeps_importance
        return self._keeps


def _tokens_slot(positions: Any, name: str) -> Slot:
    """Positions (or cells) of any sequence or array."""
    slot = Numbers(name, INTEGERS)
    slot.put(positions)
    return slot


def _sequence(sequence: int | None) -> int:
    """The number of a sequence; None: of all. Raises InvalidArgument."""
    return _abi.ALL if sequence is None else whole(sequence, "sequence", 0)


def _end(end: int | None) -> int:
    return -1 if end is None else whole(end, "end")


def _path(path: str | os.PathLike[str]) -> bytes:
    text(os.fsdecode(path), "path")
    return os.fsencode(path)
