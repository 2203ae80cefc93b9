"""Runs `winnow plan` on a file of given bytes: what its tests have in common."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path


class Files(unittest.TestCase):
    program = None  # `winnow`; who runs the tests sets it

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_plan(self, data, *arguments, file="model.gguf"):
        """(status, stdout, stderr) for a file of these bytes."""
        path = self.folder / file
        path.write_bytes(data)
        done = subprocess.run([self.program, "plan", "--model", path, *map(str, arguments)], capture_output=True,
                              text=True, timeout=60)
        self.assertIn(done.returncode, (0, 1), f"ended with {done.returncode}: {done.stderr}")  # and no signal
        return done.returncode, done.stdout, done.stderr

    def plan(self, data, *arguments, **named):
        status, out, err = self.run_plan(data, "--json", "-", *arguments, **named)
        self.assertEqual(status, 0, err)
        plan = json.loads(out)
        return plan, {row["name"]: row for row in plan["configurations"]}

    def refuse(self, data, *words):
        status, out, err = self.run_plan(data, "--context", 1024)
        self.assertEqual(status, 1, out)
        self.assertEqual(out, "")
        for word in words:
            self.assertIn(word, err)
