"""llama.cpp's test of its model architectures, with Winnow as the device: small random models, whose logits have to be
those of ggml's CPU backend, and the same again after the model was saved and loaded.

What it prints says for every architecture who computed the attention and where the cache was; both are asserted, so
that an architecture that leaves Winnow without a word is found.
"""

import os
import re
import subprocess

import llama_cpp
from llama_cpp import expect

TESTS, ARCHITECTURES = 133, 127  # all; of some there are two models
SEED = 1  # of the weights and tokens, which the program draws
LOG_LEVEL = 4  # with the plugin's lines on each context
PACKED_ERROR = 0.1  # mean squared error of logits, relative, where keys and values are packed
KV = {"in_place": "", "virtual": "none:k=f16,v=f16", "packed": "winnow"}

# llama.cpp gives these no cache: they have a recurrent state, or see all tokens of a batch at once.
WITHOUT_CACHE = {"dream", "llada", "llada-moe", "mamba", "mamba2", "rnd1"}
# Caches that WINNOW_KV leaves in place, and the operations for which it does, as hosts/ggml/README.md tells.
STAY_IN_PLACE = {
    "deepseek32": {"FLASH_ATTN_EXT", "LIGHTNING_INDEXER"},
    "deepseek4": {"CONCAT", "LIGHTNING_INDEXER"},
    "dots3note": {"CONT", "FLASH_ATTN_EXT", "LIGHTNING_INDEXER"},
    "gemma3n": {"FLASH_ATTN_EXT"},
    "glm-dsa": {"FLASH_ATTN_EXT", "LIGHTNING_INDEXER"},
    "glm5-next": {"FLASH_ATTN_EXT", "SET_ROWS"},
    "grok": {"SET_ROWS"},
    "hy_v4": {"FLASH_ATTN_EXT", "LIGHTNING_INDEXER"},
    "minimax-m3": {"GET_ROWS"},
    "qwen4exp": {"FLASH_ATTN_EXT", "GET_ROWS"},
    "t5": {"CONT"},
}
# The attention of these is on ggml's CPU backend whether or not there is a WINNOW_KV: all but this one's.
ATTENTION_IN_PLACE = {"minimax-m3"}


class Architecture:
    """What the program printed of one."""

    def __init__(self):
        self.tests = []  # (squared error, whether the model is the same after saving) of those that were not skipped
        self.attentions = 0
        self.virtual = 0  # caches
        self.stay = set()  # operations

    def add(self, text):
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
        result = re.search(r"\b(OK|FAIL|SKIP)\b(?: \(toggle\))? +\(([^)]*)\)\| +(OK|FAIL|SKIP)\|", text)
        skipped = re.search(r"\bSKIP +\| +SKIP\|", text)
        expect(result or skipped, f"no result in\n{text[-2000:]}")
        if skipped:
            return
        expect("(toggle)" not in text, f"no attention without a causal mask:\n{text[-2000:]}")
        self.tests.append((float(result[2]), result[3] != "FAIL"))
        calls = re.findall(r"winnow: (\d+) attention and \d+ append calls", text)
        self.attentions += sum(int(count) for count in calls)
        self.virtual += len(re.findall(r"winnow: \S+ and \d+ layers in all \(", text))
        self.stay |= set(re.findall(r"stays in place.*? in spite of WINNOW_KV=\S+: .*? \(([A-Z_]+)\): ", text))


def run(host, options):
    """({name: Architecture}, report)"""
    arguments = ["-b", "Winnow", "-s", SEED, "-v", LOG_LEVEL]
    if options.archs:
        arguments += ["-a", f"^({'|'.join(options.archs)})$"]
    preload = ":".join(filter(None, (options.preload, os.environ.get("WINNOW_TEST_PRELOAD"))))
    with host.start("test-llama-archs", *arguments, winnow=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    environment=llama_cpp.kv_environment(KV[options.mode]) | {"LD_PRELOAD": preload}) as process:
        printed, _ = process.communicate()
    report = host.take_report()
    summary = re.search(r"Summary: .*", printed)
    ended = f"{' '.join(process.args)}\nended with status {process.returncode}"
    expect(summary, f"{ended}:\n{printed[-3000:]}")
    print(f"{ended}, {summary[0]}", flush=True)
    expect(process.returncode == 0 or options.mode == "packed", f"some failed:\n{failures(printed)}")
    expect(report is not None, "the plugin was not called: it wrote no report")
    found = {}
    # A line of the table begins, then comes the log of the test, then the line's end.
    for name, text in re.findall(r"^\| *([\w.-]+)\|[^|\n]*\| *(?:Dense|MoE)\|(.*?)(?=^\|(?! *[-+])|^Summary: )",
                                 printed, re.M | re.S):
        found.setdefault(name, Architecture()).add(text)
    return found, report


def failures(text):
    lines = [line for line in text.splitlines() if "FAIL" in line or " E " in line]
    return "\n".join(lines) or text[-3000:]


def expect_set(what, found, expected):
    expect(found == expected, f"{what}: unexpected {sorted(found - expected)}, missing {sorted(expected - found)}")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--preload", required=True, help="the library that loads the plugin into the program")
    parser.add_argument("--mode", choices=KV, required=True)
    parser.add_argument("--archs", nargs="*", help="the architectures; by default all")
    options = parser.parse_args()
    all_found, report = run(llama_cpp.Host(options), options)
    found = {name: architecture for name, architecture in all_found.items() if architecture.tests}
    tests = sum(len(architecture.tests) for architecture in found.values())
    print(f"{tests} tests of {len(found)} architectures; skipped by the program: "
          f"{' '.join(sorted(set(all_found) - set(found))) or 'none'}")
    if options.archs:
        expect_set("architectures", set(found), set(options.archs))
    else:
        expect((tests, len(found)) == (TESTS, ARCHITECTURES), f"expected {TESTS} tests of {ARCHITECTURES}")

    with_cache = set(found) - WITHOUT_CACHE
    stay = set(STAY_IN_PLACE) & with_cache
    is_virtual = options.mode != "in_place"
    expect_set("attention in Winnow", {name for name in found if found[name].attentions},
               with_cache - (stay - ATTENTION_IN_PLACE))
    expect_set("virtual caches", {name for name in found if found[name].virtual},
               with_cache - stay if is_virtual else set())
    expect_set("caches that stay in place", {name for name in found if found[name].stay}, stay if is_virtual else set())
    for name in stay if is_virtual else ():
        expect_set(f"operations of {name}", found[name].stay, STAY_IN_PLACE[name])
    # The report says the same as the log.
    virtual = sum(architecture.virtual for architecture in found.values())
    expect(len(report["caches"]) == virtual, f"{len(report['caches'])} caches in the report, {virtual} in the log")
    expect_set("operations in the report", {cache["operation"] for cache in report["in_place"]},
               set().union(*(STAY_IN_PLACE[name] for name in stay)) if is_virtual else set())
    expect(report["attention_calls"] == sum(architecture.attentions for architecture in found.values()) > 0,
           f"{report['attention_calls']} attention calls in the report")
    if not is_virtual:
        expect(report["sdpa_calls"] == report["attention_calls"], "the plugin and Winnow count differently")

    errors = {name: max(error for error, _ in architecture.tests) for name, architecture in found.items()}
    unknown = [name for name, architecture in found.items() if any(error != error for error, _ in architecture.tests)]
    expect(not unknown, f"logits that are not a number: {unknown}")
    worst = max(errors, key=errors.get)
    print(f"largest squared error of logits, relative: {errors[worst]:.2e} ({worst})")
    expect(all(same for architecture in found.values() for _, same in architecture.tests), "saved models differ")
    expect(options.mode != "packed" or errors[worst] <= PACKED_ERROR, f"expected at most {PACKED_ERROR}")


llama_cpp.main(test)
