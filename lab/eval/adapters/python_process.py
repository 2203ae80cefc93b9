"""A process of an adapter's own: a file of Python beside this one, which may import winnow_eval."""

import os
import sys
from pathlib import Path

from winnow_eval.child_process import ChildProcess

MOST_WORDS = 600  # characters of a log that are shown


class PythonProcess(ChildProcess):
    def __init__(self, file, *arguments):
        folder = str(Path(__file__).resolve().parent.parent)
        super().__init__([sys.executable, file, *arguments], os.environ | {"PYTHONPATH": folder})
