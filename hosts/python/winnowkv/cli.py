"""The command `winnow` of an installed package: `winnow top` is Python; for every other command it sets what a wheel
needs, and becomes the program that the package brings."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from winnowkv import _files


def main() -> NoReturn:
    """Never returns: output, signals and exit status are the program's own."""
    if sys.argv[1:2] == ["top"]:
        from winnowkv import top

        sys.exit(top.main(sys.argv[2:]))
    _files.set_driver()
    for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores, and a program that it becomes would, too
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(_files.program(), ["winnow", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"winnow: {error}")
