"""The virtual environment of programs in Python, and how `winnow calibrate` starts in it.

    environment_test.py WINNOW_PROGRAM
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import environment  # noqa: E402

PROGRAM = sys.argv.pop(1)


class Environment(unittest.TestCase):
    first = None  # the environment that was made first, as it was then

    @classmethod
    def setUpClass(cls):
        cls.kept = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))

    def create(self, folder, clear, with_pip):
        """As venv does the first time; a copy of that afterwards, as most of the time is installing pip."""
        self.assertTrue(clear and with_pip)
        if self.first is None:
            venv.create(folder, clear=True, with_pip=True)
            Environment.first = shutil.copytree(folder, self.kept / "first", symlinks=True)
            return
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.first, folder, symlinks=True)

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.requirements = self.folder / "requirements.txt"
        self.requirements.write_text("# nothing is needed\n")
        for patch in (mock.patch.object(environment, "REQUIREMENTS", self.requirements),
                      mock.patch.object(environment, "venv", mock.Mock(create=self.create)),
                      mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder / "cache")})):
            self.enterContext(patch)

    def test_made_once_and_again_if_half_made(self):
        python = environment.own_python()
        self.assertEqual(subprocess.run([python, "-c", ""]).returncode, 0)
        mark = python.parent / "mark"
        mark.touch()
        self.assertEqual(environment.own_python(), python)
        self.assertTrue(mark.exists())
        (python.parent.parent / ".done").unlink()
        self.assertEqual(environment.own_python(), python)
        self.assertFalse(mark.exists())
        python.unlink()
        python.symlink_to(self.folder / "a Python that was removed")
        self.assertEqual(subprocess.run([environment.own_python(), "-c", ""]).returncode, 0)

    def test_each_list_has_its_own(self):
        before = environment.folder_of("tools", self.requirements)
        self.requirements.write_text("# nothing is needed now\n")
        self.assertNotEqual(before, environment.folder_of("tools", self.requirements))

    def test_pip_says_what_it_could_not_install(self):
        self.requirements.write_text("./nonesuch\n")
        with self.assertRaises(SystemExit) as raised:
            environment.own_python()
        self.assertIn("nonesuch", str(raised.exception))
        self.assertFalse((environment.folder_of("tools", self.requirements) / ".done").exists())


class Program(unittest.TestCase):
    def winnow(self, program, *arguments, **environment):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, env=os.environ | environment)
        return done.returncode, done.stdout, done.stderr

    def test_help_is_that_of_the_command(self):
        for command, words in (("profile", "adaptive_budget"), ("calibrate", "network.json")):
            status, out, err = self.winnow(PROGRAM, command, "--help")
            self.assertEqual(status, 0, err)
            self.assertIn(words, out)
            self.assertIn("--count", out)

    def test_another_folder_does_not_matter(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "rich.py").write_text("raise SystemExit('the wrong one')\n")
            done = subprocess.run([Path(PROGRAM).resolve(), "calibrate", "--help"], capture_output=True, text=True,
                                  cwd=folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(PROGRAM, Path(folder) / "winnow")
            for command, words in (("calibrate", "install Winnow again"), ("profile", "install Winnow again"),
                                   ("eval", "eval is a part of the lab, which this installation does not have"),
                                   ("allocate", "Install Debian's package winnow-lab, or build Winnow with")):
                status, _, err = self.winnow(copy, command, "--help")
                self.assertEqual(status, 1)
                self.assertIn("launch.py", err)
                self.assertIn(words, err)

    def test_without_python(self):
        status, _, err = self.winnow(PROGRAM, "calibrate", "--help", PATH=str(Path(__file__).parent))
        self.assertEqual(status, 1)
        self.assertIn("cannot start python3", err)


unittest.main()
