"""Runs a test of this folder in the virtual environment of `winnow eval`.

    inside.py TEST.py ARGUMENTS...
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import launch  # noqa: E402

program = str(launch.python())
os.execv(program, [program, "-B", str(HERE / sys.argv[1]), *sys.argv[2:]])
