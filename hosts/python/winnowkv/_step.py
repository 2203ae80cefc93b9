"""One step of a cache, with the structs that it keeps from call to call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from winnowkv import _abi
from winnowkv._arrays import Arrays, factor, whole
from winnowkv._slots import INTEGERS, MASKS, Numbers, Slot
from winnowkv.context import Core
from winnowkv.errors import InvalidArgument


@dataclass
class Entry:
    """What a step has for one sequence: `count` rows of batch entry `batch` of its arrays, from row `first` on."""

    sequence: int
    batch: int = 0
    first: int = 0
    count: int | None = None  # None: all rows from `first` on
    drafts: int = 0  # how many of the last rows may be taken back: their queries leave nothing in the importance
    mask: Any = None  # caches with cells: [q_heads, count, cells] BOOL, F32 or F16, each axis but the last may be 1
    scores: Any = False  # True, or F32 [q_heads, count, columns] to be written



class Step:
    """The structs of a cache's steps."""

    def __init__(self, core: Core, handle: int, sequences: int, v_sizes: Sequence[int]) -> None:
        self._v_sizes = v_sizes  # of each layer
        self._core, self._handle = core, handle
        self._function = core.library.cache_functions["step"]
        self.desc = _abi.CacheStepDesc()
        self._ref = ctypes.byref(self.desc)
        self.k, self.v, self.q = (Slot(name, f"[batch, {heads}, tokens, {size}]") for name, heads, size in
                                  (("k", "kv_heads", "head_size"), ("v", "kv_heads", "v_head_size"),
                                   ("q", "q_heads", "head_size")))
        self.out = Slot("out", "[batch, q_heads, tokens, v_head_size]", is_output=True)
        self.alibi, self.sinks, self.mask_slopes = Numbers("alibi"), Numbers("sinks"), Numbers("mask_slopes")
        self.cells = Numbers("cells", INTEGERS, (0, 3), "[batch, tokens] or [tokens]")
        self._slots = (self.k, self.v, self.q, self.out, self.alibi, self.sinks, self.mask_slopes, self.cells)
        self.held: list[Slot] = []  # slots that keep something during a call
        for slot in self._slots:
            slot.held = self.held
        self._fields = ("k", "v", "q", "out", "alibi_slopes", "head_sink", "mask_slopes", "cells")
        self._given: tuple[bool, ...] = ()
        self._numbers: object = None  # scale, softcap and window as they are in the struct
        self.entries = (_abi.CacheEntry * sequences)(*(_abi.CacheEntry() for _ in range(sequences)))
        self.desc.entries = self.entries
        self.desc.entry_stride = ctypes.sizeof(_abi.CacheEntry)
        self._first = self.entries[0]
        self._only: object = None  # what the only entry says, where it has neither mask nor scores
        self._masks: list[Slot] = []
        self._scores: list[Slot] = []

    @property
    def rows(self) -> Slot:
        """Of which the step has one for each token."""
        return self.q if self._given[2] else self.k

    def put(self, k: Any, v: Any, q: Any, sinks: Any, alibi: Any, mask_slopes: Any, cells: Any) -> None:
        """Takes the arrays. Raises InvalidArgument or TypeError with the argument's name."""
        if k is not None:
            self.k.put(k)
        if v is not None:
            self.v.put(v)
        if q is not None:
            self.q.put(q)
        elif k is None:
            raise InvalidArgument("k, v and q are None, expected k and v, or q, or all three")
        if alibi is not None:
            self.alibi.put(alibi)
        if sinks is not None:
            self.sinks.put(sinks)
        if mask_slopes is not None:
            self.mask_slopes.put(mask_slopes)
        if cells is not None:
            self.cells.put(cells)
        given = (k is not None, v is not None, q is not None, q is not None, alibi is not None, sinks is not None,
                 mask_slopes is not None, cells is not None)
        if given != self._given:
            self._given = ()
            for field, slot, is_given in zip(self._fields, self._slots, given):
                setattr(self.desc, field, slot.pointer if is_given else None)
            self._given = given

    def set_numbers(self, layer: int, scale: float | None, softcap: float | None, window: int | None) -> None:
        """Raises InvalidArgument."""
        layer = whole(layer, "layer", 0, len(self._v_sizes) - 1)
        numbers = (0.0 if scale is None else factor(scale, "scale"),
                   0.0 if softcap is None else factor(softcap, "softcap"),
                   0 if window is None else whole(window, "window", 1))
        self.desc.layer = layer
        if numbers != self._numbers:
            self._numbers = None
            self.desc.scale, self.desc.softcap, self.desc.window_left = numbers
            self._numbers = numbers

    def set_only(self, sequence: int, drafts: int) -> None:
        """All rows are of one sequence. Raises InvalidArgument."""
        shape = self.rows.shape
        only = whole(sequence, "sequence"), shape[0], shape[2], whole(drafts, "drafts", 0)
        if only == self._only:
            return
        if shape[0] != 1:
            raise InvalidArgument(f"{self.rows.name} has a batch of {shape[0]}, and sequence is {sequence}, expected "
                                  f"one sequence for each: sequence=[0, 1, ...], or entries")
        entry, self._only = self._first, None
        entry.sequence, entry.batch, entry.first, entry.count, entry.draft_tokens = only[0], 0, 0, shape[2], only[3]
        entry.attn_mask = entry.scores_out = None
        self.desc.entry_count = 1
        self._only = only

    def set_entries(self, entries: Sequence[Entry]) -> None:
        """Rows of several sequences. Raises InvalidArgument."""
        if not 1 <= len(entries) <= len(self.entries):
            raise InvalidArgument(f"the step has {len(entries)} entries, expected 1 to {len(self.entries)}, the "
                                  f"sequences of the cache")
        numbers = [(whole(each.sequence, "sequence"), whole(each.batch, "batch", 0), whole(each.first, "first", 0),
                    None if each.count is None else whole(each.count, "count"), whole(each.drafts, "drafts", 0))
                   for each in entries]
        self._only = None
        for raw, (sequence, batch, first, count, drafts) in zip(self.entries, numbers):
            raw.sequence, raw.batch, raw.first, raw.draft_tokens = sequence, batch, first, drafts
            raw.count = self.rows.shape[2] - first if count is None else count
            raw.attn_mask = raw.scores_out = None
        self.desc.entry_count = len(entries)

    def put_mask(self, at: int, mask: Any) -> None:
        """The mask of an entry."""
        while len(self._masks) <= at:
            self._masks.append(Slot("mask", "[1, q_heads, tokens, cells]", MASKS, (2, 3, 4)))
            self._masks[-1].held = self.held
        self._masks[at].put(mask)
        self.entries[at].attn_mask = self._masks[at].pointer
        self._only = None

    def scores_slot(self, at: int) -> Slot:
        """Where the scores of an entry go."""
        while len(self._scores) <= at:
            self._scores.append(Slot("scores", "[1, q_heads, tokens, columns]", (_abi.F32,), is_output=True))
            self._scores[-1].held = self.held
        self.entries[at].scores_out = self._scores[at].pointer
        self._only = None
        return self._scores[at]

    def make_out(self, out: Any) -> Any:
        """Memory for the output, `out` or new. None where there is none."""
        if not self._given[2]:
            return None
        if out is not None:
            self.out.put(out)
            return out
        q = self.q
        batch, heads, tokens, _ = q.shape
        layer = self.desc.layer
        size = self._v_sizes[layer] if 0 <= layer < len(self._v_sizes) else 1  # which the plugin refuses
        shape = (batch, heads, tokens, size) if q.rank == 4 else (heads, tokens, size)
        return self.out.make(q.arrays, shape, q.arrays.result_type(q.type))

    @property
    def arrays(self) -> Arrays:
        return self.rows.arrays

    def run(self) -> None:
        """Computes, and waits. Raises Error."""
        self._core.compute(self._function, self._handle, self._ref, None)

    def release(self) -> None:
        """Lets go of arrays that had to be kept during the call."""
        for slot in self.held:
            slot.keep = None
        self.held.clear()
