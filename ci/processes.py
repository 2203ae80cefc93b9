"""Runs llama.cpp's llama-completion, plain or with Winnow, and says what the process took: memory as the system counts
it, whose memory that is, bytes of the cache, and tokens per second.
"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import parts
from parts import Failure, say

sys.path.append(str(parts.SOURCE / "tools" / "calibrate"))
from winnow_calibrate import memory  # noqa: E402

MIB = 1 << 20
TRIES = 12  # a run of a tenth of a second loses its log once in 5 to 50, more when cores are short
# Of the caller's environment.
KEPT = ("WINNOW_BACKEND", "WINNOW_DEVICE", "WINNOW_DRIVER", "WINNOW_PATH", "WINNOW_PROGRAM_CACHE_MIB", "WINNOW_TUNING")
# Whose a mapping is, by the name of its file. What is asked first wins.
OWNERS = (
    ("OpenCL compiler", re.compile(r"lib(LLVM|clang)")),
    ("OpenCL driver", re.compile(r"lib(pocl|OpenCL|hwloc|intelocl|nvidia)|/libpocl")),
    ("Winnow", re.compile(r"libwinnow[^/]*$")),  # before kernels: the project's folder may be called winnow
    ("kernels", re.compile(r"/(pocl|kcache|winnow)/|\.so\.winnow|parallel\.bc|program\.bc")),
    ("llama.cpp", re.compile(r"lib(llama|ggml|mtmd)|/llama-[a-z]+$")),
)


@dataclass
class Kind:
    """One way to run: llama.cpp's cache types, and where Winnow attends, the plugin and what WINNOW_KV says."""

    name: str
    cache_type: str = "f16"
    flash: str | None = None  # llama.cpp's -fa; None leaves the choice to llama.cpp
    plugin: Path | None = None
    kv: str | None = None


@dataclass
class Run:
    """What one process did. Sizes are in bytes, speeds in tokens per second."""

    text: str
    prompt_tokens: int
    prompt_speed: float
    speed: float
    seconds: float
    peak: int
    cache_bytes: int
    scratch_bytes: int  # that the steps of Winnow's caches share
    report: dict | None
    owners: collections.Counter = field(default_factory=collections.Counter)


def check_options(parser, options, **least):
    """Ends with an error of the parser's where a number is less than it may be, or --model is no GGUF file."""
    for name, fewest in least.items():
        if (value := getattr(options, name)) < fewest:
            parser.error(f"--{name}: {value}, expected at least {fewest}")
    if options.model is None:
        return
    if not options.model.is_file():
        parser.error(f"--model: no file {options.model}")
    options.model = options.model.resolve()  # as the system calls it
    with open(options.model, "rb") as file:
        if file.read(4) != b"GGUF":
            parser.error(f"--model: {options.model} is not a GGUF file")


def build():
    """Builds what runs, and the program `winnow`: (llama-completion, the plugin)."""
    program = parts.llama_cpp_release_build("llama-completion") / "bin" / "llama-completion"
    return program, parts.winnow_build("winnow") / "lib" / "libwinnow_ggml.so"


def environment_of(kind, report, extra):
    environment = {key: value for key, value in os.environ.items()
                   if key != "GGML_BACKEND_PATH" and (not key.startswith("WINNOW_") or key in KEPT)}
    if kind.plugin is not None:
        environment |= {"GGML_BACKEND_PATH": str(kind.plugin), "WINNOW_REPORT": str(report)}
        if kind.kv is not None:
            environment["WINNOW_KV"] = kind.kv
        parts.choose_device(environment)
    return environment | (extra or {})


def owner_of(path, model):
    if path == str(model):
        return "model file"
    for owner, pattern in OWNERS:
        if pattern.search(path):
            return owner
    return "other files" if path.startswith("/") else "heap and buffers"


def resident_by_owner(pid, model):
    """A counter of resident bytes; an empty one when the process has ended."""
    owners, owner = collections.Counter(), ""
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return owners
    for line in lines:
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            fields = line.split(maxsplit=5)
            owner = owner_of(fields[5] if len(fields) > 5 else "", model)
        elif line.startswith("Rss:"):
            owners[owner] += int(line.split()[1]) * 1024
    return owners


def wait(process, model, with_owners):
    """Waits for a process's end: (the most bytes that it had, resident bytes by owner when they were most)."""
    most = collections.Counter()
    while with_owners:
        now = resident_by_owner(process.pid, model)
        if not now:
            break
        most = max(most, now, key=lambda owners: owners.total())
        time.sleep(.05)
    return memory.wait(process), most


def timing(log, name):
    """(tokens, tokens per second) of a line of llama.cpp's timings; (0, 0) if nothing was timed."""
    match = re.search(rf"(?<!prompt )\b{name} time = +([\d.]+) ms / +(\d+) (?:tokens|runs)", log)
    if match is None or int(match[2]) == 0 or float(match[1]) == 0:
        return 0, 0.
    return int(match[2]), 1000 * int(match[2]) / float(match[1])


def cache_bytes(log, report):
    """What the cache takes: as Winnow reports it where it is Winnow's, else as llama.cpp says."""
    if report is not None and report["caches"]:
        return sum(cache["bytes"] for cache in report["caches"])
    sizes = re.findall(r"llama_kv_cache: +size = +([\d.]+) MiB", log)
    return round(sum(map(float, sizes)) * MIB)


def scratch_bytes(report):
    return sum(cache["scratch_bytes"] for cache in report["caches"]) if report is not None else 0


def run(kind, program, arguments, model, environment=None, with_owners=False):
    """Runs llama-completion once with these arguments. Fails if it fails, or if Winnow was not called and should be.

    llama.cpp's thread that writes the log may end before the run does: then the end of the log is missing, timings and
    all, though the status is 0. Such a run is repeated.
    """
    for _ in range(TRIES):
        log, result = run_once(kind, program, arguments, model, environment, with_owners)
        if "prompt eval time =" in log:
            return result
    raise Failure(f"{program} timed nothing in {TRIES} runs:\n{log[-3000:]}")


def run_once(kind, program, arguments, model, environment=None, with_owners=False):
    """(log, result)"""
    command = [program, "-m", model, *arguments, "--temp", 0, "--seed", 1, "-no-cnv", "--no-display-prompt", "--perf",
               "-lv", 4]  # which tells the size of the cache
    if kind.cache_type != "f16":
        command += ["-ctk", kind.cache_type, "-ctv", kind.cache_type]
    if kind.flash:
        command += ["-fa", kind.flash]
    if kind.plugin is not None:
        command += ["-dev", "Winnow"]  # a llama.cpp with a static registry loads the plugin only when one is named
    command = [str(part) for part in command]
    with tempfile.TemporaryDirectory() as folder:
        report, out, err = (Path(folder) / name for name in ("report.json", "out", "err"))
        begin = time.monotonic()
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            process = subprocess.Popen(command, env=environment_of(kind, report, environment), stdout=stdout,
                                       stderr=stderr, stdin=subprocess.DEVNULL)
            peak, owners = wait(process, model, with_owners)
        seconds = time.monotonic() - begin
        text, log = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
        if process.returncode != 0:
            raise Failure(f"{' '.join(command)}\nended with status {process.returncode}:\n{log[-3000:]}")
        counts = json.loads(report.read_text()) if report.exists() else None
    if kind.plugin is not None:
        expect_called(kind, counts)
    (prompt_tokens, prompt_speed), (_, speed) = timing(log, "prompt eval"), timing(log, "eval")
    return log, Run(text.strip("\n"), prompt_tokens, prompt_speed, speed, seconds, peak,
                    cache_bytes(log, counts), scratch_bytes(counts), counts, owners)


def best_of(runs):
    """The first run's text, with the best of all runs' speeds and the least of their memory."""
    best = runs[0]
    for run in runs[1:]:
        best.prompt_speed = max(best.prompt_speed, run.prompt_speed)
        best.speed = max(best.speed, run.speed)
        best.peak = min(best.peak, run.peak)
    return best


def in_turns(kinds, program, arguments, model, tokens, turns, with_owners=False, first_model=None):
    """[(kind, its best run)] of runs in turns. Before them one of each kind with Winnow, in which kernels are compiled,
    is not counted; first_model may spare it time, if its attention has the same shape.
    """
    for kind in kinds:
        if kind.plugin is not None:
            say(f"{kind.name}: a run that is not counted, in which kernels are compiled")
            run(kind, program, [*arguments, "-n", 2], first_model or model)
    runs = [[] for _ in kinds]
    for turn in range(turns):
        for kind, its in zip(kinds, runs):
            say(f"run {turn + 1} of {turns}: {kind.name}")
            its.append(run(kind, program, [*arguments, "-n", tokens], model, with_owners=with_owners))
    return [(kind, best_of(its)) for kind, its in zip(kinds, runs)]


def expect_called(kind, report):
    """Fails unless the plugin computed the attention, over a cache of Winnow's where one was asked for."""
    if report is None:
        raise Failure("llama.cpp did not call the plugin: it wrote no report")
    attended = [tensor for tensor in report["tensors"].values() if tensor["attention_calls"] > 0]
    if not any(tensor["append_calls"] for tensor in attended):
        raise Failure("llama.cpp loaded the plugin, but none of its attention ran there")
    if kind.kv is None:
        return
    for cache in report["in_place"]:
        raise Failure(f"the cache of {cache['name']} was not Winnow's: {cache['node']} ({cache['operation']}): "
                      f"{cache['reason']}")
    if not report["caches"]:
        raise Failure("the cache was not Winnow's: the plugin reports none")
