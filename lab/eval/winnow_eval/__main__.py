"""python -m winnow_eval [profile|calibrate|allocate]: `winnow eval`, `winnow profile`, `winnow calibrate` and `winnow
allocate`."""

import sys

if sys.argv[1:2] in (["profile"], ["calibrate"]):
    from winnow_eval.profile_cli import main

    main(sys.argv.pop(1))
elif sys.argv[1:2] == ["allocate"]:
    from winnow_eval.allocate_cli import main

    sys.argv.pop(1)
    main()
else:
    from winnow_eval.cli import main

    main()
