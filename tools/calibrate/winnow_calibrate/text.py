"""The text that is measured on: all of it or a half, so that choosing and judging can use different contexts."""

import hashlib
import re
from pathlib import Path

from winnow_calibrate import Failure

PARTS = ("all", "first", "second")


def part_of(text, part):
    """A half of some bytes, cut at the end of the paragraph that ends nearest to the middle; or all."""
    if part == "all":
        return text
    # Paragraphs end at blank lines; in a text without any, each line is one.
    cuts = next((found for pattern in (rb"\n[ \t\r]*\n", rb"\n(?=.)")
                 if (found := [match.end() for match in re.finditer(pattern, text)])), None)
    if not cuts:
        raise Failure(f"--part {part}: the text is one line and cannot be cut")
    cut = min(cuts, key=lambda position: abs(2 * position - len(text)))
    return text[:cut] if part == "first" else text[cut:]


def prepare(path, part, folder):
    """(file with that part, identity) of a text."""
    try:
        content = Path(path).read_bytes()
        content.decode("utf-8")
    except OSError as error:
        raise Failure(f"--text: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failure(f"--text: {path} is not UTF-8: {error}") from error
    if not content.strip():
        raise Failure(f"--text: {path} is empty")
    measured = part_of(content, part)
    identity = {"sha256": hashlib.sha256(content).hexdigest(), "part": part,
                "measured_sha256": hashlib.sha256(measured).hexdigest()}
    if part == "all":
        return Path(path), identity
    made = Path(folder) / f"text-{part}.txt"
    made.write_bytes(measured)
    return made, identity
