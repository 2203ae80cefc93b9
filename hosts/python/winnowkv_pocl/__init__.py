"""PoCL 3.1, an OpenCL driver for processors, with all that it needs. `python -m winnowkv_pocl` prints its library."""

from pathlib import Path


def library() -> Path:
    """The library that WINNOW_DRIVER names."""
    return Path(__file__).parent / "lib" / "x86_64" / "libpocl-winnowkv.so.2"
