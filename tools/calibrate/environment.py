"""Virtual environments of programs in Python, each made when it is not there yet.

They lie in ${XDG_CACHE_HOME:-~/.cache}/winnow/NAME-<hash>, a folder for each content of the list of packages and
version of Python. Only the standard library is used here.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

OLDEST_PYTHON = (3, 11)
REQUIREMENTS = Path(__file__).parent / "requirements.txt"


def check_python(program):
    """Ends the process where its Python is too old; `program` is the name that messages begin with."""
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"{program}: Python {sys.version.split()[0]}, expected {'.'.join(map(str, OLDEST_PYTHON))} or newer")


def run_main(program, main):
    """Runs a launcher's main; what the system refuses is a line."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"{program}: {error}")


def folder_of(name, requirements):
    """Where the virtual environment for a list of packages belongs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winnow"
    text = f"{sys.version_info[:2]}".encode() + requirements.read_bytes()
    return cache / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"


def complete(folder):
    """Whether the environment is there, and so is the Python that it was made with."""
    return (folder / ".done").exists() and (folder / "bin" / "python").exists()


def make(folder, requirements, program):
    """Makes the environment; a half-made one, which has no .done, is made again."""
    packages = [line.split("==")[0] for line in requirements.read_text().splitlines()
                if line and not line.startswith("#")]
    print(f"{program}: installing {', '.join(packages)} into {folder} (once)", file=sys.stderr, flush=True)
    try:
        venv.create(folder, clear=True, with_pip=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{program}: cannot make a virtual environment (on Debian this needs python3-venv): {error}")
    done = subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "--requirement", requirements], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program}: pip could not install what is needed:\n{done.stderr.strip()[-2000:]}")
    (folder / ".done").touch()


def python(name, requirements, program):
    """The Python of the environment, which is made if need be, by one process at a time."""
    folder = folder_of(name, requirements)
    if not complete(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete(folder):
                make(folder, requirements, program)
    return folder / "bin" / "python"


def own_python(program="winnow"):
    """The Python of the environment for requirements.txt."""
    return python("tools", REQUIREMENTS, program)


def start(program, package, folder):
    """Becomes `program`, a package of Python in that folder, with the arguments of this process."""
    def become():
        found = str(own_python(program))
        os.execve(found, [found, "-m", package, *sys.argv[1:]],
                  os.environ | {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"})

    check_python(program)
    run_main(program, become)
