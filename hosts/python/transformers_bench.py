"""Measures generate() with WinnowCache against transformers' default attention (sdpa) with its default cache, in turns,
on random weights in the shape of SmolLM2-135M.

    transformers_bench.py PATH_OF_A_BACKEND [--tokens 1024,4096] [--kinds sdpa winnow] [--threads 2] ...

Each line has the medians over the rounds: seconds until the first token, and milliseconds for each later one. The last
column is the peak of the process's resident memory, the model included. It tells something of a kind only where it is
the only one.
"""

import argparse
import inspect
import resource
import statistics
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import winnowkv
from winnowkv.transformers import WinnowCache

SHAPE = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
         "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True,
         "max_position_embeddings": 16384}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend")
    parser.add_argument("--tokens", default="1024,4096", help="lengths of the prompt")
    parser.add_argument("--new", type=int, default=33, help="tokens to generate")
    parser.add_argument("--kinds", nargs="+", default=["sdpa", "none:k=f32,v=f32"],
                        help="sdpa, and configurations of Winnow")
    parser.add_argument("--threads", type=int, default=2, help="of torch's pool and of the driver's")
    parser.add_argument("--driver-threads", type=int, help="of the driver's, where they are to differ")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def measure(model, ids, new, cache):
    """Seconds until the first token, and for each later one."""
    times = [time.perf_counter()]

    def note(tokens, scores):
        times.append(time.perf_counter())
        return torch.zeros(len(tokens), dtype=torch.bool)

    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False,
                   pad_token_id=0, stopping_criteria=[note], **({} if cache is None else {name: cache}))
    return times[1] - times[0], statistics.median(later - earlier for earlier, later in zip(times[1:], times[2:]))


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    context = winnowkv.Context(backend=options.backend, threads=options.driver_threads or options.threads)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE)).eval()
    for tokens in map(int, options.tokens.split(",")):
        ids = torch.randint(3, SHAPE["vocab_size"], (1, tokens))
        found = {kind: [] for kind in options.kinds}
        caches = {kind: WinnowCache(model, kind, max_tokens=tokens + options.new, context=context)
                  for kind in options.kinds if kind != "sdpa"}
        for number in range(options.rounds + 1):
            for kind, measured in found.items():
                cache = caches.get(kind)
                model.set_attn_implementation("sdpa" if cache is None else "winnow")
                if cache is not None:
                    cache.reset()
                times = measure(model, ids, options.new, cache)
                if number > 0:  # the first round compiles kernels
                    measured.append(times)
        for cache in caches.values():
            cache.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        for kind, measured in found.items():
            first, later = (statistics.median(each) for each in zip(*measured))
            print(f"{tokens:6} tokens  {kind:20}  first {first:7.3f} s  later {1e3 * later:7.2f} ms  "
                  f"peak {peak:6.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
