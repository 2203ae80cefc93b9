"""Caches over numpy's arrays: steps against numpy in double precision, several sequences, edits, rows, states,
policies, and what is refused.

    kv_cache_test.py PATH_OF_A_BACKEND
"""

import gc
import tempfile
import threading
import weakref
from pathlib import Path

import external_policy
import numpy as np
from numpy_attention import Case, attention, main

import winnowkv
from winnowkv import Entry, KvCache

RANDOM = np.random.default_rng(2)
LAYERS, Q_HEADS, KV_HEADS, SIZE = 2, 4, 2, 16
SHAPE = {"layers": LAYERS, "q_heads": Q_HEADS, "kv_heads": KV_HEADS, "head_size": SIZE, "max_tokens": 128}
EXACT = "none:k=f32,v=f32"


def draw(heads, tokens, batch=None, size=SIZE):
    shape = (heads, tokens, size) if batch is None else (batch, heads, tokens, size)
    return RANDOM.standard_normal(shape, dtype=np.float32)


def kvq(tokens, batch=None):
    return draw(KV_HEADS, tokens, batch), draw(KV_HEADS, tokens, batch), draw(Q_HEADS, tokens, batch)


class Steps(Case):
    def test_attention_is_that_over_all_tokens(self):
        k, v, q = kvq(40)
        for options in ({}, {"scale": .3, "softcap": 2.0}, {"window": 7}, {"sinks": [1, 2, 0, -1]},
                        {"alibi": np.array([.5, .25, .1, 0], np.float32)}):
            with self.subTest(**options), KvCache(EXACT, **SHAPE) as cache:
                expected = attention(q, k, v, causal=True, **options)
                first = cache.step(0, k[:, :33], v[:, :33], q[:, :33], **options)
                rest, scores = cache.step(0, k[:, 33:], v[:, 33:], q[:, 33:], scores=True, **options)
                self.assertIs(type(rest), np.ndarray)
                self.assert_close(np.concatenate([first, rest], 1), expected["out"][0])
                self.assert_close(scores, expected["biased"][0, :, 33:])
                self.assertIsNone(cache.step(1, k, v, sequence=np.int32(0)))
                self.assert_close(cache.step(1, q=q[:, -3:], **options), expected["out"][0, :, -3:])
                self.assertEqual((cache.next_position(0), cache.next_position(1)), (40, 40))

    def test_any_order_of_axes(self):
        """As runtimes have them: a token's heads beside each other, and the output so, too."""
        k, v, q = kvq(5, batch=1)
        with KvCache(EXACT, **SHAPE) as cache, KvCache(EXACT, **SHAPE) as other:
            expected = cache.step(0, k, v, q)
            views = [np.ascontiguousarray(each.swapaxes(1, 2)).swapaxes(1, 2) for each in (k, v, q)]
            out = np.empty((1, 5, Q_HEADS, SIZE), np.float32)
            result = other.step(0, *views, out=out.swapaxes(1, 2))
            self.assertTrue(np.shares_memory(result, out))
            np.testing.assert_array_equal(out.swapaxes(1, 2), expected)

    def test_types(self):
        k, v, q = kvq(5)
        with KvCache(EXACT, **SHAPE) as cache:
            out = cache.step(0, k.astype(np.float16), v.astype(np.float16), q.astype(np.float16))
            self.assertEqual(out.dtype, np.float16)
            self.assert_close(out, attention(q, k, v, causal=True)["out"][0], 5e-3)

    def test_several_sequences(self):
        with KvCache(EXACT, **SHAPE, sequences=3) as cache:
            k, v, q = kvq(6, batch=2)
            out = cache.step(0, k, v, q, sequence=[2, 0])
            self.assertEqual(out.shape, (2, Q_HEADS, 6, SIZE))
            self.assert_close(out, attention(q, k, v, causal=True)["out"])
            self.assertEqual([cache.next_position(0, each) for each in range(3)], [6, 0, 6])
            # Rows one sequence after the other, in one batch entry.
            k1, v1, q1 = kvq(5)
            target = np.empty((Q_HEADS, 2, 9), np.float32)
            out, scores = cache.step(0, k1, v1, q1, entries=[
                Entry(2, count=2, scores=target), Entry(1, first=2, count=3, scores=True)])
            self.assertIs(scores[0], target)
            self.assertEqual(scores[1].shape, (Q_HEADS, 3, 3))
            second = attention(q1[:, 2:], k1[:, 2:], v1[:, 2:], causal=True)
            first = attention(q1[:, :2], np.concatenate([k[0], k1[:, :2]], 1), np.concatenate([v[0], v1[:, :2]], 1),
                              causal=True)
            self.assert_close(out, np.concatenate([first["out"], second["out"]], 2)[0])
            self.assert_close(scores[1], second["biased"][0])
            self.assert_close(target[:, :, :8], first["biased"][0])
            self.assertTrue(np.isneginf(target[:, :, 8]).all())
            out, scores = cache.step(np.int64(1), k, v, q, sequence=np.array([0, 1]), scores=True)
            self.assert_close(scores[1], attention(q, k, v, causal=True)["biased"][1])
            self.expect_error("k has a batch of 2, and sequence is 0", cache.step, 0, k, v)
            self.expect_error("q has a batch of 2, and sequence is [0]", cache.step, 0, k, v, q, sequence=[0])
            self.expect_error("4 entries, expected 1 to 3", cache.step, 0, k, v, q,
                              entries=[Entry(each % 3) for each in range(4)])
            self.expect_error("sequence", cache.step, 0, k, v, q, entries=[Entry(0), Entry(0, batch=1)])
            self.expect_error("expected those of entries", cache.step, 0, k, v, q, sequence=[0, 1], scores=target)

    def test_cells(self):
        """Tokens in places that the host names; the mask alone says what is seen."""
        k, v, q = kvq(3)
        places, mask = [4, 0, 2], np.zeros((1, 3, 6), bool)
        mask[0, :, places] = np.tril(np.ones((3, 3), bool)).T
        with KvCache(EXACT, **SHAPE, cells=6) as cache:
            for each in (places, np.array([places]), np.array(places, np.int32)):
                out, scores = cache.step(0, k, v, q, cells=each, mask=mask, scores=True)
                expected = attention(q, k, v, causal=True)
                self.assert_close(out, expected["out"][0])
                self.assertEqual(scores.shape, (Q_HEADS, 3, 6))
                self.assert_close(scores[:, :, places], expected["biased"][0])
            self.assertEqual(list(cache.positions(0, 0)), [0, 2, 4])
            self.expect_error("mask", cache.step, 0, k, v, q, cells=places)
            self.expect_error("cells", cache.step, 0, k, v, q, mask=mask)
            self.expect_error("the cache has cells", setattr, cache, "policy", lambda scores, importance: importance)
        with KvCache(EXACT, **SHAPE, cells=6, sequences=2) as cache:
            k, v, q = kvq(2, batch=2)
            mask = np.ones((1, 2, 6), bool)
            out = cache.step(0, k, v, q, cells=np.array([[0, 1], [5, 4]]),
                             entries=[Entry(0, mask=mask), Entry(1, batch=1, mask=mask)])
            self.assert_close(out, attention(q, k, v)["out"])
            self.assertEqual(list(cache.positions(0, 0, 1)), [4, 5])

    def test_what_is_refused_changes_nothing(self):
        k, v, q = kvq(4)
        with KvCache("h2o:budget=32", **SHAPE) as cache:
            cache.step(0, k, v, q)
            before = cache.to_bytes()
            step = cache.step
            self.expect_error("k is float64, expected float32, float16 or bfloat16", step, 0, k.astype(float), v, q)
            self.expect_error("v is NULL", step, 0, k, None, q)
            self.expect_error("k has the shape [16]", step, 0, k[0, 0], v, q)
            self.expect_error("q has the shape [4, 0, 16]", step, 0, k, v, q[:, :0])
            self.expect_error("q.shape[2]", step, 0, k, v, q[:, :2].copy())
            self.expect_error("k.shape[1]", step, 0, k[:1], v, q)
            self.expect_error("layer", step, 9, k, v, q)
            self.expect_error("layer", step, -1, k, v, q)
            self.expect_error("sequence", step, 0, k, v, q, sequence=1)
            self.expect_error("k has elements", step, 0, np.asfortranarray(k), v, q)
            self.expect_error("v has the strides", step, 0, k, v[:, ::-1], q)
            self.expect_error("out overlaps q", step, 0, k, v, q, out=q)
            self.expect_error("out.shape", step, 0, k, v, q, out=np.empty((4, 3, 16), np.float32))
            self.expect_error("scores is float16, expected float32", step, 0, k, v, q,
                              scores=np.empty((4, 4, 8), np.float16))
            self.expect_error("scores has 7 columns, expected at least 8", step, 0, k, v, q,
                              scores=np.empty((4, 4, 7), np.float32))
            self.expect_error("drafts", step, 0, k, v, q, drafts=5)
            self.expect_error("sinks", step, 0, k, v, q, sinks=[1.0])
            self.expect_error("context", step, 0, *kvq(126))
            self.expect_error("q is of type str", step, 0, k, v, "text", kind=TypeError)
            self.assertEqual(cache.to_bytes(), before)
            cache.step(0, k, v, q)
            self.assertEqual(cache.next_position(0), 8)
        for wrong, words in (({"config": "h2o:budgt=1"}, "budgt"), ({"layers": 0}, "layers"),
                             ({"head_size": 0}, "head"), ({"q_heads": 3}, "heads"),
                             ({"max_tokens": -1}, "max_tokens is -1")):
            self.expect_error(words, KvCache, **SHAPE | wrong)


class Edits(Case):
    def test_edits_of_sequences(self):
        k, v, q = kvq(20)
        with KvCache(EXACT, **SHAPE, sequences=2) as cache:
            cache.step(0, k, v)
            cache.truncate(15)
            self.assertEqual(cache.next_position(), 15)
            cache.copy(0, 1)
            cache.remove(3, 5)
            self.assertEqual(list(cache.positions(0, 0)), [0, 1, 2, *range(5, 15)])
            cache.shift(-2, begin=5)
            self.assertEqual(list(cache.positions(0, 1)), list(range(13)))
            self.expect_error("shift", cache.shift, -1)
            kept = [0, 1, 2, *range(5, 15)]
            self.assert_close(cache.step(0, q=q[:, -1:]), attention(q[:, -1:], k[:, kept], v[:, kept])["out"][0])
            cache.remove()
            self.assertEqual((cache.next_position(), cache.stats(0).bytes), (0, 0))
            self.assertEqual(cache.stats(1).tokens, 15)
            cache.reserve(100)
            self.assertGreater(cache.stats(0).bytes, 0)
            cache.reset()
            self.assertEqual(cache.stats().tokens, 0)

    def test_anchors_and_budgets(self):
        config = "window:budget=32,sink=0,residual=0,cadence=1"
        with KvCache(config, **SHAPE) as cache:
            cache.anchor([5, 90])
            for _ in range(60):
                cache.step(0, *kvq(1))
            self.assertEqual(list(cache.positions(0, 0)), [5, *range(29, 60)])
            cache.set_config(config.replace("32", "16"))
            self.assertIn("budget=16", cache.config)
            self.assertEqual(len(cache.positions(0, 0)), 16)
            cache.set_pressure(0.5)
            self.expect_error("pressure", cache.set_pressure, 2.0)
            self.expect_error("positions[0] is -1", cache.anchor, [-1])
            self.expect_error("positions[0] is 0.5, expected a whole number", cache.anchor, [0.5])

    def test_rows(self):
        k, v, q = kvq(6)
        with KvCache(EXACT, **SHAPE) as cache:
            cache.step(0, k, v)
            found = cache.read(0, np.array([4, 1]))
            self.assertIs(type(found[0]), np.ndarray)
            np.testing.assert_array_equal(found[0], k[:, [4, 1]])
            np.testing.assert_array_equal(found[1], v[:, [4, 1]])
            cache.write(0, [1], k=2 * k[:, [1]])
            np.testing.assert_array_equal(cache.read(0, range(2), dtype="f32")[0][:, 1], 2 * k[:, 1])
            self.assertTrue(np.isnan(cache.read(0, [50], dtype="f16")[0]).all())
            cache.import_rows(1, k, v)
            self.assertEqual(cache.next_position(1), 6)
            self.expect_error("layer is 5, expected 0 to 1", cache.read, 5, [0])
            self.expect_error("library is 'tensorflow'", cache.read, 0, [0], library="tensorflow")
        with KvCache("none:k=f16,v=f16", **SHAPE) as cache, KvCache("none:k=f16,v=f16", **SHAPE) as other:
            cache.step(0, k, v, q)
            rows = cache.export_rows(0, range(6))
            self.assertEqual(rows[0].dtype, np.float16)
            other.import_rows(0, *rows)
            np.testing.assert_array_equal(other.step(0, q=q[:, -1:]), cache.step(0, q=q[:, -1:]))

    def test_states(self):
        k, v, q = kvq(50)
        with KvCache("h2o:budget=32", **SHAPE, sequences=2) as cache, tempfile.TemporaryDirectory() as folder:
            cache.step(0, k, v, q)
            path = Path(folder, "state")
            cache.save(path, 0)
            cache.load(path, 1)
            data = cache.to_bytes(0)
            self.assertEqual(path.read_bytes(), data)
            cache.from_bytes(np.frombuffer(data, np.uint8), 1)
            more = kvq(1)
            np.testing.assert_array_equal(cache.step(0, *more, sequence=1), cache.step(0, *more))
            with KvCache("h2o:budget=64", **SHAPE) as other:
                self.expect_error("budget", other.from_bytes, data, 0)
                self.assertEqual(other.stats().tokens, 0)

    def test_looks(self):
        with KvCache("h2o:budget=32,residual=8,cadence=4", **SHAPE) as cache:
            for _ in range(40):
                cache.step(0, *kvq(1))
            tokens = cache.tokens(0, 1)
            self.assertEqual(tokens.positions.typecode + tokens.importance.typecode, "qf")
            self.assertEqual(np.asarray(tokens.positions).dtype, np.int64)
            self.assertEqual(len(tokens.positions), len(tokens.segments))
            self.assertEqual(list(cache.segments(0, 1))[:4], [0] * 4)
            self.assertEqual(cache.importance(0, 1), tokens.importance)
            meaning = cache.describe()
            self.assertEqual((meaning.policy, meaning.budget_tokens, meaning.residual), ("h2o", 32, 8))
            self.assertTrue(meaning.evicts and meaning.keeps_importance)
            self.assertEqual(sum(segment.tokens for segment in meaning.segments), 32)
            stats, foretold = cache.stats(), cache.estimate(40)
            self.assertEqual(stats.tokens, 40)
            self.assertGreater(foretold.bytes, stats.bytes)  # both layers
            for words in ("'h2o:budget=32,residual=8,cadence=4'", "2 layers, 4/2 heads of 16",
                          "40 tokens of 128, at most 32 in a KV head; ", "KiB"):
                self.assertIn(words, repr(cache))
        meaning = winnowkv.describe("adaptive_budget:budget=32,policy=window,residual=0,profile_file=x", **SHAPE)
        self.assertEqual([(each.name, each.path) for each in meaning.resources], [("profile", "x")])
        least = winnowkv.estimate("window:budget=32", **SHAPE).bytes
        self.assertLess(least, winnowkv.estimate("none", **SHAPE).bytes)
        self.expect_error("no policy", winnowkv.describe, "nonsense", **SHAPE)


class Policies(Case):
    CONFIG = "external:budget=32,sink=0,residual=0,cadence=1,recent=4"

    @staticmethod
    def probabilities(scores):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def test_a_policy_of_ones_own_is_the_cache_s(self):
        """TOVA and H2O in a line each keep the same tokens as the plugin's."""
        def tova(scores, importance):
            return self.probabilities(scores[:, :, :, -1]).mean(2)

        def h2o(scores, importance):
            return importance + self.probabilities(scores).sum(3).mean(2)

        sums = "h2o:statistic=probability,accumulation=sum,alpha=1,heavy=24,"
        for policy, name in ((tova, "tova:grace=0,"), (external_policy.tova, "tova:grace=0,"), (h2o, sums)):
            results = []
            for config, function in ((f"{name}budget=48,recent=20,k=f32,v=f32", None),
                                     ("external:budget=48,recent=20,k=f32,v=f32", policy)):
                random = np.random.default_rng(3)
                with KvCache(config, **SHAPE, policy=function) as cache:
                    for _ in range(100):
                        for layer in range(LAYERS):
                            rows = random.standard_normal((8, 1, SIZE), dtype=np.float32)
                            cache.step(layer, rows[:2], rows[2:4], rows[4:])
                    results.append([list(cache.positions(layer, head)) for layer in range(LAYERS)
                                    for head in range(KV_HEADS)])
            self.assertEqual(*results, name)

    def test_what_it_gets(self):
        calls = []

        def policy(scores, importance):
            calls.append((scores.copy(), importance.copy()))
            return importance + np.arange(1, importance.shape[2] + 1, dtype=np.float64)  # any numbers will do

        with KvCache(self.CONFIG, **SHAPE, policy=policy, policy_queries=3, sequences=2) as cache:
            self.assertIs(cache.policy, policy)
            k, v, q = kvq(5)
            expected = attention(q, k, v, causal=True)["biased"]
            cache.step(0, k, v, q)
            self.assertEqual(calls, [])
            cache.step(1, k, v, q)
            scores, importance = calls.pop()
            self.assertEqual(scores.shape, (LAYERS, KV_HEADS, Q_HEADS // KV_HEADS, 3, 5))
            self.assert_close(scores[1].reshape(Q_HEADS, 3, 5), expected[0, :, 2:], 1e-3)
            self.assertFalse(importance.any())
            self.assertEqual(list(cache.importance(1, 1)), [1, 2, 3, 4, 5])
            for layer in range(LAYERS):  # drafts show nothing
                cache.step(layer, *kvq(2), drafts=2)
            self.assertEqual((calls, cache.next_position()), ([], 7))
            cache.truncate(5)
            for layer in range(LAYERS):
                cache.step(layer, *kvq(3), drafts=1)
            scores, importance = calls.pop()
            self.assertEqual(scores.shape[3:], (2, 7))
            self.assertEqual(importance[0, 0].tolist(), [1, 2, 3, 4, 5, 0, 0])
            self.assertEqual(cache.next_position(1), 8)
            # The other sequence has an importance of its own; a copy has its source's.
            for layer in range(LAYERS):
                cache.step(layer, *kvq(1, batch=2), sequence=[1, 0])
            self.assertEqual([call[1].shape[2] for call in calls], [1, 9])
            cache.copy(0, 1)
            calls.clear()
            for layer in range(LAYERS):
                cache.step(layer, *kvq(1), sequence=1)
            self.assertEqual(calls[0][1][0, 0].tolist(), [3, 6, 9, 12, 15, 12, 14, 8, 9, 0])
            self.expect_error("one of both", cache.step, 0, *kvq(1), scores=True)
            cache.policy = None
            cache.step(0, *kvq(1), scores=True)

    def test_not_for_each_token(self):
        columns = []

        def policy(scores, importance):
            columns.append(importance.shape[2])
            return importance + 1

        with KvCache(self.CONFIG, **SHAPE, policy=policy, policy_every=4) as cache:
            for tokens in (3, *[1] * 9, 2):
                for layer in range(LAYERS):
                    cache.step(layer, *kvq(tokens))
            self.assertEqual(columns, [3, 4, 8, 12, 14])
            self.assertEqual(list(cache.importance(0, 0)), [5, 5, 5, 4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1])

    def test_windows_hide_what_is_held(self):
        """A head holds tokens that no query sees, and they have the importance that the policy says."""
        def policy(scores, importance):
            return importance + 1

        with KvCache(self.CONFIG, **SHAPE, policy=policy) as cache:
            for _ in range(10):
                for layer in range(LAYERS):
                    cache.step(layer, *kvq(1), window=2)
            self.assertEqual(list(cache.importance(1, 0)), list(range(10, 0, -1)))

    def test_attend_only_and_a_long_prompt(self):
        seen = []

        def policy(scores, importance):
            seen.append(scores.shape[3])
            return -np.arange(importance.shape[2], dtype=np.float32) + 0 * importance

        with KvCache(self.CONFIG, **SHAPE, policy=policy) as cache, KvCache(self.CONFIG, **SHAPE) as same:
            k, v, q = kvq(100)
            for layer in range(LAYERS):
                np.testing.assert_array_equal(cache.step(layer, k, v, q), same.step(layer, k, v, q))
            for layer in range(LAYERS):
                cache.step(layer, *kvq(1)[:2])
            for layer in range(LAYERS):
                cache.step(layer, q=q[:, :1])
            self.assertEqual(seen, [8, 1])

    def test_results_that_are_refused(self):
        for result, words in ((lambda importance: None, "returned None, expected the importance [2, 2, 1]"),
                              (lambda importance: importance[0], "returned the shape [2, 1], expected [2, 2, 1]"),
                              (lambda importance: importance[:, :1], "shape [2, 1, 1], expected [2, 2, 1]"),
                              (lambda importance: "text", "the policy returned str")):
            with KvCache(self.CONFIG, **SHAPE, policy=lambda scores, importance: result(importance)) as cache:
                cache.step(0, *kvq(1))
                self.expect_error(words, cache.step, 1, *kvq(1))
        with KvCache(self.CONFIG, **SHAPE, policy=lambda scores, importance: 1 / 0) as cache:
            cache.step(0, *kvq(1))
            self.expect_error("division by zero", cache.step, 1, *kvq(1), kind=ZeroDivisionError)
    def test_an_error_for_one_sequence(self):
        """The others of the step have their call, and the first error is raised."""
        lengths = []

        def policy(scores, importance):
            lengths.append(importance.shape[2])
            if importance.shape[2] < 4:
                raise ValueError(f"{importance.shape[2]} tokens")
            return importance + 1

        with KvCache(self.CONFIG, **SHAPE, policy=policy, sequences=3) as cache:
            for sequence, tokens in enumerate((1, 2, 4)):
                for layer in range(LAYERS):
                    cache.step(layer, *kvq(tokens)[:2], sequence=sequence)
            cache.step(0, *kvq(1, batch=3), sequence=[0, 1, 2])
            self.expect_error("2 tokens", cache.step, 1, *kvq(1, batch=3), sequence=[0, 1, 2], kind=ValueError)
            self.assertEqual(lengths, [2, 3, 5])
            self.assertEqual(list(cache.importance(0, 0, 2)), 5 * [1])
            self.assertEqual(list(cache.importance(0, 0, 0)), 2 * [0])

    def test_refused_arguments_of_a_policy(self):
        for name in "policy_queries", "policy_every":
            for wrong in 0, -1:
                self.expect_error(f"{name} is {wrong}, expected 1 to", KvCache, self.CONFIG, **SHAPE, **{name: wrong})
        with KvCache(self.CONFIG, **SHAPE) as cache:
            for wrong in None, "probs", 1:
                self.expect_error(f"scores is {wrong!r}, expected True, False", cache.step, 0, *kvq(1), scores=wrong)
        self.expect_error("'none' keeps no importance", KvCache, "none", **SHAPE, policy=print)


class Lives(Case):
    def test_what_nobody_has_is_destroyed(self):
        cache = KvCache("none", **SHAPE, context=self.context)
        living, number = weakref.ref(cache), len(self.context._core.living)
        cache.step(0, *kvq(4))
        del cache
        gc.collect()
        self.assertIsNone(living())
        self.assertEqual(len(self.context._core.living), number - 1)

    def test_what_is_thrown_away_in_another_thread_s_call(self):
        """It waits for the call's end."""
        core, cache = self.context._core, KvCache("none", **SHAPE, context=self.context)
        handle = cache._handle
        with core.lock:
            thread = threading.Thread(target=lambda caches: caches.clear(), args=([cache],))
            caches = thread._args[0]
            del cache
            thread.start()
            thread.join()
            gc.collect()
            self.assertEqual(caches, [])
            self.assertIn(handle, core.living)
        self.context.stats()
        self.assertNotIn(handle, core.living)

    def test_the_end_of_the_interpreter(self):
        """Nothing is closed, in any order of the modules' globals."""
        _, errors = self.run_python("""
            import sys, winnowkv, numpy as np
            context = winnowkv.Context(backend=sys.argv[1])
            cache = winnowkv.KvCache("none", layers=1, q_heads=1, head_size=16, max_tokens=64, context=context)
            row = np.ones((1, 1, 16), np.float32)
            cache.step(0, row, row, row)
            packed = winnowkv.quantize(np.ones((1, 1, 32), np.float32), "q8_0", context=context)
            cycle = [cache, context, packed]
            cycle.append(cycle)
            """)
        self.assertEqual(errors, "")

    def test_a_process_has_one_default_context_of_its_own(self):
        out, _ = self.run_python("""
            import os, sys
            os.environ["WINNOW_BACKEND"] = sys.argv[1]
            import winnowkv
            first = winnowkv.default_context()
            assert winnowkv.default_context() is first
            child = os.fork()
            if child == 0:
                assert winnowkv.context._default is None and first.is_closed
                try:
                    assert winnowkv.default_context() is not first
                    print("has one", flush=True)
                except winnowkv.Unsupported as error:
                    print("forked" in str(error) and "has none", flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            print(first.backend, first.stats().sdpa_calls)
            """)
        child, parent = out.splitlines()
        self.assertEqual(child, "has one" if parent == "reference 0" else "has none")
        self.assertIn(parent, ("reference 0", "opencl 0"))

    def test_a_context_of_the_cache_s_own(self):
        self.expect_error("device and context are given", KvCache, "none", **SHAPE, device=0, context=self.context)
        out, _ = self.run_python("""
            import os, sys
            os.environ["WINNOW_BACKEND"] = sys.argv[1]
            import winnowkv
            cache = winnowkv.KvCache("none", layers=1, q_heads=1, head_size=16, max_tokens=8, device=0)
            context = cache.context
            cache.close()
            print(context.is_closed)
            """)
        self.assertEqual(out.strip(), "True")


if __name__ == "__main__":
    main()
