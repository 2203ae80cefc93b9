"""Rows of policies in Python for `winnow eval --with`: what they cost, in Winnow's cache under transformers.

    launch.py policy --model FILE.gguf --text FILE --llama-cpp DIR FILE.py:FUNCTION...
"""

import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

import options
import torch_plan
import winnowkv
from winnow_eval import Failure, cli
from winnow_calibrate import storage

HELP = """What policies of your own cost in quality, by the logits of a GGUF model in torch on the CPU.

Each FILE.py:FUNCTION is a function from scores to importance, as winnowkv.KvCache and winnowkv.transformers.WinnowCache
take it (hosts/python/README.md). Each of them is measured with each --config. Finished contexts are kept in --out, and
the same command goes on where it was interrupted. DIR/policy.json is for winnow eval --with."""
CONTROL = "none:k=f32,v=f32"


@dataclass(frozen=True)
class Row:
    """A policy with a configuration, in one mode; or the full cache, without a policy."""

    policy: str  # FILE.py:FUNCTION, the file without folders; "" for none
    config: str
    mode: str
    chunk: int  # tokens of a forward call at most, where they do not come one at a time
    queries: int  # of how many of a step's last queries the policy gets the scores
    digest: str = ""  # of the file
    function: Callable | None = field(default=None, compare=False)

    @property
    def name(self):
        return f"{self.policy} {self.config}" if self.policy else f"winnowkv:{self.config}"

    @property
    def is_control(self):
        return not self.policy

    @property
    def identity(self):
        return {"chunk": self.chunk, "queries": self.queries, "policy": self.digest}

    def why_not(self, prompt):
        return None


def load_policy(given):
    """(FILE.py:FUNCTION without folders, the file's digest, the function) of an argument of the command line."""
    path, colon, name = given.rpartition(":")
    if not colon or not name.isidentifier() or not path.endswith(".py"):
        raise Failure(f"POLICY: \"{given}\", expected a file of Python and a function in it, as policies.py:tova")
    path = Path(path)
    if not path.is_file():
        raise Failure(f"POLICY: no file {path}")
    spec = importlib.util.spec_from_file_location(f"winnow_policy:{path.resolve()}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where dataclasses look it up
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # for what it imports
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Failure(f"POLICY: {path} fails: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    function = getattr(module, name, None)
    if not callable(function):
        raise Failure(f"POLICY: {path} has no function {name}")
    return f"{path.name}:{name}", storage.sha256_of(path), function


def planned(policies, configs, modes, chunk, queries):
    """The rows of a context length, the control run first."""
    made = []
    for mode in modes:
        made.append(Row("", CONTROL, mode, chunk, queries))
        made += [Row(policy, config, mode, chunk, queries, digest, function)
                 for policy, digest, function in policies for config in configs]
    names = [(row.name, row.mode) for row in made]
    if len(set(names)) < len(names):
        raise Failure(f"POLICY: {next(name for name in names if names.count(name) > 1)[0]} is given twice")
    return made


def find_backend(given):
    """The path of the backend: --backend, or else what winnowkv would take."""
    name = str(given or os.environ.get("WINNOW_BACKEND") or "opencl")
    if os.sep not in name and not Path(name).is_file():
        try:
            return Path(winnowkv.get_library_path(name))
        except FileNotFoundError as error:
            raise Failure(f"--backend: {error}; expected the path of libwinnow_opencl.so") from error
    if not Path(name).is_file():
        raise Failure(f"--backend: no file {name}")
    return Path(name).resolve()


def remarks(modes, chunk, queries, versions):
    made = [f"computed by torch {versions['torch']} in float32 on the CPU, weights dequantized, attention by Winnow on "
            f"{versions['device']}; the base is torch's full cache, not rounded to f16",
            f"the text comes in calls of {chunk} tokens, or fewer where some would be evicted before the policy ranked "
            f"them; after each call it ranks all tokens by the scores of the last {min(chunk, queries)} queries"]
    if "decode" in modes:
        made.append("decoded, what is scored comes token by token, and the policy ranks after each of them")
    return made


def open_context(backend, device, threads):
    try:
        return winnowkv.Context(device, backend=backend, threads=threads)
    except (OSError, winnowkv.Error) as error:
        raise Failure(f"{backend.name}: {error}") from error


def start(backend, device, threads):
    import policy_torch

    context = open_context(backend, device, threads)
    package = storage.sha256_of(*sorted(Path(winnowkv.__file__).parent.glob("*.py")))
    versions = policy_torch.versions(context, package, storage.sha256_of(backend))
    return versions, functools.partial(policy_torch.load, context=context), policy_torch.Refused


def measure(
    policies: Annotated[list[str], typer.Argument(metavar="FILE.py:FUNCTION...", help="see above")],
    model: options.MODEL = None,
    text_file: options.TEXT = None,
    configs: Annotated[list[str] | None, typer.Option("--config", metavar="CONFIGURATION", help="Winnow's cache under "
                                                      "the policy (docs/policies.md); may be repeated (default "
                                                      "external:budget=1/4)")] = None,
    contexts: options.CONTEXTS = "2048",
    count: options.COUNT = 8,
    mode: Annotated[str, typer.Option(metavar="batch,decode", help="how the second half of a context, which is scored, "
                                      "comes: in calls of --chunk tokens, or token by token")] = "batch,decode",
    chunk: Annotated[int, typer.Option(min=1, metavar="N", help="tokens of a call in which a text is read, at most; "
                                       "the policy is called after each")] = 32,
    queries: Annotated[int, typer.Option(min=1, metavar="N", help="of how many of a call's last queries the policy "
                                         "gets the scores, at most (policy_queries)")] = 8,
    part: options.PART = "all",
    out: options.OUT = Path("winnow-policy"),
    threads: cli.THREADS = None,
    backend: options.BACKEND = None,
    device: cli.DEVICE = None,
    llama_cpp: options.LLAMA_CPP = None,
    fresh: options.FRESH = False,
):
    task = torch_plan.Task(model, text_file, contexts, count, mode, part, out, threads, llama_cpp, fresh)
    configs = configs or ["external:budget=1/4"]
    found = planned([load_policy(given) for given in policies], configs, task.modes, chunk, queries)
    library = find_backend(backend)
    words = ["--mode", ",".join(task.modes), "--chunk", chunk, "--queries", queries,
             *(word for config in configs for word in ("--config", config)),
             *(Path(given).name for given in policies)]
    torch_plan.measure(task, "policy", dict.fromkeys(task.contexts, found),
                       lambda: start(library, device, task.threads), words,
                       lambda versions: remarks(task.modes, chunk, queries, versions))


if __name__ == "__main__":
    cli.run_app("policy", HELP, measure)
