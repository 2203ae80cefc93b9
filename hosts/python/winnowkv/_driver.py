"""OpenCL drivers that come as Python packages: where they are. None is opened here."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "WINNOW_DRIVER"


def _pocl() -> Path | None:
    """Of winnowkv-pocl, which imports nothing."""
    try:
        import winnowkv_pocl
    except ImportError:
        return None
    return winnowkv_pocl.library()


def _intel() -> Path | None:
    """Of intel-opencl-rt, whose libraries pip puts outside the folders of packages."""
    from importlib import metadata

    try:
        files = metadata.files("intel-opencl-rt") or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(file.locate()).resolve() for file in files if file.name == "libintelocl.so"), None)


def environment() -> dict[str, str]:
    """The variables by which Winnow finds installed driver packages where the system has no device.

    Empty without such a package, and where the user has set the variable, if only to nothing."""
    if VARIABLE in os.environ:
        return {}
    libraries = [str(library) for library in (_pocl(), _intel()) if library is not None and library.exists()]
    return {VARIABLE: os.pathsep.join(libraries)} if libraries else {}
