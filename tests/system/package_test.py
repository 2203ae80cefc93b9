"""Installs a build to a fresh prefix and uses it from there, as a distribution and another project would: with CMake
and with pkg-config. Each file belongs to a component, which packages are made of.

    package_test.py BUILD
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from command import output_of

CONSUMER = Path(__file__).resolve().parent / "consumer"
LAB_FILES = ("share/winnow/lab/eval/configs/baselines.toml", "share/winnow/lab/eval/winnow_eval/cli.py")
COMPONENTS = {"library": r"lib/winnow/libwinnow_(opencl|reference)\.so",
              "dev": r"include/winnow/.*\.h|lib/libwinnow_loader\.a|lib/(cmake|pkgconfig)/.*",
              "tools": r"bin/winnow(-bench)?|share/winnow/tools/.*",
              "lab": r"share/winnow/lab/.*|bin/winnow-measure",
              "conformance": r"bin/winnow-conformance",
              "ggml": r"lib/libwinnow_ggml.*\.so",
              "onnxruntime": r"lib/libwinnow_onnxruntime\.so"}


def files_of(prefix):
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}


def check_components(build, folder, whole):
    """Together they have what an install without a component has, and each has its own."""
    seen = set()
    for component, pattern in COMPONENTS.items():
        prefix = folder / component
        output_of("cmake", "--install", build, "--prefix", prefix, "--component", component)
        files = files_of(prefix)
        strangers = [path for path in files if not re.fullmatch(pattern, path)]
        assert not strangers, f"{strangers} in the component {component}"
        seen |= files
    assert seen == whole, f"of no component: {whole - seen}"


def check_consumer(program, backends):
    """Another project's program finds the installed backends where it is told."""
    for backend in ("reference", "opencl"):
        output = output_of(program, backend, WINNOW_PATH=backends)
        assert re.match(rf"{backend} \d+ devices from {re.escape(str(backends))}", output), "not the installed one"


def main():
    build = Path(sys.argv[1])
    has_lab = "WINNOW_BUILD_LAB:BOOL=ON" in (build / "CMakeCache.txt").read_text()
    for name in ("WINNOW_BACKEND", "WINNOW_PATH"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        prefix, consumer = Path(folder) / "prefix", Path(folder) / "consumer"
        output_of("cmake", "--install", build, "--prefix", prefix)
        installed = files_of(prefix)
        check_components(build, Path(folder), installed)
        for needed in ("include/winnow/winnow.h", "include/winnow/winnow_call.h", "include/winnow/winnow_cache.h",
                       "include/winnow/winnow_opencl.h", "include/winnow/winnow_loader.h", "bin/winnow",
                       "bin/winnow-conformance", "share/winnow/tools/calibrate/launch.py",
                       *(LAB_FILES if has_lab else ())):
            assert needed in installed, f"{needed} was not installed"
        # The ggml host, where it was built: one library that is loaded, and one for each layout of ggml's.
        built = {path.name for path in (build / "lib").glob("libwinnow_ggml*.so")}
        missing = built - {path.split("/")[-1] for path in installed}
        assert not missing, f"{missing} was not installed"
        assert not built or len(built) > 1, f"{built} serves no version of ggml"

        output_of("cmake", "-S", CONSUMER, "-B", consumer, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
        output_of("cmake", "--build", consumer)
        check_consumer(consumer / "consumer", prefix / "lib" / "winnow")

        prefix = prefix.rename(Path(folder) / "moved")
        os.environ["PKG_CONFIG_PATH"] = str(prefix / "lib" / "pkgconfig")
        options = output_of("pkg-config", "--cflags", "--libs", "winnow").split()
        output_of(os.environ.get("CC", "cc"), CONSUMER / "consumer.c", "-o", Path(folder) / "linked", *options)
        backends = output_of("pkg-config", "--variable=backend_dir", "winnow").strip()
        assert Path(backends).samefile(prefix / "lib" / "winnow"), backends
        check_consumer(Path(folder) / "linked", backends)

        # Installed programs find the installed backends by themselves.
        winnow = prefix / "bin" / "winnow"
        assert output_of(winnow, "info").strip(), "winnow info printed nothing"
        if has_lab:
            assert "inplace:k=q8_0" in output_of(winnow, "eval", "--list-configs"), "winnow eval is not whole"
        assert "--context" in output_of(winnow, "calibrate", "--help"), "winnow calibrate is not whole"
        leftovers = [path for path in installed if "share/winnow" in path and ("test" in path or ".pyc" in path)]
        assert not leftovers, f"installed without need: {leftovers}"


main()
