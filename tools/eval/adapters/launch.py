"""Starts an adapter in a virtual environment of its own, which it makes when it is not there yet.

    launch.py kvpress|openvino ARGUMENTS...

The environments lie in ${XDG_CACHE_HOME:-~/.cache}/winnow/NAME-<hash>, a folder for each content of
requirements_NAME.txt and version of Python. Only the standard library is used here.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDEST_PYTHON = (3, 11)
PROGRAMS = {"kvpress": "kvpress_rows.py", "openvino": "openvino_tasks.py"}


def requirements(name):
    return HERE / f"requirements_{name}.txt"


def environment_folder(name):
    """Where the virtual environment of an adapter belongs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winnow"
    text = f"{sys.version_info[:2]}".encode() + requirements(name).read_bytes()
    return cache / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"


def complete(folder):
    """Whether the environment is there, and so is the Python that it was made with."""
    return (folder / ".done").exists() and (folder / "bin" / "python").exists()


def make(name, folder):
    """Makes the environment; a half-made one, which has no .done, is made again."""
    packages = [line.split("==")[0] for line in requirements(name).read_text().splitlines()
                if line and not line.startswith("#")]
    print(f"{name}: installing {', '.join(packages)} into {folder} (once)", file=sys.stderr, flush=True)
    try:
        venv.create(folder, clear=True, with_pip=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{name}: cannot make a virtual environment (on Debian this needs python3-venv): {error}")
    done = subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "--requirement", requirements(name)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: pip could not install what is needed:\n{done.stderr.strip()[-2000:]}")
    (folder / ".done").touch()


def python(name):
    """The Python of the environment, which is made if need be, by one process at a time."""
    folder = environment_folder(name)
    if not complete(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete(folder):
                make(name, folder)
    return folder / "bin" / "python"


def main():
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"launch.py: Python {sys.version.split()[0]}, expected {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        sys.exit(f"launch.py: \"{name}\", expected {' or '.join(PROGRAMS)} and the arguments of that adapter")
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    program = str(python(name))
    os.execve(program, [program, str(HERE / PROGRAMS[name]), *sys.argv[2:]], environment)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"launch.py: {error}")
