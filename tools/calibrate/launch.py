"""Starts `winnow profile` and `winnow calibrate` in a virtual environment (environment.py).

    launch.py profile|calibrate ARGUMENTS...
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True  # an installed folder stays as it is

import environment  # noqa: E402

if __name__ == "__main__":
    environment.start(f"winnow {sys.argv[1]}", "winnow_calibrate", Path(__file__).parent)
