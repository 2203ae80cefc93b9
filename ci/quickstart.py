"""An unmodified llama.cpp reads a long text and answers a question about it, plain and with its attention in Winnow.

Installs what is needed, fetches a model and llama.cpp, builds, runs each kind in turn, and prints what happened. Fails
if the attention was not computed by Winnow.
"""

import argparse
import tempfile
from pathlib import Path

import logbook
import parts
import processes
from parts import say
from processes import MIB, Kind

KV = "winnow"
CONTEXT = 8192
DAYS = 75  # of the log, about 40 tokens each
TOKENS = 48


def arguments():
    parser = argparse.ArgumentParser(prog="ci/quickstart", description=__doc__.split("\n\n")[0],
                                     epilog="The second run skips what is done. Downloads and builds of other projects "
                                            f"are kept in {parts.CACHE}. WINNOW_DEVICE chooses another OpenCL device "
                                            "than PoCL, WINNOW_BACKEND=reference the plain backend.")
    parser.add_argument("--prompt", help="the text to continue (default: a long log of a lighthouse's keeper with a "
                                         "question about it)")
    parser.add_argument("--model", type=Path, metavar="FILE.gguf", help="another model than SmolLM2-135M")
    cache = parser.add_mutually_exclusive_group()
    cache.add_argument("--kv", metavar="STRING", default=KV,
                       help=f"what Winnow's own cache is, docs/policies.md (default {KV})")
    cache.add_argument("--no-budget", action="store_true", help="Winnow in place alone, over llama.cpp's own cache")
    parser.add_argument("--context", type=int, metavar="N", default=CONTEXT,
                        help=f"cells of the cache (default {CONTEXT})")
    parser.add_argument("--tokens", type=int, metavar="N", default=TOKENS,
                        help=f"tokens to generate (default {TOKENS})")
    parser.add_argument("--runs", type=int, default=1, metavar="N",
                        help="runs of each kind, in turns; the best counts (default 1)")
    options = parser.parse_args()
    if options.prompt == "":
        parser.error("--prompt: empty, expected a text to continue")
    if not options.kv:
        parser.error("--kv: empty, expected a policy, as winnow:budget=1/4")
    processes.check_options(parser, options, context=1, tokens=2, runs=1)
    return options


def kinds_of(options, plugin):
    kinds = [Kind("llama.cpp, f16 cache"), Kind("llama.cpp, q8_0 cache", "q8_0", "on"),
             Kind("Winnow in place, f16 cache", plugin=plugin)]
    if not options.no_budget:
        kinds.append(Kind(f"Winnow, {options.kv}", plugin=plugin, kv=options.kv))
    return kinds


def first_starts(kind, program, model):
    """Seconds of a short run with nothing compiled, and of the same again."""
    with tempfile.TemporaryDirectory() as empty:
        caches = {"XDG_CACHE_HOME": empty, "POCL_CACHE_DIR": f"{empty}/pocl"}
        short = ["-p", "The capital of France is", "-n", 8, "-c", 512]
        return [processes.run_once(kind, program, short, model, caches)[1].seconds for _ in range(2)]


def span(numbers):
    """One number, or the least and the greatest where layers differ: those that share a cache have no appends."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def show_calls(report):
    """What the device was, and how often Winnow was called."""
    attended = [tensor for tensor in report["tensors"].values() if tensor["attention_calls"] > 0]
    print(f"""
device            {report['device']}
                  {report['platform']}, driver {report['driver_version']}, kernels for {report['kernel_shape']}
layers            {len(attended)}
calls per layer   {span([each['attention_calls'] for each in attended])} of attention, \
{span([each['append_calls'] for each in attended])} of append""")


def show_caches(report):
    for cache in report["caches"]:  # a model with sliding windows has two
        resident = cache["resident_slots"] / (cache["layers"] * cache["kv_heads"])
        print(f"""cache             {cache['config']}, {cache['layers']} layers of {cache['cells']} cells
                  on {cache['device']}
tokens            {cache['tokens']} in the context, of which {resident:.1f} are resident in a head""")


def show_texts(prompt, results):
    """What was asked, and each text once, with those that gave it: of the answer to a question the first line."""
    texts = {}
    for kind, run in results:
        text = run.text.strip() if prompt else run.text.strip().partition("\n")[0]
        texts.setdefault(text, []).append(kind.name)
    print(f"\n{prompt or logbook.QUESTION} ...")
    for text, names in texts.items():
        print(f"\n[{'; '.join(names)}]\n{text}")


def show_table(results, starts):
    (_, plain), *_ = results
    width = max(len(kind.name) for kind, _ in results)
    print(f"\n{plain.prompt_tokens} tokens of prompt; memory is the process's peak as the system counts it\n\n"
          f"{'':{width}}  memory, MiB  cache, MiB  prompt, tokens/s  generation, tokens/s")
    for kind, run in results:
        print(f"{kind.name:{width}}  {run.peak / MIB:11.0f}  {run.cache_bytes / MIB:10.1f}  {run.prompt_speed:16.0f}  "
              f"{run.speed:20.1f}")
    first, later = starts
    print(f"\nThe first start, which compiles the kernels and keeps them, took {first:.1f} s, the next {later:.1f} s "
          "(8 tokens).", flush=True)


def main():
    options = arguments()
    parts.setup("quickstart")
    model = options.model or parts.model()
    program, plugin = processes.build()
    kinds = kinds_of(options, plugin)
    prompt = logbook.text(DAYS) if options.prompt is None else options.prompt
    say(f"the first start of {kinds[-1].name}, with nothing compiled")
    starts = first_starts(kinds[-1], program, model)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(prompt)
        file.flush()
        results = processes.in_turns(kinds, program, ["-f", file.name, "-c", options.context, "--ignore-eos"], model,
                                     options.tokens, options.runs)
    show_calls(results[-1][1].report)
    show_caches(results[-1][1].report)
    show_texts(options.prompt, results)
    show_table(results, starts)


if __name__ == "__main__":
    parts.run_main("ci/quickstart", main)
