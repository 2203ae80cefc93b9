"""What tests do without the packages that they need: they say so and pass. Where WINNOW_REQUIRE_PACKAGES is set, they
fail. A package that is there and cannot be imported fails in any case."""

import contextlib
import os
import sys


@contextlib.contextmanager
def needed(what, *packages):
    """Ends the test of `what` if one of the packages is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in packages or "WINNOW_REQUIRE_PACKAGES" in os.environ:
            raise
        print(f"{what} is not tested: {missing.name} is not installed")
        sys.exit(0)
