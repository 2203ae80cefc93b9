"""`winnow eval`: what a configuration of the KV cache costs in quality, measured through llama.cpp's own programs."""

import sys
from pathlib import Path

# Of the product, in a source tree as in an installation: how llama.cpp's programs are run, and more.
sys.path.append(str(Path(__file__).resolve().parents[3] / "tools" / "calibrate"))

from winnow_calibrate import Failure  # noqa: E402, F401
