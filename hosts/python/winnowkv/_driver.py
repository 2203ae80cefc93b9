"""OpenCL drivers that come as Python packages."""

from __future__ import annotations


def environment() -> dict[str, str]:
    """The variables by which Winnow finds an installed driver package; none without one."""
    return {}
