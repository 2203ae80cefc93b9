"""Running llama.cpp's programs with and without Winnow, and reading what the plugin reports."""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

# Tests import winnow_calibrate after this.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tools" / "calibrate"))

DEVICE = ("-dev", "Winnow")  # by which llama.cpp's programs take it
DISCRETE = "pthread"  # the device that a layer makes a GPU with memory of its own, and no other of PoCL's
LAYER_PREFIX = "cache_k_l"  # what llama.cpp calls the tensor of a layer's keys


class Failure(Exception):
    """A test that failed, in words."""


def expect(condition, text):
    if not condition:
        raise Failure(text)


def made_folder(text):
    folder = Path(text)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# What many tests take besides.
MORE_OPTIONS = {"model": {"help": "GGUF file, weights in F32"}, "text": {"type": Path, "help": "file, UTF-8"}}


def parser(description, *more):
    """The arguments that every test of this folder takes, and these of MORE_OPTIONS."""
    made = argparse.ArgumentParser(description=description)
    for name in more:
        made.add_argument(f"--{name}", required=True, **MORE_OPTIONS[name])
    made.add_argument("--llama-cpp", type=Path, required=True, help="folder of llama.cpp's programs")
    made.add_argument("--plugin", type=Path, required=True, help="libwinnow_ggml.so")
    made.add_argument("--work", type=made_folder, required=True, help="folder for what the test writes")
    made.add_argument("--icd", help="folder of .icd files to use instead of the system's")
    made.add_argument("--icd-libraries", help="folders of that driver's libraries, separated by ':'")
    made.add_argument("--device", help="WINNOW_DEVICE; by default PoCL, or with --icd the first device")
    made.add_argument("--layer", help="library of the layer by which a process has a GPU with memory of its own, too: "
                      "no device is named then")
    return made


def not_tested(part, reason):
    """Says that this llama.cpp cannot have a part of the test. ci/llama_cpp.py shows such lines in its row."""
    print(f"not tested: {part}: {reason}", flush=True)


class Host:
    """Runs a program of llama.cpp's."""

    def __init__(self, options, takes_layer=True):
        """takes_layer: whether it has the layer that the options name, if they do."""
        self.programs = options.llama_cpp
        self.plugin = options.plugin
        self.report_path = options.work / f"report-{os.getpid()}.json"
        self.environment = {key: value for key, value in os.environ.items()
                            if key != "GGML_BACKEND_PATH" and not key.startswith("WINNOW_")}
        # Without it a program may end before all of its log is written; ctest says where it is.
        if preload := os.environ.get("WINNOW_TEST_PRELOAD"):
            self.environment["LD_PRELOAD"] = preload
        self.drivers = {}
        if options.icd:
            self.drivers["OCL_ICD_VENDORS"] = options.icd
            paths = [options.icd_libraries, os.environ.get("LD_LIBRARY_PATH")]
            self.drivers["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
        device = options.device or (None if options.icd else "Portable Computing Language")
        if options.layer and takes_layer:
            device = None
            self.drivers["OPENCL_LAYERS"] = options.layer
        if device:
            self.drivers["WINNOW_DEVICE"] = device
        if "WINNOW_BACKEND" in os.environ:
            self.drivers["WINNOW_BACKEND"] = os.environ["WINNOW_BACKEND"]

    def settings(self, winnow, environment=None):
        """The environment of a program of llama.cpp's."""
        settings = dict(self.environment)
        if winnow:
            settings |= self.drivers
            settings |= {"GGML_BACKEND_PATH": str(self.plugin), "WINNOW_REPORT": str(self.report_path)}
        return settings | (environment or {})

    def take_report(self):
        """What the plugin wrote, None if it was not called."""
        if not self.report_path.exists():
            return None
        report = json.loads(self.report_path.read_text())
        self.report_path.unlink()
        return report

    def start(self, program, *arguments, winnow, environment=None, group=None, stdout=subprocess.DEVNULL,
              stderr=subprocess.DEVNULL):
        """The running process. group: the control group that it is to be in."""
        self.report_path.unlink(missing_ok=True)
        return subprocess.Popen([str(part) for part in (self.programs / program, *arguments)],
                                env=self.settings(winnow, environment), stdin=subprocess.DEVNULL, stdout=stdout,
                                stderr=stderr, text=True, errors="replace", preexec_fn=group.join if group else None)

    def help(self, program):
        """What a program says of its options."""
        out, err, _ = self.run(program, "--help", winnow=False)
        return out + err

    def run(self, program, *arguments, winnow, status=0, environment=None, group=None):
        """(stdout, stderr, report): report is what the plugin wrote, None without Winnow or if it was not called."""
        with self.start(program, *arguments, winnow=winnow, environment=environment, group=group,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate()
        expect(status is None or process.returncode == status,
               f"{' '.join(process.args)}\nended with status {process.returncode}:\n{out[-2000:]}\n{err[-4000:]}")
        expect("declarations of built-in functions" not in err, f"kernels lack some:\n{err[-4000:]}")
        return out, err, self.take_report()


def final_perplexity(printed):
    """What llama-perplexity printed at its end."""
    number = re.search(r"Final estimate: PPL = ([\d.]+)", printed)
    expect(number, f"llama-perplexity gave no result:\n{printed[-2000:]}")
    return float(number[1])


def perplexity(host, arguments, environment=None):
    """(what llama-perplexity printed at its end, the report)"""
    out, err, report = host.run("llama-perplexity", *arguments, *DEVICE, winnow=True, environment=environment)
    return final_perplexity(out + err), report


def prompt_file(options, text):
    """The path of a file with this text, in the folder of the test."""
    path = options.work / "prompt.txt"
    path.write_text(text, encoding="utf-8")
    return path


def bench(host, kv, *arguments):
    """(the measurements of llama-bench, the report)"""
    out, _, report = host.run("llama-bench", *arguments, "-fa", 1, "-o", "json", *DEVICE, winnow=True,
                              environment=kv_environment(kv))
    return json.loads(out), report


def completion(model, tokens, context, *more):
    """The arguments by which llama-completion writes so many tokens, the same ones every time."""
    return ["-m", model, "-n", tokens, "--temp", 0, "--seed", 1, "-no-cnv", "--no-display-prompt", "--ignore-eos", "-c",
            context, "-t", 1, "-fa", "on", *more]


def complete(host, kv, *arguments):
    """(the text that llama-completion writes, the report); arguments: of completion()"""
    out, _, report = host.run("llama-completion", *completion(*arguments), *DEVICE, winnow=True,
                              environment=kv_environment(kv))
    return out.strip(), report


def calls_per_layer(report):
    """(layers, attention calls of each, append calls of each); fails unless all layers were treated alike."""
    expect(report is not None, "the plugin was not called: it wrote no report")
    layers = {name: counts for name, counts in report["tensors"].items() if name.startswith(LAYER_PREFIX)}
    expect(layers, f"no layer was computed by the plugin: {report}")
    attention = {counts["attention_calls"] for counts in layers.values()}
    appends = {counts["append_calls"] for counts in layers.values()}
    expect(len(attention) == 1 and len(appends) == 1, f"the layers differ: {layers}")
    expect(report["attention_calls"] == len(layers) * min(attention), f"attention outside of the layers: {report}")
    expect(report["sdpa_calls"] == report["attention_calls"], f"the plugin and Winnow count differently: {report}")
    return len(layers), attention.pop(), appends.pop()


def virtual_caches(report):
    """What the report says of the virtual caches that were; fails unless all attention was over them, layers alike."""
    expect(report is not None, "the plugin was not called: it wrote no report")
    caches = report["caches"]
    expect(caches, "no cache was virtual")
    expect(report["in_place"] == [], f"caches that stayed in place: {report['in_place']}")
    counts = [counts for name, counts in report["tensors"].items() if name.startswith(LAYER_PREFIX)]
    layers = sum(cache["layers"] for cache in caches)
    expect(len(counts) == layers, f"{len(counts)} tensors of keys for {layers} layers")
    calls = {(each["attention_calls"], each["append_calls"]) for each in counts}
    expect(len(calls) == 1, f"the layers differ: {report['tensors']}")
    expect(report["sdpa_calls"] == 0 and report["kv_append_calls"] == 0, "there were calls in place")
    steps = sum(cache["steps"] for cache in caches)
    expect(steps >= report["attention_calls"] > 0, f"{steps} steps for {report['attention_calls']} attention calls")
    return caches


def virtual_cache(report):
    """The same of the one virtual cache that was."""
    caches = virtual_caches(report)
    expect(len(caches) == 1, f"expected one virtual cache: {caches}")
    return caches[0]


def kv_environment(kv):
    """What sets WINNOW_KV to a string; nothing for None and ""."""
    return {"WINNOW_KV": kv} if kv else {}


def expect_in_place(report, what="in place"):
    """The caches were the plugin's, and none was virtual."""
    expect(report is not None, f"{what}: the caches were not the plugin's, it wrote no report")
    expect(report["caches"] == [], f"{what}: a cache was virtual: {report['caches']}")


def expect_same_text(found, expected, what="text"):
    expect(found == expected, f"{what}: the texts differ\nin place: {expected}\nvirtual:  {found}")


def is_discrete(device):
    """Whether the name of a device is that of the GPU that a layer makes."""
    return device.startswith(DISCRETE)


def expect_device(options, report):
    """Where the options name a layer, all virtual caches lay on its GPU and no other cache did."""
    if not options.layer:
        return
    expect(not is_discrete(report["device"]), f"caches in place are on {report['device']}")
    for cache in report["caches"]:
        expect(is_discrete(cache["device"]), f"{cache['name']} is on {cache['device']}")
    expect((report["host_copies"] > 0) == bool(report["caches"]), f"{report['host_copies']} copies: {report}")


def expect_all_resident(cache):
    """Every head holds every token."""
    slots = cache["tokens"] * cache["layers"] * cache["kv_heads"]
    expect(cache["resident_slots"] == slots, f"some tokens are missing, expected {slots} slots: {cache}")


def expect_budget(cache, tokens):
    """No head of a layer held more than so many tokens of a stream, on average over its heads, and some went."""
    most = tokens * cache["kv_heads"] * cache["streams"]
    expect(max(cache["resident_of_layers"]) <= most,
           f"a layer holds {max(cache['resident_of_layers'])} slots, its budget is {most}: {cache}")
    expect(min(cache["resident_of_layers"]) > 0, f"a layer holds nothing: {cache}")
    expect(cache["evictions"] > 0, f"nothing was evicted: {cache}")


def recall_of_all(options):
    """A string by which nothing is evicted and all pages are hot, beside a cold tier in a file."""
    return f"winnow:budget=1G,k=f16,v=f16,residual=16,recall={options.work.resolve()}"


def recall_of_few(options):
    """A string by which nothing is evicted and a query attends to few of the pages, the others in a file."""
    return f"winnow:budget=1/4,residual=16,recall={options.work.resolve()}"


def expect_picks(caches):
    """Pages were picked in each, some of which came from the cold tier, and nothing is lost."""
    for cache in caches:
        expect(cache["picks"] > 0 and cache["evictions"] == 0, f"nothing was picked, or something evicted: {cache}")
    picks, misses = (sum(cache[key] for cache in caches) for key in ("picks", "misses"))
    expect(picks > misses > 0, f"{misses} of {picks} pages came from the cold tier")


def expect_shares(caches, share):
    """Each keeps to its share; but the smaller of two caches, that of sliding windows, evicts nothing."""
    largest = max(cache["cells"] for cache in caches)
    for cache in caches:
        if cache["cells"] == largest:
            expect_budget(cache, cache["cells"] // share)
        else:
            expect(cache["policy"] == "none" and cache["evictions"] == 0, f"windows have a budget: {cache}")


def run_states(host, name, program, *arguments, environment=None):
    """(stdout, stderr, report, where) of a program whose last argument says where states may lie: "both", or "host"
    where it fails without Winnow, too, and says so. Older llama.cpp abort where the cells of a state on the device are
    ranges of other lengths than those that they are put back into."""
    try:
        return *host.run(program, *arguments, "both", winnow=True, environment=environment), "both"
    except Failure:
        with host.start(program, *arguments, "both", winnow=False) as process:
            if process.wait() == 0:
                raise
    not_tested(f"states on the device of {name}", "llama.cpp fails without Winnow, too")
    return *host.run(program, *arguments, "host", winnow=True, environment=environment), "host"


def main(test):
    """Runs a test function: its failures become one line and a status."""
    try:
        test()
    except Failure as failure:
        sys.exit(f"FAILED: {failure}")
