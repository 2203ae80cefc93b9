"""Models that onnxruntime-genai's model builder makes: strip-cache takes them, and under Winnow's provider genai gives
the tokens of its own CPU provider. The models are tiny random ones, which transformers makes without a network.

    builder_test.py LIBRARY_OF_THE_PROVIDER [NAME=VALUE ...]

What follows the library are options of the provider. `ci/onnx builder` has what is needed installed.
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tokenizers
import torch
import transformers

from genai_test import OPTIONS, PROMPT, model_of, tokens_of
from winnowkv.onnx import strip_cache_files

TOKENS, LAYERS = 96, 2
SIZES = {"vocab_size": TOKENS, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": LAYERS,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": TOKENS - 2,
         "eos_token_id": TOKENS - 1, "pad_token_id": TOKENS - 1, "initializer_range": 0.5, "tie_word_embeddings": False}
MODELS = {"llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
          "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
          "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM)}


def build(name, folder):
    """The folder of a model in ONNX, by the model builder."""
    source, made = folder / "source", folder / "made"
    config, model = MODELS[name]
    torch.manual_seed(0)
    model(config(**SIZES, **({"head_dim": 32} if name == "qwen3" else {}))).save_pretrained(source)
    words = tokenizers.models.WordLevel({f"t{token}": token for token in range(TOKENS)}, unk_token="t0")
    end = f"t{TOKENS - 1}"
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words), eos_token=end,
                                         pad_token=end).save_pretrained(source)
    done = subprocess.run([sys.executable, "-B", "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", made,
                           "-p", "fp32", "-e", "cpu", "-c", folder / "downloads"],
                          env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the model builder failed: {done.stderr}")
    return made


class Builder(unittest.TestCase):
    def test_tokens_are_those_of_the_cpu_provider(self):
        for name in MODELS:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                made, stripped = build(name, Path(folder)), Path(folder, "stripped")
                self.assertEqual(strip_cache_files(made, stripped), LAYERS)
                expected = tokens_of(model_of(made))
                self.assertGreater(len(set(expected)), 4, "a model that says always the same shows nothing")
                self.assertEqual(tokens_of(model_of(stripped, OPTIONS)), expected)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
