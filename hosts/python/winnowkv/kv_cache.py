"""The cache: keys and values of all layers for some sequences, packed, inside a budget."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref, c_void_p
from types import TracebackType
from typing import Any

from winnowkv import _abi, _arrays
from winnowkv._cache_calls import CacheCalls
from winnowkv._policy import Policy, Runner, checked, safe_tokens
from winnowkv._step import Entry, Step
from winnowkv.context import Context, Owner, default_context
from winnowkv.description import Layers, cache_desc, layer_shapes
from winnowkv.errors import Error, InvalidArgument


class KvCache(CacheCalls, Owner):
    """Keys and values of all layers, for some sequences, inside a budget. Each layer and KV head evicts for itself what
    its policy ranks lowest (docs/policies.md); positions count all tokens from 0, whatever has been evicted.

    It is closed by close(), at the end of a `with`, when nobody has it any more, or with its context. Methods raise
    Error; whenever one does, the cache is as it was before, with two exceptions. After a DeviceError remove the
    sequences of the step. Under a policy of your own a step of more than policy_queries tokens, or with drafts, is made
    in up to three parts, and parts before the one that failed stay. One thread at a time computes on a context: others
    wait."""

    _elsewhere = "; copy(source, target) copies a sequence, to_bytes() and from_bytes() take the tokens elsewhere"

    def __init__(self, config: str = "winnow", *, layers: Layers, q_heads: int | None = None,
                 kv_heads: int | None = None, head_size: int | None = None, v_head_size: int | None = None,
                 max_tokens: int, sequences: int = 1, cells: int = 0,
                 resources: Mapping[str, bytes] | None = None, device: str | int | None = None,
                 context: Context | None = None, policy: Policy | None = None, policy_queries: int = 8,
                 policy_every: int = 1) -> None:
        """config: policy, budget and formats in one string, docs/policies.md: "h2o:budget=1/4,k=turbo4,v=turbo3".
        layers: how many; or a LayerShape for each layer of a model whose layers are unlike, in the place of the heads
        and sizes. kv_heads: None: as many as q_heads. v_head_size: None: head_size.
        max_tokens: the most tokens of a sequence, `context` in the plugin's messages.
        sequences: how many there may be, numbered from 0. cells: the most cells of a host that names its own, 0: none.
        resources: what the configuration wants of the model, by name (docs/policies.md).
        context: where it computes; None: the default context. device: instead, what Context(device) takes, for a
        context of the cache's own, which close() closes.
        policy: a function that ranks tokens, see `policy`. policy_queries: of how many of a step's last queries it
        gets the scores, at most; they take 4 bytes for each layer, query head, query and token. policy_every: with n,
        steps of one query call it for every n-th token.

        Raises InvalidArgument where the configuration or the shape is refused."""
        if device is not None and context is not None:
            raise InvalidArgument("device and context are given, expected one of them")
        self.layer_shapes = layer_shapes(layers, q_heads, kv_heads, head_size, v_head_size)
        self.layers = len(self.layer_shapes)
        self._desc = cache_desc(config, layers, q_heads, kv_heads, head_size, v_head_size, max_tokens, sequences, cells,
                                resources)
        self.max_tokens, self.sequences, self.cells = (int(self._desc.context), int(self._desc.max_sequences),
                                                       int(self._desc.cells))
        self._policy_queries = _arrays.whole(policy_queries, "policy_queries", 1)
        self._policy_every = _arrays.whole(policy_every, "policy_every", 1)
        if policy is not None:
            checked(policy)  # before memory is taken
        self._owned = None if device is None else Context(device)  # the context that close() closes
        self._context = self._owned or context or default_context()
        core = self._core = self._context._core
        self._functions = core.library.cache_functions
        handle = c_void_p()
        with core:
            core.check(self._functions["create"](core.open(), byref(self._desc), byref(handle)))
            self._handle: int | None = core.own(handle, self._functions["destroy"])
        self._finalizer = weakref.finalize(self, core.dispose, self._handle)
        v_sizes = [shape.v_head_size or shape.head_size for shape in self.layer_shapes]
        self._step = Step(core, self._handle, max(1, self.sequences), v_sizes)
        self._last = None
        if policy is not None:
            self.policy = policy

    # ---- Its life ---------------------------------------------------------------------------------------------

    def __enter__(self) -> KvCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives its memory back. Calling it again does nothing."""
        core = self._core
        with contextlib.nullcontext() if core.is_foreign else core:
            if self._handle is not None:
                core.destroy(self._handle)
                self._finalizer.detach()
                self._handle = None
        if self._owned is not None:
            self._owned.close()

    @property
    def is_closed(self) -> bool:
        return self._handle is None or self._core.handle is None or self._core.is_foreign

    def __repr__(self) -> str:
        shape = f"{self.layers} layers, " + " or ".join(
            f"{heads}/{kv_heads} heads of {size}" + (f"/{v_size}" if v_size not in (None, size) else "")
            for heads, kv_heads, size, v_size in dict.fromkeys(self.layer_shapes))
        if self.is_closed:
            return f"<KvCache {shape}, closed>"
        stats, meaning, count = self.stats(), self.describe(), max(1, self.sequences)
        held = f", at most {meaning.budget_tokens} in a KV head" if meaning.evicts else ""
        of = "" if count == 1 else f" for {count} sequences"
        return (f"<KvCache {self.config!r}: {shape}; {stats.tokens} tokens of {count * self.max_tokens}{of}{held}; "
                f"{_bytes(stats.bytes)} of a budget of {_bytes(count * stats.budget_bytes)}{of}>")

    @property
    def context(self) -> Context:
        """Where it computes."""
        return self._context

    @property
    def policy_queries(self) -> int:
        """Of how many of a step's last queries the policy gets the scores, at most."""
        return self._policy_queries

    @property
    def policy_every(self) -> int:
        """With n, steps of one query call the policy for every n-th token."""
        return self._policy_every

    @property
    def safe_step_tokens(self) -> int:
        """The most tokens that may come before a policy of your own is called, one step of them or several, so that
        none is evicted before the policy has ranked it: generate(..., prefill_chunk_size=cache.kv.safe_step_tokens)."""
        return safe_tokens(self.describe(), self.max_tokens, self.policy_queries)

    # ---- Steps ------------------------------------------------------------------------------------------------

    def step(self, layer: int, k: Any = None, v: Any = None, q: Any = None, *,
             sequence: int | Sequence[int] = 0, entries: Sequence[Entry] | None = None, drafts: int = 0,
             out: Any = None, scores: Any = False, mask: Any = None, cells: Any = None, scale: float | None = None,
             softcap: float | None = None, window: int | None = None, sinks: Any = None, alibi: Any = None,
             mask_slopes: Any = None) -> Any:
        """Appends the tokens of k and v to a layer, lets those of q attend, or both in this order of the tokens.

        k: [batch, kv_heads, tokens, head_size], v: [batch, kv_heads, tokens, v_head_size], q: [batch, q_heads, tokens,
        head_size], F32, F16 or BF16; a batch of one may be left out. Any order of axes is taken as it lies, if the
        elements of a row do. Keys carry their positions (RoPE) already. Without q: append only. Without k and v: the
        last tokens that were appended attend, as many as q has. Attention is causal over what is stored.

        sequence: of all rows; or a list, of one sequence for each batch entry. entries: rows and sequences in any other
        way. drafts: how many of the last tokens truncate may take back; their queries leave nothing in the importance.
        scores: True, or an F32 array [q_heads, tokens, columns] to be written.
        scale: None is 1 / sqrt(head_size). softcap, sinks, alibi: as sdpa. window: how many tokens a query sees up to
        its own, 1 at least.
        cells, mask, mask_slopes: of caches with cells; the cell of each token [batch, tokens], and what a query sees.

        Returns None without q; out [batch, q_heads, tokens, v_head_size] in q's type, of q's library and as many axes;
        or (out, scores), with scores F32 [q_heads, tokens, columns], logits in the column of each token's position (or
        cell), -infinity where a token is not stored or not seen. With several entries scores is a list, one for each.

        Raises InvalidArgument or TypeError with the name of the argument, OutOfMemory, and other Errors."""
        core, step = self._core, self._step
        with core:
            core.open()
            if self._handle is None:
                raise Error("the cache is closed")
            try:
                step.put(k, v, q, sinks, alibi, mask_slopes, cells)
                step.set_numbers(layer, scale, softcap, window)
                made = step.make_out(out)
                if type(sequence) is not int:
                    sequence = _numbers_of(sequence)
                runner = None if q is None else self._runner
                if q is None and self._runner is not None:
                    self._runner.lose_positions()
                if entries is None and scores is False and mask is None and runner is None and type(sequence) is int:
                    step.set_only(sequence, drafts)
                    step.run()
                    self._last = arrays = step.arrays
                    return made if made is out else arrays.finished(made)
                return self._step_entries(layer, made, out, self._entries(sequence, entries, drafts, scores, mask),
                                          entries is None and isinstance(sequence, int), runner)
            finally:
                if step.held:
                    step.release()

    def _entries(self, sequence: int | Sequence[int], entries: Sequence[Entry] | None, drafts: int, scores: Any,
                 mask: Any) -> Sequence[Entry]:
        """What a step has for each of its sequences. Raises InvalidArgument."""
        if entries is not None:
            return entries
        rows = self._step.rows
        numbers = [sequence] if isinstance(sequence, int) else sequence
        if len(numbers) != rows.shape[0]:
            raise InvalidArgument(f"{rows.name} has a batch of {rows.shape[0]}, and sequence is {sequence}, expected "
                                  f"one sequence for each: sequence=[0, 1, ...], or entries")
        if len(numbers) > 1 and (mask is not None or not isinstance(scores, bool)):
            raise InvalidArgument("mask and scores are given for several sequences, expected those of entries")
        return [Entry(number, at, drafts=drafts, mask=mask, scores=scores) for at, number in enumerate(numbers)]

    def _step_entries(self, layer: int, made: Any, out: Any, entries: Sequence[Entry], is_only: bool,
                      runner: Runner | None) -> Any:
        """Of any entries, with scores, masks and a policy."""
        step, rows = self._step, self._step.rows
        for each in entries:
            if each.scores is None or isinstance(each.scores, (str, int)) and not isinstance(each.scores, bool):
                raise InvalidArgument(f"scores is {each.scores!r}, expected True, False, or an F32 array to be written")
            if runner is not None and each.scores is not False:
                raise InvalidArgument("scores are asked for in a step whose scores the policy gets, expected one of "
                                      "both")
        if runner is not None:
            self._observe(layer, entries, runner)
            results: list[Any] = []
        else:
            step.set_entries(entries)
            results = [self._put_entry(at, layer, each) for at, each in enumerate(entries)]
            step.run()
        self._last = arrays = rows.arrays
        if runner is not None:
            runner.run_all([each.sequence for each in entries], arrays)
        result = made if made is out else arrays.finished(made)
        if all(each.scores is False for each in entries):
            return result
        scores = [raw if raw is None or raw is each.scores else arrays.finished(raw)
                  for raw, each in zip(results, entries)]
        return result, scores[0] if is_only else scores

    def _put_entry(self, at: int, layer: int, entry: Entry) -> Any:
        """Mask and scores of an entry; the latter are returned."""
        step = self._step
        if entry.mask is not None:
            step.put_mask(at, entry.mask)
        if entry.scores is False:
            return None
        slot = step.scores_slot(at)
        if entry.scores is not True:
            slot.put(entry.scores)
            return entry.scores
        count = step.entries[at].count
        rank = 4 if step.rows.rank == 4 and step.rows.shape[0] == 1 else 3
        shape = (step.rows.shape[1], count, self._columns(layer, entry.sequence, count))
        return slot.make(step.arrays, (1, *shape) if rank == 4 else shape, _abi.F32)

    def _columns(self, layer: int, sequence: int, count: int) -> int:
        """How many columns the scores of a step have."""
        if self.cells:
            return self.cells
        begin = None if self._runner is None else self._runner.observed(sequence).next.get(layer)
        if begin is None:
            begin = self.next_position(layer, sequence)
        return begin + (count if self._step.desc.k else 0)

    def _observe(self, layer: int, entries: Sequence[Entry], runner: Runner) -> None:
        """The step in up to three: the tokens whose scores the policy does not get, those whose scores it gets, and
        drafts. Together they do what one step does."""
        step = self._step
        tokens = step.rows.shape[2]
        parts: list[list[tuple[Entry, int, int]]] = [[], [], []]  # an entry, its first row, how many
        for each in entries:
            count = tokens - each.first if each.count is None else each.count
            drafts = min(each.drafts, count) if step.desc.k else 0
            counted = count - drafts
            queries = min(counted, runner.queries) if step.desc.k else counted
            if counted == 1 and runner.every > 1 and self._columns(layer, each.sequence, 1) % runner.every:
                queries = 0
            firsts = (0, counted - queries, counted)
            for part, first, length in zip(parts, firsts, (counted - queries, queries, drafts)):
                if length:
                    part.append((each, each.first + first, length))
        for which, part in enumerate(parts):
            if not part:
                continue
            step.set_entries([Entry(each.sequence, each.batch, first, length, length if which == 2 else 0)
                              for each, first, length in part])
            after = [self._columns(layer, each.sequence, length) for each, _, length in part]
            seen = [runner.observed(each.sequence) for each, _, _ in part]
            for at, (observed, columns, (_, _, length)) in enumerate(zip(seen, after, part)):
                if which == 1:
                    observed.tensor(step.scores_slot(at), layer, (columns - length, length, columns))
                observed.begin(columns - (length if step.desc.k else 0))
                observed.next.pop(layer, None)  # until the step is made
            step.run()
            for observed, columns in zip(seen, after):
                observed.next[layer] = columns

    # ---- A policy of one's own --------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy | None:
        """A function that says what tokens are worth: policy(scores, importance) -> importance.

        It is called once all layers have had a step with q, for each sequence of the step. scores: F32 [layers,
        kv_heads, group, queries, tokens], logits of the step's last queries (policy_queries at most, none of drafts),
        -infinity where a token is not stored or not seen; group: the query heads of a KV head. importance: F32 [layers,
        kv_heads, tokens], what the policy returned last, 0 for new tokens. Both are of q's library, and valid during
        the call. It returns the importance from now on, in the same shape: the smallest is evicted first, NaN before
        everything else. A configuration "external:..." goes by nothing else; others that keep an importance go on from
        it. None: no policy. Raises InvalidArgument for a configuration that keeps no importance, and caches with cells.
        """
        return self._runner.policy if self._runner is not None else None

    @policy.setter
    def policy(self, policy: Policy | None) -> None:
        if policy is None:
            self._runner = None
            return
        if len(set(self.layer_shapes)) > 1:
            raise InvalidArgument("the cache has layers of several shapes, expected one shape for a policy")
        if self.cells:
            raise InvalidArgument("the cache has cells, expected one without for a policy")
        if not self._keeps_importance():
            raise InvalidArgument(f"the configuration {self.config!r} keeps no importance, expected one that does for "
                                  f"a policy, as external:budget=1/4")
        shape = self.layer_shapes[0]
        self._runner = Runner(policy, self.policy_queries, self.policy_every, self.layers, shape.q_heads,
                              shape.kv_heads, self._set_importance, self._get_importance,
                              lambda: self.safe_step_tokens)

    def _set_importance(self, sequence: int, layer: int, head: int, positions: int, importance: int,
                        count: int) -> None:
        status = self._functions["set_importance"](self._handle, sequence, layer, head, positions, importance, count)
        if status:
            self._core.check(status)

    def _get_importance(self, sequence: int, layer: int, head: int) -> Iterable[tuple[int, float]]:
        tokens = self.tokens(layer, head, sequence)
        return zip(tokens.positions, tokens.importance or ())

    def set_importance(self, layer: int, head: int | None, importance: Any, positions: Any = None,
                       sequence: int = 0) -> None:
        """Says what tokens of a KV head (None: of all heads of the layer) are worth; what is smallest goes first, and
        NaN before everything else. importance: {position: number}, or numbers of the positions, or of all positions
        from 0. A token that the head does not hold is passed over. Raises InvalidArgument, also where the policy of the
        cache keeps no importance."""
        if isinstance(importance, Mapping):
            positions, importance = importance.keys(), importance.values()
        numbers = _arrays.floats(importance, "importance")
        where = _arrays.integers(range(len(numbers)) if positions is None else positions, "positions")
        if len(where) != len(numbers):
            raise InvalidArgument(f"importance has {len(numbers)} numbers, expected {len(where)}, one for each "
                                  f"position")
        sequence, shape = _arrays.whole(sequence, "sequence"), self._shape(layer)
        for each in range(shape.kv_heads) if head is None else (_arrays.whole(head, "head"),):
            self._call("set_importance", sequence, layer, each, where, numbers, len(where))
        self.has_importance_of_host = True
        self._forget(sequence)


def _numbers_of(sequence: Any) -> int | list[int]:
    """The number of a sequence, or several, of any type of whole numbers."""
    if _arrays.is_single(sequence):
        return _arrays.whole(sequence, "sequence")
    return list(_arrays.integers(sequence, "sequence"))


def _bytes(count: int) -> str:
    """A number of bytes for people."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
