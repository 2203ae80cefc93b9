"""llama.cpp's programs: where they are, running them with a configuration, and what the plugin reported about it."""

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from winnow_calibrate import Failure, memory, storage

# What of the caller's environment would change a run behind our back.
STRIPPED = ("GGML_BACKEND_PATH", "LLAMA_ATTN_ROT_DISABLE", "WINNOW_DECODE_FROM", "WINNOW_DEVICE", "WINNOW_KV",
            "WINNOW_KV_SWA", "WINNOW_PRESSURE", "WINNOW_REPORT", "WINNOW_REPORT_EVERY",
            "WINNOW_REPORT_ROWS", "WINNOW_REPORT_WITH")
# llama.cpp prints from a thread that it does not wait for, so the end of what it says may be missing. Its last words
# tell a whole output. What is cut, or a failure without an explanation, is asked for again if it came quickly.
LAST_WORDS = "prompt eval time"
TRIES = 5
QUICK = 10  # seconds
LAYER_PREFIX = "cache_k_l"  # what llama.cpp calls the tensor of a layer's keys


@dataclass(frozen=True)
class Run:
    """One finished process."""

    stdout: str
    stderr: str
    report: dict | None  # what the plugin wrote; None if it was not loaded
    seconds: float
    peak_rss: int  # bytes


def _read(pipe, on_output):
    """All that comes through a pipe, as text."""
    printed = b""
    while piece := pipe.read1(65536):
        printed += piece
        if on_output:
            on_output(printed.decode(errors="replace"))
    return printed.decode(errors="replace")


def errors_of(printed):
    """The lines of a program's output that speak of errors."""
    telling = re.compile(r"\berror|\bfail|cannot|refuse|expected|^[\d.]+ [EW] ")
    return [line for line in printed.splitlines() if telling.search(line)]


def essence(printed):
    """What of a program's output explains its failure: the lines that speak of errors, or else the last ones."""
    lines = errors_of(printed) or [line for line in printed.splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[-8:]) or "  nothing"


def _start(command, environment, with_report, on_output):
    """One process: (exit status, Run)."""
    with tempfile.TemporaryDirectory(prefix="winnow-eval-") as folder:
        report_path = Path(folder) / "report.json"
        if with_report:
            environment = environment | {"WINNOW_REPORT": str(report_path)}
        with open(Path(folder) / "stderr", "w+", encoding="utf-8", errors="replace") as errors:
            begin = time.monotonic()
            try:
                process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                           stderr=errors)
            except OSError as error:
                raise Failure(f"cannot run {command[0]}: {error.strerror}") from error
            try:
                stdout = _read(process.stdout, on_output)
                peak_rss = memory.wait(process)
            except BaseException:
                process.kill()
                process.wait()
                raise
            finally:
                process.stdout.close()
            seconds = time.monotonic() - begin
            errors.seek(0)
            stderr = errors.read()
        report = json.loads(report_path.read_text(encoding="utf-8")) if report_path.exists() else None
    return process.returncode, Run(stdout, stderr, report, seconds, peak_rss)


def find_programs(folder):
    """The folder of llama.cpp's programs: --llama-cpp, $WINNOW_LLAMA_CPP_BIN, or where PATH has llama-completion."""
    said = "--llama-cpp" if folder else "WINNOW_LLAMA_CPP_BIN"
    folder = folder or os.environ.get("WINNOW_LLAMA_CPP_BIN")
    if folder:
        if not (Path(folder) / "llama-completion").is_file():
            raise Failure(f"{said}: no llama-completion in {folder}; expected the folder of llama.cpp's programs, "
                          "bin/ of its build tree")
        return Path(folder).resolve()
    found = shutil.which("llama-completion")
    if not found:
        raise Failure("llama-completion was not found; build llama.cpp's targets llama-completion and llama-bench "
                      "(llama-perplexity for winnow profile and winnow calibrate) and give their folder as --llama-cpp "
                      "or WINNOW_LLAMA_CPP_BIN, or run ci/eval, which builds those for winnow eval")
    return Path(found).resolve().parent


def expect_program(folder, name, otherwise=""):
    """Fails where a folder does not have one of llama.cpp's programs; otherwise: what else there is to do about it."""
    if not (Path(folder) / name).is_file():
        raise Failure(f"no {name} in {folder}; build this target of llama.cpp{otherwise}")


def find_plugin(path, beside=None):
    """libwinnow_ggml.so: --plugin, $GGML_BACKEND_PATH, or the library folder of this installation."""
    said = "--plugin" if path else "GGML_BACKEND_PATH"
    path = path or os.environ.get("GGML_BACKEND_PATH")
    if path:
        if not Path(path).is_file():
            raise Failure(f"{said}: no file {path}; expected libwinnow_ggml.so")
        return Path(path).resolve()
    for folder in beside or ():
        if (Path(folder) / "libwinnow_ggml.so").is_file():
            return (Path(folder) / "libwinnow_ggml.so").resolve()
    raise Failure("libwinnow_ggml.so was not found; build Winnow with -DWINNOW_LLAMA_CPP_DIR=<source of llama.cpp> "
                  "and give it as --plugin or GGML_BACKEND_PATH, or run ci/eval, which builds it")


class Host:
    """llama.cpp with one model and one set of sizes; a configuration comes with each run."""

    def __init__(self, programs, plugin, model, batch=512, ubatch=512, threads=2, device=None):
        self.programs = Path(programs)
        self.plugin = Path(plugin)
        self.original = self._model = Path(model)
        self._make_copy = None
        self.weights = "as-is"
        self.batch, self.ubatch, self.threads = batch, ubatch, threads
        self.device = device or os.environ.get("WINNOW_DEVICE")
        self.found_device = None  # {"device", "platform", "driver_version"}, once the plugin has said it
        self.environment = {key: value for key, value in os.environ.items()
                            if key not in STRIPPED and not key.startswith("LLAMA_ARG_")}

    @property
    def model(self):
        """What runs: the file that was given, or the copy of it that is made at the first use."""
        if self._make_copy:
            self._model, self._make_copy = self._make_copy(), None
        return self._model

    def use_copy(self, make):
        """From now on that file runs which make() gives, with other weights."""
        self._make_copy = make

    def settings(self, program, config, batch=None):
        """(arguments, environment) that make one of llama.cpp's programs run a configuration."""
        batch = batch or self.batch
        arguments = ["-m", self.model, "-b", batch, "-ub", min(batch, self.ubatch), "-t", self.threads, "-fa", "on",
                     "-ctk", config.k, "-ctv", config.v]
        if program != "llama-bench":
            arguments += ["-fit", "off"]  # all sizes are as given, whatever memory there is
        environment = dict(self.environment)
        if not config.rotate:
            environment["LLAMA_ATTN_ROT_DISABLE"] = "1"
        if config.backend == "winnow":
            # A llama.cpp with a static registry of backends looks for the plugin only when a device is named.
            arguments += ["-dev", "Winnow"]
            environment["GGML_BACKEND_PATH"] = str(self.plugin)
            if self.device:
                environment["WINNOW_DEVICE"] = self.device
            if config.kv:
                environment["WINNOW_KV"] = config.kv
        else:
            arguments += ["-dev", "none"]
        return arguments, environment | dict(config.environment)

    def run_program(self, program, arguments, config, on_output=None, batch=None):
        """Runs programs/<program> in a process of its own with the settings of a configuration and these arguments.

        on_output is called, whenever something was printed, with all of stdout so far. batch: a smaller one than the
        host's. Any other end than exit status 0 is a Failure.
        """
        settings, environment = self.settings(program, config, batch)
        command = [str(part) for part in (self.programs / program, *settings, *arguments)]
        speaks_last = program == "llama-perplexity"
        rows = environment.get("WINNOW_REPORT_ROWS")
        for _ in range(TRIES):
            if rows:  # what a try before this one left; the plugin adds to it
                Path(rows).unlink(missing_ok=True)
            status, run = _start(command, environment, config.backend == "winnow", on_output)
            printed = run.stdout + run.stderr
            if status == 0 and (not speaks_last or LAST_WORDS in printed):
                return run
            if run.seconds > QUICK or (status != 0 and errors_of(printed)):
                break
        raise Failure(self._complaint(program, config, status, printed))

    def _complaint(self, program, config, status, printed):
        if status == 0:
            return (f"the output of {program} with {config} was cut: it has no line with \"{LAST_WORDS}\". It "
                    f"said:\n{essence(printed)}")
        if not printed.strip() or "failed to load model" in printed or "error loading model" in printed:
            return f"llama.cpp cannot load {self.model}; it ended with status {status} and said:\n{essence(printed)}"
        said = f"{program} with {config} ended with status {status}:\n{essence(printed)}"
        if "invalid device: Winnow" in printed:
            said += (f"\nllama.cpp refused {self.plugin}: is it built for this version of llama.cpp, and does "
                     f"the device \"{self.device or 'default'}\" exist? `winnow info` lists devices")
        return said

    @functools.cached_property
    def version(self):
        """What llama.cpp calls itself."""
        run = subprocess.run([self.programs / "llama-completion", "--version"], capture_output=True,
                             encoding="utf-8", errors="replace", env=self.environment, stdin=subprocess.DEVNULL)
        for line in (run.stdout + run.stderr).splitlines():
            if line.startswith("version:"):
                return line.removeprefix("version:").strip()
        raise Failure(f"{self.programs / 'llama-completion'} --version says no version:\n{run.stdout}{run.stderr}")

    @functools.cached_property
    def _programs_sha256(self):
        """Of llama.cpp's programs and of its libraries, which lie beside them or in the lib of an installation."""
        beside = [path for pattern in ("llama-*", "lib*.so*") for path in self.programs.glob(pattern)]
        libraries = [path for folder in ("lib", "lib64", "lib/*-linux-gnu") for name in ("ggml", "llama")
                     for path in self.programs.parent.glob(f"{folder}/lib{name}*.so*")]
        files = {path.resolve() for path in [*beside, *libraries] if path.is_file()}
        if not files:
            raise Failure(f"no programs of llama.cpp in {self.programs}")
        return storage.sha256_of(*sorted(files))

    @functools.cached_property
    def model_sha256(self):
        """Of the file that was given; `weights` says what is done with it."""
        return storage.sha256_of(self.original)

    @functools.cached_property
    def _plugin_sha256(self):
        """Of the plugin and of the backends that it may load, which do the computing: where its loader looks."""
        folders = [Path(folder) for name in ("WINNOW_PATH", "LD_LIBRARY_PATH")
                   for folder in os.environ.get(name, "").split(":") if folder]
        here = self.plugin.resolve().parent
        folders += [here, here / "winnow", *(path for pattern in ("lib*", "lib*/winnow", "lib/*-linux-gnu/winnow")
                                             for path in here.parent.glob(pattern))]
        files = {path.resolve() for folder in folders for path in folder.glob("libwinnow_*.so")}
        backend = os.environ.get("WINNOW_BACKEND", "")
        files |= {self.plugin.resolve(), *([Path(backend).resolve()] if "/" in backend else [])}
        return storage.sha256_of(*sorted(files))

    def identity(self, config):
        """All that determines a result of this host with a configuration, apart from what it is given to do and from
        the files that a policy's string names."""
        made = {"model": [self.model_sha256, self.weights], "llama_cpp": [self.version, self._programs_sha256],
                "batch": self.batch, "ubatch": self.ubatch, "threads": self.threads, "config": config.settings()}
        if config.backend == "winnow":
            made |= {"plugin": self._plugin_sha256, "device": self.found_device,
                     "backend": os.environ.get("WINNOW_BACKEND", "")}
        return made


def micro_batches(host, context):
    """In how many steps llama.cpp takes a context, which is how often each layer attends."""
    batches = [min(host.batch, context - begin) for begin in range(0, context, host.batch)]
    return sum(-(-batch // host.ubatch) for batch in batches)


def read_profiles(run):
    """What a result keeps of the profiles that a policy read beside its string (storage.read_files)."""
    caches = run.report["caches"] if run.report else []
    return storage.read_files(*sorted({cache["profile_file"] for cache in caches} - {""}))


def calls_per_layer(run, config, layers=None):
    """Attention calls of each layer; fails unless Winnow computed all layers, alike, on caches of the wanted types.

    0 for a configuration without Winnow. layers: how many the model has, if known.
    """
    if config.backend != "winnow":
        return 0
    report = run.report
    if report is None:
        raise Failure(f"{config}: llama.cpp did not load the plugin, or did not call it:\n{essence(run.stderr)}")
    seen = {name: counts for name, counts in report["tensors"].items() if name.startswith(LAYER_PREFIX)}
    if not seen or (layers is not None and len(seen) != layers):
        raise Failure(f"{config}: Winnow computed the attention of {len(seen)} layers, expected {layers or 'some'}")
    calls = {counts["attention_calls"] for counts in seen.values()}
    if len(calls) != 1 or report["attention_calls"] != len(seen) * min(calls):
        raise Failure(f"{config}: the layers differ in their attention calls: {seen}")
    attentions, in_place = report["attention_calls"], report["sdpa_calls"]
    if config.kv:
        expect_virtual(report, config)
        steps = sum(cache["steps"] for cache in report["caches"])  # more, where appends come alone
        if in_place or steps < attentions:
            raise Failure(f"{config}: {attentions} attentions, but {steps} steps of Winnow's caches and {in_place} in "
                          "place")
    elif in_place != attentions:
        raise Failure(f"{config}: {attentions} attentions, but {in_place} calls of Winnow")
    types = {name[:len("cache_k")]: counts["type"] for name, counts in report["tensors"].items()}
    if not config.kv and not types.items() <= {"cache_k": config.k, "cache_v": config.v}.items():
        raise Failure(f"{config}: the caches are of {types}, expected {config.k} and {config.v}")
    return calls.pop()


def expect_virtual(report, config):
    """Fails if a cache stayed in place, with the reason; an older plugin does not tell."""
    for cache in report.get("in_place", ()):
        raise Failure(f"{config}: the cache of {cache['name']} stays in place: {cache['node']} "
                      f"({cache['operation']}): {cache['reason']}")


def virtual_bytes(run, config):
    """(bytes of keys and values, bytes of all else) of the caches of a policy, when they held most."""
    caches = run.report["caches"]
    if not caches:
        raise Failure(f"{config}: the plugin reports no cache")
    stored = sum(cache[part] for cache in caches for part in ("k_bytes", "v_bytes", "dense_bytes", "signature_bytes"))
    return stored, sum(cache["bytes"] for cache in caches) - stored
