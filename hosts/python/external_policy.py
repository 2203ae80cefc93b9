"""An eviction policy in Python: a cache of Winnow's evicts by importances that this program sets.

    external_policy.py PATH_OF_A_BACKEND [DEVICE]

Random tokens stand for a model. The policy is TOVA, which Winnow has itself, so that one can be held against the other.
"""

import ctypes
import math
import random
import sys

from winnowkv import Context

LAYERS, Q_HEADS, KV_HEADS, SIZE = 2, 4, 2, 16
TOKENS, CONTEXT, BUDGET = 300, 512, 64


def importances(scores, head, length):
    """The policy: a token is worth the mean probability that the last query's heads gave it. {position: importance}"""
    worth = dict.fromkeys(range(length), 0.0)
    group = Q_HEADS // KV_HEADS
    for query_head in range(head * group, (head + 1) * group):
        logits = scores[query_head * length:(query_head + 1) * length]
        largest = max(logits)
        weights = [math.exp(logit - largest) for logit in logits]
        total = sum(weights)
        for position, weight in enumerate(weights):
            worth[position] += weight / total / group
    return worth


def draw(generator, heads):
    """A token's rows of so many heads."""
    return (ctypes.c_float * (heads * SIZE))(*(generator.gauss(0, 1) for _ in range(heads * SIZE)))


def run(context, config, policy):
    """Positions that each head of each layer holds in the end, and the output of the last token's last layer."""
    generator = random.Random(1)
    with context.cache(config, layers=LAYERS, q_num_heads=Q_HEADS, kv_num_heads=KV_HEADS, head_size=SIZE,
                       context=CONTEXT) as cache:
        for length in range(1, TOKENS + 1):
            for layer in range(LAYERS):
                k, v, q = draw(generator, KV_HEADS), draw(generator, KV_HEADS), draw(generator, Q_HEADS)
                out, scores = cache.step(layer, k, v, q, length=length if policy else 0)
                for head in range(KV_HEADS if policy else 0):
                    cache.set_importance(layer, head, policy(scores, head, length))
        return [cache.positions(layer, head) for layer in range(LAYERS) for head in range(KV_HEADS)], list(out)


def main():
    path, *device = sys.argv[1:]
    with Context(path, *device) as context:
        kept, out = run(context, f"external:budget={BUDGET},k=f16,v=f16", importances)
        same, expected = run(context, f"tova:budget={BUDGET},k=f16,v=f16,recent=1/4,grace=0", None)
    print(f"{TOKENS} tokens, of which each head keeps {min(map(len, kept))} to {max(map(len, kept))}; the first head:")
    print(*kept[0])
    if kept != same or out != expected:
        sys.exit("the policy in Python and Winnow's own kept different tokens")
    print("Winnow's own tova keeps the same.")


if __name__ == "__main__":
    main()
