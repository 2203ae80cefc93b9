"""python -m winnow_calibrate profile|calibrate ARGUMENTS...: `winnow profile` and `winnow calibrate`."""

import sys

from winnow_calibrate.cli import main

main(sys.argv.pop(1))
