"""`winnow doctor` on this machine, and on one where something is missing.

    doctor_test.py WINNOW_PROGRAM FOLDER_OF_THE_BACKENDS A_BACKEND_WITH_DEFECTS
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, LIBRARIES, BROKEN = sys.argv[1:4]
del sys.argv[1:4]
SOURCES = Path(__file__).resolve().parents[1]
KEPT = {name: value for name, value in os.environ.items() if not name.startswith("WINNOW_")}


def doctor(*arguments, **environment):
    """(status, stdout)"""
    done = subprocess.run([PROGRAM, "doctor", *arguments], capture_output=True, text=True, timeout=300,
                          env=KEPT | environment)
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


def checks(**environment):
    """(status, the checks)"""
    status, out = doctor("--json", **environment)
    found = json.loads(out)["checks"]
    assert status == any(check["status"] == "FAIL" for check in found), (status, found)
    return status, found


def checks_without_devices(**environment):
    """The checks beside those of devices, in less time."""
    with tempfile.TemporaryDirectory() as folder:
        return checks(OCL_ICD_VENDORS=folder, **environment)[1]


class Doctor(unittest.TestCase):
    def expect(self, found, status, what, cure=""):
        """Among the checks is this one."""
        matches = [check for check in found if check["status"] == status and re.search(what, check["what"])]
        self.assertTrue(matches, f"no {status} {what} in {json.dumps(found, indent=1)}")
        self.assertTrue(re.search(cure, matches[0]["cure"]), f"no cure {cure} in {matches[0]}")

    def test_attention_runs_on_each_device(self):
        info = subprocess.run([PROGRAM, "info", "--json", "--backend", "opencl"], capture_output=True, text=True)
        (backend,) = json.loads(info.stdout)["backends"]
        status, found = checks()
        self.assertEqual(status, 0, found)
        self.expect(found, "ok", "backend opencl")
        self.assertTrue(backend["devices"])
        for device in backend["devices"]:
            name = re.escape(f"device {device['device']}, {device['name']}")
            self.expect(found, "ok", f"^{name} .*agrees with the reference")
        self.expect(found, "ok", "^kernel cache: /")

    def test_a_wrong_device_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "libwinnow_opencl.so").symlink_to(Path(BROKEN).absolute())
            self.assertEqual(checks(WINNOW_PATH=folder, WINNOW_DEFECT="none")[0], 0)
            status, found = checks(WINNOW_PATH=folder, WINNOW_DEFECT="values_of_the_first_head")
        self.assertEqual(status, 1)
        self.expect(found, "FAIL", "attention differs from the reference by", "update the driver")

    def test_lines_are_those_of_json(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = doctor(OCL_ICD_VENDORS=folder)[1].splitlines()
        for check in checks_without_devices():
            self.assertIn(check["status"].ljust(6) + check["what"], lines)
            if check["cure"]:
                self.assertIn(" " * 6 + check["cure"], lines)

    def test_without_a_driver_it_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            status, found = checks(OCL_ICD_VENDORS=folder, WINNOW_DEVICE="0")
        self.assertEqual(status, 1)
        self.expect(found, "FAIL", "no OpenCL driver offers a device", "pip install winnowkv_pocl-.*pocl-opencl-icd")
        self.assertEqual([check["status"] for check in found].count("FAIL"), 1, found)  # the device is not missed again

    def test_without_a_backend_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "libwinnow_opencl.so").write_text("no library")
            status, found = checks(WINNOW_PATH=folder)
        self.assertEqual(status, 1)
        self.expect(found, "FAIL", "backend opencl: cannot load", "install Winnow again")

    def test_variables_are_read(self):
        found = checks_without_devices(WINNOW_KV="h3o", WINOW_DEVICE="cpu", WINNOW_KVS="winnow", WINNOW_SOMETHING="1")
        self.expect(found, "FAIL", 'WINNOW_KV=h3o: .*no policy "h3o"', "policies.md")
        self.expect(found, "warn", "^WINOW_DEVICE is set", r"expected WINNOW_DEVICE\?")
        self.expect(found, "warn", "^WINNOW_KVS is set", r"expected WINNOW_KV\?")
        self.expect(found, "warn", "^WINNOW_SOMETHING is set", "variables.md")
        status, found = checks(WINNOW_KV="winnow:budget=1/4", WINNOW_DEVICE="0")
        self.assertEqual(status, 0, found)
        self.expect(found, "ok", "WINNOW_KV=winnow:budget=1/4$")
        self.expect(found, "ok", "WINNOW_DEVICE=0 is ")
        self.assertFalse([check for check in found if "reads no such variable" in check["what"]], found)

        for name, wrong, right, words in (
                ("WINNOW_KV_SWA", "h3o", "window:budget=512", 'no policy "h3o"'),
                ("WINNOW_PRESSURE", "2", "auto", "a share from 0 to 1"),
                ("WINNOW_DECODE_FROM", "-1", "5", "a position, 0 or more"),
                ("WINNOW_REPORT_EVERY", "often", "10", "seconds, up to"),
                ("WINNOW_REPORT_WITH", "resident,profiles", "resident,profile", '"profiles" is none of'),
                ("WINNOW_REPORT_WITH", "samples", "profile,samples", "expected with profile"),
                ("WINNOW_GGML_STRICT", "yes", "1", "0 or 1"),
                ("WINNOW_PROGRAM_CACHE_MIB", "-1", "0", "a whole number from 0 to 1048576"),
                ("WINNOW_PROGRAM_CACHE_MIB", "1.5", "64", "a whole number from 0 to 1048576"),
                ("WINNOW_BACKEND", "opncl", "reference", 'cannot load backend "opncl"'),
                ("GGML_BACKEND_PATH", "/nonesuch/libwinnow_ggml.so", "", "there is no such file"),
                ("GGML_BACKEND_PATH", "/lib/libggml-vulkan.so", "", "names another plugin")):
            self.expect(checks_without_devices(WINNOW_KV="winnow", **{name: wrong}), "FAIL", words, ".")
            if right:
                found = checks_without_devices(WINNOW_KV="winnow", **{name: right})
                self.expect(found, "ok", f"^{name}={right}$")
        self.expect(checks_without_devices(WINNOW_KV_SWA="winnow"), "FAIL", "expected with WINNOW_KV, which is not set")

    def test_a_reference_that_fails_hides_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "libwinnow_reference.so").symlink_to(Path(LIBRARIES, "libwinnow_opencl.so").absolute())
            _, found = checks(WINNOW_PATH=folder, WINNOW_DEVICE="no such device")
        self.expect(found, "FAIL", "^backend reference: attention fails: ", "install Winnow again")
        self.expect(found, "FAIL", "^WINNOW_DEVICE=no such device: .*no device matches", "winnow info")
        self.expect(found, "ok", "^kernel cache: /")

    def test_lines_are_there_when_a_library_ends_the_process(self):
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "libwinnow_ends.so")
            subprocess.run(["cc", "-x", "c", "-shared", "-fPIC", "-o", library, "-"], check=True, text=True,
                           input="void _exit(int); __attribute__((constructor)) static void end(void) { _exit(9); }")
            status, out = doctor(OCL_ICD_VENDORS=folder, WINNOW_BACKEND=str(library))
        self.assertEqual(status, 9)
        self.assertIn("kernel cache: ", out)

    def test_every_variable_that_is_read_is_known(self):
        read = re.compile(r'(?:getenv|variable|path_in|number_of(?:<\w+>)?|environ\.get)\(\s*"(WINNOW_\w+)"')
        folders = ("backend", "bench", "hosts", "lab", "plugin_api", "tools")
        texts = (path.read_text() for folder in folders for path in sorted((SOURCES / folder).rglob("*"))
                 if path.suffix in (".c", ".h", ".cpp", ".hpp", ".py") and not path.stem.endswith("_test"))
        names = {name for text in texts for name in read.findall(text)}
        self.assertGreater(len(names), 15)
        listed = set(re.findall(r'"(WINNOW_\w+)"', (SOURCES / "tools" / "environment_check.cpp").read_text()))
        of_lab = set() if (SOURCES / "lab").is_dir() else {"WINNOW_EVAL_MEASURE"}  # which only the lab reads
        self.assertEqual(names | of_lab, listed)

    def test_folders_that_cannot_be_written_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "file").touch()
            status, found = checks(XDG_CACHE_HOME=f"{folder}/file/cache", XDG_CONFIG_HOME=f"{folder}/config")
            self.assertEqual(status, 0, found)
            self.expect(found, "warn", "^kernel cache: .*is no folder", "XDG_CACHE_HOME")
            self.expect(found, "warn", "^PoCL's kernel cache: .*is no folder", "POCL_CACHE_DIR")
            self.expect(found, "ok", f"^tuning: {folder}/config/winnow$")
            self.assertFalse(Path(folder, "config").exists(), "it made a folder")

    def test_without_a_home_no_last_run_is_read(self):
        kept = {"time": "now", "program": "x", "called": True, "line": "other", "cure": ""}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "last_run.json").write_text(json.dumps(kept))
            environment = {name: value for name, value in KEPT.items() if name not in ("HOME", "XDG_CACHE_HOME")}
            done = subprocess.run([PROGRAM, "doctor"], capture_output=True, text=True, cwd=folder,
                                  env=environment | {"OCL_ICD_VENDORS": folder})
        self.assertIn("winnow run has not been used yet", done.stdout)

    def test_the_plugin_and_the_last_run_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libwinnow_ggml.so", "libwinnow_ggml-0.9.8.so", "libwinnow_ggml-0.25.3.so"):
                Path(folder, name).touch()
            for name in ("opencl", "reference"):
                Path(folder, f"libwinnow_{name}.so").symlink_to(Path(LIBRARIES, f"libwinnow_{name}.so").absolute())
            environment = {"WINNOW_PATH": folder, "XDG_CACHE_HOME": folder}
            found = checks_without_devices(**environment)
            self.expect(found, "ok", "plugin for llama.cpp: .*, for the layouts of ggml 0.9.8, 0.25.3$")
            self.expect(found, "ok", "winnow run has not been used yet")
            subprocess.run([PROGRAM, "run", "--", "true"], capture_output=True, env=KEPT | environment)
            found = checks_without_devices(**environment)
            self.expect(found, "warn", "last winnow run, true, 20.* UTC: not called: true never loaded the plugin",
                        "static build")


if __name__ == "__main__":
    unittest.main()
