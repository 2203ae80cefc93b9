"""What attention is, in numpy and double precision, as winnow.h has it. The tests of the package compare with it."""

import os
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

import numpy as np

import winnowkv


def attention(q, k, v, *, mask=None, scale=None, causal=False, window=None, softcap=None, sinks=None, alibi=None,
              mask_slopes=None, q_offset=None, kv_lengths=None, positions=None):
    """A dict of out, row_stats and the scores of each stage; arguments as those of winnowkv.sdpa."""
    q, k, v = (np.asarray(each, np.float64) for each in (q, k, v))
    if q.ndim == 3:
        q, k, v = q[None], k[None], v[None]
    batch, heads, q_len, size = q.shape
    kv_len = k.shape[2]
    k, v = (np.repeat(np.repeat(each, batch // each.shape[0], 0), heads // each.shape[1], 1) for each in (k, v))
    s = np.einsum("bhid,bhjd->bhij", q, k) * (size ** -0.5 if scale is None else scale)
    if kv_lengths is not None:
        s = np.where(np.arange(kv_len) < np.reshape(kv_lengths, (-1, 1, 1, 1)), s, -np.inf)
    found = {"raw": s}
    if softcap is not None:
        s = np.where(np.isinf(s), s, softcap * np.tanh(s / softcap))
    found["softcapped"] = s
    if q_offset is None:
        q_offset = (kv_len if kv_lengths is None else np.asarray(kv_lengths)) - q_len
    p = np.reshape(q_offset, (-1, 1, 1, 1)) + np.arange(q_len)[:, None]
    j = np.arange(kv_len) if positions is None else np.asarray(positions)
    if j.ndim > 1:
        j = np.repeat(np.broadcast_to(j, (batch, j.shape[1], kv_len)), heads // j.shape[1], 1)[:, :, None]

    def by_head(numbers):
        return np.asarray(numbers, np.float64)[:, None, None]

    if mask is not None:
        mask = np.asarray(mask)
        if mask.dtype == bool:
            s = np.where(mask, s, -np.inf)
        else:
            s = s + mask.astype(np.float64) * (1 if mask_slopes is None else by_head(mask_slopes))
    if alibi is not None:
        s = s + by_head(alibi) * (j - p)
    left, right = window if isinstance(window, tuple) else (window, None)
    hidden = (j > p if causal else np.zeros_like(p + j, bool)) | (j < 0)
    if left is not None:
        hidden = hidden | (j <= p - left)
    if right is not None:
        hidden = hidden | (j > p + right)
    s = np.where(hidden, -np.inf, s)
    found["biased"] = s
    largest = s.max(-1, keepdims=True)
    if sinks is not None:
        largest = np.where(np.isinf(largest), largest, np.maximum(largest, by_head(sinks)))
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.where(np.isinf(s), 0, np.exp(s - largest))
        total = weights.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + np.where(np.isinf(largest), 0, np.exp(by_head(sinks) - largest))
        probs = np.where(total > 0, weights / total, 0)
    found["probs"] = probs
    found["row_stats"] = np.concatenate([largest, total], -1)
    found["out"] = np.einsum("bhij,bhjd->bhid", probs, v)
    return found


class Case(unittest.TestCase):
    """On the backend that the command line names."""

    backend: str
    context: winnowkv.Context

    def expect_error(self, words, call, *arguments, kind=winnowkv.InvalidArgument, **options):
        """A call is refused, with these words in the message."""
        with self.assertRaises(kind) as raised:
            call(*arguments, **options)
        for word in (words,) if isinstance(words, str) else words:
            self.assertIn(word, str(raised.exception))

    def run_python(self, code, *arguments):
        """What a program in a process of its own says, (stdout, stderr); sys.argv has the backend and the arguments."""
        done = subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(code), self.backend, *arguments], text=True,
                              capture_output=True, timeout=300,
                              env=os.environ | {"PYTHONPATH": str(Path(winnowkv.__file__).resolve().parents[1])})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def assert_close(self, found, expected, most=2e-5):
        """Of the same shape, infinities in the same places, and the rest within `most` of the largest."""
        found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
        self.assertEqual(found.shape, expected.shape)
        np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
        finite = np.isfinite(expected)
        scale = max(1, np.abs(expected[finite]).max()) if finite.any() else 1
        self.assertLessEqual(np.abs(np.where(finite, found - np.where(finite, expected, 0), 0)).max() / scale, most)


def main():
    """Runs the tests of the calling script: SCRIPT PATH_OF_A_BACKEND [TESTS...]."""
    Case.backend = sys.argv.pop(1)
    Case.context = winnowkv.Context(backend=Case.backend)
    winnowkv.set_default_context(Case.context)
    unittest.main()
