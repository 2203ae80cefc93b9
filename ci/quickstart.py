"""An unmodified llama.cpp generates text through Winnow, beside the same program without it.

Installs what is needed, fetches a model and llama.cpp, builds, runs both alternately, and prints what happened. With
--kv there is a third kind of run, in which the cache is Winnow's, inside a budget. Fails if the attention was not
computed by Winnow.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import parts
from parts import Failure, say

DEFAULT_PROMPT = "The keeper climbed the stairs of the lighthouse, lit the lamp and"
TOKENS = 64
KV_TOKENS = 160
KV_CONTEXT = 256


def arguments():
    parser = argparse.ArgumentParser(prog="ci/quickstart", description=__doc__.split("\n\n")[0],
                                     epilog="The second run skips what is done. Downloads and builds of other projects "
                                            f"are kept in {parts.CACHE}. WINNOW_DEVICE chooses another OpenCL device "
                                            "than PoCL, WINNOW_BACKEND=reference the plain backend.")
    parser.add_argument("--prompt", default=DEFAULT_PROMPT, help="the text to continue")
    parser.add_argument("--model", type=Path, metavar="FILE.gguf", help="another model than SmolLM2-135M")
    parser.add_argument("--kv", metavar="STRING", help="also with a cache of Winnow's, docs/policies.md: "
                                                       "winnow:budget=1/4")
    parser.add_argument("--context", type=int, metavar="N",
                        help=f"cells of the cache (default the model's; with --kv {KV_CONTEXT} or what it takes)")
    parser.add_argument("--tokens", type=int, metavar="N",
                        help=f"tokens to generate (default {TOKENS}; with --kv {KV_TOKENS})")
    parser.add_argument("--runs", type=int, default=3, metavar="N",
                        help="runs of each kind; the best counts (default 3)")
    options = parser.parse_args()
    if not options.prompt:
        parser.error("--prompt: empty, expected a text to continue")
    if options.kv is not None and not options.kv:
        parser.error("--kv: empty, expected a policy, as winnow:budget=1/4")
    if options.tokens is None:
        options.tokens = KV_TOKENS if options.kv else TOKENS
    if options.context is None:
        options.context = max(KV_CONTEXT, options.tokens + len(options.prompt)) if options.kv else 0
    elif options.context < 1:
        parser.error(f"--context: {options.context}, expected at least 1")
    if options.tokens < 2:
        parser.error(f"--tokens: {options.tokens}, expected at least 2")
    if options.runs < 1:
        parser.error(f"--runs: {options.runs}, expected at least 1")
    if options.model is not None:
        if not options.model.is_file():
            parser.error(f"--model: no file {options.model}")
        with open(options.model, "rb") as file:
            if file.read(4) != b"GGUF":
                parser.error(f"--model: {options.model} is not a GGUF file")
    return options


def generate(program, options, model, plugin=None, report=None, kv=None):
    """One run of llama-completion: (the text, tokens per second of generation)."""
    command = [program, "-m", model, "-p", options.prompt, "-n", options.tokens, "--temp", 0, "--seed", 1, "-no-cnv",
               "--no-display-prompt", "--perf", "-c", options.context]
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("GGML_BACKEND_PATH", "WINNOW_REPORT", "WINNOW_KV")}
    if kv is not None:
        environment["WINNOW_KV"] = kv
    if plugin is not None:
        # A llama.cpp with a static registry of backends looks for the plugin only when a device is named.
        command += ["-dev", "Winnow"]
        environment |= {"GGML_BACKEND_PATH": str(plugin), "WINNOW_REPORT": str(report)}
        parts.choose_device(environment)
    result = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True,
                            errors="replace", stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}\nended with status {result.returncode}:\n{result.stderr[-3000:]}")
    match = re.search(r" eval time = +([\d.]+) ms / +(\d+) runs", result.stderr)
    if match is None or int(match[2]) == 0:
        raise Failure(f"llama.cpp generated nothing to time; it printed:\n{result.stderr[-3000:]}")
    return result.stdout.strip("\n"), 1000 * int(match[2]) / float(match[1])


def span(numbers):
    """One number, or the least and the greatest where layers differ: those that share a cache have no appends."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def calls(report):
    """Reads the plugin's report: (report, layers, attention calls per layer, append calls per layer)."""
    if not report.exists():
        raise Failure("llama.cpp did not call the plugin: it wrote no report")
    counts = json.loads(report.read_text())
    attended = [tensor for tensor in counts["tensors"].values() if tensor["attention_calls"] > 0]
    if not any(tensor["append_calls"] for tensor in attended):
        raise Failure("llama.cpp loaded the plugin, but none of its attention ran there")
    return (counts, len(attended), span([tensor["attention_calls"] for tensor in attended]),
            span([tensor["append_calls"] for tensor in attended]))


def common_prefix(left, right):
    return len(os.path.commonprefix([left, right]))


def compare(full_text, text):
    if full_text == text:
        return "yes"
    return f"no, they part after {common_prefix(full_text, text)} of {len(text)} characters"


def show_virtual(options, report, full, virtual):
    """The run with a cache of Winnow's, beside that with llama.cpp's."""
    counts, *_ = calls(report)
    for cache in counts["in_place"]:
        raise Failure(f"the cache of {cache['name']} was not Winnow's: {cache['node']} ({cache['operation']}): "
                      f"{cache['reason']}")
    if not counts["caches"]:
        raise Failure("the cache was not Winnow's: the plugin reports none")
    (full_text, full_speed), (text, speed) = full, virtual
    for cache in counts["caches"]:  # a model with sliding windows has two
        held = cache["resident_slots"] / (cache["layers"] * cache["kv_heads"])
        mib = 1 << 20
        print(f"""
cache             {cache['config']}, {cache['layers']} layers of {cache['cells']} cells
tokens            {cache['tokens']} in the context, of which a head holds {held:.1f}
bytes             {cache['bytes'] / mib:.2f} MiB for {cache['original_bytes'] / mib:.2f} MiB in f16: \
{100 - 100 * cache['bytes'] / cache['original_bytes']:.0f}% saved""")
    print(f"""tokens/s          {speed:.1f}, with the whole cache {full_speed:.1f}: {100 * speed / full_speed:.0f}%
same text         {compare(full_text, text)}

{options.prompt}{text}
""", flush=True)


def show(options, report, plain, winnow):
    counts, layers, attention, appends = calls(report)
    (plain_text, plain_speed), (text, speed) = plain, winnow
    print(f"""
device            {counts['device']}
                  {counts['platform']}, driver {counts['driver_version']}, kernels for {counts['kernel_shape']}
layers            {layers}
calls per layer   {attention} of attention, {appends} of append
tokens/s          {speed:.1f} with Winnow, {plain_speed:.1f} without: {100 * speed / plain_speed:.0f}% \
(generation, best of {options.runs} alternating runs)
same text         {compare(plain_text, text)}

{options.prompt}{text}
""", flush=True)


def main():
    options = arguments()
    parts.setup("quickstart")
    model = options.model or parts.model()
    program = parts.llama_cpp_build("llama-completion") / "bin" / "llama-completion"
    plugin = parts.winnow_build() / "lib" / "libwinnow_ggml.so"
    plain, winnow, virtual = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        report, virtual_report = Path(folder) / "report.json", Path(folder) / "virtual.json"
        for number in range(options.runs):
            kv = f", then with {options.kv}" if options.kv else ""
            say(f"run {number + 1} of {options.runs}: plain llama.cpp, then with Winnow{kv}")
            plain.append(generate(program, options, model))
            report.unlink(missing_ok=True)
            winnow.append(generate(program, options, model, plugin, report))
            if options.kv:
                virtual_report.unlink(missing_ok=True)
                virtual.append(generate(program, options, model, plugin, virtual_report, options.kv))
        best = [(runs[0][0], max(speed for _, speed in runs)) for runs in (plain, winnow, virtual) if runs]
        show(options, report, *best[:2])
        if options.kv:
            show_virtual(options, virtual_report, *best[1:])


if __name__ == "__main__":
    parts.run_main("ci/quickstart", main)
