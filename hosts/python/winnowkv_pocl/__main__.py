"""Prints the path of the driver's library: export WINNOW_DRIVER="$(python -m winnowkv_pocl)"."""

from . import library

print(library())
