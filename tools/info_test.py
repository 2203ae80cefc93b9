"""Runs `winnow info` as a user would: usage: info_test.py WINNOW_PROGRAM"""

import json
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)


def winnow(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


class Info(unittest.TestCase):
    def test_the_version(self):
        status, out, err = winnow("--version")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"^winnow \d+\.\d+\.\d+\n$")

    def test_json_names_a_variant_for_every_shape(self):
        status, out, err = winnow("info", "--json", "--backend", "reference")
        self.assertEqual(status, 0, err)
        (backend,) = json.loads(out)["backends"]
        self.assertEqual(backend["backend"], "reference")
        self.assertGreater(len(backend["devices"]), 0)
        for device in backend["devices"]:
            operations = {row["operation"] for row in device["variants"] if row.get("variant")}
            self.assertEqual(operations, {"sdpa", "kv_append"})

    def test_text_lists_the_same_devices_as_json(self):
        status, out, err = winnow("info", "--json")
        self.assertEqual(status, 0, err)
        _, text, _ = winnow("info")
        for backend in json.loads(out)["backends"]:
            self.assertIn("backend " + backend["backend"], text)
            for device in backend.get("devices", []):
                self.assertIn(device["name"], text)

    def test_what_a_context_says_of_its_driver_is_shown(self):
        status, out, err = winnow("info", "--json", "--backend", "opencl", "--variants", "quirks=no_barriers")
        self.assertEqual(status, 0, err)
        _, text, _ = winnow("info", "--backend", "opencl", "--variants", "quirks=no_barriers")
        (backend,) = json.loads(out)["backends"]
        for device in backend["devices"]:
            self.assertTrue(any("forced: no_barriers" in note for note in device["notes"]), device["notes"])
            for note in device["notes"]:
                self.assertIn("note: " + note, text)

    def test_missing_backend_is_an_error(self):
        status, out, _ = winnow("info", "--backend", "nonesuch")
        self.assertEqual(status, 1)
        self.assertIn("libwinnow_nonesuch.so", out)

    def test_missing_device_is_an_error_that_lists_what_exists(self):
        status, out, _ = winnow("info", "--backend", "opencl", "--device", "no such device")
        self.assertEqual(status, 1)
        self.assertIn("WINNOW_ERROR_NOT_FOUND", out)
        self.assertIn("no such device", out)

    def test_names_that_are_no_utf_8_are_replaced_in_json(self):
        status, out, err = winnow("info", "--json", "--backend", "reference", "--device", b"no such \xff device")
        self.assertEqual((status, err), (1, ""))
        (backend,) = json.loads(out)["backends"]
        self.assertEqual(backend["devices"][0]["device"], "no such \ufffd device")

    def test_no_subcommand_is_an_error(self):
        status, _, _ = winnow()
        self.assertNotEqual(status, 0)


if __name__ == "__main__":
    unittest.main()
