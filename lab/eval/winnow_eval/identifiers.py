"""Code whose next word is an identifier from far above: does a model still complete it?

The code is that of the standard library of the Python that runs this. A text ends within an identifier, behind an
underscore, and the identifier stands in it before, but not near: what else could end like that is rare.
"""

import re
import sysconfig
from functools import cache
from pathlib import Path

from winnow_eval import Failure
from winnow_eval.haystack import FULL, Trial, generator

IDENTIFIER = re.compile(r"\b[a-z]{3,}_[a-z_]{4,}\b")
FAR = 0.4  # of the text, at least, since the identifier was seen last
GENERATED = 12
ATTEMPTS = 2000  # places that are looked at for one trial


@cache
def sources():
    """The modules of the library's top folder, by name."""
    found = {path.name: path.read_text(encoding="utf-8", errors="replace")
             for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))}
    if not found:
        raise Failure("task code: this Python has no sources of its standard library")
    return found


def sample(characters):
    """So many characters of code, to count tokens of."""
    return "\n\n".join(sources().values())[:characters]


def _fact(text, at, name):
    """What stands at a place, with so much before it that it is found there first."""
    begin = at
    while text.find(text[begin:at + len(name)]) != begin:
        begin -= 1
    return text[begin:at + len(name)]


def _cut(source, match, room):
    """(text, question, answer, fact) of code that ends within this identifier, or None where it was not far above."""
    name = match[0]
    known, answer = name[:name.index("_") + 1], name[name.index("_") + 1:]
    end = match.start() + len(known)
    begin = source.find("\n", max(0, end - round(room))) + 1
    if end - begin < 0.9 * room:
        return None
    before = source[begin:match.start()]
    last = [found.start() for found in re.finditer(rf"\b{name}\b", before)][-1:]
    if not last or last[0] > len(before) * (1 - FAR):
        return None
    line = before.rfind("\n") + 1
    return before[:line], before[line:] + known, answer, _fact(before, last[0], name)


def trial(context, count, characters_per_token):
    """The trial of this number; None where the library has no code for one of this length."""
    name = f"code-{context}-{count}"
    numbers, room = generator(name), FULL * context * characters_per_token
    long = [source for source in sources().values() if len(source) > 1.5 * room]
    for _ in range(ATTEMPTS if long else 0):
        source = numbers.choice(long)
        match = IDENTIFIER.search(source, numbers.randrange(round(room), len(source)))
        cut = match and _cut(source, match, room)
        if cut:
            text, question, answer, fact = cut
            return Trial(name, context, None, ((text, question, ""),), ((answer,),), (fact,), GENERATED)
    return None
