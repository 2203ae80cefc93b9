"""python -m winnow_eval [profile]: `winnow eval`, and `winnow profile`."""

import sys

if sys.argv[1:2] == ["profile"]:
    from winnow_eval.profile_cli import main

    del sys.argv[1]
else:
    from winnow_eval.cli import main

main()
