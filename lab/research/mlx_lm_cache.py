"""mlx-lm's generation with its attention in Winnow, on MLX's CPU build: the tokens of tiny random models under Winnow's
caches, beside those under mlx-lm's own.

    python -m venv V && V/bin/pip install "mlx[cpu]==0.32.4" mlx-lm==0.32.2 numpy
    PYTHONPATH=hosts/python V/bin/python lab/research/mlx_lm_cache.py BACKEND

A layer's cache poses as a quantized one (`bits`), so that mlx-lm hands its attention to one function, which is
replaced here. Models that compute attention in another way (with a softcap), sliding windows and sinks are not served.
"""

import sys

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models import base, llama, qwen3
from mlx_lm.models.cache import make_prompt_cache

import winnowkv

SHAPE = {"hidden_size": 128, "num_hidden_layers": 3, "intermediate_size": 256, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "max_position_embeddings": 2048, "tie_word_embeddings": True}
PROMPT, NEW = 300, 40
EXACT = "none:k=f32,v=f32"


class Layer:
    """One layer of a KvCache, with the methods that mlx-lm calls on a cache."""

    bits = group_size = None
    state = ()  # what mlx-lm evaluates after a part of a prompt; each step is finished here
    keys = None

    def __init__(self, kv, number):
        self.kv, self.number, self.offset = kv, number, 0

    def update_and_fetch(self, keys, values):
        self.keys = keys
        self.offset += keys.shape[2]
        return self, values

    def make_mask(self, *_, window_size=None, **__):
        if window_size is not None:
            raise SystemExit("the model has sliding windows, which this program does not serve")

    def empty(self):
        return not self.offset


def attention(queries, layer, values, scale, **_):
    return layer.kv.step(layer.number, layer.keys, values, queries, scale=scale)


def main():
    context = winnowkv.Context(backend=sys.argv[1])
    base.quantized_scaled_dot_product_attention = attention
    for module in (llama, qwen3):
        mx.random.seed(1)
        name = module.__name__.rpartition(".")[2]
        model = module.Model(module.ModelArgs(model_type=name, **SHAPE))
        prompt = mx.random.randint(3, SHAPE["vocab_size"], (PROMPT,))

        def tokens_with(cache):
            return [int(token) for token, _ in generate_step(prompt, model, max_tokens=NEW, prompt_cache=cache)]

        own = tokens_with(make_prompt_cache(model))
        for config in (EXACT, "winnow", "h2o:budget=64"):
            with winnowkv.KvCache(config, layers=SHAPE["num_hidden_layers"], q_heads=SHAPE["num_attention_heads"],
                                  kv_heads=SHAPE["num_key_value_heads"], head_size=SHAPE["head_dim"],
                                  max_tokens=PROMPT + NEW, context=context) as kv:
                got = tokens_with([Layer(kv, number) for number in range(kv.layers)])
                same = next((at for at, pair in enumerate(zip(own, got)) if pair[0] != pair[1]), len(own))
                print(f"{name}, {config}: the first {same} of {len(own)} tokens are those of mlx-lm's own cache; {kv}",
                      flush=True)
                if config == EXACT and got != own:
                    raise SystemExit(f"{name}: other tokens under {EXACT}")


if __name__ == "__main__":
    main()
