"""Builds Winnow for 64-bit ARM on a machine of another kind, and runs its tests there by emulation (qemu-aarch64).

On Debian 12, whose libraries and headers for arm64 are unpacked into a folder of their own: nothing of another
architecture is installed. By default what compiles no kernels is tested: unit tests, the ABI, the storage formats, the
parts of the plugin for llama.cpp that run without it, and the reference backend in the conformance suite, with 20
random cases of an operation and a tenth of the tests of caches. --opencl adds the OpenCL backend on PoCL for ARM, whose
compiler is emulated, too: decoding with every storage format, a prompt, and caches with and without recall, in the
smallest shapes. The last lines are the summary of ctest.
"""

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import zlib

import parts
from parts import Failure, say

BUILD = parts.SOURCE / "build" / "aarch64"
TRIPLE = "aarch64-linux-gnu"
PACKAGES = ("libc6-dev", "libstdc++-{gcc}-dev", "ocl-icd-opencl-dev", "opencl-clhpp-headers", "pocl-opencl-icd",
            "libxxhash-dev", "libcli11-dev", "nlohmann-json3-dev", "libgtest-dev")
LLVM_OF_POCL = "usr/lib/llvm-*/lib"
TESTS = "^(unit|abi|formats|conformance|host_c|ggml)[.]"
RELEASE = ("debian", "12")
SYSROOT = "aarch64-sysroot"
OPENCL = ("^(abi|host_c)[.]opencl$", "^conformance[.]emulated")
# Compiles a kernel for each case, which are many; looks at objects with a program of this machine.
NEVER = ("^unit[.](.*/)?opencl_", "^abi[.]types")


def arguments():
    introduction, details = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(prog="ci/aarch64", description=introduction, epilog=details)
    parser.add_argument("--opencl", action="store_true", help="also the OpenCL backend on an emulated PoCL")
    parser.add_argument("--filter", metavar="REGEX", help="instead the tests whose name matches, as ctest -R")
    return parser.parse_args()


def check_release():
    try:
        told = platform.freedesktop_os_release()
    except OSError:
        told = {}
    name, version = (told.get(key, "") for key in ("ID", "VERSION_ID"))
    if (name, version) != RELEASE:
        raise Failure(f"this is {name or 'no known system'} {version}, expected {' '.join(RELEASE)}, whose packages "
                      "it takes")


def sysroot():
    """A folder with Debian's libraries and headers for arm64."""
    gcc = subprocess.run([f"{TRIPLE}-gcc", "-dumpversion"], capture_output=True, text=True, check=True).stdout.strip()
    packages = [package.format(gcc=gcc) for package in PACKAGES]

    def make(folder):
        state, cache = folder / "apt" / "state", folder / "apt" / "cache"
        (state / "lists" / "partial").mkdir(parents=True)
        (cache / "archives" / "partial").mkdir(parents=True)
        (state / "status").touch()
        apt = ["apt-get", "-y", "-o", "APT::Architecture=arm64", "-o", "APT::Architectures=arm64", "-o",
               f"Dir::State={state}", "-o", f"Dir::State::status={state / 'status'}", "-o", f"Dir::Cache={cache}"]
        say("downloading libraries for arm64 (90 MB, once)")
        logs = parts.CACHE / "logs"
        parts.run([*apt, "update"], log=logs / "aarch64-update.log")
        parts.run([*apt, "install", "--no-install-recommends", "--download-only", *packages],
                  log=logs / "aarch64-download.log")
        for archive in sorted((cache / "archives").glob("*.deb")):
            parts.run(["dpkg-deb", "--extract", archive, folder])
        shutil.rmtree(folder / "apt")
        for link in folder.rglob("*"):
            if link.is_symlink() and (target := os.readlink(link)).startswith("/"):
                link.unlink()
                link.symlink_to(os.path.relpath(folder / target.lstrip("/"), link.parent))

    return parts.kept(SYSROOT, f"{zlib.crc32(' '.join(packages).encode()):08x}", make)


def script(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)
    return path


def emulator(root):
    """A program that runs one for ARM with its libraries. PoCL's compiler calls a linker, which is this machine's for
    ARM."""
    libraries = [root / "usr" / "lib" / TRIPLE, root / "lib" / TRIPLE, *root.glob(LLVM_OF_POCL)]
    tools = BUILD / "emulation"
    found = " ".join(f"-L{shlex.quote(str(folder))}" for folder in (*root.glob(f"usr/lib/gcc/{TRIPLE}/*"), *libraries))
    script(tools / "bin" / "aarch64-unknown-linux-gnu-ld",
           f'exec {TRIPLE}-ld --sysroot={shlex.quote(str(root))} {found} "$@"')
    vendors = tools / "vendors"
    vendors.mkdir(exist_ok=True)
    (vendors / "pocl.icd").write_text(f"{libraries[0] / 'libpocl.so.2'}\n", encoding="utf-8")
    paths = shlex.quote(":".join(map(str, libraries)))
    return script(tools / "run", f"export PATH={shlex.quote(str(tools / 'bin'))}:$PATH",
                  f"export OCL_ICD_VENDORS={shlex.quote(str(vendors))}",
                  f'exec qemu-aarch64 -L {shlex.quote(str(root))} -E LD_LIBRARY_PATH={paths} "$@"')


def cross_build(root):
    """(CMake's settings, environment) of a build with the cross compiler, without those of Winnow."""
    defined = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_C_COMPILER": f"{TRIPLE}-gcc",
        "CMAKE_CXX_COMPILER": f"{TRIPLE}-g++",
        "CMAKE_LIBRARY_ARCHITECTURE": TRIPLE,
        "CMAKE_FIND_ROOT_PATH": root,
        "CMAKE_FIND_ROOT_PATH_MODE_PROGRAM": "NEVER",
        **{f"CMAKE_FIND_ROOT_PATH_MODE_{kind}": "ONLY" for kind in ("LIBRARY", "INCLUDE", "PACKAGE")},
        "CMAKE_BUILD_TYPE": "Release",
    }
    return defined, os.environ | {"PKG_CONFIG_SYSROOT_DIR": str(root), "PKG_CONFIG_LIBDIR":
                                  f"{root}/usr/lib/{TRIPLE}/pkgconfig:{root}/usr/share/pkgconfig"}


def build(root):
    defined, environment = cross_build(root)
    defined |= {
        "CMAKE_CROSSCOMPILING_EMULATOR": emulator(root),
        "WINNOW_BUILD_BENCH": "OFF",
        "WINNOW_QUICK_BUILD": "ON",
        "WINNOW_WARNINGS_AS_ERRORS": "ON",
        "WINNOW_TEST_OPTIONS": "-O2",  # emulated, they take longer than their compilation
        "WINNOW_CONFORMANCE_CASES": 20,
        "WINNOW_LLAMA_CPP_DIR": parts.llama_cpp_source(),
    }
    logs = parts.CACHE / "logs"
    say("building Winnow for aarch64")
    known = BUILD / "CMakeCache.txt"
    configured = set(re.findall(rf"{SYSROOT}-\w+", known.read_text(encoding="utf-8"))) if known.exists() else set()
    fresh = ["--fresh"] if configured - {root.name} else []
    parts.run(["cmake", "-S", parts.SOURCE, "-B", BUILD, "-G", "Ninja", *fresh,
               *(f"-D{name}={value}" for name, value in defined.items())], log=logs / "aarch64-configure.log",
              env=environment)
    parts.run(["cmake", "--build", BUILD], log=logs / "aarch64-build.log", env=environment)


def main():
    options = arguments()
    check_release()
    parts.setup("aarch64")
    build(sysroot())
    say("testing")
    command = ["ctest", "--test-dir", BUILD, "--output-on-failure", "--no-tests=error", "--parallel", "2"]
    if options.filter:
        command += ["-R", options.filter]
    else:
        command += ["-R", TESTS, "-E", "|".join(NEVER if options.opencl else (*NEVER, *OPENCL))]
    sys.stdout.flush()
    kernels = BUILD / "emulation" / "cache"  # apart from those that are kept for this machine
    environment = os.environ | {"XDG_CACHE_HOME": str(kernels), "POCL_CACHE_DIR": str(kernels / "pocl"),
                                "WINNOW_RERUN_TESTS": "1"}
    sys.exit(subprocess.run([str(part) for part in command], env=environment).returncode)


if __name__ == "__main__":
    parts.run_main("ci/aarch64", main)
