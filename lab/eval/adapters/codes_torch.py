"""A model in torch whose attention reads rows of keys and values as a code gives them back."""

import importlib.metadata
import time
from dataclasses import dataclass

import numpy as np
import torch
import transformers

import code_statistics
import torch_model
from codes import RESIDUAL, SINK
from peer_codes import score_weighted
from torch_model import Outcome, Refused
from winnow_eval import Failure

NAME = "winnow_codes"
QUERIES_AT_ONCE = 128
SURELY_CODED = 0.99  # of the rows that a code gets, those that it changes
WEIGHTS, KINDS = ("out", "one"), ("weighted", "alike")  # see code_statistics.Head


class Record:
    """Exact attention, which keeps keys and values of all layers."""

    def __init__(self):
        self.rows = {}

    def attend(self, layer, module, q, k, v, scaling):
        self.rows[layer] = (k[0], v[0])
        return exact(q, k, v, scaling)


def exact(q, k, v, scaling):
    groups = q.shape[1] // k.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(
        q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), is_causal=True, scale=scaling)


class Packed:
    """Attention of the tokens from `first` on. The rows before them are those of the full cache. A query reads sinks
    and the newest rows as they are, and the others as the row's codes give them back."""

    def __init__(self, row, rows, first, heads):
        self.row, self.rows, self.first, self.heads = row, rows, first, heads
        self.coded = dict.fromkeys(row.codes, 0)  # rows that are not what they were, of all layers and heads

    def attend(self, layer, module, q, k, v, scaling):
        k, v = (torch.cat([old[:, :self.first], new[0]], 1) for old, new in zip(self.rows[layer], (k, v)))
        k_read, v_read = self._read(layer, "k", k), self._read(layer, "v", v)
        heads, n, size = k.shape
        groups = q.shape[1] // heads
        q = q[0].view(heads, groups, -1, size) * scaling
        made = torch.empty(heads, groups, q.shape[2], v.shape[2])
        space = torch.empty(heads * groups * min(QUERIES_AT_ONCE, q.shape[2]) * n)
        for begin in range(0, q.shape[2], QUERIES_AT_ONCE):
            some = q[:, :, begin:begin + QUERIES_AT_ONCE]
            count = some.shape[2]
            at = self.first + begin + torch.arange(count)  # positions of the queries
            seen = int(at[-1]) + 1
            some = some.reshape(heads, groups * count, size)
            scores = space[:heads * groups * count * seen].view(heads, groups * count, seen)
            torch.bmm(some, k_read[:, :seen].transpose(1, 2), out=scores)
            scores = scores.view(heads, groups, count, seen)
            near, dense = self._dense("k", at)
            exactly = (some @ k[:, near:seen].transpose(1, 2)).view(heads, groups, count, seen - near)
            scores[..., near:] = torch.where(dense, exactly, scores[..., near:])
            first = int(at[0])
            scores[..., first:].masked_fill_(torch.arange(first, seen) > at[:, None], -torch.inf)
            p = torch.softmax(scores, -1, out=scores)
            o = p.view(heads, groups * count, seen) @ v_read[:, :seen]
            near, dense = self._dense("v", at)
            newest = (p[..., near:] * dense).view(heads, groups * count, -1)
            o += newest @ (v[:, near:seen] - v_read[:, near:seen])
            made[:, :, begin:begin + count] = o.view(heads, groups, count, -1)
        return made.view(1, heads * groups, q.shape[2], -1)

    def _dense(self, side, at):
        """Where the newest rows begin that one of these queries reads as they are, and which each of them does."""
        below = torch.tensor([self.row.windows[side].packed_below(int(position)) for position in at])
        near = int(below[0])
        return near, torch.arange(near, int(at[-1]) + 1) >= below[:, None]

    def _read(self, layer, side, rows):
        code, sink = self.row.codes[side], self.row.windows[side].sink
        if code is None:
            return rows
        made = rows.numpy().copy()
        for index, head in enumerate(self.heads[layer]):
            made[index, sink:] = self._coded(code, side, made[index, sink:], sink, head)
        self.coded[side] += int((made != rows.numpy()).any(2).sum())
        return torch.from_numpy(made)

    def _coded(self, code, side, rows, sink, head):
        positions = np.arange(sink, sink + len(rows))
        shifts = self.row.shifts if side == "k" else 0
        step = self.row.shift_tokens  # positions by which a shift turns all keys back
        if shifts:
            rows = head.rope(rows, np.full(len(rows), step * shifts))
        rows = code.encode_decode(rows, positions + step * shifts, side, head)
        for done in range(1, shifts + 1):
            rows = code.encode_decode(head.rope(rows, np.full(len(rows), -step)), positions + step * (shifts - done),
                                      side, head)
        return rows


class Calibrate:
    """Exact attention, which sums what code_statistics.Head holds. A key counts for a query that reads it packed, and
    with the error that a small change of the key makes: omega = p^2 (v - o)' M (v - o)."""

    def __init__(self, layers, heads, size, frequencies):
        self._frequencies = frequencies
        self._shape = layers, heads
        self.keys, self.bare = ({weight: {kind: self._zeros(weight=(), first=(size,), second=(size, size),
                                                            queries=(size, size)) for kind in KINDS}
                                 for weight in WEIGHTS} for _ in range(2))
        self.value = self._zeros(weight=(), first=(size,), count=(), plain_first=(size,), plain_second=(size, size),
                                 score_second=(size, size))

    def _zeros(self, **shapes):
        return {name: np.zeros((*self._shape, *shape)) for name, shape in shapes.items()}

    def attend(self, layer, module, q, k, v, scaling):
        heads, n, size = k[0].shape
        groups = q.shape[1] // heads
        k, v, q = k[0], v[0], q[0].view(heads, groups, n, size)
        out = module.o_proj.weight.double().view(-1, heads, groups, size)  # [model][head][query head][element]
        m = torch.einsum("dhga,dhgb->hab", out, out)
        roots = {"out": torch.linalg.cholesky(m + 1e-9 * m.diagonal(dim1=1, dim2=2).mean() * torch.eye(size)),
                 "one": torch.eye(size, dtype=torch.float64).expand(heads, size, size)}
        roots = {name: each.float() for name, each in roots.items()}
        omega = {name: torch.zeros(heads, n, dtype=torch.float64) for name in roots}
        squares = torch.zeros(heads, n, dtype=torch.float64)
        a = {name: torch.zeros(heads, size, size, dtype=torch.float64) for name in roots}
        made = torch.empty_like(q)
        for begin in range(0, n, QUERIES_AT_ONCE):
            some = q[:, :, begin:begin + QUERIES_AT_ONCE]
            count, seen = some.shape[2], begin + some.shape[2]
            at, keys = begin + torch.arange(count)[:, None], torch.arange(seen)
            some = some.reshape(heads, groups * count, size)
            p = (some @ k[:, :seen].transpose(1, 2) * scaling).view(heads, groups, count, seen)
            p = p.masked_fill(keys > at, -torch.inf).softmax(-1)
            o = p.view(heads, groups * count, seen) @ v[:, :seen]
            made[:, :, begin:begin + count] = o.view(heads, groups, count, size)
            counts = (keys >= SINK) & (keys <= at - RESIDUAL)
            p2 = (p * counts).square().view(heads, groups * count, seen)
            squares[:, :seen] += p2.sum(1)
            for name, root in roots.items():
                vs, os = v[:, :seen] @ root, o @ root
                far = os.square().sum(-1, keepdim=True) + vs.square().sum(-1)[:, None] - 2 * os @ vs.transpose(1, 2)
                each = p2 * far.clamp(min=0)
                omega[name][:, :seen] += each.sum(1)
                weighed = some * each.sum(2, keepdim=True).sqrt()
                a[name] += (weighed.transpose(1, 2) @ weighed).double()
        self._add(layer, omega, a, squares, k, v, q)
        return made.view(1, heads * groups, n, size)

    def _add(self, layer, omega, a, squares, k, v, q):
        k, v = k.double().numpy(), v.double().numpy()
        q = q.reshape(len(k), -1, q.shape[-1]).double().numpy()
        n = k.shape[1]
        packed = np.arange(n) >= SINK
        bare = code_statistics.turned(k, -np.arange(n), self._frequencies)
        for frame, rows in ((self.keys, k), (self.bare, bare)):
            for name in omega:
                for kind, weight, queries in (("weighted", omega[name].numpy(), a[name].numpy()),
                                              ("alike", np.broadcast_to(packed, k.shape[:2]) * 1.0,
                                               q.transpose(0, 2, 1) @ q)):
                    sums = frame[name][kind]
                    sums["weight"][layer] += weight.sum(1)
                    sums["first"][layer] += (weight[:, None] @ rows)[:, 0]
                    sums["second"][layer] += (rows * weight[..., None]).transpose(0, 2, 1) @ rows
                    sums["queries"][layer] += queries
        squares = squares.numpy()
        self.value["weight"][layer] += squares.sum(1)
        self.value["first"][layer] += (squares[:, None] @ v)[:, 0]
        self.value["count"][layer] += n
        self.value["plain_first"][layer] += v.sum(1)
        self.value["plain_second"][layer] += v.transpose(0, 2, 1) @ v
        for head in range(len(k)):
            self.value["score_second"][layer, head] += n * score_weighted(q[head].T @ q[head], k[head], v[head])

    def sums(self):
        """All of them, by names for a file."""
        made = {f"value.{name}": each for name, each in self.value.items()}
        for frame, of in (("keys", self.keys), ("bare", self.bare)):
            made |= {f"{frame}.{weight}.{kind}.{name}": each for weight, kinds in of.items()
                     for kind, sums in kinds.items() for name, each in sums.items()}
        return made


def heads_of(sums, frequencies):
    """The statistics of each KV head of each layer, from Calibrate.sums()."""
    def at(frame, layer, head):
        return {weight: {kind: {name: sums[f"{frame}.{weight}.{kind}.{name}"][layer, head]
                                for name in code_statistics.SUMS} for kind in KINDS} for weight in WEIGHTS}

    layers, heads = sums["value.weight"].shape
    value = ("weight", "first", "count", "plain_first", "plain_second", "score_second")
    return [[code_statistics.Head(at("keys", layer, head), at("bare", layer, head),
                                  {name: sums[f"value.{name}"][layer, head] for name in value}, frequencies,
                                  layer * heads + head)
             for head in range(heads)] for layer in range(layers)]


_running = None  # what computes attention now


def _attention(module, query, key, value, mask, scaling=None, **rest):
    wrong = [name for name in ("sliding_window", "softcap", "s_aux") if rest.get(name) is not None]
    if wrong:
        raise Failure(f"--model: its attention has {', '.join(wrong)}, which is not computed here")
    return _running.attend(module.layer_idx, module, query, key, value, scaling).transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register(NAME, _attention)


@dataclass
class Base(torch_model.Base):
    rows: dict  # {layer: (keys, values)}, [head][token][element]


class Model(torch_model.Model):
    heads = None  # statistics of the calibration text, [layer][KV head]

    @property
    def config(self):
        return self.model.config

    @property
    def frequencies(self):
        return self.model.model.rotary_emb.inv_freq.double().numpy()

    def why_not(self):
        """What of the model this attention does not compute; None if it computes all."""
        config = self.config
        if len(self.frequencies) * 2 != self._size or config.rope_parameters["rope_type"] != "default":
            return "the rotary embedding does not turn all elements of a key alike"
        has_window = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
        if has_window or set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
            return "it has layers with a window"
        if getattr(config, "attn_logit_softcapping", None):
            return "it has a softcap"
        return None

    @property
    def _size(self):
        config = self.config
        return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def _logits(self, running, tokens, first, keep):
        global _running
        _running = running
        try:
            return self.model(tokens[None], position_ids=first + torch.arange(len(tokens))[None], use_cache=False,
                              logits_to_keep=keep).logits[0]
        finally:
            _running = None

    @torch.inference_mode()
    def base(self, tokens, first_scored):
        tokens, running = torch.tensor(tokens), Record()
        logits = self._logits(running, tokens, 0, len(tokens) - first_scored)[:-1]
        nll = torch_model.scores(logits, tokens[first_scored + 1:])["nll"]
        return Base(tokens, first_scored, logits, nll, running.rows)

    @torch.inference_mode()
    def calibrate(self, contexts, say=lambda text: None):
        """Statistics from contexts of tokens."""
        config = self.config
        running = Calibrate(config.num_hidden_layers, config.num_key_value_heads, self._size, self.frequencies)
        for index, tokens in enumerate(contexts):
            say(f"calibration: context {index + 1} of {len(contexts)}")
            self._logits(running, torch.tensor(tokens), 0, 1)
        return running.sums()

    @torch.inference_mode()
    def run(self, row, base):
        """A row over the context of a base."""
        running = Packed(row, base.rows, base.first_scored, self.heads)
        begin = time.monotonic()
        logits = self._logits(running, base.tokens[base.first_scored:], base.first_scored, 0)
        seconds = time.monotonic() - begin
        config, n = self.config, len(base.tokens)
        for side, coded in running.coded.items():
            dense = row.windows[side].sink + row.windows[side].residual
            least = config.num_hidden_layers * config.num_key_value_heads * (n - dense) * SURELY_CODED
            if row.codes[side] is not None and coded < least:
                raise Failure(f"{row.name}: the code of {side} changed {coded} rows, expected at least {least:.0f}")
        held = round(row.bytes(self._size, n) * config.num_hidden_layers * config.num_key_value_heads)
        return Outcome(torch_model.compared([logits], base), seconds, seconds, held, held)


def versions():
    return {"codes": "1"} | {name: importlib.metadata.version(name) for name in ("torch", "transformers")}


def load(path, threads):
    return Model(torch_model.load(path, threads, NAME))


__all__ = ["Model", "Refused", "heads_of", "load", "versions"]
