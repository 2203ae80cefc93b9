"""What ci/eval takes by name: texts and models are found for their options alone, a file of the name goes first, and
the code that it measures on is there. Nothing is downloaded.

    eval_texts_test.py SOURCE
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(sys.argv[1]) / "ci"))

import command  # noqa: E402
import eval as ci_eval  # noqa: E402
import texts  # noqa: E402

KINDS = {"book": lambda: Path("/kept/book.txt")}


def main():
    arguments = ["--text", "book", "--part=book", "book", "--text=book", "--text"]
    found = ci_eval.named("--text", KINDS, arguments)
    assert found == ["--text", "/kept/book.txt", "--part=book", "book", "--text=/kept/book.txt", "--text"], found
    assert ci_eval.named("--text", KINDS, ["--text", "other.txt"]) == ["--text", "other.txt"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("book").touch()
        assert ci_eval.named("--text", KINDS, ["--text", "book"]) == ["--text", "book"]
        os.chdir("/")
    code = texts.code().read_text(encoding="utf-8")
    assert len(code) > 1_000_000 and "def " in code, f"{len(code)} characters are no standard library"
    assert texts.code().read_text(encoding="utf-8") == code
    refused = command.run(Path(sys.argv[1]) / "ci" / "eval")
    assert refused.returncode == 1 and "book, code" in refused.stderr, refused.stderr


main()
