"""winnowkv.compare on tiny random models of transformers: its figures have to be those of numpy in double, over logits
that are computed in other ways. Without torch, transformers, pandas, tqdm and matplotlib nothing is tested, and that is
printed. ci/transformers installs them.

    compare_test.py PATH_OF_A_BACKEND [TESTS...]
"""

import contextlib
import io
import json
import math
from pathlib import Path

from optional_packages import needed

with needed("compare", "numpy", "torch", "transformers", "pandas", "tqdm", "matplotlib"):
    import matplotlib

    matplotlib.use("Agg")
    import winnowkv.compare

import numpy as np
import numpy_attention
import pandas
import torch
import transformers
from matplotlib.figure import Figure
from numpy_attention import Case
from transformers_test import CACHE, FULL, WORDS, make, model_of

import winnowkv
from winnowkv.compare import compare, plot
from winnowkv.transformers import WinnowCache

NOTEBOOK = Path(__file__).with_name("compare.ipynb")
LENGTH, COUNT, HALF = 96, 3, 48
LAYERS = 3


def ids(count=LENGTH * COUNT):
    torch.manual_seed(7)
    return torch.randint(2, WORDS, (count,))


def log_probs(logits):
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def whole_pass(model, context):
    """Logits of a single forward call without a cache."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(context[None], use_cache=False).logits[0, HALF:-1].numpy()


def token_by_token(model, context, prompt=HALF, **arguments):
    """The same with a WinnowCache, which gets the prompt, in parts, and then each token in a forward call."""
    cache = WinnowCache(model, **{"max_tokens": LENGTH} | arguments)
    with torch.no_grad():
        for part in context[:HALF].split(prompt):
            model(part[None], **{CACHE: cache})
        return np.stack([model(token[None, None], **{CACHE: cache}).logits[0, 0].numpy() for token in context[HALF:-1]])


def in_calls(model, context, lengths, **arguments):
    """The same with a WinnowCache that gets so many tokens in each forward call."""
    cache = WinnowCache(model, **{"max_tokens": LENGTH} | arguments)
    with torch.no_grad():
        logits = [model(part[None], **{CACHE: cache}).logits[0] for part in context.split(lengths)]
    return torch.cat(logits)[HALF:-1].numpy()


def figures(model, read):
    """What the table says, from logits that read(context) computes."""
    nll, base_nll, kld, same = [], [], [], []
    for context in ids().reshape(COUNT, LENGTH):
        p, q = log_probs(whole_pass(model, context)), log_probs(read(context))
        targets = context[HALF + 1:].numpy()
        base_nll.append(-p[np.arange(len(targets)), targets].mean())
        nll.append(-q[np.arange(len(targets)), targets].mean())
        kld.append((np.exp(p) * (p - q)).sum(-1))
        same.append((p.argmax(-1) == q.argmax(-1)).mean())
    ratio = np.subtract(nll, base_nll)
    means = np.mean(kld, 1)
    return {"base_perplexity": np.exp(np.mean(base_nll)), "perplexity": np.exp(np.mean(nll)),
            "increase_percent": 100 * (np.exp(ratio.mean()) - 1),
            "increase_se": 100 * np.exp(ratio.mean()) * ratio.std(ddof=1) / math.sqrt(COUNT),
            "kld": means.mean(), "kld_se": means.std(ddof=1) / math.sqrt(COUNT),
            "kld_99": np.percentile(np.concatenate(kld), 99), "same_top_percent": 100 * np.mean(same)}


def measured(model, configs, **more):
    return compare(model, ids(), configs, **{"context_tokens": LENGTH, "contexts": COUNT, "progress": False} | more)


def newest(scores, importance):
    """A policy: the position."""
    return importance * 0 + torch.arange(importance.shape[-1])


class Compare(Case):
    def assert_figures(self, table, name, expected):
        row = dict(table.loc[name]) | table.attrs
        for key, value in expected.items():
            with self.subTest(name, figure=key):
                self.assertLess(abs(row[key] - value), 1e-4 * max(1, abs(value)), (row[key], value))

    # ---- Figures ----------------------------------------------------------------------------------------------

    def test_figures(self):
        """Each token of the second half, decoded: as if the whole model had got one token after the other."""
        for architecture in "Llama", "Gemma2":
            model = model_of(architecture)
            table = measured(model, [FULL, "h2o:budget=1/2", "h2o:budget=1/4"])
            for config in table.index:
                self.assert_figures(table, config,
                                    figures(model, lambda each: token_by_token(model, each, config=config)))
            self.assertLess(table.kld[FULL], 1e-6)
            self.assertGreater(table.same_top_percent[FULL], 99)
            self.assertGreater(table.kld["h2o:budget=1/4"], max(1e-3, table.kld["h2o:budget=1/2"]))
            self.assertEqual(list(table.steps), 3 * [LAYERS * (1 + HALF)])
            self.assertEqual(table.attrs["contexts"], COUNT)

    def test_the_full_cache(self):
        """Windows, softcaps and sinks are in the base."""
        for architecture in "Qwen3", "Gemma3Text", "Mistral", "GptOss":
            with self.subTest(architecture):
                self.assertLess(measured(model_of(architecture), [FULL]).kld[FULL], 1e-6)

    def test_batches(self):
        """The figures of caches that are fed in the same calls, with a policy of Winnow's and one in Python."""
        model, lengths = make("Llama"), []
        model.register_forward_pre_hook(lambda module, inputs: lengths.append(inputs[0].shape[1]))
        for arguments in {"config": "h2o:budget=1/4"}, {"config": "external:budget=1/4,sink=0", "policy": newest}:
            lengths.clear()
            table = measured(model, {"mine": arguments}, mode="batch")
            full, calls = lengths[:2], lengths[2:len(lengths) // COUNT]
            self.assertEqual((full, sum(calls)), ([HALF, HALF], LENGTH))
            self.assertGreater(min(calls), 1)
            self.assertGreaterEqual(table.steps.iloc[0], LAYERS * len(calls))
            self.assertGreater(table.kld.iloc[0], 1e-3)
            self.assert_figures(table, "mine", figures(model, lambda each: in_calls(model, each, calls, **arguments)))

    def test_bytes(self):
        table = measured(model_of("Llama"), ["none:k=f16,v=f16", FULL, "h2o:budget=1/4"])
        full = LAYERS * 2 * 2 * 32 * 2  # KV heads, K and V, elements, bytes
        for (name, row), share in zip(table.iterrows(), (1, 2, 0.25)):
            self.assertAlmostEqual(row.bytes_per_token / full, row.share_of_f16, msg=name)
            self.assertTrue(share <= row.share_of_f16 < 1.4 * share, (name, row.share_of_f16))
        self.assertTrue((table.tokens_per_second > 0).all())

    def test_a_policy(self):
        calls = []

        def policy(scores, importance):
            calls.append(scores.shape[3:])
            return newest(scores, importance)

        model = model_of("Llama")
        arguments = {"config": "external:budget=1/4,sink=0", "policy": policy}
        table = measured(model, {"mine": arguments, "full": FULL})
        safe = WinnowCache(model, max_tokens=LENGTH, **arguments).kv.safe_step_tokens
        self.assertLess(safe, HALF)
        self.assertEqual(len(calls), COUNT * (math.ceil(HALF / safe) + HALF))
        self.assertEqual(calls[-1], (1, LENGTH))
        self.assertEqual(table.family["mine"], "external:sink=0 with policy")
        self.assertGreater(table.kld["mine"], 1e-3)
        self.assert_figures(table, "mine", figures(model, lambda each: token_by_token(model, each, safe, **arguments)))

    def test_one_context(self):
        table = measured(model_of("Llama"), ["winnow"], contexts=1)
        self.assertTrue(math.isnan(table.kld_se.iloc[0]) and math.isfinite(table.kld.iloc[0]))

    def test_texts(self):
        class Tokenizer:
            bos_token_id = 1

            def __call__(self, text, add_special_tokens=True, verbose=True):
                return {"input_ids": add_special_tokens * [1] + [ord(each) for each in text]}

        text = "".join(chr(each) for each in ids())
        model, contexts = model_of("Llama"), []
        with_begin = torch.cat([torch.tensor([[1]]).expand(2, 1), ids(2 * LENGTH - 2).reshape(2, -1)], 1).reshape(-1)
        for given, more in ((text, {"tokenizer": Tokenizer()}), (with_begin, {}), (with_begin[None], {}),
                            (with_begin.tolist(), {}), (with_begin.numpy().astype("int32"), {})):
            contexts.append(compare(model, given, ["winnow"], context_tokens=LENGTH, contexts=2, progress=False, **more)
                            .perplexity.iloc[0])
        self.assertEqual(len(set(contexts)), 1, contexts)

    def test_the_model_is_as_it_was(self):
        """With the hook of a cache of the user's own, and without one."""
        model = make("Llama")
        model.set_attn_implementation("sdpa")
        measured(model, ["winnow"])
        self.assertEqual((model.config._attn_implementation, len(model._forward_pre_hooks)), ("sdpa", 0))
        cache = WinnowCache(model, FULL)
        measured(model, ["winnow"])
        self.assertEqual((model.config._attn_implementation, len(model._forward_pre_hooks)), ("winnow", 1))
        with torch.no_grad():
            model(ids()[None, :HALF], **{CACHE: cache})
        self.assertEqual(cache.get_seq_length(), HALF)

    # ---- What is shown ----------------------------------------------------------------------------------------

    def test_progress(self):
        for progress, words in ((True, ("winnow", f"{2 * LENGTH * COUNT}/{2 * LENGTH * COUNT}")), (False, ())):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                measured(model_of("Llama"), ["winnow"], progress=progress)
            self.assertEqual(bool(said.getvalue()), progress)
            for word in words:
                self.assertIn(word, said.getvalue())

    def test_picture(self):
        table = measured(model_of("Llama"), [FULL, "winnow", "winnow:k=f16,v=f16,budget=1/4", "winnow:budget=1/2",
                                             "winnow:budget=1/4"])
        self.assertEqual(list(table.family), [FULL, "winnow", "winnow:k=f16,v=f16", "winnow", "winnow"])
        for loss in "kld", "increase_percent":
            axes, = plot(table, loss).axes
            lines = {bars.get_label(): bars.lines[0] for bars in axes.containers}
            self.assertEqual(set(lines), set(table.family))
            sizes, values = lines["winnow"].get_data()
            winnow = table[table.family == "winnow"].sort_values("bytes_per_token")
            self.assertEqual((list(sizes), list(values)), (list(winnow.bytes_per_token), list(winnow[loss])))
            self.assertEqual([text.get_text() for text in axes.texts].count("budget=1/4"), 2)
        self.assertEqual(min(plot(table).axes[0].containers[-1].lines[0].get_ydata()), 1e-6)
        self.assertEqual(plot(table).axes[0].get_title(), f"{COUNT} contexts of {LENGTH} tokens, mode decode")
        plot(pandas.read_csv(io.StringIO(table.to_csv()), index_col=0))
        self.expect_error("expected kld or increase_percent", plot, table, "bytes")

    def test_families(self):
        """What differs in more than its budget has a line of its own, also where the configuration is the same."""
        first, second = (lambda scores, importance: importance + 1), (lambda scores, importance: importance + 2)
        quarter, half = "external:budget=1/4", "external:budget=1/2"
        table = measured(model_of("Llama"), {
            "a": {"config": quarter, "policy": first}, "b": {"config": quarter, "policy": second},
            "c": {"config": half, "policy": first}, "d": {"config": quarter, "policy": newest},
            "e": {"config": half, "policy": newest}, "f": {"config": half, "policy": first, "policy_queries": 2},
            "g": "h2o:budget=1/4"}, contexts=1)
        self.assertEqual(list(table.family), ["a", "b", "a", *2 * ["external with newest"], "f", "h2o"])
        axes, = plot(table).axes
        self.assertEqual({bars.get_label(): len(bars.lines[0].get_xdata()) for bars in axes.containers},
                         {"a": 2, "b": 1, "external with newest": 2, "f": 1, "h2o": 1})

    def test_notebook(self):
        """It has no outputs, and its cells run one after the other."""
        cells, names = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"], {}
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        for cell in code:
            self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None))
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
        self.assertIsInstance(names["picture"], Figure)
        names["picture"].savefig(io.BytesIO())
        table = names["table"]
        self.assertLess(table.kld["none:k=f16,v=f16"], 1e-4)
        sweep = table[table.family == "winnow"].sort_values("bytes_per_token")
        self.assertGreaterEqual(len(sweep), 3)
        self.assertTrue(sweep.kld.is_monotonic_decreasing, sweep.kld)

    # ---- What is refused --------------------------------------------------------------------------------------

    def test_failing_configurations(self):
        model = model_of("Llama")
        self.expect_error(('configuration "winnow:budget=2": ', "budget"), measured, model,
                          ["winnow", "winnow:budget=2"])
        self.expect_error(('configuration "mine": ', "keeps no importance"), measured, model,
                          {"mine": {"config": "none", "policy": newest}})
        self.expect_error(('configuration "mine": TypeError', "konfig"), measured, model, {"mine": {"konfig": "none"}},
                          kind=winnowkv.Error)

        def broken(scores, importance):
            return 1 / 0

        self.expect_error('configuration "mine": ZeroDivisionError', measured, model, kind=winnowkv.Error,
                          configs={"mine": {"config": "external:budget=1/4", "policy": broken}})
        model.set_attn_implementation("sdpa")
        self.expect_error('configuration "winnow": ', measured, model, {"winnow": {"max_tokens": HALF}},
                          kind=winnowkv.Error)
        self.assertEqual(model.config._attn_implementation, "sdpa")

    def test_attention_elsewhere(self):
        """A layer that hands no attention to the cache is seen."""
        model = make("Llama")
        model.model.layers[1].self_attn.config = transformers.LlamaConfig(**model.config.to_dict())
        model.model.layers[1].self_attn.config._attn_implementation = "eager"
        self.expect_error('configuration "winnow": ', measured, model, ["winnow"], kind=winnowkv.Error)

    def test_refused_arguments(self):
        model = model_of("Llama")
        for configs in "winnow", [], {}, [1], None:
            self.expect_error(("configs is ", "a list of strings"), measured, model, configs)
        self.expect_error("configs['a'] is 1, expected a string", measured, model, {"a": 1})
        for words, more in (("expected 4 to 512", {"context_tokens": 3}),
                            ("expected 4 to 512", {"context_tokens": 513}),
                            ("contexts is 0", {"contexts": 0}),
                            ('expected "decode" or "batch"', {"mode": "prompt"}),
                            ("text has 288 tokens, expected 960 for contexts=10", {"contexts": 10})):
            self.expect_error(words, measured, model, ["winnow"], **more)
        for text, words in (("abc", "tokenizer is None"), (object(), "text is of type object"),
                            (ids() + WORDS, "expected 0 to 127"), (ids() / 2, "the type torch.float32"),
                            (ids().reshape(3, -1), "has the shape [3, 96]")):
            self.expect_error(words, compare, model, text, ["winnow"], context_tokens=LENGTH, contexts=COUNT)
        training = make("Llama").train()
        self.expect_error("model.eval()", measured, training, ["winnow"])

    def test_missing_packages(self):
        for package in "pandas", "torch", "matplotlib":
            out, _ = self.run_python("""
                import sys
                sys.modules[sys.argv[2]] = None
                try:
                    import winnowkv.compare
                except ModuleNotFoundError as error:
                    print(error.name, error)
                """, package)
            self.assertIn(f"{package} {package} is not installed", out)
            self.assertIn('pip install "winnowkv[compare]"', out)


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    numpy_attention.main()
