"""python -m winnow_eval eval|allocate ARGUMENTS...: `winnow eval` and `winnow allocate`."""

import sys

if sys.argv.pop(1) == "allocate":
    from winnow_eval.allocate_cli import main
else:
    from winnow_eval.cli import main

main()
