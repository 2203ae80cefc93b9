"""Marks the comments of a public header for Doxygen: `doxygen_filter.py HEADER` prints the header.

The headers keep plain comments. The first one is of the file; one that follows a declaration on its line belongs to it;
every other one belongs to what comes next. Headings in dashes stay plain. Indented lines are a list or formulas.
"""

import re
import sys


def with_formulas(lines):
    """Doxygen keeps the lines of a formula apart only where it is told to."""
    item = re.match(r" \*   (-|\d\.) ", lines[0])
    formulas = re.sub(r"^ \*", "", lines[0], flags=re.M)
    return lines[0] if item else f" * @verbatim\n{formulas} * @endverbatim\n"


def marked(text):
    text = re.sub(r"(^ \* {3,}\S.*\n)+", with_formulas, text, flags=re.M)
    text = re.sub(r"^(\s*)/\*(?! ----)", r"\1/**", text, flags=re.M)
    text = re.sub(r"^(.*[^\s/*].*?)/\*(?!\*)(?= )", r"\1/**<", text, flags=re.M)
    return text.replace("/**", "/** @file\n *", 1)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(marked(header.read()))
