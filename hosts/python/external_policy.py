"""An eviction policy in Python: a cache of Winnow's evicts by the importance that a function returns.

    external_policy.py PATH_OF_A_BACKEND [DEVICE]

Random tokens stand for a model. The policy is TOVA, which Winnow has itself, so that one can be held against the other.
It needs nothing but Python here; with numpy or torch it is a line or two (README.md).
"""

import array
import math
import random
import sys

from winnowkv import Context, KvCache

LAYERS, Q_HEADS, KV_HEADS, SIZE = 2, 4, 2, 16
TOKENS, CONTEXT, BUDGET = 300, 512, 64


def softmax(logits):
    largest = max(logits)
    weights = [math.exp(logit - largest) for logit in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


def tova(scores, importance):
    """The policy: a token is worth the mean probability that the last query's heads gave it.

    scores: [layers][KV heads][query heads of each][queries][tokens], logits. Returns [layers][KV heads][tokens]."""
    return [[[sum(column) / len(column) for column in zip(*(softmax(queries[-1]) for queries in group))]
             for group in layer] for layer in scores.tolist()]


def draw(generator, heads):
    """A token's rows of so many heads, as an array [heads, 1, SIZE] without numpy."""
    numbers = array.array("f", (generator.gauss(0, 1) for _ in range(heads * SIZE)))
    return memoryview(numbers).cast("B").cast("f", (heads, 1, SIZE))


def run(context, config, policy):
    """Positions that each head of each layer holds in the end, and the output of the last token's last layer."""
    generator = random.Random(1)
    with KvCache(config, layers=LAYERS, q_heads=Q_HEADS, kv_heads=KV_HEADS, head_size=SIZE, max_tokens=CONTEXT,
                 context=context, policy=policy) as cache:
        for _ in range(TOKENS):
            for layer in range(LAYERS):
                k, v, q = draw(generator, KV_HEADS), draw(generator, KV_HEADS), draw(generator, Q_HEADS)
                out = cache.step(layer, k, v, q)
        kept = [list(cache.positions(layer, head)) for layer in range(LAYERS) for head in range(KV_HEADS)]
        return kept, out.tolist()


def main():
    path, *device = sys.argv[1:]
    with Context(*device, backend=path) as context:
        kept, out = run(context, f"external:budget={BUDGET},k=f16,v=f16", tova)
        same, expected = run(context, f"tova:budget={BUDGET},k=f16,v=f16,recent=1/4,grace=0", None)
    print(f"{TOKENS} tokens, of which each head keeps {min(map(len, kept))} to {max(map(len, kept))}; the first head:")
    print(*kept[0])
    if kept != same or out != expected:
        sys.exit("the policy in Python and Winnow's own kept different tokens")
    print("Winnow's own tova keeps the same.")


if __name__ == "__main__":
    main()
