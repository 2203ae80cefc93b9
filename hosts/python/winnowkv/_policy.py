"""Runs a policy of the user's: a function from the scores of a step to what tokens are worth."""

from __future__ import annotations

import ctypes
import inspect
import math
import warnings
from collections.abc import Callable, Iterable
from ctypes import c_char, c_float, c_int64, memmove
from typing import Any

from winnowkv import _abi, _arrays
from winnowkv._arrays import Arrays
from winnowkv._dlpack import View
from winnowkv._slots import Slot
from winnowkv.description import Description
from winnowkv.errors import InvalidArgument

Policy = Callable[[Any, Any], Any]
SIZE = 4  # bytes of F32
MOST_AT_ONCE = 32  # tokens that the plugin appends between two eviction passes, at most (docs/cache.md)


def checked(policy: Any) -> Policy:
    """Raises InvalidArgument for what cannot be called with two arguments."""
    if isinstance(policy, str):
        raise InvalidArgument(f"policy is {policy!r}, expected a function of (scores, importance); Winnow's own "
                              f'policies are configurations, as "tova:budget=64"')
    if not callable(policy):
        raise InvalidArgument(f"policy is {policy!r}, expected a function of (scores, importance)")
    try:
        signature = inspect.signature(policy)
    except (TypeError, ValueError):  # of some functions in C
        return policy  # type: ignore[no-any-return]
    try:
        signature.bind(None, None)
    except TypeError:
        name = getattr(policy, "__name__", type(policy).__name__)
        raise InvalidArgument(f"policy is {name}{signature}, expected a function of (scores, importance)") from None
    return policy  # type: ignore[no-any-return]


def safe_tokens(description: Description, max_tokens: int, queries: int) -> int:
    """The most tokens of a step of which none is evicted before a policy has ranked it. The plugin appends at most
    `at_once` tokens together, and evicts before that; a pass protects the newest tokens that were there."""
    if not description.evicts:
        return max_tokens
    at_once, newest = min(MOST_AT_ONCE, description.cadence), description.residual
    if description.policy == "external":
        newest = max(newest, _recent(description))
    protected = max(newest - description.cadence, 0)
    # The last `queries` tokens of a step come apart from the others.
    longer = protected + (queries - 1) % at_once + 1
    return min(max_tokens, longer if longer > queries else min(queries, (protected // at_once + 1) * at_once))


def _recent(description: Description) -> int:
    """`recent` of the configuration in tokens."""
    keys = dict(each.split("=", 1) for each in description.config.partition(":")[2].split(",") if "=" in each)
    above, _, below = keys.get("recent", "1/4").partition("/")
    return description.budget_tokens * int(above) // int(below) if below else int(above)


class Memory:
    """F32 numbers that arrays of every library can share."""

    def __init__(self) -> None:
        self._memory = bytearray()
        self.address = 0

    def reserve(self, count: int) -> None:
        """Room for so many numbers; what was there is lost where there was less."""
        if len(self._memory) < SIZE * count:
            self._memory = bytearray(SIZE * (count + count // 4))
            self.address = ctypes.addressof(c_char.from_buffer(self._memory))

    def view(self, count: int) -> memoryview:
        return memoryview(self._memory)[:SIZE * count]


class Importance:
    """What a policy said last: [layers, kv_heads, tokens]. Each row in memory has room for one token more, which is
    worth 0, so that the next step of one token finds its array."""

    def __init__(self, rows: int) -> None:
        self._rows = rows  # layers * kv_heads
        self._memories = Memory(), Memory()  # what a policy sees, and where its result goes
        self._columns = 0  # of a row in memory
        self.tokens = 0

    def cut(self, tokens: int) -> None:
        """Forgets later tokens."""
        if tokens < self.tokens:
            self._copy(self._rows_of(), tokens, tokens)

    def grow(self, tokens: int) -> memoryview:
        """As many tokens, of which the new ones are worth 0."""
        if tokens != self._columns:
            self._copy(self._rows_of(), min(tokens, self.tokens), tokens)
        self.tokens = tokens
        return self._memories[0].view(self._rows * tokens)

    def set(self, rows: Iterable[int]) -> None:
        """Takes as many tokens as grow() gave from rows at these addresses."""
        self._copy(rows, self.tokens, self.tokens + 1)

    def row(self, row: int) -> int:
        """Where the numbers of a layer's KV head begin."""
        return self._memories[0].address + SIZE * row * self._columns

    def _rows_of(self) -> Iterable[int]:
        return map(self.row, range(self._rows))

    def _copy(self, rows: Iterable[int], tokens: int, columns: int) -> None:
        source, target = self._memories
        target.reserve(self._rows * columns)
        ctypes.memset(target.address, 0, SIZE * self._rows * columns)
        for at, row in enumerate(rows):
            memmove(target.address + SIZE * at * columns, row, SIZE * tokens)
        self._memories, self._columns, self.tokens = (target, source), columns, tokens


class Observed:
    """The scores of a sequence's step in all layers."""

    def __init__(self, layers: int, q_heads: int, rows: int) -> None:
        self.layers: set[int] = set()
        self.step: tuple[int, ...] = ()  # the next position before it, its queries that count, its columns
        self._shape = layers, q_heads
        self._memory = Memory()
        self.importance = Importance(rows)
        self.is_known = True  # whether importance is what the cache has
        self.next: dict[int, int] = {}  # the next position of layers, which saves asking the cache
        self.ranked = -1  # how many tokens there were when the policy was called last; -1: see begin()

    def begin(self, tokens: int) -> None:
        """A step comes after so many tokens. What the policy knows of them is not asked where nothing is known."""
        if self.ranked < 0:
            self.ranked = tokens

    def tensor(self, slot: Slot, layer: int, step: tuple[int, ...]) -> None:
        """Has the scores of a layer go to their place. Another step than the one before begins anew."""
        _, queries, columns = step
        layers, heads = self._shape
        if step != self.step or layer in self.layers:
            self.layers.clear()
            self.step = step
            self._memory.reserve(layers * heads * queries * columns)
        address = self._memory.address + SIZE * layer * heads * queries * columns
        slot.lay(_arrays.PLAIN, address, (1, heads, queries, columns), _abi.F32)
        self.layers.add(layer)

    def scores(self, arrays: Arrays, kv_heads: int) -> Any:
        """[layers, kv_heads, group, queries, columns]"""
        layers, heads = self._shape
        _, queries, columns = self.step
        shape = (layers, kv_heads, heads // kv_heads, queries, columns)
        return arrays.shaped(self._memory.view(layers * heads * queries * columns), shape)


class Runner:
    """A policy, and what it has to remember for each sequence."""

    def __init__(self, policy: Policy, queries: int, every: int, layers: int, q_heads: int, kv_heads: int,
                 set_importance: Callable[[int, int, int, int, int, int], None],
                 get_importance: Callable[[int, int, int], Iterable[tuple[int, float]]],
                 get_safe_tokens: Callable[[], int]) -> None:
        """set_importance(sequence, layer, head, address of positions, address of importance, count) tells the cache,
        get_importance(sequence, layer, head) asks it: pairs of a position and its importance. get_safe_tokens() gives
        what safe_tokens() does."""
        self.policy, self.queries, self.every = checked(policy), queries, every
        self._layers, self._q_heads, self._kv_heads = layers, q_heads, kv_heads
        self._set, self._get = set_importance, get_importance
        self._sequences: dict[int, Observed] = {}
        self._positions = (c_int64 * 0)()
        self._get_safe_tokens = get_safe_tokens
        self._safe_tokens: int | None = None
        self._warned: set[str] = set()  # of what, each once

    def forget_config(self) -> None:
        """The cache has another configuration."""
        self._safe_tokens = None

    def observed(self, sequence: int) -> Observed:
        if sequence not in self._sequences:
            self._sequences[sequence] = Observed(self._layers, self._q_heads, self._layers * self._kv_heads)
            self._sequences[sequence].is_known = False
        return self._sequences[sequence]

    def forget(self, sequence: int | None) -> None:
        """The importance of a sequence (None: of all) is asked of the cache when it is needed next."""
        if sequence is None or sequence < 0:
            self._sequences.clear()
        else:
            self._sequences.pop(sequence, None)

    def cut(self, sequence: int, length: int) -> None:
        """The sequence was truncated."""
        if sequence in self._sequences:
            self._sequences[sequence].layers.clear()
            self._sequences[sequence].next.clear()
            self._sequences[sequence].importance.cut(length)
            self._sequences[sequence].ranked = min(self._sequences[sequence].ranked, length)

    def lose_positions(self) -> None:
        """Tokens are appended without the policy's steps."""
        for observed in self._sequences.values():
            observed.next.clear()

    def run_all(self, sequences: Iterable[int], arrays: Arrays) -> None:
        """Calls the policy for each of the sequences, and raises the first error after the last call."""
        errors = []
        for sequence in sequences:
            try:
                self.run(sequence, arrays)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def run(self, sequence: int, arrays: Arrays) -> None:
        """Calls the policy, if all layers had the step, and tells the cache what it says. Raises what the policy does,
        and InvalidArgument where its result has another shape."""
        observed = self.observed(sequence)
        if len(observed.layers) < self._layers:
            return
        observed.layers.clear()
        columns = observed.step[2]
        self._look_for_unranked(sequence, observed)
        observed.ranked = columns
        importance = observed.importance
        numbers = importance.grow(columns)
        if not observed.is_known:
            self._ask(sequence, importance)
        shape = (self._layers, self._kv_heads, columns)
        observed.is_known = False  # while the policy may write into it
        result = self.policy(observed.scores(arrays, self._kv_heads), arrays.shaped(numbers, shape))
        has_nan = self._take(result, importance, shape, arrays)
        observed.is_known = True
        self._tell(sequence, importance)
        if has_nan and "nan" not in self._warned:
            self._look_for_nan(sequence)

    def _look_for_unranked(self, sequence: int, observed: Observed) -> None:
        """Warns once of tokens that were evicted before the policy was called."""
        columns = observed.step[2]
        last = max(observed.next.values(), default=columns)
        if self._safe_tokens is None:
            self._safe_tokens = self._get_safe_tokens()
        if last - observed.ranked <= self._safe_tokens or "unranked" in self._warned:
            return
        for row in range(self._layers * self._kv_heads):
            layer, head = divmod(row, self._kv_heads)
            held = sum(observed.ranked <= position < columns for position, _ in self._get(sequence, layer, head))
            gone = columns - observed.ranked - held
            if gone > 0:
                self._warned.add("unranked")
                safe = self._safe_tokens
                warnings.warn(f"{gone} of the last {columns - observed.ranked} tokens were evicted in layer {layer}, "
                              f"KV head {head} before the policy was called; let it be called after every {safe} "
                              f"tokens at most (steps of {safe} tokens, under transformers "
                              f"generate(..., prefill_chunk_size={safe})), or protect more of the newest tokens: "
                              f"recent=1/2", RuntimeWarning, stacklevel=2)
                return

    def _look_for_nan(self, sequence: int) -> None:
        """Warns once of a token that is held. NaN of others means nothing."""
        for row in range(self._layers * self._kv_heads):
            layer, head = divmod(row, self._kv_heads)
            tokens = self._get(sequence, layer, head)
            found = next((position for position, number in tokens if math.isnan(number)), None)
            if found is not None:
                self._warned.add("nan")
                warnings.warn(f"the policy returned NaN for the token at position {found} in layer {layer}, KV head "
                              f"{head}, expected a number; NaN is evicted before everything else", RuntimeWarning,
                              stacklevel=2)
                return

    def _tell(self, sequence: int, importance: Importance) -> None:
        """Names all tokens in order, which costs the cache least: it passes over those that a head does not hold."""
        if len(self._positions) < importance.tokens:
            self._positions = (c_int64 * (2 * importance.tokens))(*range(2 * importance.tokens))
        positions = ctypes.addressof(self._positions)
        for row in range(self._layers * self._kv_heads):
            self._set(sequence, row // self._kv_heads, row % self._kv_heads, positions, importance.row(row),
                      importance.tokens)

    def _ask(self, sequence: int, importance: Importance) -> None:
        for row in range(self._layers * self._kv_heads):
            numbers = (c_float * importance.tokens).from_address(importance.row(row))
            for position, number in self._get(sequence, row // self._kv_heads, row % self._kv_heads):
                if position < importance.tokens:
                    numbers[position] = number

    def _take(self, result: Any, importance: Importance, shape: tuple[int, ...], arrays: Arrays) -> bool:
        """Returns whether there is a NaN."""
        if result is None:
            raise InvalidArgument(f"the policy returned None, expected the importance {list(shape)}")
        try:
            result = arrays.as_f32(result)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidArgument(f"the policy returned {type(result).__name__}, expected numbers of the shape "
                                  f"{list(shape)}: {error}") from error
        slot = Slot("the policy's result", "[layers, kv_heads, tokens]", (_abi.F32,), (3,))
        found = list(getattr(result, "shape", ()))
        if found and found != list(shape):
            hint = ("; take the mean over axis 2 of the scores, the query heads of a KV head"
                    if len(found) == 4 and found[:2] == list(shape[:2]) else "")
            raise InvalidArgument(f"the policy returned the shape {found}, expected {list(shape)}, "
                                  f"[layers, kv_heads, tokens]{hint}")
        slot.put(result)
        begin, (_, layer, head, _) = slot.tensor.data, slot.tensor.stride
        importance.set(begin + layer * at + head * its for at in range(shape[0]) for its in range(shape[1]))
        differs = result != result  # an array, or of a memoryview a bool
        return bool(differs.any() if hasattr(differs, "any") else differs)
