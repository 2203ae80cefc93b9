"""Uses the wheels in dist/ where nothing else is: llama.cpp generates text in an empty virtual environment.

ci/wheel and ci/driver_wheel make the wheels. In a mount namespace of its own this command hides the system's compilers,
linkers, OpenCL drivers, their loader, LLVM, and what LLVM needs; then it installs the wheels without a network into a
folder with a space in its name, and says how long each step took. It has to be root, or be allowed to make a user
namespace.
"""

import argparse
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import parts
from parts import Failure, say

DIST = parts.SOURCE / "dist"
WHEELS = ("winnowkv-*manylinux*_x86_64.whl", "winnowkv_pocl-*_x86_64.whl")
PROGRAMS = ("ld", "ld.[bgl]*", "*-ld", "*-ld.*", "as", "*-as", "cc", "c++", "c89*", "c99*", "gcc*", "g++*", "*-gcc*",
            "*-g++*", "clang*", "lld*", "tcc")
LIBRARIES = ("pocl", "LLVM", "clang", "OpenCL", "hwloc", "z3", "xml2", "icu", "edit")
FOLDERS = ("/etc/OpenCL", "/usr/share/pocl", "/usr/lib/gcc", "/usr/lib/llvm-*", "/usr/lib/*-linux-gnu/pocl")


def arguments():
    introduction, details = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(prog="ci/bare", description=introduction, epilog=details)
    parser.add_argument("--conformance", type=Path, metavar="PROGRAM",
                        help="also run this winnow-conformance, whole, on the backend of the wheel")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)  # the folder, once in the namespace
    return parser.parse_args()


def gather(folder):
    """Puts the wheels into a folder, with what they depend on."""
    for pattern in WHEELS:
        found = sorted(DIST.glob(pattern), key=lambda path: path.stat().st_mtime)
        if not found:
            raise Failure(f"there is no {pattern} in {DIST}; ci/wheel and ci/driver_wheel make the wheels")
        parts.run([*parts.pip(), "download", "--quiet", "--dest", folder, found[-1]],
                  log=parts.CACHE / "logs" / "bare.log")


def hide():
    """Puts an empty file or folder over everything that the wheels have to do without."""
    empty = tempfile.mkdtemp()
    patterns = [f"/usr/bin/{name}" for name in PROGRAMS]
    patterns += [f"/usr/lib/*-linux-gnu/lib{name}*.so*" for name in LIBRARIES]
    paths = {os.path.realpath(path) for pattern in (*patterns, *FOLDERS) for path in glob.glob(pattern)}
    for path in sorted(paths, reverse=True):  # what is in a folder before it
        parts.run(["mount", "--bind", empty if os.path.isdir(path) else "/dev/null", path])
    for program in ("cc", "gcc", "clang", "ld", "as"):
        found = shutil.which(program)
        if found and os.path.getsize(found):
            raise Failure(f"{found} is still there")


def timed(what, command, environment, expected):
    """Runs a command, says how long it took, and fails where it fails or does not say what is expected."""
    begin = time.monotonic()
    result = subprocess.run([str(part) for part in command], env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace")
    say(f"{what}: {time.monotonic() - begin:.1f} s")
    if result.returncode != 0 or not re.search(expected, result.stdout):
        raise Failure(f"{shlex.join(map(str, command))}\nended with status {result.returncode}, expected {expected!r} "
                      f"in\n{result.stdout}")
    return result.stdout


def use(folder, conformance):
    """Installs, and uses what is installed: as a program, from Python, by llama.cpp."""
    hide()
    begin = time.monotonic()
    venv = folder / "a venv"
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("WINNOW_", "OCL_", "OPENCL_", "POCL_", "LD_", "PYTHON", "GGML_"))}
    environment |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    timed("python3 -m venv", [sys.executable, "-m", "venv", venv], environment, "")
    python, winnow = venv / "bin" / "python", venv / "bin" / "winnow"
    timed("pip install", [python, "-m", "pip", "install", "--no-index", "--find-links", folder, "winnowkv",
                          "winnowkv-pocl"], environment, "Successfully installed")
    timed("winnow info", [winnow, "info"], environment, "Portable Computing Language")
    backend = next(venv.glob("lib/python*/site-packages/winnowkv/lib/winnow/libwinnow_opencl.so"))
    script = parts.SOURCE / "hosts" / "python" / "external_policy.py"  # -I: beside packages that are not installed
    timed("300 tokens from Python", [python, "-I", script, backend], environment, "keeps the same")
    ask = [parts.llama_cpp_release_build() / "bin" / "llama-completion", "--model", parts.model(), "--no-conversation",
           "--temp", "0", "--predict", "32", "--prompt", "The capital of France is"]
    run = [winnow, "run", "--kv", "winnow", "--", *ask]
    for which in ("first", "second"):
        text = timed(f"llama-completion, {which} run", run, environment,
                     r"The capital of France is Paris(.|\n)*winnow: called")
    say(f"together: {time.monotonic() - begin:.0f} s")
    print(text[text.index("The capital"):])
    if conformance:
        driver = subprocess.check_output([python, "-m", "winnowkv_pocl"], env=environment, text=True).strip()
        said = timed("winnow-conformance", [conformance, "--backend", backend], environment | {"WINNOW_DRIVER": driver},
                     "CONFORMS")
        print("\n".join(said.splitlines()[-12:]))


def main():
    options = arguments()
    if options.inside:
        return use(options.inside, options.conformance)
    parts.model(), parts.llama_cpp_release_build("llama-completion")
    with tempfile.TemporaryDirectory() as folder:
        gather(folder)
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        further = ["--conformance", options.conformance.resolve()] if options.conformance else []
        parts.run(["unshare", "--mount", *as_root, sys.executable, "-B", __file__, "--inside", folder, *further])


if __name__ == "__main__":
    parts.run_main("ci/bare", main)
