"""Installs a build to a fresh prefix and uses it from there, as a distribution and another project would.

    package_test.py BUILD
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from command import output_of

CONSUMER = Path(__file__).resolve().parent / "consumer"


def main():
    build = Path(sys.argv[1])
    for name in ("WINNOW_BACKEND", "WINNOW_PATH"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        prefix, consumer = Path(folder) / "prefix", Path(folder) / "consumer"
        output_of("cmake", "--install", build, "--prefix", prefix)
        installed = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
        for needed in ("include/winnow/winnow.h", "include/winnow/winnow_loader.h", "bin/winnow",
                       "bin/winnow-conformance", "share/winnow/eval/launch.py",
                       "share/winnow/eval/configs/baselines.toml", "share/winnow/eval/winnow_eval/cli.py"):
            assert needed in installed, f"{needed} was not installed"
        # The ggml host, where it was built: one library that is loaded, and one for each layout of ggml's.
        built = {path.name for path in (build / "lib").glob("libwinnow_ggml*.so")}
        missing = built - {path.split("/")[-1] for path in installed}
        assert not missing, f"{missing} was not installed"
        assert not built or len(built) > 1, f"{built} serves no version of ggml"

        output_of("cmake", "-S", CONSUMER, "-B", consumer, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
        output_of("cmake", "--build", consumer)
        backends = prefix / "lib" / "winnow"
        for backend in ("reference", "opencl"):
            output = output_of(consumer / "consumer", backend, WINNOW_PATH=backends)
            assert re.match(rf"{backend} \d+ devices from {re.escape(str(backends))}", output), "not the installed one"

        # Installed programs find the installed backends by themselves.
        winnow = prefix / "bin" / "winnow"
        assert output_of(winnow, "info").strip(), "winnow info printed nothing"
        assert "inplace:k=q8_0" in output_of(winnow, "eval", "--list-configs"), "winnow eval is not whole"
        leftovers = [path for path in installed if "share/winnow/eval" in path and ("test" in path or ".pyc" in path)]
        assert not leftovers, f"installed without need: {leftovers}"


main()
