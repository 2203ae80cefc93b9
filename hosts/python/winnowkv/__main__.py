"""`python -m winnowkv`: the command `winnow`."""

from winnowkv.cli import main

main()
