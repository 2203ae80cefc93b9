"""Makes the source tarball of the last commit, and Debian's packages of it, in dist/.

On Debian 12. The packages are built from the unpacked tarball, without git and, where this process may have a network
of its own, without network; the plugin for llama.cpp serves every layout of ggml's that is known. --test then installs
them with apt in a clean Debian that debootstrap makes, and uses them there; it has to be root.
"""

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import aarch64
import parts
from parts import Failure, say

BUILD = parts.SOURCE / "build" / "packages"
DIST = parts.SOURCE / "dist"
CONSUMER = parts.SOURCE / "tests" / "system" / "consumer" / "consumer.c"
LOGS = parts.CACHE / "logs"
# In the clean Debian: what a user does. The driver comes with the packages' recommendations.
USE = """set -eux
apt-get update -qq
apt-get install -y -qq /dist/*.deb gcc libc6-dev pkg-config
winnow info | tee /tmp/info
grep -q 'Portable Computing Language' /tmp/info
grep -q reference /tmp/info
cc /consumer.c -o /var/tmp/consumer $(pkg-config --cflags --libs winnow)
for backend in reference opencl; do
    /var/tmp/consumer $backend | tee /tmp/said
    grep -qE "^$backend [0-9]+ devices from /usr/lib/[^/]+/winnow/" /tmp/said
done
test -e /usr/share/winnow/tools/calibrate/launch.py
test -e /usr/share/winnow/lab/eval/launch.py
test -x /usr/bin/winnow-measure
winnow --version
for package in libwinnow0 libwinnow-dev winnow-tools winnow-lab winnow-ggml winnow-onnxruntime; do
    grep -q 'Apache License' /usr/share/doc/$package/copyright
done
ls /usr/lib/*/libwinnow_ggml.so /usr/lib/*/libwinnow_ggml-*.so /usr/lib/*/libwinnow_onnxruntime.so
apt-get remove -y -qq libwinnow0
test ! -e /usr/bin/winnow
"""


def arguments():
    introduction, details = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(prog="ci/packages", description=introduction, epilog=details)
    parser.add_argument("--test", action="store_true", help="install and use the packages in a clean Debian, as root")
    return parser.parse_args()


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def tarball():
    """The path of the source tarball in dist/."""
    if output_of("git", "-C", parts.SOURCE, "status", "--porcelain"):
        say("the tree has changes that are not committed: they are not in the tarball")
    version = re.search(r"^ +VERSION ([\d.]+)$", (parts.SOURCE / "CMakeLists.txt").read_text(), re.M)[1]
    name = f"winnow-{version}"
    made = DIST / f"{name}.tar.gz"
    DIST.mkdir(exist_ok=True)
    parts.run(["git", "-C", parts.SOURCE, "archive", "--format=tar.gz", f"--prefix={name}/", "-o", made, "HEAD"])
    return made


def offline():
    """What a command begins with that is to have no network."""
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0:
        return ["unshare", "--net"]
    say("this process may not have a network of its own: the packages are built with the network there")
    return []


def hardening():
    """The settings by which compiler and linker get Debian's flags, and bind all functions when a library is loaded."""
    def flags(name):
        return subprocess.run(["dpkg-buildflags", "--get", name], capture_output=True, text=True, check=True,
                              env=os.environ | {"DEB_BUILD_MAINT_OPTIONS": "hardening=+bindnow"}).stdout.strip()

    settings = {f"CMAKE_{language}_FLAGS": f"{flags('CPPFLAGS')} {flags(name)}"
                for language, name in (("C", "CFLAGS"), ("CXX", "CXXFLAGS"))}
    return settings | {f"CMAKE_{kind}_LINKER_FLAGS": flags("LDFLAGS") for kind in ("EXE", "SHARED", "MODULE")}


def debian_packages(source):
    """Builds the packages of an unpacked tarball, into dist/."""
    settings = {"CMAKE_INSTALL_PREFIX": "/usr"} | hardening() | parts.package_settings()
    build = BUILD / "build"
    alone = offline()
    say("building Debian's packages")
    parts.run([*alone, "cmake", "-S", source, "-B", build, "-G", "Ninja",
               *(f"-D{name}={value}" for name, value in settings.items())], log=LOGS / "packages-configure.log")
    parts.run([*alone, "cmake", "--build", build], log=LOGS / "packages-build.log")
    for old in DIST.glob("*.deb"):
        old.unlink()
    parts.run([*alone, "cpack", "--config", build / "CPackConfig.cmake", "-B", BUILD / "cpack"],
              log=LOGS / "packages-cpack.log")
    return [Path(shutil.copy(package, DIST)) for package in sorted((BUILD / "cpack").glob("*.deb"))]


def clean_debian():
    """A folder with a minimal system, from the same place as this one's packages."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    sites = output_of("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
                      f"Codename: {release}", "Component: main", "Origin: Debian").split()
    if not sites:
        raise Failure(f"apt knows no place of the packages of Debian {release}")

    def make(folder):
        say("making a clean Debian (once)")
        parts.run(["debootstrap", "--variant=minbase", release, folder, sites[0]], log=LOGS / "debootstrap.log")

    return parts.kept("clean-debian", release, make)


def test(packages):
    """Installs the packages in a copy of a clean system and uses them, with mounts that end with the process."""
    if os.geteuid() != 0:
        raise Failure("--test makes a system of its own with debootstrap, which only root can do: run it as root")
    clean = clean_debian()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        parts.run(["cp", "-a", clean, root])
        (root / "dist").mkdir()
        for package in packages:
            shutil.copy(package, root / "dist")
        shutil.copy(CONSUMER, root / "consumer.c")
        shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
        (root / "use.sh").write_text(USE, encoding="utf-8")
        say("installing and using the packages in it")
        place = shlex.quote(str(root))
        mounted = f"mount -t proc proc {place}/proc && mount --rbind /sys {place}/sys && mount --rbind /dev {place}/dev"
        clean_environment = "env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp DEBIAN_FRONTEND=noninteractive"
        parts.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c",
                   f"{mounted} && exec {clean_environment} chroot {place} sh /use.sh"], log=LOGS / "packages-use.log")
    say("the packages work there")


def main():
    options = arguments()
    aarch64.check_release()
    parts.setup("packages")
    made = tarball()
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    parts.run(["tar", "-xf", made, "-C", BUILD])
    packages = debian_packages(BUILD / made.name.removesuffix(".tar.gz"))
    if options.test:
        test(packages)
    for path in (made, *packages):
        print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    parts.run_main("ci/packages", main)
