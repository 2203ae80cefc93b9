"""Finds what Winnow's sources can say to somebody, as templates with "..." for each part that varies.

Nothing here knows how a message of C or C++ is thrown or logged: every expression with words in its string literals is
taken, so that no new way of saying something escapes. What of this is no message, message_exceptions.py names. Of
Python the exceptions are taken, and what goes to standard error; of CMake all that message() says but STATUS.
"""

import ast
import re
from dataclasses import dataclass, field
from typing import NamedTuple

VARYING = "..."

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:\\.|[^"\\\n])*)"'
                   r"|'(?:\\.|[^'\\\n])+'|[A-Za-z_]\w*|\d[\w.']*|\s+|->|::|<<|[+=!<>]=|&&|\|\||.", re.S)
CONVERSION = re.compile(r"%[-+#0]*[\d*]*(?:\.[\d*]+)?(?:hh|ll|[hlzjt])?[diouxXeEfgGcsp]")
ESCAPES = {"n": "\n", "t": "\t", "0": "\0"}
ENDS = {",", ";", "?", ":", "=", "+=", "==", "!=", "&&", "||", "return", "throw", "case"}
JOINS = {"+", "<<"}
CMAKE_MESSAGE = r'\bmessage\s*\((?:\s*(?P<mode>[A-Z_]+)\s)?(?P<texts>(?:"(?:\\.|[^"\\])*"|[^")])*)\)'
OPENING, CLOSING = set("([{"), set(")]}")
HEAD = 6  # tokens before a bracket that say what it belongs to


class Message(NamedTuple):
    path: str
    line: int
    text: str  # the template
    head: str  # in C and C++, what stands before the innermost bracket around the text, as "app.add_option"


def pieces(text):
    """The literal parts of a template or of an entry of the page, without the marks at their ends. A page's code has no
    backquotes, but quotes for them."""
    parts = (" ".join(part.split()).strip(" :;,()\"'") for part in text.replace("`", "'").split(VARYING))
    return [part for part in parts if re.search("[A-Za-z]", part)]


def has_words(text):
    """Whether there are two words to read."""
    return len(re.findall(r"[A-Za-z]{2,}", " ".join(pieces(text)))) > 1 and " " in text.strip()


def unescaped(text):
    return re.sub(r"\\(.)", lambda escape: ESCAPES.get(escape[1], escape[1]), text, flags=re.S)


def c_literal(text):
    """What a string literal says, with "..." for the conversions of printf."""
    text = unescaped(text)
    return CONVERSION.sub(VARYING, text.replace("%%", "\0")).replace("\0", "%")


@dataclass
class Expression:
    """What lies between two marks that end an operand: literals in a row, and what varies between them."""
    head: str
    text: str = ""
    line: int | None = None
    inner: list = field(default_factory=list)  # expressions in its brackets

    def add(self, text, line):
        self.text += text
        self.line = self.line or line

    def vary(self):
        if not self.text.endswith(VARYING):
            self.text += VARYING


class CReader:
    """The expressions of a source in C or C++."""

    def __init__(self, source):
        self.tokens, line = [], 1
        for match in TOKEN.finditer(source):
            token = match[0]
            if match["raw"] is not None:
                self.tokens.append((match["raw"], None, line))
            elif match["text"] is not None:
                self.tokens.append((c_literal(match["text"]), None, line))
            elif not token.isspace() and not token.startswith(("//", "/*")):
                self.tokens.append((None, token, line))
            line += token.count("\n")
        self.at = 0

    def head(self, outer):
        """What stands before the bracket that was just passed; of a bracket in a list what the list belongs to."""
        marks = [mark or "" for _, mark, _ in self.tokens[max(0, self.at - 1 - HEAD):self.at - 1]]
        if not marks or marks[-1] in {",", "{", "("}:
            return outer
        return re.sub(r"(?<=\w) (?!\w)|(?<!\w) ", "", " ".join(marks))

    def group(self, head):
        """All expressions up to the bracket that closes, which is passed, or to the end."""
        made, now, before = [], Expression(head), None
        while self.at < len(self.tokens):
            text, mark, line = self.tokens[self.at]
            self.at += 1
            if mark in CLOSING:
                break
            if text is not None:
                now.add(text, line)
            elif mark in OPENING:
                inner = self.group(self.head(head))
                if mark == "{":
                    made += inner
                elif before == "string" and len(inner) == 1 and inner[0].line:  # std::string("...") + ...
                    now.text = now.text.removesuffix(VARYING)
                    now.add(inner[0].text, inner[0].line)
                else:
                    now.inner += inner
                    now.vary()
            elif mark in ENDS:
                made.append(now)
                now = Expression(head)
            elif mark not in JOINS:
                now.vary()
            before = mark
        return [*made, now]

    def all(self):
        made = []
        while self.at < len(self.tokens):
            made += self.group("")
        return made


def of_c(path, source):
    todo = CReader(source).all()
    while todo:
        expression = todo.pop()
        todo += expression.inner
        if pieces(expression.text):
            yield Message(path, expression.line, expression.text, expression.head)


class PythonReader:
    """What a source in Python raises, or says before it ends."""

    def __init__(self, source):
        self.tree = ast.parse(source)
        self.constants = {node.targets[0].id: node.value for node in self.tree.body
                          if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}

    def text(self, node, varying):
        """The template of an expression; what in it is no text joins `varying`."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join(self.text(value, varying) for value in node.values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.text(node.left, varying) + self.text(node.right, varying)
        if isinstance(node, ast.Name) and isinstance(self.constants.get(node.id), ast.Constant | ast.JoinedStr):
            return self.text(self.constants[node.id], varying)
        varying.append(node)
        return VARYING

    def texts(self, node):
        """The templates of an argument, and of all expressions in what varies."""
        varying = []
        yield self.text(node, varying)
        for each in varying:
            for inner in ast.iter_child_nodes(each):
                yield from self.texts(inner)

    @staticmethod
    def is_said(call):
        """Whether a call ends the program with a text, warns, or writes to standard error."""
        name = ast.unparse(call.func).rpartition(".")[2]
        to_errors = any(word.arg == "file" and "stderr" in ast.unparse(word.value) for word in call.keywords)
        return (name in {"exit", "warn", "warning", "error"} or name in {"print", "secho", "echo"} and to_errors
                or name == "write" and "stderr" in ast.unparse(call.func))

    def all(self):
        for node in ast.walk(self.tree):
            call = node.exc if isinstance(node, ast.Raise) else node
            if isinstance(call, ast.Call) and (call is not node or self.is_said(call)):
                for argument in call.args:
                    for text in self.texts(argument):
                        yield argument.lineno, text


def of_python(path, source):
    for line, text in PythonReader(source).all():
        if pieces(text):
            yield Message(path, line, text, "")


def of_cmake(path, source):
    source = re.sub(r'("(?:\\.|[^"\\])*")|#[^\n]*', lambda match: match[1] or "", source)
    for call in re.finditer(CMAKE_MESSAGE, source):
        if call["mode"] != "STATUS":
            text = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', call["texts"]))
            text = unescaped(re.sub(r"\$\{\w+\}", VARYING, text))
            yield Message(path, source.count("\n", 0, call.start()) + 1, text, "")


READERS = {".c": of_c, ".cpp": of_c, ".h": of_c, ".hpp": of_c, ".py": of_python, ".cmake": of_cmake, ".txt": of_cmake}
