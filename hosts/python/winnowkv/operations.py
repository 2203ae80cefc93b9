"""Attention over arrays, and rows from format to format.

Every function waits until its result is there. Arrays are used where they lie if the device reaches the host's memory
(`Context.info.capabilities` has "unified_memory"), else they are copied. Results are of the library of the first array.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, overload

from winnowkv import _abi, _arrays
from winnowkv._arrays import factor, is_single, real, whole
from winnowkv._library import dtype_number
from winnowkv._slots import FLOATS, INTEGERS, MASKS, Numbers, Slot, row_numbers
from winnowkv.context import Context, default_context
from winnowkv.errors import Error, InvalidArgument
from winnowkv.packed import Buffer, NoBuffer, Packed

A = TypeVar("A")
Norm = Literal["default", "plain", "corrected", "unit_slope"]
Scores = Literal["raw", "softcapped", "biased", "probs"]
ROWS = "[batch, heads, rows, size]"


class Support(NamedTuple):
    """Whether a call would be carried out. It is true where it would."""

    variant: str  # the kernel that would run; "" where the call would be refused
    reason: str  # why it would be refused; "" where it would be carried out

    def __bool__(self) -> bool:
        return not self.reason


def number_of(names: dict[str, int], name: str, value: str) -> int:
    """Raises InvalidArgument for a value that is not among the names."""
    try:
        return names[value]
    except (KeyError, TypeError):
        raise InvalidArgument(f"{name} is {value!r}, expected one of {', '.join(names)}") from None


class Operation:
    """An operation on a context, with its structs."""

    name: ClassVar[str]  # of its function in winnow.h
    desc: Any

    def __init__(self, context: Context) -> None:
        core = self.core = context._core
        self.function = core.functions[self.name]
        self.ref = ctypes.byref(self.desc)
        self.held: list[Slot] = []  # slots that keep something during a call
        for each in vars(self).values():
            if isinstance(each, Slot):
                each.held = self.held

    def point(self, **slots: Slot | None) -> None:
        """Sets the pointers of the description; None: NULL."""
        for field, slot in slots.items():
            setattr(self.desc, field, None if slot is None else slot.pointer)

    def prepare(self, *arguments: Any, **options: Any) -> Callable[[], Any]:
        """Fills the description. What it returns makes the result once the operation is done."""
        raise NotImplementedError

    def run(self, *arguments: Any, **options: Any) -> Any:
        core = self.core
        with core:
            handle = core.open()
            try:
                result = self.prepare(*arguments, **options)
                core.compute(self.function, handle, self.ref, None)
                return result()
            finally:
                if self.held:
                    self.release()

    def supports(self, *arguments: Any, **options: Any) -> Support:
        core, answer = self.core, ctypes.create_string_buffer(256)
        try:
            with core:
                handle = core.open()
                try:
                    self.prepare(*arguments, **options)
                    core.check(core.functions["supports"](handle, _abi.OPERATIONS[self.name], self.ref, answer,
                                                          len(answer)))
                finally:
                    self.release()
        except Error as error:
            return Support("", str(error) or type(error).__name__)
        return Support(answer.value.decode(errors="replace"), "")

    def release(self) -> None:
        """Lets go of arrays that the slots have to keep during a call."""
        for slot in self.held:
            slot.keep = None
        self.held.clear()


O = TypeVar("O", bound=Operation)  # noqa: E741


def on(context: Context | None, kind: type[O]) -> O:
    """The operation of a context, which is made once."""
    context = context or default_context()
    found: O | None = context._operations.get(kind)
    if found is None:
        found = context._operations[kind] = kind(context)
    return found


def _window(given: Any) -> tuple[int, int]:
    """How many keys a query sees up to its own and after it, where 0 is no limit. Raises InvalidArgument."""
    pair = (given, None) if given is None or is_single(given) else given
    try:
        left, right = pair
    except (TypeError, ValueError):
        raise InvalidArgument(f"window is {given!r}, expected a whole number, or a pair of numbers and None") from None
    left = 0 if left is None else whole(left, "window" if pair is not given else "window[0]", 1)
    if right is not None and whole(right, "window[1]", 0) == 0:
        raise InvalidArgument("window[1] is 0, expected 1 or more, or None; causal=True hides all keys after the "
                              "query's own")
    return left, 0 if right is None else whole(right, "window[1]")


class _Sdpa(Operation):
    name = "sdpa"

    def __init__(self, context: Context) -> None:
        self.desc = _abi.SdpaDesc()
        self.q, self.k = Slot("q", "[batch, q_heads, q_len, size]"), Slot("k", "[batch, kv_heads, kv_len, size]", None)
        self.v = Slot("v", "[batch, kv_heads, kv_len, v_size]", None)
        self.out = Slot("out", "[batch, q_heads, q_len, v_size]", is_output=True)
        self.mask = Slot("mask", "[batch, q_heads, q_len, kv_len]", MASKS, (2, 3, 4))
        self.mask_slopes, self.alibi, self.sinks = Numbers("mask_slopes"), Numbers("alibi"), Numbers("sinks")
        self.positions = row_numbers("positions", (_abi.I32,))
        self.kv_lengths, self.q_offsets = Numbers("kv_lengths", INTEGERS), Numbers("q_offset", INTEGERS)
        self.scores = Slot("scores", "", (_abi.F32,), is_output=True)
        self.row_stats = Slot("row_stats", "", (_abi.F32,), is_output=True)
        self.skipped = Slot("v_rows_skipped", "", (_abi.I32,), is_output=True)
        self.point(q=self.q, k=self.k, v=self.v, out=self.out)
        self.optional: tuple[bool, ...] = (False,) * 10
        self.numbers: tuple[Any, ...] = ()
        super().__init__(context)

    def prepare(self, q: Any, k: Any, v: Any, mask: Any, scale: float | None, causal: bool, window: Any,
                softcap: float | None, sinks: Any, alibi: Any, mask_slopes: Any, scores: str | None, row_stats: bool,
                q_offset: Any, kv_lengths: Any, positions: Any, v_threshold: float, out: Any) -> Callable[[], Any]:
        self.q.put(q)
        self.k.put(k)
        self.v.put(v)
        arrays, shape = self.q.arrays, self.q.shape
        if self.q.rank == 3:
            shape = shape[1:]
        lengths = (shape[-2], self.k.shape[2])
        rows = shape[:-1]
        if out is None:
            made = self.out.make(arrays, (*rows, self.v.shape[3]), arrays.result_type(self.q.type))
        else:
            self.out.put(out)
        if mask is not None:
            self.mask.put(mask)
        if mask_slopes is not None:
            self.mask_slopes.put(mask_slopes)
        if alibi is not None:
            self.alibi.put(alibi)
        if sinks is not None:
            self.sinks.put(sinks)
        if positions is not None:
            self.positions.put(positions)
        mode = 0 if scores is None else number_of(_abi.SCORES, "scores", scores)
        further = []
        if mode:
            further.append(self.scores.make(arrays, (*rows, lengths[1]), _abi.F32))
        if row_stats:
            further.append(self.row_stats.make(arrays, (*rows, 2), _abi.F32))
        threshold = real(v_threshold, "v_threshold")
        if threshold:
            further.append(self.skipped.make(arrays, (*rows, 1), _abi.I32))
        left, right = _window(window)
        if hasattr(kv_lengths, "__next__"):
            kv_lengths = list(kv_lengths)
        if q_offset is None:
            if positions is not None and (causal or left or right or alibi is not None):
                raise InvalidArgument("q_offset is None, expected the position of the first query, as positions are "
                                      "given for the keys")
            q_offset = lengths[1] - lengths[0]
            if kv_lengths is not None:
                q_offset = [min(max(length, 0), lengths[1]) - lengths[0]
                            for length in _arrays.integers(kv_lengths, "kv_lengths")]
        if kv_lengths is not None:
            self.kv_lengths.put(kv_lengths)
        has_offsets = not is_single(q_offset)
        if has_offsets:
            self.q_offsets.put(q_offset)
        q_offset = 0 if has_offsets else whole(q_offset, "q_offset")
        optional = (mask is not None, mask_slopes is not None, alibi is not None, sinks is not None,
                    positions is not None, mode != 0, bool(row_stats), threshold != 0, kv_lengths is not None,
                    has_offsets)
        if optional != self.optional:
            self.optional = ()
            names = ("attn_mask", "mask_slopes", "alibi_slopes", "head_sink", "slot_positions", "scores_out",
                     "row_stats", "v_rows_skipped", "kv_lengths", "q_offsets")
            slots = (self.mask, self.mask_slopes, self.alibi, self.sinks, self.positions, self.scores, self.row_stats,
                     self.skipped, self.kv_lengths, self.q_offsets)
            self.point(**{name: slot if has else None for name, slot, has in zip(names, slots, optional)})
            self.optional = optional
        numbers = (0.0 if scale is None else factor(scale, "scale"),
                   0.0 if softcap is None else factor(softcap, "softcap"), mode, int(bool(causal)), q_offset, left,
                   right, threshold)
        if numbers != self.numbers:
            desc = self.desc
            self.numbers = ()
            (desc.scale, desc.softcap, desc.scores_mode, desc.is_causal, desc.q_offset, desc.window_left,
             desc.window_right, desc.v_threshold) = numbers
            self.numbers = numbers
        if not further:
            return (lambda: arrays.finished(made)) if out is None else lambda: out
        return lambda: (arrays.finished(made) if out is None else out, *map(arrays.finished, further))


@overload
def sdpa(q: A, k: Any, v: Any, *, mask: Any = None, scale: float | None = None, causal: bool = False,
         window: int | tuple[int | None, int | None] | None = None, softcap: float | None = None, sinks: Any = None,
         alibi: Any = None, mask_slopes: Any = None, scores: None = None, row_stats: Literal[False] = False,
         q_offset: Any = None, kv_lengths: Any = None, positions: Any = None, out: A | None = None,
         context: Context | None = None) -> A: ...


@overload
def sdpa(q: A, k: Any, v: Any, *, mask: Any = None, scale: float | None = None, causal: bool = False,
         window: int | tuple[int | None, int | None] | None = None, softcap: float | None = None, sinks: Any = None,
         alibi: Any = None, mask_slopes: Any = None, scores: Scores | None = None, row_stats: bool = False,
         q_offset: Any = None, kv_lengths: Any = None, positions: Any = None, v_threshold: float = 0.0,
         out: A | None = None, context: Context | None = None) -> tuple[A, ...]: ...


def sdpa(q: Any, k: Any, v: Any, *, mask: Any = None, scale: float | None = None, causal: bool = False,
         window: int | tuple[int | None, int | None] | None = None, softcap: float | None = None, sinks: Any = None,
         alibi: Any = None, mask_slopes: Any = None, scores: Scores | None = None, row_stats: bool = False,
         q_offset: Any = None, kv_lengths: Any = None, positions: Any = None, v_threshold: float = 0.0, out: Any = None,
         context: Context | None = None) -> Any:
    """Attention of one layer: softmax(scale * q k^T, masked and capped) v.

    q: [batch, q_heads, q_len, size] or without the batch. k, v: [batch, kv_heads, kv_len, size], where kv_heads divides
    q_heads and the batch divides that of q; v may have another size. Each is F32, F16 or BF16, k and v may be Packed,
    too. Any order of axes is taken as it lies, if the elements of a row do.
    mask: BOOL (true: attend), or F32 or F16 that is added; [q_len, kv_len] with further axes before them, each of the
    full length or 1. mask_slopes: a factor for each query head on an additive mask.
    scale: None is 1 / sqrt(size), and 0 is refused. softcap: logits become softcap * tanh(logit / softcap).
    causal: a query sees the keys up to its own position. q_offset is the position of the first query, one number, or
    one for each batch entry; None: kv_len - q_len, so that the last query sees the last key. (is_causal of torch puts
    the first query to the first key; with as many queries as keys that is the same.)
    kv_lengths: how many keys each batch entry has, where they are fewer than kv_len; what lies behind is not read.
    window: how many keys a query sees up to its own, or a pair with how many after it, each 1 at least; None in either
    place: no limit.
    sinks: a logit for each query head that joins the softmax without a value. alibi: a slope for each query head.
    positions: [batch, kv_heads, kv_len] I32, or [kv_len] as a list or array, the position of each key; a negative one
    hides it.
    v_threshold: values of a smaller probability need not be read.

    Returns out, [batch, q_heads, q_len, v_size] in q's type, or a tuple that begins with it. The others of the tuple
    come in this order: with `scores` F32 [batch, q_heads, q_len, kv_len], the logits ("raw", after the softcap
    "softcapped", with mask "biased") or "probs"; with row_stats F32 [..., q_len, 2], the largest logit m and the sum of
    exp(logit - m); with v_threshold I32 [..., q_len, 1], how many values were passed over. A query that sees no key
    gives zeros. out=: where the output goes instead, which is returned then.

    Raises InvalidArgument or TypeError with the name of the argument, and other Errors."""
    return on(_same(context, k, v), _Sdpa).run(q, k, v, mask, scale, causal, window, softcap, sinks, alibi, mask_slopes,
                                               scores, row_stats, q_offset, kv_lengths, positions, v_threshold, out)


class _Append(Operation):
    name = "kv_append"

    def __init__(self, context: Context) -> None:
        self.desc = _abi.KvAppendDesc()
        self.k, self.v = Slot("k", ROWS), Slot("v", ROWS)
        self.k_cache, self.v_cache = (Slot(name, ROWS, None, is_output=True) for name in ("k_cache", "v_cache"))
        self.rows, self.v_rows = row_numbers("rows"), row_numbers("v_rows")
        super().__init__(context)

    def prepare(self, k: Any, v: Any, k_cache: Any, v_cache: Any, rows: Any, v_rows: Any, k_norm: str,
                v_norm: str) -> Callable[[], None]:
        given = {"k_src": (self.k, k), "v_src": (self.v, v), "k_cache": (self.k_cache, k_cache),
                 "v_cache": (self.v_cache, v_cache), "k_row_indices": (self.rows, rows),
                 "v_row_indices": (self.v_rows, v_rows)}
        for field, (slot, array) in given.items():
            if array is not None:
                slot.put(array)
            self.point(**{field: None if array is None else slot})
        self.desc.k_norm = number_of(_abi.NORMS, "k_norm", k_norm)
        self.desc.v_norm = number_of(_abi.NORMS, "v_norm", v_norm)
        return lambda: None


class _Requantize(Operation):
    name = "kv_requantize"

    def __init__(self, context: Context) -> None:
        self.desc = _abi.KvRequantizeDesc()
        self.source, self.rows = Slot("source", ROWS, None), row_numbers("rows")
        self.target = Slot("out", ROWS, None, is_output=True)
        self.point(src=self.source, dst=self.target)
        self.context = weakref.ref(context)  # which has this operation
        super().__init__(context)

    def prepare(self, source: Any, type: str | None, out: Packed | None, rows: Any, norm: str,
                is_asked: bool = False) -> Callable[[], Packed]:
        """is_asked: nothing will be computed, so that a new target takes no memory."""
        self.source.put(source)
        if out is None:
            shape = self.source.shape[4 - self.source.rank:]
            out = Packed(shape, str(type), context=self.context(),
                         _buffer=NoBuffer if is_asked else Buffer)
            out._library = source._library if isinstance(source, Packed) else self.source.arrays
        elif not isinstance(out, Packed):
            raise InvalidArgument(f"out is {out.__class__.__name__}, expected Packed")
        self.target.put(out)
        if rows is not None:
            self.rows.put(rows)
        self.point(row_indices=None if rows is None else self.rows)
        self.desc.norm = number_of(_abi.NORMS, "norm", norm)
        target = out
        return lambda: target


class _Dequantize(Operation):
    name = "kv_dequantize"

    def __init__(self, context: Context) -> None:
        self.desc = _abi.KvDequantizeDesc()
        self.source, self.rows = Slot("source", ROWS, None), row_numbers("rows")
        self.target = Slot("out", ROWS, is_output=True)
        self.point(src=self.source, dst=self.target)
        super().__init__(context)

    def prepare(self, source: Packed, rows: Any, dtype: str, out: Any) -> Callable[[], Any]:
        number = dtype_number(dtype)
        if not isinstance(source, Packed):
            raise InvalidArgument(f"source is {source.__class__.__name__}, expected Packed")
        self.source.put(source)
        count, arrays = source.shape[-2], source._library or _arrays.own()
        if rows is not None:
            self.rows.put(rows)
            count = self.rows.shape[3]
        self.point(row_indices=None if rows is None else self.rows)
        if out is not None:
            self.target.put(out)
            return lambda: out
        raw = self.target.make(arrays, (*source.shape[:-2], count, source.shape[-1]), number)
        return lambda: arrays.finished(raw)


class _Hadamard(Operation):
    name = "hadamard"

    def __init__(self, context: Context) -> None:
        self.desc = _abi.HadamardDesc()
        self.source = Slot("source", "[a, b, c, size]", FLOATS, (1, 2, 3, 4))
        self.target = Slot("out", "[a, b, c, size]", FLOATS, (1, 2, 3, 4), is_output=True)
        self.point(src=self.source, dst=self.target)
        super().__init__(context)

    def prepare(self, source: Any, inverse: bool, out: Any) -> Callable[[], Any]:
        self.source.put(source)
        self.desc.inverse = int(inverse)
        arrays = self.source.arrays
        if out is not None:
            self.target.put(out)
            return lambda: out
        raw = self.target.make(arrays, self.source.shape[4 - self.source.rank:], arrays.result_type(self.source.type))
        return lambda: arrays.finished(raw)


def _same(context: Context | None, *rows: Packed | Any) -> Context | None:
    """The context of those that are Packed, or the one that is given. Raises InvalidArgument where they differ."""
    for each in rows:
        if isinstance(each, Packed):
            if context is not None and each.context is not context:
                raise InvalidArgument(f"{each!r} is of another context, expected one context for all")
            context = each.context
    return context


def quantize(source: Any, type: str, *, norm: Norm = "default", context: Context | None = None) -> Packed:
    """Rows in a storage format: source is [batch, heads, rows, size] F32, F16 or BF16, or without the batch.

    type: a name of docs/formats.md, as "q8_0" or "turbo4". norm: which factor turbo formats store; "default" is
    "corrected", which keeps a row's length. Raises InvalidArgument and OutOfMemory."""
    made: Packed = on(context, _Requantize).run(source, type, None, None, norm)
    return made


def requantize(source: Packed, type: str | None = None, rows: Any = None, *, out: Packed | None = None,
               norm: Norm = "default") -> Packed:
    """The same rows in another format, each rounded once. Either a type, and a new Packed is returned; or out=, a
    Packed of the same shape, of which `rows` are written (row numbers as for kv_append; None: all)."""
    if (type is None) == (out is None):
        raise InvalidArgument("a type or out is expected, and not both")
    made: Packed = on(_same(None, source, out), _Requantize).run(source, type, out, rows, norm)
    return made


@overload
def dequantize(source: Packed, rows: Any = None, *, dtype: str = "float32", out: None = None) -> Any: ...


@overload
def dequantize(source: Packed, rows: Any = None, *, dtype: str = "float32", out: A) -> A: ...


def dequantize(source: Packed, rows: Any = None, *, dtype: str = "float32", out: Any = None) -> Any:
    """The rows as an array [batch, heads, rows, size] of the library that they came from.
    dtype: "float32", "float16" or "bfloat16", or as formats are written, "f32".

    rows: which ones, as for kv_append, None: all. A row whose number is none of the source's becomes zeros."""
    return on(_same(None, source), _Dequantize).run(source, rows, dtype, out)


def kv_append(k: Any, v: Any, k_cache: Any, v_cache: Any, rows: Any, v_rows: Any = None, *, k_norm: str = "default",
              v_norm: str = "default", context: Context | None = None) -> None:
    """Stores rows of K and V, in one launch: k_cache[b, h, rows[b, h, i], :] = k[b, h, i, :], and V likewise.

    k, v: [batch, kv_heads, tokens, size] F32, F16 or BF16. k_cache, v_cache: Packed, or arrays of F32, F16 or BF16 that
    may be written. Either pair may be None. rows: [tokens] for all heads, or [batch, kv_heads, tokens]; a row whose
    number is outside of the cache is passed over. v_rows: those of V, where they are others. Raises InvalidArgument."""
    on(_same(context, k_cache, v_cache), _Append).run(k, v, k_cache, v_cache, rows, v_rows, k_norm, v_norm)


def hadamard(source: A, *, inverse: bool = False, out: A | None = None, context: Context | None = None) -> A:
    """The rotation of the turbo formats, of the last axis: 16 to 576 elements, a multiple of 16. F32, F16 or BF16."""
    result: A = on(context, _Hadamard).run(source, inverse, out)
    return result


_KINDS: dict[Any, type[Operation]] = {sdpa: _Sdpa, kv_append: _Append, hadamard: _Hadamard, dequantize: _Dequantize}


def supports(function: Callable[..., Any], *arguments: Any, **options: Any) -> Support:
    """Whether sdpa, kv_append, hadamard, quantize, requantize or dequantize would take these arguments, and by which
    kernel. Nothing is computed. Raises TypeError for another function, and for arguments that it does not have."""
    import inspect

    given = inspect.signature(function).bind(*arguments, **options)
    given.apply_defaults()
    values = dict(given.arguments)
    context = values.pop("context", None)
    try:
        if function is quantize or function is requantize:
            return _supports_requantize(context, **values)
        context = _same(context, *values.values())
    except Error as error:
        return Support("", str(error))
    if function not in _KINDS:
        raise TypeError(f"{function!r} is no operation, expected sdpa, kv_append, hadamard, quantize, requantize or "
                        f"dequantize")
    return on(context, _KINDS[function]).supports(**values)


def _supports_requantize(context: Context | None, source: Any, type: str | None, norm: str, rows: Any = None,
                         out: Packed | None = None) -> Support:
    return on(_same(context, source, out), _Requantize).supports(source, type, out, rows, norm, is_asked=True)
