"""Makes the Python package, installs it into an empty virtual environment, and uses it from there.

    wheel_test.py SOURCE BUILD|whole

Of a build tree, the wheel has what that tree's components install, so that nothing is compiled again: pip, the settings
of pyproject.toml and auditwheel do what they do in ci/wheel. With `whole` ci/wheel makes the wheel.
"""

import os
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from command import output_of, run

SOURCE = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(SOURCE / "ci"))
import parts  # noqa: E402
import wheel  # noqa: E402

MOST_MS = 100  # of the processor
IMPORT = """
import time
begin = time.process_time()
import winnowkv
print(1000 * (time.process_time() - begin))
maps = open("/proc/self/maps").read()
loaded = [name for name in ("libOpenCL", "libwinnow", "libpocl") if name in maps]
assert not loaded, f"the import loads {loaded}"
"""
LOAD = """
import ctypes, winnowkv
ctypes.CDLL(winnowkv.get_library_path())
maps = open("/proc/self/maps").read()
assert "winnowkv.libs/libOpenCL" in maps and "winnowkv.libs/libxxhash" in maps, maps
print(winnowkv.__version__)
"""


def made(build, folder):
    """The wheel, of this build tree or whole."""
    if build == "whole":
        output_of(SOURCE / "ci" / "wheel")
        return max(wheel.DIST.glob("winnowkv-*x86_64.whl"), key=os.path.getmtime)
    settings = {"cmake.source-dir": "tests/system/wheel", "cmake.define.WINNOW_BUILT": build,
                "build-dir": folder / "build"}
    python, log = wheel.tools(), folder / "log.txt"
    raw = wheel.built(python, folder / "raw", settings, os.environ, log)
    return wheel.repaired(python, raw, folder / "repaired", "x86_64", os.environ, log)


def check_files(path, build):
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    assert re.fullmatch(r"winnowkv-[\d.]+-py3-none-manylinux_2_34_x86_64\.whl", path.name), path.name
    ggml = {file.name for file in Path(build).glob("lib/libwinnow_ggml*.so")}
    if build == "whole":
        ggml = {"libwinnow_ggml.so"}
        layouts = re.findall(r"^\d", (SOURCE / "hosts" / "ggml" / "versions.txt").read_text(), re.M)
        assert len([name for name in names if "lib/libwinnow_ggml-" in name]) == len(layouts), names
    for needed in ("bin/winnow", "lib/winnow/libwinnow_opencl.so", "lib/winnow/libwinnow_reference.so",
                   "include/winnow/winnow.h", "include/winnow/winnow_call.h", "include/winnow/winnow_cache.h",
                   "include/winnow/winnow_opencl.h", "lib/pkgconfig/winnow.pc",
                   "share/winnow/tools/calibrate/launch.py", "lib/libwinnow_onnxruntime.so", "onnxruntime.py",
                   "__init__.py", "cli.py", "py.typed",
                   *(f"lib/{name}" for name in ggml), *(["bin/winnow-bench"] if build == "whole" else ())):
        assert f"winnowkv/{needed}" in names, f"{needed} is not in the wheel: {names}"
    licences = {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", *(file.name for file in (SOURCE / "licenses").iterdir())}, licences
    strangers = [name for name in names if re.search(r"test|conformance|/lab/|eval|measure|\.pyc|\.cpp", name)]
    assert not strangers, f"without need in the wheel: {strangers}"


def check_licences():
    """What is said of other projects is what Debian says, where their packages are installed."""
    for name, package in (("ocl_icd", "ocl-icd-libopencl1"), ("xxhash", "libxxhash0"), ("cli11", "libcli11-dev"),
                          ("nlohmann_json", "nlohmann-json3-dev")):
        page = Path(f"/usr/share/doc/{package}/copyright")
        if not page.exists():
            print(f"licenses/{name}.txt is not compared: {package} is not installed")
            continue
        debian = " ".join(word for word in page.read_text().split() if word != ".")
        _, holders, text = (SOURCE / "licenses" / f"{name}.txt").read_text().split("\n\n", 2)
        assert " ".join(text.split()) in debian, f"licenses/{name}.txt has another text than {page}"
        first = re.sub(r"^Copyright [\d-]+ |,.*", "", holders.splitlines()[0])
        assert first in debian, f"{page} does not name {first}"


def check_symbols(folder):
    """On what needs nothing new, after what does."""
    with tempfile.TemporaryDirectory() as new:
        (Path(new) / "new.c").write_text("#include <stdlib.h>\nint main(void) { return (int)arc4random() & 1; }\n")
        output_of(os.environ.get("CC", "cc"), Path(new) / "new.c", "-o", Path(new) / "program")
        try:
            wheel.check_symbols(Path(new))
        except parts.Failure as failure:
            assert "program needs GLIBC_2.36" in str(failure), failure
        else:
            raise AssertionError("a program that needs glibc 2.36 is not found")
    wheel.check_symbols(folder)


def check_use(environment, build):
    python, command = environment / "bin" / "python", environment / "bin" / "winnow"
    times = [float(output_of(python, "-I", "-c", IMPORT)) for _ in range(3)]
    assert min(times) < MOST_MS, f"the import takes {times} ms"
    assert re.fullmatch(r"[\d.]+", output_of(python, "-I", "-c", LOAD).strip())
    shown = output_of(command, "info")
    where = output_of(python, "-I", "-c", "import winnowkv; print(winnowkv.__file__)")
    assert where.startswith(str(environment)), f"the installed package is {where}"
    assert str(environment) in shown and "opencl" in shown and "reference" in shown, "not the package's backends"
    backend = output_of(python, "-I", "-c", "import winnowkv; print(winnowkv.get_library_path())").strip()
    # The example of a policy makes steps of caches by the installed package, away from the one of the source tree.
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cache_test.py", "external_policy.py"):
            shutil.copy(SOURCE / "hosts" / "python" / name, folder)
        test = Path(folder) / "cache_test.py"
        output_of(python, "-B", test, backend, SOURCE / "tests" / "abi" / "layout.h")
    assert "--context" in output_of(command, "calibrate", "--help"), "winnow calibrate is not whole"
    refused = run(command, "eval", "--list-configs")
    assert refused.returncode == 1 and "eval is a part of the lab" in refused.stderr, "winnow eval does not say it"
    if build == "whole":
        assert "--kv-heads" in output_of(command, "bench", "--help")


def main():
    build = sys.argv[2]
    check_licences()
    os.environ.pop("WINNOW_PATH", None)
    os.environ.pop("WINNOW_BACKEND", None)
    with tempfile.TemporaryDirectory() as folder:
        path = made(build, Path(folder))
        check_files(path, build)
        environment = Path(folder) / "venv"
        output_of(sys.executable, "-m", "venv", "--without-pip", environment)
        output_of(wheel.tools(), "-m", "pip", "--python", environment / "bin" / "python", "install", "--no-index",
                  "--quiet", path)
        check_symbols(environment)
        check_use(environment, build)


main()
