"""What the package promises: a quick import that touches no driver, files where they are, devices or what to install,
and a command that becomes the program.

    package_test.py FOLDER_OF_THE_BACKENDS
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LIBRARIES = sys.argv.pop(1)
SOURCES = Path(__file__).resolve().parent
MOST_SECONDS = .1

PROGRAM = """#!/bin/sh
# Prints its arguments and which signals it ignores, and ends with a status of its own.
printf '%s\\n' "$@"
grep SigIgn /proc/self/status
exit 7
"""


def python(code, *, path=SOURCES, status=0, **environment):
    """(stdout, stderr) of Python code that may import the package."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("WINNOW_")}
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=300,
                          env=own | {"PYTHONPATH": str(path), "WINNOW_PATH": LIBRARIES} | environment)
    assert done.returncode == status, f"status {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


class Package(unittest.TestCase):
    def test_import_takes_no_time(self):
        code = "import time; t = time.process_time(); import winnowkv; print(time.process_time() - t)"
        least = min(float(python(code)[0]) for _ in range(5))
        print(f"import winnowkv: {least * 1000:.1f} ms")
        self.assertLess(least, MOST_SECONDS)

    def test_import_touches_no_driver(self):
        loaded = "print('libOpenCL' in open('/proc/self/maps').read())"
        out, _ = python(f"import winnowkv, winnowkv.llama_cpp, winnowkv.onnxruntime, winnowkv.cli;"
                        f" {loaded}; winnowkv.devices(); {loaded}")
        self.assertEqual(out.split(), ["False", "True"])

    def test_devices_are_those_of_the_backend(self):
        out, err = python("import json, winnowkv; d = winnowkv.devices(); print(json.dumps([x._asdict() for x in d]));"
                          "winnowkv.Context(d[-1].number).close()")
        self.assertEqual(err, "")
        found = json.loads(out)
        self.assertTrue(found)
        for number, device in enumerate(found):
            self.assertEqual(device["number"], number)
            self.assertIn(device["type"], ("cpu", "gpu", "accelerator"))
            self.assertTrue(device["name"] and device["platform"] and device["memory_size"] > 0, device)

    def test_without_a_driver_there_is_a_list_and_advice(self):
        with tempfile.TemporaryDirectory() as folder:
            out, err = python("import winnowkv; print(winnowkv.devices())", OCL_ICD_VENDORS=folder,
                              WINNOW_DRIVER="")
        self.assertEqual(out, "[]\n")
        self.assertIn("RuntimeWarning: no OpenCL driver offers a device", err)
        self.assertIn("pip install winnowkv_pocl-", err)

    def test_a_driver_that_fails_hides_no_device(self):
        devices = "import winnowkv; print([device.platform for device in winnowkv.devices()])"
        expected, _ = python(devices)
        self.assertEqual(python(devices, WINNOW_DRIVER="/nonesuch.so"), (expected, ""))  # the system's are enough
        opened, _ = python(f"{devices}; print(open('/proc/self/maps').read())")
        pocl = re.search(r"/\S*/libpocl\.so\S*", opened)
        if not pocl:
            self.skipTest("there is no PoCL that WINNOW_DRIVER could name")
        with tempfile.TemporaryDirectory() as folder:
            out, err = python(devices, OCL_ICD_VENDORS=folder, WINNOW_DRIVER=f"/nonesuch.so:{pocl[0]}")
            self.assertEqual(out, "['Portable Computing Language']\n")
            self.assertEqual(err.count("RuntimeWarning"), 1, err)
            self.assertIn('RuntimeWarning: "/nonesuch.so" (of WINNOW_DRIVER) cannot be opened', err)
            _, err = python(devices, status=1, OCL_ICD_VENDORS=folder, WINNOW_DRIVER="/nonesuch.so")
        self.assertIn('winnowkv.errors.NotFound: no driver of the system offers a device; "/nonesuch.so"', err)

    def test_files_are_found_or_named(self):
        out, _ = python("import winnowkv; print(winnowkv.get_library_path('reference'))")
        self.assertEqual(out.strip(), str(Path(LIBRARIES, "libwinnow_reference.so").absolute()))
        for call, name in (("get_library_path()", "libwinnow_opencl.so"), ("get_library_path('x')", "libwinnow_x.so"),
                           ("plugin_path()", "ci/wheel"), ("get_include()", "plugin_api")):
            _, err = python(f"import winnowkv; winnowkv.{call}", status=1, WINNOW_PATH="")
            self.assertIn("FileNotFoundError: no ", err)
            self.assertIn(name, err)

    def test_an_unknown_name_is_an_attribute_error(self):
        _, err = python("import winnowkv; winnowkv.Device, winnowkv.KvCache, winnowkv.Kache", status=1)
        self.assertIn("AttributeError: module 'winnowkv' has no attribute 'Kache'", err)

    def test_every_name_is_there(self):
        python("import winnowkv; [getattr(winnowkv, name) for name in winnowkv.__all__];"
               "assert set(winnowkv.__all__) <= set(dir(winnowkv));"
               "own = {name for names in winnowkv._MODULES.values() for name in names};"
               "assert own <= set(winnowkv.__all__), own; from winnowkv import *; KvCache")

    def test_the_command_becomes_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder, "winnowkv")
            shutil.copytree(SOURCES / "winnowkv", package)
            _, err = python("from winnowkv.cli import main; main()", path=folder, status=1)
            self.assertIn("winnow: no program", err)
            (package / "bin").mkdir()
            (package / "bin" / "winnow").write_text(PROGRAM)
            (package / "bin" / "winnow").chmod(0o755)
            code = "import sys; sys.argv[1:] = ['run', '--', 'a b']; from winnowkv.cli import main; main()"
            out, err = python(code, path=folder, status=7)
        *arguments, ignored = out.splitlines()
        self.assertEqual((arguments, err), (["run", "--", "a b"], ""))
        pipe = 1 << 12  # SIGPIPE is 13
        self.assertFalse(int(ignored.split()[1], 16) & pipe, ignored)

    def test_what_tests_do_without_packages(self):
        """They pass without them, and say so; a package that is broken, or required, fails."""
        missing, within = (f"raise ModuleNotFoundError('no module', name='{name}')" for name in ("torch", "within"))
        for test in "transformers", "compare":
            for content, status, environment in ((missing, 0, {}), (missing, 1, {"WINNOW_REQUIRE_PACKAGES": "1"}),
                                                 (within, 1, {}), ("raise ImportError('no symbol')", 1, {})):
                with self.subTest(test, content=content, **environment), tempfile.TemporaryDirectory() as folder:
                    for package in "numpy", "pandas", "matplotlib":
                        Path(folder, f"{package}.py").write_text("def use(name): pass\n")
                    Path(folder, "torch.py").write_text(content)
                    code = f"import runpy; runpy.run_path('{SOURCES}/{test}_test.py', run_name='__main__')"
                    out, _ = python(code, path=f"{folder}:{SOURCES}", status=status, **environment)
                    self.assertEqual(out, "" if status else f"{test} is not tested: torch is not installed\n")


if __name__ == "__main__":
    unittest.main()
