"""Runs the examples of a page (README.md if none is named), one after the other as a reader would. Where a line prints,
and its comment begins with an arrow, the comment is what it has to print. Warnings of the package are errors.

    readme_test.py PATH_OF_A_BACKEND [PAGE]
"""

import contextlib
import io
import os
import re
import sys
import warnings
from pathlib import Path

os.environ["WINNOW_BACKEND"] = sys.argv[1]
os.environ["WINNOW_PATH"] = str(Path(sys.argv[1]).resolve().parent)

PAGE = Path(__file__).resolve().parent / (sys.argv[2] if len(sys.argv) > 2 else "README.md")
BLOCK = re.compile(r"(<!-- not run here[^\n]*-->\n)?^```python\n(.*?)^```$", re.M | re.S)


def main():
    found, names = BLOCK.findall(PAGE.read_text(encoding="utf-8")), {}
    run = 0
    warnings.filterwarnings("error", category=RuntimeWarning, module="winnowkv")
    for reason, code in found:
        if reason:
            print(reason.strip())
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, str(PAGE), "exec"), names)
        expected = re.findall(r"# -> (.*)$", code, re.M)
        lines = iter(said.getvalue().splitlines())
        for text in expected:
            assert text in lines, f"{text!r} was not printed by\n{code}\nbut\n{said.getvalue()}"
        run += 1
    assert run >= 5, f"{run} examples of {len(found)}"
    print(f"{run} examples run")


main()
