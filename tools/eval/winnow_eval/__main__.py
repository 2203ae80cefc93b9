"""python -m winnow_eval"""

from winnow_eval.cli import main

main()
