"""What `winnow plan` says of a model against what processes of llama.cpp's have: the bytes of caches, exactly, and from
outside the peak of the resident memory and how far it grows with the context.

    plan_test.py ... --measure      only prints what Winnow adds to a process, for tools/plan/measured.json
"""

import json
import re
import subprocess
from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect
from winnow_calibrate import memory

EXAMPLE_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Contexts. A micro-batch is 512, and each has one that is full. Between the two the growth of processes is compared.
SHORT, LONG = 768, 2048
MEASURED = 1024  # of --measure
KV = ("winnow", "winnow:budget=512")
FAMILIES = ("latent", "hybrid")  # of random models, whose caches are not keys and values of every layer
PLAIN, IN_PLACE = "cpu:k=f16,v=f16", "inplace:k=f16,v=f16"
CHARACTERS = 4.25  # of a token, about; what is missing of a context is generated, a token at a time
MIB = 1 << 20
# How far the growth of a process may be from the growth that the plan says, as a share of the f16 cache's: what a
# context costs elsewhere (graphs, allocators) is about as much in each process, and the rest is this.
TOLERANCE = 0.2
# How far the memory of a process may be from what the plan says, in bytes: another driver needs another figure.
NEAR = 6 * MIB


def whole_plan(options, context, model=None):
    command = [options.winnow, "plan", "--model", model or options.model, "--context", str(context), "--json", "-"]
    for kv in KV:
        command += ["--kv", kv]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def plan(options, context, model=None):
    """{name: row} of the plan."""
    return {row["name"]: row for row in whole_plan(options, context, model)["configurations"]}


def check_page(options):
    """The example of docs/plan.md is what the program prints, its picture what it draws."""
    link = options.work / EXAMPLE_MODEL
    link.unlink(missing_ok=True)
    link.symlink_to(options.model)
    page = options.page.read_text(encoding="utf-8")
    match = re.search(r"<!-- begin example -->.*?```sh\nwinnow (plan [^\n]*)\n```\n\n(.*?)\n<!-- end -->", page, re.S)
    expect(match is not None, f"{options.page} has no example")
    text = subprocess.run([options.winnow, *match[1].split()], cwd=options.work, check=True, capture_output=True,
                          text=True).stdout
    wanted = "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines())
    expect(match[2] == wanted, f"the example of {options.page} is another; expected\n{wanted}")
    drawn, kept = ((folder / "plan.svg").read_text(encoding="utf-8") for folder in (options.work, options.page.parent))
    expect(drawn == kept, f"the picture beside {options.page} is another than {options.work / 'plan.svg'}")


def check_bytes(host, options, model):
    """A context that is full to the last cell."""
    said = plan(options, SHORT, model)
    arguments = ("-m", model, "-f", options.text, "-c", SHORT, "-b", SHORT, "--chunks", 1, "-fa", "on",
                 "-t", 1, *llama_cpp.DEVICE)
    for kv in KV:
        _, _, report = host.run("llama-perplexity", *arguments, winnow=True, environment=llama_cpp.kv_environment(kv))
        cache = llama_cpp.virtual_cache(report)
        print(f"{kv}, {cache['tokens']} tokens in {cache['cells']} cells: {cache['bytes']} bytes, the plan says "
              f"{said[kv]['bytes']}; in f16 {cache['full_bytes']} and {said[PLAIN]['bytes']}")
        expect(cache["tokens"] == cache["cells"] == SHORT, "the context is not full")
        expect(cache["config"] == said[kv]["config"], f"{cache['config']} is another configuration")
        expect(cache["bytes"] == said[kv]["bytes"], "the plan says other bytes than the cache has")
        expect(cache["full_bytes"] == said[PLAIN]["bytes"], "the plan says other bytes than llama.cpp reserves")
    for kind in ("f16", "q8_0"):
        out, err, report = host.run("llama-perplexity", *arguments, "-ctk", kind, "-ctv", kind, "-v", winnow=True)
        llama_cpp.expect_in_place(report)
        found = re.search(r"llama_kv_cache: size = +([\d.]+) MiB \( *(\d+) cells", out + err)
        expect(found is not None, f"llama.cpp says no size:\n{(out + err)[-2000:]}")
        size = said[f"inplace:k={kind},v={kind}"]["bytes"] / MIB
        print(f"{kind} in place: llama.cpp says {found[1]} MiB, the plan {size:.2f}")
        expect(abs(float(found[1]) - size) <= 0.0051 and int(found[2]) == SHORT, "they differ")


def check_state(host, options, model):
    """The layers of a hybrid model that keep a state, in llama.cpp's log."""
    said = whole_plan(options, SHORT, model)["model"]
    out, err, _ = host.run("llama-perplexity", "-m", model, "-f", options.text, "-c", SHORT, "-b", SHORT,
                           "--chunks", 1, "-v", *llama_cpp.DEVICE, winnow=True)
    found = re.search(r"llama_memory_recurrent: size = +([\d.]+) MiB \( *1 cells", out + err)
    expect(found is not None, f"llama.cpp says no size of a state:\n{(out + err)[-2000:]}")
    layers = len(set(re.findall(r"llama_memory_recurrent, layer +(\d+): dev = ", out + err)))
    print(f"state: llama.cpp says {layers} layers and {found[1]} MiB, the plan {said['recurrent_layers']} and "
          f"{said['recurrent_bytes']} bytes")
    expect(layers == said["recurrent_layers"] and abs(float(found[1]) - said["recurrent_bytes"] / MIB) <= 0.0051,
           "they differ")


def peak(host, options, name, context, is_again=False):
    """The most bytes that a process had, whose context became full."""
    text = options.text.read_text(encoding="utf-8")
    length = int(CHARACTERS * context)
    prompt = llama_cpp.prompt_file(options, (text * (length // len(text) + 1))[:length])
    with_winnow = name != PLAIN
    arguments = llama_cpp.completion(options.model, context, context, "-f", prompt)
    with host.start("llama-completion", *arguments, *(llama_cpp.DEVICE if with_winnow else ()), winnow=with_winnow,
                    environment=llama_cpp.kv_environment(name if name in KV else None)) as process:
        most = memory.wait(process)
    expect(process.returncode == 0, f"{name}: llama-completion ended with {process.returncode}")
    report = host.take_report()
    if name in KV:
        cache = llama_cpp.virtual_cache(report)
        expect(cache["tokens_seen"] >= 0.97 * context, f"{cache['tokens_seen']} of {context} tokens")
    elif with_winnow:
        llama_cpp.expect_in_place(report)
    if with_winnow and report["programs_built"] > 0 and not is_again:
        return peak(host, options, name, context, is_again=True)  # the compiler takes memory, too
    return most


def peaks(host, options, contexts):
    """{(name, context): bytes}"""
    found = {}
    for context in contexts:
        for name in (PLAIN, IN_PLACE, *KV):
            found[name, context] = peak(host, options, name, context)
            print(f"{name}, {context} cells: at most {found[name, context] / MIB:.1f} MiB resident")
    return found


def check_memory(host, options):
    said = {context: plan(options, context) for context in (SHORT, LONG)}
    found = peaks(host, options, (SHORT, LONG))
    full = said[LONG][PLAIN]["bytes"] - said[SHORT][PLAIN]["bytes"]
    for name in (IN_PLACE, *KV):
        for context in (SHORT, LONG):
            added = found[name, context] - found[PLAIN, context]
            cache = said[context][name]["total_bytes"] - said[context][PLAIN]["total_bytes"]
            print(f"{name}, {context} cells: {added / MIB:+.1f} MiB against plain llama.cpp; the plan says "
                  f"{cache / MIB:+.1f}")
            expect(abs(added - cache) <= NEAR, f"{name} takes other memory than the plan says")
        grown = found[name, LONG] - found[name, SHORT] - (found[PLAIN, LONG] - found[PLAIN, SHORT])
        wanted = said[LONG][name]["total_bytes"] - said[SHORT][name]["total_bytes"] - full
        print(f"{name}, from {SHORT} to {LONG} cells: {grown / MIB:+.1f} MiB against plain llama.cpp, the plan says "
              f"{wanted / MIB:+.1f}")
        expect(abs(grown - wanted) <= TOLERANCE * full,
               f"{name} grows by other than the plan says, of {full / MIB:.1f} MiB in f16")


def measure(host, options):
    """What is left of a process's memory beyond plain llama.cpp's without caches and what grows with them."""
    said = plan(options, MEASURED)
    found = peaks(host, options, (MEASURED,))
    for name in (IN_PLACE, *KV):
        row = said[name]
        grows = row["bytes"] + row["scratch_bytes"]
        fixed = found[name, MEASURED] - grows - (found[PLAIN, MEASURED] - said[PLAIN]["bytes"])
        print(f"{name}: {fixed} bytes ({fixed / MIB:.1f} MiB)")


def test():
    parser = llama_cpp.parser(__doc__, "model", "text")
    parser.add_argument("--winnow", required=True, help="the program")
    parser.add_argument("--short-model", help="GGUF file of a model with fewer layers, of which bytes are compared")
    parser.add_argument("--page", type=Path, help="docs/plan.md")
    parser.add_argument("--measure", action="store_true", help="only print what Winnow adds to a process")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    if options.measure:
        measure(host, options)
        return
    if options.page:
        check_page(options)
    check_bytes(host, options, options.short_model)
    for family in FAMILIES:
        check_bytes(host, options, random_models.make(family, options.work))
    check_state(host, options, random_models.make("hybrid", options.work))
    check_memory(host, options)


llama_cpp.main(test)
