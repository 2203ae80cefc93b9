"""Starts `winnow eval` in a virtual environment of its own, which it makes when it is not there yet.

    launch.py ARGUMENTS...

The environment lies in ${XDG_CACHE_HOME:-~/.cache}/winnow/eval-<hash>, a folder for each content of requirements.txt
and version of Python. Only the standard library is used here.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
OLDEST_PYTHON = (3, 11)


def environment_folder():
    """Where the virtual environment for requirements.txt belongs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winnow"
    text = f"{sys.version_info[:2]}".encode() + (HERE / "requirements.txt").read_bytes()
    return cache / f"eval-{hashlib.sha256(text).hexdigest()[:12]}"


def complete(folder):
    """Whether the environment is there, and so is the Python that it was made with."""
    return (folder / ".done").exists() and (folder / "bin" / "python").exists()


def make(folder):
    """Makes the environment; a half-made one, which has no .done, is made again."""
    packages = [line.split("==")[0] for line in (HERE / "requirements.txt").read_text().splitlines()
                if line and not line.startswith("#")]
    print(f"winnow eval: installing {', '.join(packages)} into {folder} (once)", file=sys.stderr, flush=True)
    try:
        venv.create(folder, clear=True, with_pip=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"winnow eval: cannot make a virtual environment (on Debian this needs python3-venv): {error}")
    done = subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "--requirement", HERE / "requirements.txt"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"winnow eval: pip could not install what is needed:\n{done.stderr.strip()[-2000:]}")
    (folder / ".done").touch()


def python():
    """The Python of the environment, which is made if need be, by one process at a time."""
    folder = environment_folder()
    if not complete(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete(folder):
                make(folder)
    return folder / "bin" / "python"


def main():
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"winnow eval: Python {sys.version.split()[0]}, expected {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    environment = os.environ | {"PYTHONPATH": str(HERE), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    program = str(python())
    os.execve(program, [program, "-m", "winnow_eval", *sys.argv[1:]], environment)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"winnow eval: {error}")
