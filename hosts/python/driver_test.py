"""Which driver packages winnowkv finds, in a folder of packages that is made up here."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ASK = "import sys; from winnowkv import _driver; print(_driver.environment()); print('ctypes' in sys.modules)"


class Drivers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.venv = Path(folder.name).resolve() / "a venv"
        self.packages = self.venv / "lib" / "python3" / "site-packages"
        (self.packages / "winnowkv").mkdir(parents=True)
        (self.packages / "winnowkv" / "__init__.py").touch()
        shutil.copy(HERE / "winnowkv" / "_driver.py", self.packages / "winnowkv")

    def install_pocl(self):
        """winnowkv-pocl with a file in place of its library, which is returned."""
        package = self.packages / "winnowkv_pocl"
        shutil.copytree(HERE / "winnowkv_pocl", package)
        library = self.run_python("-m", "winnowkv_pocl").strip()
        self.assertTrue(library.startswith(f"{package}/"), library)
        Path(library).parent.mkdir(parents=True)
        Path(library).touch()
        return library

    def install_intel(self):
        """What pip makes of intel-opencl-rt, whose libraries are in <venv>/lib. The driver's is returned."""
        information = self.packages / "intel_opencl_rt-2026.2.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: intel-opencl-rt\nVersion: 2026.2.0\n")
        (information / "RECORD").write_text("../../libcommon_clang.so,,\n../../libintelocl.so,,\n")
        library = self.venv / "lib" / "libintelocl.so"
        library.touch()
        return str(library)

    def run_python(self, *command, **variables):
        environment = {name: value for name, value in os.environ.items() if name != "WINNOW_DRIVER"}
        return subprocess.run([sys.executable, "-B", *command], capture_output=True, text=True, check=True,
                              env=environment | {"PYTHONPATH": str(self.packages)} | variables).stdout

    def ask(self, **variables):
        answer, has_ctypes = self.run_python("-c", ASK, **variables).splitlines()
        self.assertEqual(has_ctypes, "False")
        return eval(answer)

    def test_without_packages_nothing_is_set(self):
        self.assertEqual(self.ask(), {})

    def test_each_package_is_found_and_pocl_comes_first(self):
        intel = self.install_intel()
        self.assertEqual(self.ask(), {"WINNOW_DRIVER": intel})
        pocl = self.install_pocl()
        self.assertEqual(self.ask(), {"WINNOW_DRIVER": f"{pocl}:{intel}"})

    def test_what_the_user_has_set_stays(self):
        self.install_pocl()
        self.assertEqual(self.ask(WINNOW_DRIVER="/of/mine.so"), {})
        self.assertEqual(self.ask(WINNOW_DRIVER=""), {})

    def test_a_library_that_is_gone_is_left_out(self):
        Path(self.install_pocl()).unlink()
        self.assertEqual(self.ask(), {})


if __name__ == "__main__":
    unittest.main()
