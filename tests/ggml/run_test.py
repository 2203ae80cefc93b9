"""`winnow run` with llama.cpp's own programs: they get the flags that they lack, write what they write without it, and
at the end a line says how often Winnow was called, or why it was not.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import llama_cpp
import llama_server
import random_models
from llama_cpp import expect

TOKENS = 16


def cache_folder(host):
    """Where `winnow run` keeps what doctor says of it: the user's own keeps what the user ran."""
    return host.report_path.parent / "cache"


def settings(host, environment=None):
    """The environment of a user who has set no variable for the plugin, but the device of the test."""
    kept = host.settings(winnow=False) | host.drivers | {"WINNOW_PATH": str(host.plugin.parent),
                                                         "XDG_CACHE_HOME": str(cache_folder(host))}
    kept.pop("LD_PRELOAD", None)
    return kept | (environment or {})


def run(host, options, program, *arguments, of_run=(), status=0, environment=None):
    """(stdout, what winnow said at the end, the report)"""
    path = options.work / "report.json"
    path.unlink(missing_ok=True)
    command = [options.winnow, "run", "--report", path, *of_run, "--", with_preload(host, options, program), *arguments]
    done = subprocess.run([str(part) for part in command], env=settings(host, environment), capture_output=True,
                          stdin=subprocess.DEVNULL, text=True, errors="replace")
    expect(done.returncode == status, f"{command}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
    said = re.findall(r"^winnow: ((?:not )?called.*(?:\n.*)?)$", done.stderr, re.M)
    expect(len(said) == 1, f"winnow did not say one thing at the end: {done.stderr[-3000:]}")
    kept = json.loads((cache_folder(host) / "winnow" / "last_run.json").read_text())
    expect(said[0].startswith(kept["line"]), f"winnow said {said[0]}, and keeps {kept}")
    print(f"{program}: {said[0].strip()}")
    return done.stdout, said[0], json.loads(path.read_text()) if path.exists() else None


def with_preload(host, options, program):
    """A script that starts the program with the library that tests preload, which `winnow` itself would take away."""
    script = options.work / program
    preload = host.environment.get("LD_PRELOAD", "")
    script.write_text(f"#!/bin/sh\nLD_PRELOAD='{preload}' exec '{host.programs.absolute() / program}' \"$@\"\n")
    script.chmod(0o755)
    return script


class RunHost(llama_cpp.Host):
    """Starts programs of llama.cpp's by `winnow run`, which gets the signals."""

    def __init__(self, options):
        super().__init__(options)
        self.winnow = options.winnow.absolute()

    def start(self, program, *arguments, **more):
        return super().start(self.winnow, "run", "--", self.programs.absolute() / program, *arguments, **more)


def completion(options, *more):
    return ["-m", options.model, "-n", TOKENS, "--temp", 0, "--seed", 1, "-no-cnv", "--no-display-prompt",
            "--ignore-eos", "-c", 256, "-t", 1, "--no-warmup", "-p", "lo mi ba du", *more]


def check_calls(host, options):
    """The text is that of the flags and variables that a user would have set, and the line is the report's."""
    for kv, of_run in ((None, ["--in-place"]), ("none:k=f16,v=f16", ["--kv", "none:k=f16,v=f16"]), ("winnow", [])):
        expected, _, _ = host.run("llama-completion", *completion(options, *llama_cpp.DEVICE, "-fa", "on"), winnow=True,
                                  environment=llama_cpp.kv_environment(kv))
        found, said, report = run(host, options, "llama-completion", *completion(options), of_run=of_run)
        expect(found == expected and len(found) > TOKENS, f"{kv}: another text: {found!r}, expected {expected!r}")
        calls = f"called {report['attention_calls']} times for attention in {report['graphs']} graphs on "
        expect(report["attention_calls"] >= random_models.LAYERS * TOKENS and calls in said, f"{said}: {report}")
        if kv:
            (cache,) = report["caches"]
            expect(f"cache {cache['bytes'] / 2 ** 10:.1f} KiB ({cache['config']})" in said, f"{said}: {cache}")
        else:
            expect("cache in place" in said, said)


def check_programs(host, options):
    out, said, _ = run(host, options, "llama-bench", "-m", options.model, "-p", 8, "-n", 4, "-r", 1, "-t", 1, "-o",
                       "json")
    expect(len(json.loads(out)) == 2 and said.startswith("called "), f"{said}\n{out}")
    check_server(host, options, ["-m", options.model], [None])
    models = options.work / "models"  # of which a server in router mode has a process each
    models.mkdir(exist_ok=True)
    names = [random_models.make(name, models).stem for name in ("plain", "draft")]
    check_server(host, options, ["--models-dir", models], names)


def check_server(host, options, arguments, names):
    """llama-server, stopped by a signal for `winnow run`, answers by each of these models."""
    server = llama_server.Server(RunHost(options), None, *arguments, "-c", 256, winnow=False,
                                 settings=("--no-webui", "-t", 1, "--no-warmup"), environment=settings(host))
    with server:
        for name in names:
            server.complete(0, "lo mi ba du", TOKENS, **({"model": name} if name else {}))
    calls = re.findall(r"^winnow: called (\d+) times .*", "".join(server.log), re.M)
    expect(len(calls) == 1, f"not one line about calls: {server.log[-20:]}")
    print(f"llama-server with {len(names)} models: {calls[0]} calls")
    least = len(names) * random_models.LAYERS * TOKENS
    expect(least <= int(calls[0]) < 2 * least, f"{calls[0]} calls, expected {least} and some for prompts")


def check_why_not(host, options):
    without, _, _ = host.run("llama-completion", *completion(options, "-dev", "none"), winnow=False)
    found, said, report = run(host, options, "llama-completion", *completion(options, "-dev", "none"))
    expect(found == without and report is None, f"another text: {found!r}, expected {without!r}")
    expect("not called: -dev none does not name Winnow" in said, said)
    _, said, report = run(host, options, "llama-completion", *completion(options), environment={
        "LLAMA_ARG_DEVICE": "none"})
    expect("not called: LLAMA_ARG_DEVICE=none does not name Winnow" in said and report is None, said)
    _, said, _ = run(host, options, "llama-completion", *completion(options, "-fa", "off"))
    expect("not called: flash attention is off (-fa off)" in said, said)
    _, said, _ = run(host, options, "llama-completion", *completion(options, "-ctk", "q8_0"), status=1)
    expect("not called: " in said and "cache_k_l0 is of type q8_0" in said and '--in-place' in said, said)
    _, said, _ = run(host, options, "llama-completion", "-m", "none.gguf", status=1)
    expect("not called: " in said and "ended with status 1" in said, said)
    _, said, _ = run(host, options, "llama-completion", *completion(options), of_run=["--device", "no such device"],
                     status=1)
    expect("not called: " in said and "no such device" in said and "winnow doctor" in said, said)
    folder = options.work / "alone"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("libwinnow_ggml.so", "libwinnow_opencl.so", "libwinnow_reference.so"):
        shutil.copy(host.plugin.parent / name, folder)
    _, said, _ = run(host, options, "llama-completion", *completion(options), status=1,
                     environment={"WINNOW_PATH": str(folder)})
    expect("not called: this process has ggml" in said and "no library in" in said, said)


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--winnow", type=Path, required=True, help="the program")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    options.model = random_models.make("plain", options.work)
    check_calls(host, options)
    check_programs(host, options)
    check_why_not(host, options)


llama_cpp.main(test)
