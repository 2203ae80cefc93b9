"""What a policy in Python is told, and what a cache says of one: hosts/python/README.md, A policy of your own.

    policy_test.py PATH_OF_A_BACKEND [TESTS...]
"""

import warnings

import numpy as np
from numpy_attention import Case, main

from winnowkv import KvCache

LAYERS, Q_HEADS, KV_HEADS, SIZE = 2, 4, 2, 16
SHAPE = {"layers": LAYERS, "q_heads": Q_HEADS, "kv_heads": KV_HEADS, "head_size": SIZE, "max_tokens": 512}


def tova(scores, importance):
    last = scores[:, :, :, -1]
    weights = np.exp(last - last.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).mean(2)


def newest_first(scores, importance):
    """The worst for new tokens: those that were never ranked, and so are worth 0, go first."""
    return np.broadcast_to(np.arange(importance.shape[2], 0, -1, dtype=np.float32), importance.shape)


def feed(cache, tokens, **options):
    random = np.random.default_rng(tokens)
    for layer in range(LAYERS):
        k, v = random.standard_normal((2, KV_HEADS, tokens, SIZE), dtype=np.float32)
        cache.step(layer, k, v, random.standard_normal((Q_HEADS, tokens, SIZE), dtype=np.float32), **options)


def said(cache, tokens, total=220):
    """What is warned of in steps of so many tokens."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        while cache.next_position() < total:
            feed(cache, min(tokens, total - cache.next_position()))
    return [str(each.message) for each in found]


def lost(cache, tokens, total=220):
    """How many tokens at most a head no longer holds when a step of so many ends."""
    most = 0
    while (first := cache.next_position()) < total:
        feed(cache, min(tokens, total - first))
        new = range(first, cache.next_position())
        for layer in range(LAYERS):
            for head in range(KV_HEADS):
                most = max(most, len(set(new).difference(cache.positions(layer, head))))
    return most


class Policies(Case):
    def test_safe_steps(self):
        """Nothing is evicted before the policy has ranked it, wherever steps begin."""
        for more, queries, expected in (("", 8, 16), (",recent=1/2", 8, 32), (",recent=0", 8, 8), (",recent=16", 8, 16),
                                        (",cadence=1", 8, 16), ("", 1, 9), ("", 16, 16), ("", 3, 11),
                                        (",cadence=5,recent=8", 8, 5), (",cadence=5,recent=12", 8, 10),
                                        (",residual=32", 8, 32), (",residual=48,sink=0", 8, 48)):
            config = "external:budget=64" + (more if "residual" in more else f",residual=0{more}")
            for offset in 0, 1, 3, 7:
                with KvCache(config, **SHAPE, policy=newest_first, policy_queries=queries) as cache:
                    self.assertEqual(cache.safe_step_tokens, expected, (config, queries))
                    if offset:
                        feed(cache, offset)
                    self.assertEqual(lost(cache, expected), 0, (config, queries, offset))
                    self.assertGreater(cache.stats().evictions, 0)
        with KvCache("external:budget=64,residual=0", **SHAPE, policy=newest_first) as cache:
            self.assertGreater(lost(cache, 17), 0)
        for config, most in ("external:budget=1/1", 512), ("none", 512):
            with KvCache(config, **SHAPE) as cache:
                self.assertEqual(cache.safe_step_tokens, most)

    def test_cadence(self):
        """How many tokens a head holds once the budget is full."""
        for more, least in ("", 57), (",cadence=1", 64):
            with KvCache(f"external:budget=64,residual=0{more}", **SHAPE, policy=tova) as cache:
                held = []
                while cache.next_position() < 200:
                    feed(cache, 1)
                    held.append(len(cache.positions(1, 0)))
                self.assertEqual((min(held[70:]), max(held)), (least, 64))

    def test_unranked_tokens_are_told(self):
        for config, tokens in (("external:budget=64,residual=0", 17), ("external:budget=64", 100),
                               ("external:budget=1/4", 200)):
            with KvCache(config, **SHAPE, policy=newest_first) as cache:
                (message,) = said(cache, tokens)  # once
                self.assertRegex(message, r"\d+ of the last \d+ tokens were evicted in layer 0, KV head 0 before")
                self.assertIn(f"prefill_chunk_size={cache.safe_step_tokens})", message)
        with KvCache("external:budget=64,residual=0", **SHAPE, policy=tova, policy_every=32) as cache:
            self.assertEqual(len(said(cache, 1)), 1)
        with KvCache("external:budget=64,residual=0", **SHAPE, policy=tova, policy_every=8) as cache:
            self.assertEqual(said(cache, 1), [])
        with KvCache("external:budget=64,residual=0", **SHAPE, policy=tova) as cache:  # all fit
            self.assertEqual(said(cache, 30, total=60), [])
            cache.set_config("external:budget=64,residual=0,recent=1/2")
            self.assertEqual(said(cache, 32), [])


class Refused(Case):
    def test_what_is_no_policy(self):
        for policy, words in (("tova", ("policy is 'tova', expected a function of (scores, importance)",
                                        '"tova:budget=64"')),
                              (3, "policy is 3, expected a function"),
                              (lambda scores: scores, "policy is <lambda>(scores), expected a function of"),
                              (lambda a, b, c: a, "policy is <lambda>(a, b, c), expected")):
            self.expect_error(words, KvCache, "external:budget=64", **SHAPE, policy=policy)
        with KvCache("external:budget=64", **SHAPE) as cache:
            self.expect_error("policy is 'tova'", setattr, cache, "policy", "tova")
            cache.policy = lambda *arguments, more=1: arguments[1]
            cache.policy = max  # a function in C, whose signature cannot be asked

    def test_results(self):
        for policy, words in ((lambda scores, importance: scores[:, :, :, -1],
                               ("the policy returned the shape [2, 2, 2, 1], expected [2, 2, 1], [layers, kv_heads, "
                                "tokens]; take the mean over axis 2")),
                              (lambda scores, importance: importance[:, :1], "shape [2, 1, 1], expected [2, 2, 1]")):
            with KvCache("external:budget=64", **SHAPE, policy=policy) as cache:
                self.expect_error(words, feed, cache, 1)

    def test_nan_is_told(self):
        def one(scores, importance):
            importance[1, 0, 3:4] = np.nan
            return importance

        with KvCache("external:budget=64", **SHAPE, policy=one) as cache:
            (message,) = said(cache, 8)
            self.assertIn("NaN for the token at position 3 in layer 1, KV head 0", message)

        def of_no_token(scores, importance):
            return np.where(np.isneginf(scores[:, :, 0, -1]), np.nan, importance + 1)

        with KvCache("external:budget=64", **SHAPE, policy=of_no_token) as cache:
            self.assertEqual(said(cache, 8), [])


if __name__ == "__main__":
    main()
