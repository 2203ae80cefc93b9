"""python -m winnow_eval [profile|calibrate]: `winnow eval`, `winnow profile` and `winnow calibrate`."""

import sys

if sys.argv[1:2] in (["profile"], ["calibrate"]):
    from winnow_eval.profile_cli import main

    main(sys.argv.pop(1))
else:
    from winnow_eval.cli import main

    main()
