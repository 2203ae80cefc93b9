"""Measures generate() with WinnowCache against transformers' default attention (sdpa) with its default cache, in turns,
on random weights in the shape of SmolLM2-135M.

    transformers_bench.py PATH_OF_A_BACKEND [--tokens 1024,4096] [--kinds sdpa winnow] [--threads 2] ...

Each line has the median over the rounds of the seconds until the first token, and the median and the minimum over all
later tokens of their milliseconds. The last column is the peak of the process's resident memory, the model included. It
tells something of a kind only where it is the only one. --cpu-time takes the processor time of all threads in the place
of the time that passed, for machines on which other programs run.

The kind dequantize:CONFIG stores tokens as CONFIG does. For each later token it decodes all rows of a layer into
tensors and hands them to torch's sdpa. CONFIG must not evict.
"""

import argparse
import inspect
import resource
import statistics
import time

import numpy
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import winnowkv
from winnowkv.transformers import WinnowCache

DEQUANTIZE = "dequantize:"
SHAPE = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
         "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True,
         "max_position_embeddings": 16384}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend")
    parser.add_argument("--tokens", default="1024,4096", help="lengths of the prompt")
    parser.add_argument("--new", type=int, default=33, help="tokens to generate")
    parser.add_argument("--kinds", nargs="+", default=["sdpa", "none:k=f32,v=f32"],
                        help="sdpa, configurations of Winnow, and dequantize:CONFIG")
    parser.add_argument("--threads", type=int, default=2, help="of torch's pool and of the driver's")
    parser.add_argument("--driver-threads", type=int, help="of the driver's, where they are to differ")
    parser.add_argument("--rounds", type=int, default=5,
                        help="after one that compiles kernels and does not count; 0: it counts")
    parser.add_argument("--cpu-time", action="store_true", help="processor time; with --threads 1")
    return parser.parse_args()


def dequantize_first(kv):
    """Makes each step of one token decode all rows of its layer, which torch's sdpa then reads."""
    fused = kv.step
    positions = numpy.arange(kv.max_tokens, dtype=numpy.int32)

    def step(layer, k, v, q, *, out, scale, sequence=0, **more):
        if q.shape[2] > 1:
            return fused(layer, k, v, q, out=out, scale=scale, sequence=sequence, **more)
        fused(layer, k, v, sequence=sequence)
        keys, values = kv.read(layer, positions[:kv.next_position(layer, sequence)], sequence, library="torch")
        out.copy_(torch.nn.functional.scaled_dot_product_attention(q, keys[None], values[None], scale=scale,
                                                                   enable_gqa=True))
        return out

    kv.step = step


def make_cache(model, kind, tokens, context):
    """A WinnowCache of a kind."""
    cache = WinnowCache(model, kind.removeprefix(DEQUANTIZE), max_tokens=tokens, context=context)
    if kind.startswith(DEQUANTIZE):
        assert not cache.kv.describe().evicts, kind
        dequantize_first(cache.kv)
    return cache


def measure(model, ids, new, cache, clock):
    """Seconds until the first token, and a list of those for each later one."""
    times = [clock()]

    def note(tokens, scores):
        times.append(clock())
        return torch.zeros(len(tokens), dtype=torch.bool)

    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False,
                   pad_token_id=0, stopping_criteria=[note], **({} if cache is None else {name: cache}))
    return times[1] - times[0], [later - earlier for earlier, later in zip(times[1:], times[2:])]


def main():
    options = arguments()
    clock = time.process_time if options.cpu_time else time.perf_counter
    torch.set_num_threads(options.threads)
    context = winnowkv.Context(backend=options.backend, threads=options.driver_threads or options.threads)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE)).eval()
    for tokens in map(int, options.tokens.split(",")):
        ids = torch.randint(3, SHAPE["vocab_size"], (1, tokens))
        found = {kind: [] for kind in options.kinds}
        caches = {kind: make_cache(model, kind, tokens + options.new, context)
                  for kind in options.kinds if kind != "sdpa"}
        for number in range(options.rounds + 1):
            for kind, measured in found.items():
                cache = caches.get(kind)
                model.set_attn_implementation("sdpa" if cache is None else "winnow")
                if cache is not None:
                    cache.reset()
                times = measure(model, ids, options.new, cache, clock)
                if number > 0 or options.rounds == 0:
                    measured.append(times)
        for cache in caches.values():
            cache.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        for kind, measured in found.items():
            first = statistics.median(each for each, _ in measured)
            later = [1e3 * each for _, times in measured for each in times]
            print(f"{tokens:6} tokens  {kind:20}  first {first:7.3f} s  later {statistics.median(later):7.2f} ms "
                  f"(minimum {min(later):.2f})  peak {peak:6.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
