"""Holds docs/troubleshooting.md to the sources: each message that a user can meet is there, and nothing else.

    messages_test.py ROOT

An entry of the page is code in the first column of a table, with "..." for what varies. A message is on the page if all
of its literal parts stand in an entry, one after the other; "[...]" at an entry's end leaves out the rest of a long
one. Before a table of families the page names the sources that they are of, <!-- families of backend/api/ -->: there
"..." is any text. What is no message, or is met by nobody, stands in message_exceptions.py with the reason.
"""

import difflib
import fnmatch
import functools
import re
import sys
from pathlib import Path

import message_exceptions
import message_sources
from message_sources import Message, has_words
from source_tree import source_tree

PAGE = "docs/troubleshooting.md"
EXCEPTIONS = "tests/tidy/message_exceptions.py"
FOLDERS = ("backend/", "bench/", "cmake/", "hosts/", "lab/", "plugin_api/", "tools/")
REST = "[...]"

pieces = functools.cache(message_sources.pieces)


def plain(text):
    """In a single line."""
    return " ".join(text.split())


class Entry:
    """What the page has of one message, or of a family of messages where these are of some sources."""

    def __init__(self, line, text, sources):
        self.line, self.text, self.sources = line, text, sources
        self.goes_on = text.endswith(REST)
        self.parts = [] if sources else pieces(text.removesuffix(REST))
        self.pattern = re.compile(".*".join(re.escape(part.strip()) for part in text.split("...")))
        self.missing = set(range(1 if sources else len(self.parts)))  # which parts no source has said

    def places(self, message):
        """Which of the parts are those of a message; None: it is not in the entry."""
        if self.sources:
            return {0} if message.path.startswith(self.sources) and self.pattern.search(plain(message.text)) else None
        said = pieces(message.text)
        for first, part in enumerate(self.parts):
            if self.parts[first:first + len(said)] == said:
                return set(range(first, first + len(said)))
            rest = self.parts[first:]
            if self.goes_on and len(rest) <= len(said) and rest[:-1] == said[:len(rest) - 1] \
                    and said[len(rest) - 1].startswith(rest[-1]):
                return set(range(first, len(self.parts)))
        return None

    def has(self, message):
        places = self.places(message)
        self.missing -= places or set()
        return places is not None


def entries(page):
    """What the tables of a page have in their first column."""
    sources = ()
    for number, line in enumerate(page.splitlines(), 1):
        if found := re.fullmatch(r"<!-- families of (.+) -->", line):
            sources = tuple(found[1].split())
        elif line.startswith("|"):
            for code in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", line)[1]):
                yield Entry(number, code.replace("\\|", "|"), sources)
        elif line.strip():
            sources = ()


def is_excepted(exception, message):
    path, kind, pattern, _ = exception
    said = message.head if kind == "inside" else plain(message.text)
    return fnmatch.fnmatch(message.path, path) and (kind == "all" or re.search(pattern, said) is not None)


def shown(text):
    """A template as the page would have it."""
    return plain(text).replace("|", "\\|").replace("`", "'")


def nearest(text, others):
    """Which of others it once was, or has become."""
    found = difflib.get_close_matches(text, others, 1, 0.6)
    return found[0] if found else None


def absent(message, texts):
    """What to do about a message that the page does not have."""
    text = shown(message.text)
    near = nearest(text, texts)
    escaped = re.escape(plain(message.text)[:50]).replace("\\ ", " ")
    changed = f"  Where this message was changed, the page still has\n    `{near}`\n" if near else ""
    return (f"{message.path}:{message.line}: {PAGE} does not have `{text}`\n{changed}"
            f"  Otherwise add to the table of the place where a user meets it\n"
            f"    | `{text}` | What it means, and what to do. |\n"
            f"  or, where it is no message or nobody can meet it, to {EXCEPTIONS}\n"
            f'    ("{message.path}", "text", r"^{escaped}", "Why."),')


def stale(entry, texts):
    """What to do about an entry that is not what any source says."""
    near = nearest(entry.text, texts)
    gone = "" if entry.sources else " (" + ", ".join(repr(entry.parts[n]) for n in sorted(entry.missing)) + ")"
    return (f"{PAGE}:{entry.line}: no source says `{entry.text}`{gone}\n"
            + (f"  Write what is said now,\n    `{near}`\n  or take it out." if near else "  Take it out."))


def complaints(page, messages, exceptions, has_all_sources=True):
    """What the page and the sources do not have in common. The page may have more messages where some sources, those
    of the lab, are not there."""
    listed = list(entries(page))
    unused = set(exceptions)
    for message in messages:
        excepted = [exception for exception in exceptions if is_excepted(exception, message)]
        unused -= set(excepted)
        has_it = [entry for entry in listed if entry.has(message)]
        if not excepted and not has_it and has_words(message.text):
            yield absent(message, [entry.text for entry in listed])
    texts = [shown(message.text) for message in messages if has_words(message.text)]
    for entry in listed if has_all_sources else ():
        if entry.missing or not entry.sources and not entry.parts:
            yield stale(entry, texts)
    for exception in exceptions:
        if exception in unused:
            yield f"{EXCEPTIONS}: nothing needs {exception}. Take it out."


def said_by(tree):
    """All that the sources of a tree can say, each text of a file once."""
    found = {}
    for path, text in tree.items():
        reader = message_sources.READERS.get(Path(path).suffix)
        if reader and (path.startswith(FOLDERS) or path == "CMakeLists.txt"):
            for message in sorted(reader(path, text)):
                found.setdefault((path, message.text, message.head), message)
    return list(found.values())


PROOF = {
    "backend/a.cpp": '// "no message at all"\nvoid f() { throw Error("no `" + name(x) + "` in " "here"); }\n'
                     'App app("what it is for"); const char *words = R"(of no use)"; log("%s of %zu is", y, z);\n'
                     'g(many ? std::string("all of ") + z : "one of them: " + list({"not these", w}));',
    "tools/b.py": 'def f():\n    """Says no."""\n'
                  '    raise Failure(f"{a}: has no {b}" if c else [it, "is not there"][1])\n'
                  'print("one line", file=sys.stderr)\nsys.exit(IT + it)\nIT = "that is "\n',
    "cmake/c.cmake": 'message(STATUS "all is well") # message(WARNING "not this")\n'
                     'message(FATAL_ERROR "no ${tree} in\\n"\n        "the folder")\n',
    "docs/d.cpp": 'f("not a source");',
}
PROOF_TEXTS = {"no `...` in here", "what it is for", "of no use", "... of ... is", "all of ...", "one of them: ...",
               "not these", "...: has no ...", "is not there", "one line", "that is ...", "no ... in\nthe folder"}
PROOF_PAGE = """
| `no '...' in here` `all of ...` | Yes. |
| `... of ... is ... one of them: ...` `is not [...]` `... that is ...` | An `odd` one. |

<!-- families of tools/ cmake/ -->

| `...: has no ...` `one line` `no ... in ... folder` | Many. |
"""
PROOF_EXCEPTIONS = (("backend/*", "inside", r"App app$", "help"), ("backend/*", "text", r"^of no use", "no message"),
                    ("*/a.cpp", "text", r"^not these", "no message"))


def prove():
    """Each way in which page and sources can differ is found, and nothing else."""
    messages = said_by(PROOF)
    texts = {message.text for message in messages if has_words(message.text)}
    assert texts == PROOF_TEXTS, texts ^ PROOF_TEXTS

    def found(page=PROOF_PAGE, said=tuple(messages), exceptions=PROOF_EXCEPTIONS):
        return list(complaints(page, said, exceptions))

    assert not found(), found()
    added = Message("backend/a.cpp", 9, "no ... at all", "")
    assert added.text in " ".join(found(said=(*messages, added))), "a message that was added"
    assert found(said=(*messages, added._replace(text="no ... in here ..., or there"))), "a longer one"
    assert not found(said=(*messages, added._replace(text="all of ..."))), "a message at a second place"
    for gone in messages:
        if has_words(gone.text):
            assert found(said=[each for each in messages if each is not gone]), f"{gone} was removed"
        is_held = gone.text != "is not there" and not any(is_excepted(each, gone) for each in PROOF_EXCEPTIONS)
        if has_words(gone.text) and is_held:  # of the one the page leaves out the end
            other = gone._replace(text=re.sub(r"[a-z]+([^a-z]*)$", r"elsewhere\1", gone.text))
            assert found(said=[other if each is gone else each for each in messages]), f"{gone} was changed"
    for entry in entries(PROOF_PAGE):
        assert found(page=PROOF_PAGE.replace(f"`{entry.text}`", "")), f"{entry.text} is gone from the page"
        assert found(page=PROOF_PAGE.replace(entry.text, entry.text + " more")), f"{entry.text} was changed on the page"
    assert any("nothing needs" in each for each in found(exceptions=(*PROOF_EXCEPTIONS, ("*", "text", "^no such", ""))))


def main():
    root = Path(sys.argv[1])
    prove()
    messages = said_by({path: text for path, text in source_tree(root).items()
                        if Path(path).suffix in message_sources.READERS})
    page = (root / PAGE).read_text()
    exceptions = message_exceptions.EXCEPTIONS
    has_lab = (root / "lab").is_dir()
    if not has_lab:
        exceptions = [exception for exception in exceptions if not exception[0].startswith("lab/")]
    found = list(complaints(page, messages, exceptions, has_lab))
    print(f"{len(messages)} texts in the sources, {len(list(entries(page)))} entries, {len(found)} complaints")
    for complaint in found:
        print(complaint)
    sys.exit(1 if found or len(messages) < 1000 else 0)


if __name__ == "__main__":
    main()
