"""A virtual cache takes no memory for what it forgets: how much the process has, seen from outside, against the same
run with the cache in place.
"""

import statistics
import time

import llama_cpp
from llama_cpp import expect
from winnow_calibrate import memory

CONTEXT = 8192
BUDGET = 512
TOKENS = 24
KV = f"window:budget={BUDGET}"
SAVED = 0.85  # of the full cache
CHARACTERS = 3000  # of the prompt


def run(host, options, kv):
    """(bytes resident in the second half of the run, report)"""
    arguments = llama_cpp.completion(options.model, TOKENS, CONTEXT, "-f", options.prompt, "-ub", BUDGET)
    samples = []
    with host.start("llama-completion", *arguments, *llama_cpp.DEVICE, winnow=True,
                    environment=llama_cpp.kv_environment(kv)) as process:
        while process.poll() is None:
            samples.append(memory.of(process.pid, "VmRSS"))
            time.sleep(0.01)
    expect(process.returncode == 0, f"llama-completion with WINNOW_KV={kv} ended with {process.returncode}")
    return statistics.median(samples[len(samples) // 2:]), host.take_report()


def test():
    options = llama_cpp.parser(__doc__, "model", "text").parse_args()
    options.prompt = llama_cpp.prompt_file(options, options.text.read_text(encoding="utf-8")[:CHARACTERS])
    host = llama_cpp.Host(options)
    run(host, options, KV)  # compiles kernels where that was not done before, which takes memory, too
    in_place, report = run(host, options, None)
    llama_cpp.expect_in_place(report)
    virtual, report = run(host, options, KV)
    cache = llama_cpp.virtual_cache(report)
    saved = in_place - virtual
    full = cache["full_bytes"]
    print(f"{cache['cells']} cells, {cache['tokens_seen']} tokens seen, budget {BUDGET}: {virtual / 2**20:.1f} MiB "
          f"resident, in place {in_place / 2**20:.1f}; saved are {100 * saved / full:.1f}% of the full cache's "
          f"{full / 2**20:.1f} MiB; the cache says it has {cache['bytes'] / 2**20:.1f} MiB")
    expect(cache["cells"] == CONTEXT, f"the cache has {cache['cells']} cells")
    expect(cache["tokens_seen"] > BUDGET, f"{cache['tokens_seen']} tokens do not fill the budget")
    llama_cpp.expect_budget(cache, BUDGET)
    expect(saved >= SAVED * full, f"only {100 * saved / full:.1f}% of the full cache were saved")


llama_cpp.main(test)
