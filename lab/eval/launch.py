"""Starts `winnow eval` in a virtual environment of its own (environment.py).

    launch.py ARGUMENTS...
"""

import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # an installed folder stays as it is

import environment  # noqa: E402

HERE = Path(__file__).parent


def python():
    """The Python of the environment for requirements.txt."""
    return environment.python("eval", HERE / "requirements.txt", "winnow eval")


def main():
    environment.check_python("winnow eval")
    variables = os.environ | {"PYTHONPATH": str(HERE), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    program = str(python())
    os.execve(program, [program, "-m", "winnow_eval", *sys.argv[1:]], variables)


if __name__ == "__main__":
    environment.run_main("winnow eval", main)
