"""Starts `winnow eval` and `winnow allocate` in the virtual environment of tools/calibrate.

    launch.py eval|allocate ARGUMENTS...
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.dont_write_bytecode = True  # an installed folder stays as it is
sys.path.append(str(HERE.parents[1] / "tools" / "calibrate"))

import environment  # noqa: E402

if __name__ == "__main__":
    environment.start(f"winnow {sys.argv[1]}", "winnow_eval", HERE)
