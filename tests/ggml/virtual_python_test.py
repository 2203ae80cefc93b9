"""llama-cpp-python with two models at once, whose contexts get their strings through winnow_ggml_set_kv, each its own:
without a budget the texts of the caches in place, and within two budgets both are kept.
"""

import json
from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

BUDGETS = {"window:budget=64,k=f16,v=f16": ("window", 64), "winnow:budget=96": ("winnow", 96)}


def run(host, options, strings):
    """(texts, report); checks what the caches told of themselves while there were contexts."""
    pairs = [part for pair in zip(options.models, strings) for part in pair]
    out, _, report = host.run(options.python, "-P", Path(__file__).parent / "python_host.py", host.plugin, options.text,
                              *pairs, winnow=True, environment={"LLAMA_CPP_LIB_PATH": str(host.programs)})
    print(f"{strings}: {out.strip()}")
    found = json.loads(out)
    wanted = len(report["caches"]) if report else 0
    expect(len(found["live"]) == wanted, f"expected {wanted} caches while there were contexts: {found['live']}")
    by_config = {cache["config"]: cache for cache in report["caches"]}
    for live in found["live"]:
        last = by_config[live["config"]]
        expect(0 < live["steps"] <= last["steps"], f"a cache had done {live}, and at the end {last}")
    return found["answers"], report


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--python", type=Path, required=True, help="a Python that can import llama-cpp-python")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    options.models = [random_models.make(name, options.work) for name in ("plain", "draft")]
    expected, report = run(host, options, ["", ""])
    llama_cpp.expect_in_place(report)
    expect(report["sdpa_calls"] > 0, f"no attention was in place: {report}")
    texts, report = run(host, options, ["none:k=f16,v=f16"] * 2)
    expect(len(report["caches"]) == 2 and report["sdpa_calls"] == 0, f"expected two virtual caches: {report}")
    llama_cpp.expect_same_text(texts, expected)
    texts, report = run(host, options, list(BUDGETS))
    expect(len(report["caches"]) == 2 and report["sdpa_calls"] == 0, f"expected two virtual caches: {report}")
    for cache, (policy, budget) in zip(report["caches"], BUDGETS.values()):
        expect(cache["policy"] == policy, f"expected {policy} for the cache {cache}")
        llama_cpp.expect_budget(cache, budget)
    expect(all(texts), f"a text is missing: {texts}")


llama_cpp.main(test)
