"""Runs a test in the virtual environment of programs in Python (environment.py), with the modules of this folder and
winnow_calibrate at hand.

    inside.py TEST.py ARGUMENTS...
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import environment  # noqa: E402

program = str(environment.own_python())
os.execve(program, [program, "-B", *sys.argv[1:]], os.environ | {"PYTHONPATH": f"{HERE}:{HERE.parent}"})
