"""Tests winnowkv.transformers and winnowkv.compare with the oldest and the newest release of transformers that they
serve, on tiny random models and on SmolLM2-135M; and what lab/eval/adapters measures of a policy in Python.

PyPI's torch for x86-64 needs CUDA's libraries. This command downloads three small ones, and makes stand-ins without
content for the others, which take 2.4 GB; such a torch computes on the CPU. The two environments take 2 GB in
${XDG_CACHE_HOME:-~/.cache}/winnow-dev.
"""

import argparse
import collections
import os
import re
import subprocess
from pathlib import Path

import parts
from parts import Failure

OLDEST, NEWEST = "5.0.0", "5.24.0"  # pyproject.toml and hosts/python/transformers.md name them, too
TORCH = "2.15.0"
WITHOUT_NEEDS = (f"torch=={TORCH}", "nvidia-cuda-runtime==13.5.37", "nvidia-cuda-cupti==13.5.25",
                 "nvidia-cufile==1.20.0.107", "accelerate==1.15.0")
NEEDS = ("numpy==2.4.6", "filelock", "fsspec", "jinja2", "networkx", "psutil", "sympy", "typing-extensions",
         "setuptools")
GGUF = "0.19.0"  # with which, and with accelerate, transformers reads SmolLM2
PANDAS, MATPLOTLIB = "3.1.1", "3.11.2"  # which winnowkv.compare needs

# The libraries that torch links and that get a stand-in: how its file and its functions begin.
PREFIXES = {"libnccl": "nccl", "libcusparseLt": "cusparseLt", "libnvshmem_host": "nvshmem", "libcufft": "cufft",
            "libcublasLt": "cublasLt", "libcublas": "cublas", "libcudnn": "cudnn", "libnvrtc": "nvrtc",
            "libcusolver": "cusolver", "libcusparse": "cusparse"}
DOWNLOADED = {"libcudart.so.13", "libcupti.so.13", "libcufile.so.0"}
TORCH_LIBRARIES = ("libtorch_cuda.so", "libtorch_cpu.so", "libtorch_python.so", "libtorch_nvshmem.so",
                   "libtorch_cuda_linalg.so")


def arguments():
    introduction, details = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(prog="ci/transformers", description=introduction, epilog=details)
    parser.add_argument("--backend", type=Path, default=parts.SOURCE / "build" / "test" / "lib" / "libwinnow_opencl.so",
                        metavar="FILE", help="the backend (default: the one that ci/test builds)")
    return parser.parse_args()


def packages_of(folder):
    return next((folder / "lib").glob("python3*")) / "site-packages"


def output_of(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def stand_in_for(library, symbols, folder):
    """A shared library whose functions all return 1, which is an error in each of these interfaces. symbols: names and
    versions."""
    versions = collections.defaultdict(list)
    for symbol, version in sorted(symbols):
        versions[version].append(symbol)
    source, script = folder / "stand_in.s", folder / "stand_in.map"
    source.write_text(".text\nstand_in: movl $1,%eax\nret\n" + "".join(
        f".globl {name}\n.type {name},@function\n.set {name},stand_in\n" for name, _ in sorted(symbols)))
    script.write_text("".join(f"{version} {{ global: {'; '.join(names)}; }};\n"
                              for version, names in versions.items() if version))
    options = [f"-Wl,--version-script={script}"] if script.read_text() else []
    parts.run(["gcc", "-shared", "-nostdlib", "-o", folder / library, source, f"-Wl,-soname,{library}", *options])


def add_torch(environment):
    """torch and accelerate without what they need, and stand-ins for CUDA."""
    log = parts.CACHE / "logs" / "torch.log"
    parts.run([environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", *WITHOUT_NEEDS], log=log)
    site = packages_of(environment)
    needed, symbols = set(), collections.defaultdict(set)
    for path in (site / "torch" / "lib" / name for name in TORCH_LIBRARIES):
        if not path.exists():  # a torch without CUDA
            continue
        needed |= set(re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl)[^\]]*)\]", output_of("readelf", "-d", path)))
        for line in output_of("nm", "-D", "--undefined-only", path).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            for library, prefix in PREFIXES.items():
                if symbol.startswith(prefix) or prefix == "nvshmem" and "7nvshmem" in symbol:  # a namespace in C++
                    symbols[library].add((symbol, version.lstrip("@")))
                    break
    for library in sorted(needed - DOWNLOADED):
        stand_in_for(library, symbols[library.partition(".so")[0]], site / "nvidia" / "cu13" / "lib")


def python_with_torch(name, packages, torch_environment):
    """A Python with these packages and the torch of another environment."""
    def add(environment):
        (packages_of(environment) / "torch.pth").write_text(f"{packages_of(torch_environment)}\n")

    return parts.python_with(name, packages, add)


def python_of(release, torch_environment):
    """A Python with this release of transformers and the torch of another environment."""
    packages = (f"transformers=={release}", f"gguf=={GGUF}", f"pandas=={PANDAS}", f"matplotlib=={MATPLOTLIB}")
    return python_with_torch(f"transformers-{release}-{GGUF}-{PANDAS}-{MATPLOTLIB}", packages, torch_environment)


def main():
    options = arguments()
    if not options.backend.exists():
        raise Failure(f"there is no {options.backend}; build it, or name another one with --backend")
    parts.setup("test")
    torch_environment = parts.python_with(f"torch-{TORCH}", NEEDS, add_torch).parent.parent
    tests = [parts.SOURCE / "hosts" / "python" / f"{name}_test.py" for name in ("transformers", "compare")]
    tests += [parts.SOURCE / "lab" / "eval" / "tests" / f"{name}_test.py" for name in ("policy_torch", "codes_torch")]
    environment = os.environ | {"WINNOW_GGUF": str(parts.model()), "WINNOW_REQUIRE_PACKAGES": "1"}
    for release in (OLDEST, NEWEST):
        python = python_of(release, torch_environment)
        parts.say(f"testing with transformers {release}")
        for test in tests:
            parts.run([python, "-B", test, options.backend], env=environment)


if __name__ == "__main__":
    parts.run_main("ci/transformers", main)
