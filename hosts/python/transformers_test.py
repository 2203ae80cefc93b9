"""WinnowCache on tiny random models of transformers: greedy tokens have to be those of eager attention with
transformers' own cache. Without torch and transformers nothing is tested, and that is printed. ci/transformers installs
both.

    transformers_test.py PATH_OF_A_BACKEND [TESTS...]

WINNOW_GGUF names a file of SmolLM2-135M, which is tested, too; that takes accelerate and gguf.
"""

import copy
import functools
import inspect
import os
import pickle
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

from optional_packages import needed

with needed("transformers", "numpy", "torch", "transformers"):
    import torch
    import transformers

import numpy_attention
from numpy_attention import Case

import winnowkv
from winnowkv.transformers import WinnowCache

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
FULL = "none:k=f32,v=f32"
WORDS = 128  # token 0 is padding, 1 ends
COMMON = {"vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512,
          "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
# What an architecture has beside COMMON. Windows are shorter than the prompts.
ARCHITECTURES = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {},
    "Gemma2": {"sliding_window": 32, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 5.0},
    "Gemma3Text": {"sliding_window": 32, "query_pre_attn_scalar": 32, "sliding_window_pattern": 2},
    "Phi": {"head_dim": 16},
    "Phi3": {},
    "Mistral": {"sliding_window": 24},
    "GptOss": {"sliding_window": 32, "num_local_experts": 4, "num_experts_per_tok": 2},
}
GREEDY = {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 0, "eos_token_id": 1,
          "return_dict_in_generate": True, "output_scores": True}
CACHE = "cache" if "cache" in inspect.signature(transformers.LlamaForCausalLM.forward).parameters else "past_key_values"


def make(architecture, **more):
    torch.manual_seed(3)
    config = getattr(transformers, architecture + "Config")(**{**COMMON, **ARCHITECTURES.get(architecture, {}), **more})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for name, weights in model.named_parameters():  # far from a mean of all values, so that a wrong token shows
        torch.nn.init.normal_(weights, std=1 if "sinks" in name else 0.15 if weights.dim() > 1 else 0.3)
    return model


model_of = functools.cache(make)


@functools.cache
def prompt(rows=2):
    """Ids of 70 tokens, and a mask: the first row has 13 columns of padding. They repeat, so that lookups find some."""
    torch.manual_seed(4)
    ids = torch.randint(2, WORDS, (rows, 10)).repeat(1, 7)
    mask = torch.ones_like(ids)
    if rows > 1:
        ids[0, :13] = mask[0, :13] = 0
    return {"input_ids": ids, "attention_mask": mask}


def eager(model, inputs, **options):
    model.set_attn_implementation("eager")
    return model.generate(**inputs, **GREEDY | options)


def winnow(model, cache, inputs, **options):
    return model.generate(**inputs, **{CACHE: cache}, **GREEDY | options)


def for_each_model(test):
    @functools.wraps(test)
    def run(self):
        for name in ARCHITECTURES:
            with self.subTest(name):
                test(self, model_of(name))

    return run


class Transformers(Case):
    def assert_same(self, found, expected, most=2e-3):
        """The same tokens, up to where the best two were level."""
        for step, (a, b) in enumerate(zip(found.scores, expected.scores)):
            best = b.topk(2).values
            equal = a.argmax(-1) == b.argmax(-1)
            margin = (best[:, 0] - best[:, 1])[~equal]
            self.assertTrue((margin < most).all(), f"token {step}: {margin}")
            if not equal.all():
                print(f"{self.id()}: level at token {step}")
                return
            self.assertLess((a - b).abs().max(), most)
        length = expected.sequences.shape[1]  # which drafts exceed in older transformers
        self.assertEqual(found.sequences[:, :length].tolist(), expected.sequences.tolist())

    # ---- What generate does -----------------------------------------------------------------------------------

    @for_each_model
    def test_greedy(self, model):
        expected = eager(model, prompt(1))
        cache = WinnowCache(model, FULL)
        self.assert_same(winnow(model, cache, prompt(1)), expected)
        self.assertEqual(cache.get_seq_length(), expected.sequences.shape[1] - 1)
        self.assertEqual(self.context.stats().host_copies, 0)

    @for_each_model
    def test_padding(self, model):
        cache = WinnowCache(model, FULL)
        self.assert_same(winnow(model, cache, prompt()), eager(model, prompt()))
        columns = cache.get_seq_length()
        self.assertEqual([cache.kv.next_position(1, each) for each in cache.rows], [columns - 13, columns])

    @for_each_model
    def test_beams(self, model):
        cache = WinnowCache(model, FULL)
        found = winnow(model, cache, prompt(), num_beams=3, num_return_sequences=2)
        expected = eager(model, prompt(), num_beams=3, num_return_sequences=2)
        self.assertEqual(found.sequences.tolist(), expected.sequences.tolist())

    @for_each_model
    def test_drafts(self, model):
        for more in {"prompt_lookup_num_tokens": 4}, {"assistant_model": make("Llama", num_hidden_layers=2)}:
            found = winnow(model, WinnowCache(model, FULL), prompt(1), max_new_tokens=40, **more)
            self.assert_same(found, eager(model, prompt(1), max_new_tokens=40))

    def test_drafts_under_a_budget(self):
        """The cache is told which tokens are drafts, those beside the prompt, too."""
        model, told = model_of("Llama"), []
        cache = WinnowCache(model, "h2o:budget=32")
        step = cache.kv.step

        def spy(layer, k, v, q, **options):
            told.append((q.shape[2], options["drafts"]))
            return step(layer, k, v, q, **options)

        cache.kv.step = spy
        winnow(model, cache, prompt(1), min_new_tokens=40, max_new_tokens=40, prompt_lookup_num_tokens=4)
        self.assertEqual(told[0], (74, 4))
        self.assertTrue(all(drafts == tokens - 1 for tokens, drafts in told[3:]))
        self.assertLessEqual(len(cache.kv.positions(0, 0)), 32)

    @for_each_model
    def test_prefill_in_parts(self, model):
        found = winnow(model, WinnowCache(model, FULL), prompt(), prefill_chunk_size=16)
        self.assert_same(found, eager(model, prompt()))

    @for_each_model
    def test_second_turns(self, model):
        cache = WinnowCache(model, FULL)
        first = winnow(model, cache, prompt())
        torch.manual_seed(5)
        ids = torch.cat([first.sequences, torch.randint(2, WORDS, (2, 9))], 1)
        mask = torch.cat([prompt()["attention_mask"], torch.ones(2, ids.shape[1] - 70, dtype=torch.long)], 1)
        turn = {"input_ids": ids, "attention_mask": mask}
        self.assert_same(winnow(model, cache, turn), eager(model, turn))

    def test_padding_between_turns(self):
        """Each row comes out as if it were alone."""
        model = model_of("Llama")
        torch.manual_seed(6)
        turns = torch.randint(2, WORDS, (2, 20)), torch.randint(2, WORDS, (2, 9))
        masks = [torch.ones_like(each) for each in turns]
        masks[0][0, :5] = masks[1][1, :4] = 0
        cache = WinnowCache(model, FULL)
        winnow(model, cache, {"input_ids": turns[0], "attention_mask": masks[0]}, max_new_tokens=1)
        with torch.no_grad():
            mask = torch.cat(masks, 1)
            positions = (mask.cumsum(1) - 1).clamp(0)[:, 20:]
            found = model(turns[1], attention_mask=mask, position_ids=positions, **{CACHE: cache}).logits
            model.set_attn_implementation("eager")
            for row in range(2):
                ids = torch.cat(turns, 1)[row][mask[row] == 1][None]
                self.assertLess((model(ids).logits[0, -1] - found[row, -1]).abs().max(), 1e-4)

    # ---- What a user does -------------------------------------------------------------------------------------

    def logits(self, model, cache, ids):
        with torch.no_grad():
            return model(ids, **{CACHE: cache}).logits

    def test_edits(self):
        model, ids = model_of("Gemma2"), prompt(1)["input_ids"]
        cache = WinnowCache(model, FULL)
        expected = self.logits(model, cache, ids)
        cache.crop(-20)
        self.assertEqual((cache.get_seq_length(), cache.kv.next_position(2)), (50, 50))
        self.assertLess((self.logits(model, cache, ids[:, 50:]) - expected[:, 50:]).abs().max(), 1e-4)
        cache.crop(0)
        cache.crop(60)
        self.assertEqual(cache.get_seq_length(), 60)
        second = copy.deepcopy(cache)
        cache.batch_repeat_interleave(3)
        for each, rows in ((second, 1), (cache, 3)):
            found = self.logits(model, each, ids[:, 60:].repeat(rows, 1))
            self.assertLess((found - expected[:, 60:]).abs().max(), 1e-4)
        cache.batch_select_indices(torch.tensor([True, False, True]))
        self.assertEqual(len(cache.rows), 2)
        cache.reorder_cache(torch.tensor([1, 0]))
        self.assertLess((self.logits(model, cache, ids[:, :1].repeat(2, 1)) - self.logits(model, second, ids[:, :1]))
                        .abs().max(), 1e-4)
        cache.reset()
        self.assertEqual(self.logits(model, cache, ids.repeat(2, 1)).shape[0], 2)
        self.assertIn("2 rows", repr(cache))
        second.close()
        self.assertTrue(second.kv.is_closed)

    def test_saved_states(self):
        """A cache that is loaded goes on as the one that was saved, padded rows and all."""
        model, config = model_of("Gemma2"), "h2o:budget=64"
        torch.manual_seed(8)
        turn = torch.randint(2, WORDS, (2, 9))
        mask = torch.cat([prompt()["attention_mask"], torch.ones(2, 9, dtype=torch.long)], 1)
        saved = WinnowCache(model, config)
        with torch.no_grad():
            model(**prompt(), **{CACHE: saved})
        data = saved.to_bytes()
        loaded, used = WinnowCache(model, config), WinnowCache(model, config, sequences=3)
        self.logits(model, used, turn[:1])
        for cache in loaded, used:
            cache.from_bytes(data)
            self.assertEqual((cache.get_seq_length(), len(cache.rows)), (70, 2))
        with torch.no_grad():
            expected, *found = (model(turn, attention_mask=mask, **{CACHE: each}).logits
                                for each in (saved, loaded, used))
        for each in found:
            self.assertEqual((each - expected).abs().max(), 0)
        self.assertEqual([loaded.kv.next_position(1, row) for row in loaded.rows], [66, 79])
        empty = WinnowCache(model, config)
        empty.from_bytes(WinnowCache(model, config).to_bytes())
        self.assertEqual(self.logits(model, empty, turn).shape[0], 2)

        kv = saved.kv.to_bytes()
        self.expect_error("data is no state of a WinnowCache", loaded.from_bytes, kv)
        self.expect_error("bytes of tokens, expected", loaded.from_bytes, data[:-1])
        self.assertEqual(loaded.get_seq_length(), 79)
        self.expect_error('expected "h2o:budget=32"', WinnowCache(model, "h2o:budget=32").from_bytes, data)
        other = WinnowCache(model, config, sequences=2)
        other.kv.from_bytes(kv)
        with torch.no_grad():
            self.expect_error(("cache.kv has 66 tokens of row 0, expected 0", "cache.from_bytes"), model, turn,
                              **{CACHE: other})
        for call in pickle.dumps, copy.copy:
            with self.assertRaisesRegex(TypeError, r"a WinnowCache is .* to_bytes\(\)"):
                call(saved)
        with self.assertRaisesRegex(TypeError, r"a KvCache is .* to_bytes\(\)"):
            pickle.dumps(saved.kv)

    def test_few_bits_for_keys_with_a_bias(self):
        biased = [model_of("GptOss"), model_of("Qwen2"), make("Llama", attention_bias=True),
                  make("GPTNeoX", head_dim=16), make("GPT2", head_dim=16)]
        for model in biased:
            for kv in ("winnow", "none:k=f16,fine=0,k_fine=turbo4"):
                with self.assertWarnsRegex(RuntimeWarning, "adds a bias to its keys.* for example winnow:k=q8_0"):
                    WinnowCache(model, kv).close()
        vision = transformers.SiglipVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                                 num_attention_heads=2, image_size=28, patch_size=14)
        images = transformers.Gemma3ForConditionalGeneration(transformers.Gemma3Config(
            text_config={**COMMON, **ARCHITECTURES["Gemma3Text"]}, vision_config=vision,
            mm_tokens_per_image=4)).eval()
        self.assertTrue([name for name, _ in images.named_parameters() if name.endswith("k_proj.bias")])
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            for model in biased[:3]:
                for kv in ("winnow:k=q8_0", "none:k=bf16", "none:k=q8_0,coarse=0,v_coarse=turbo2"):
                    WinnowCache(model, kv).close()
            for model in model_of("Llama"), model_of("Qwen3"), images:
                WinnowCache(model, "winnow").close()

    def test_external_without_a_policy(self):
        model = model_of("Llama")
        with self.assertWarnsRegex(RuntimeWarning, "'external:budget=32' evicts by what a policy says, and there is"):
            winnow(model, WinnowCache(model, "external:budget=32"), prompt(1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            winnow(model, WinnowCache(model, "external:budget=1/1"), prompt(1))
            winnow(model, WinnowCache(model, "window:budget=32"), prompt(1))
            cache = WinnowCache(model, "external:budget=96")
            ids = prompt(1)["input_ids"]
            self.logits(model, cache, ids)
            cache.kv.set_importance(0, None, range(70))  # a host that ranks
            for _ in range(60):
                self.logits(model, cache, ids[:, :1])
        self.assertGreater(cache.kv.stats().evictions, 0)

    def test_rows_under_a_budget(self):
        """Each row of a padded batch keeps the tokens that it would keep alone."""
        model = model_of("Qwen3")
        config = "h2o:budget=32"
        together, alone = WinnowCache(model, config), WinnowCache(model, config)
        winnow(model, together, prompt(), min_new_tokens=16)
        for row in range(2):
            ids = prompt()["input_ids"][row:row + 1, 13 * (1 - row):]
            winnow(model, alone, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, min_new_tokens=16)
            for head in range(2):
                kept = alone.kv.positions(1, head)
                self.assertLessEqual(len(kept), 32)
                self.assertEqual(kept, together.kv.positions(1, head, together.rows[row]))
            alone.reset()

    def test_a_policy(self):
        seen = []

        def policy(scores, importance):
            seen.append(scores.shape)
            return importance + scores.softmax(-1).sum(3).mean(2)

        model = model_of("Llama")
        cache = WinnowCache(model, "external:budget=32", policy=policy)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            winnow(model, cache, prompt(), min_new_tokens=16, prefill_chunk_size=cache.kv.safe_step_tokens)
        self.assertEqual(seen[-1][:4], (3, 2, 2, 1))
        self.assertEqual(max(shape[4] for shape in seen[:2]), cache.kv.safe_step_tokens)
        cache.reset()
        with self.assertWarnsRegex(RuntimeWarning, f"prefill_chunk_size={cache.kv.safe_step_tokens}"):
            winnow(model, cache, prompt())
        self.assertLessEqual(len(cache.kv.positions(0, 0)), 32)

    def test_types(self):
        model = make("GptOss").to(torch.bfloat16)
        found = winnow(model, WinnowCache(model, "none:k=bf16,v=bf16"), prompt())
        self.assertTrue(all(each.isfinite().all() for each in found.scores))
        self.assertLess((found.scores[0] - eager(model, prompt()).scores[0]).abs().max(), 0.3)

    @unittest.skipUnless("WINNOW_GGUF" in os.environ, "WINNOW_GGUF names no file")
    def test_smollm2(self):
        folder, file = os.path.split(os.environ["WINNOW_GGUF"])
        tokens = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
        tokens.pad_token = tokens.pad_token or tokens.eos_token
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
        text = "The keeper wrote in his log. " + " ".join(f"Day {day}: {day * 7 % 13} ships." for day in range(9))
        inputs = dict(tokens([text, text[70:]], return_tensors="pt", padding=True, padding_side="left"))
        self.assert_same(winnow(model, WinnowCache(model, FULL, max_tokens=1024), inputs), eager(model, inputs), 2e-2)

    @unittest.skipUnless(CACHE == "cache", "the examples of transformers.md have the argument's newer name")
    def test_page(self):
        page = [sys.executable, "-B", Path(__file__).with_name("readme_test.py"), self.backend, "transformers.md"]
        subprocess.run(page, check=True, env=os.environ | {"PYTHONPATH": str(Path(winnowkv.__file__).parents[1])})

    # ---- What is refused --------------------------------------------------------------------------------------

    def test_refused_models(self):
        self.expect_error("budget", WinnowCache, model_of("Llama"), "winnow:budget=2")
        self.expect_error("max_tokens is 0, expected 1", WinnowCache, model_of("Llama"), max_tokens=0)
        self.expect_error("model is of type str, expected a model of transformers", WinnowCache, "gpt2")
        self.expect_error("policy is 'tova', expected a function", WinnowCache, model_of("Llama"), "external",
                          policy="tova")
        bart = transformers.BartForConditionalGeneration(transformers.BartConfig(
            vocab_size=WORDS, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32))
        self.expect_error("an encoder with a decoder", WinnowCache, bart, kind=winnowkv.Unsupported)
        bloom = transformers.BloomForCausalLM(transformers.BloomConfig(vocab_size=WORDS, hidden_size=32, n_layer=1,
                                                                       n_head=2))
        self.expect_error("takes no attention function of others", WinnowCache, bloom, kind=winnowkv.Unsupported)
        model = make("Llama")
        model.config.layer_types = ["full_attention", "linear_attention", "full_attention"]
        self.expect_error("of the type linear_attention", WinnowCache, model, kind=winnowkv.Unsupported)
        model = make("Llama")
        model.config.num_kv_shared_layers = 1
        self.expect_error("share keys and values", WinnowCache, model, kind=winnowkv.Unsupported)
        self.expect_error('model.to("cpu")', WinnowCache, make("Llama").to("meta"), kind=winnowkv.Unsupported)

    def test_refused_calls(self):
        model, ids = make("Llama"), prompt()["input_ids"]
        cache = WinnowCache(model, FULL)

        def expect(words, kind=winnowkv.Unsupported, model=model, ids=ids, **options):
            with torch.no_grad():
                self.expect_error(words, model, ids, **{CACHE: cache} | options, kind=kind)
            cache.reset()

        expect("not a 4D mask", attention_mask=torch.ones(2, 1, 70, 70, dtype=torch.bool))
        expect("keeps no attention weights", output_attentions=True)
        expect(("called without a WinnowCache", "sdpa"), winnowkv.InvalidArgument,
               **{CACHE: transformers.DynamicCache(config=model.config)})
        expect("called without a WinnowCache", winnowkv.InvalidArgument, **{CACHE: None}, use_cache=False)
        model.train()
        expect("model.eval()")
        model.eval()
        self.expect_error("no_grad", model, ids, **{CACHE: cache})
        cache.reset()
        with torch.no_grad():
            model(ids, **{CACHE: cache})
        expect(("a batch of 1", "cache.reset()"), winnowkv.InvalidArgument, ids=ids[:1])
        mask = torch.ones(2, 71)
        for given, words in ((mask[:, :1], "expected [2, 71]"), (mask, "has [71, 71] ones")):
            with torch.no_grad():
                model(ids, attention_mask=prompt()["attention_mask"], **{CACHE: cache})
            expect(words if "expected" in words else "expected [57, 70]", winnowkv.InvalidArgument, ids=ids[:, :1],
                   attention_mask=given)
        holes = torch.ones_like(ids)
        holes[0, 5] = 0
        expect("between the tokens of row 0", attention_mask=holes)

    def test_another_model(self):
        cache, other = WinnowCache(model_of("Llama"), FULL), make("Llama", num_attention_heads=2)
        ids = prompt(1)["input_ids"]
        other.set_attn_implementation("winnow")
        with torch.no_grad():
            self.expect_error("expected 4 query heads", other, ids, **{CACHE: cache})
            cache.reset()
            other.set_attn_implementation("eager")
            other(ids, **{CACHE: cache})
            self.expect_error("did not compute attention with Winnow", other, ids, **{CACHE: cache},
                              kind=winnowkv.Error)

    def test_masks(self):
        make_mask, model = transformers.masking_utils.create_causal_mask, make("Llama")
        WinnowCache(model, FULL)
        given = {"config": model.config, "inputs_embeds": torch.zeros(1, 4, 64), "input_embeds": torch.zeros(1, 4, 64),
                 "cache_position": torch.arange(4), "or_mask_function": lambda batch, head, query, key: query < 3,
                 "attention_mask": None, CACHE: None}
        names = inspect.signature(make_mask).parameters
        self.expect_error("neither causal", make_mask, kind=winnowkv.Unsupported,
                          **{name: value for name, value in given.items() if name in names})


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    numpy_attention.main()
