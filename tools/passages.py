"""Text that people read, cut out of Markdown, Python, Lua, shell, TOML and JSON files.

A passage is one title, paragraph, table cell, comment or message, in one piece although it fills
several lines. Code inside it is replaced by X of the same length, so that no rule judges it and
every offset stays right.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CODE = re.compile(r"``.+?``|`[^`]*`|\"[\w-]+\"")  # a single word in quotes is a name as well
LINK_TARGET = re.compile(r"\]\([^)\s]*\)|\]\[[^\]]*\]")
TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--.*?-->")
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[-\d.]*[a-zA-Z]|\{[^{}\s]*\}")
FENCE = re.compile(r" *(```|~~~)")
HEADING = re.compile(r"#{1,6} +")
LIST_ITEM = re.compile(r"(?:[-*+]|\d+[.)]) +")
RULER = re.compile(r"[-=#|: ]*")
DIRECTIVE = re.compile(r"!|type:|noqa|pragma|fmt:|mypy:|ruff:|words: ok")
SECTION_COMMENT = re.compile(r"-{2,} *")
HASH_COMMENT = re.compile(r"(?:(?<=\s)|^)#+ ")
# Keys of JSON and TOML with text for people: titles of cases, descriptions in schemas, reasons.
TEXT_VALUE = re.compile(r'"?\b(title|description|reason)"?\s*[:=]\s*"((?:[^"\\]|\\.)*)"')
FILE_NAME = re.compile(r"[\w./-]+\.\w+: +")


@dataclass(frozen=True, slots=True)
class Passage:
    """One piece of text with the lines that it comes from."""

    text: str  # whitespace collapsed, code masked by X
    raw: str  # the same characters before masking; offsets agree with `text`
    is_title: bool
    offsets: tuple[int, ...]  # where each line of the passage begins in `text`
    lines: tuple[int, ...]  # the number of each of these lines, from 1

    def line_at(self, offset: int) -> int:
        """Return the number of the line that holds the character at `offset`."""
        return self.lines[bisect_right(self.offsets, offset) - 1]


def passages(path: Path, source: str) -> Iterator[Passage]:
    """Yield the passages of a file; the suffix of `path` says its language.

    Raises:
        SyntaxError: If a Python file cannot be parsed.
    """
    if path.suffix == ".md":
        yield from of_markdown(source)
    elif path.suffix == ".py":
        yield from of_python(source)
    elif path.suffix == ".lua":
        yield from of_lua(source)
    elif path.suffix == ".json":
        yield from of_values(source)
    else:
        yield from of_values(source)
        yield from of_comments(source.splitlines())


def of_markdown(source: str) -> Iterator[Passage]:
    """Yield headings, paragraphs, list items, table cells, and comments in fenced code."""
    paragraph: list[tuple[int, str]] = []
    fenced: list[str] | None = None
    first_fenced = 0
    for number, line in enumerate(source.splitlines(), start=1):
        if FENCE.match(line):
            yield from _joined(paragraph)
            paragraph = []
            if fenced is None:
                fenced, first_fenced = [], number + 1
            else:
                yield from of_comments(fenced, first=first_fenced)
                fenced = None
            continue
        if fenced is not None:
            fenced.append(line)
            continue
        text = line.strip().lstrip("> ")
        heading = HEADING.match(text)
        item = LIST_ITEM.match(text)
        if not text or heading or item or text.startswith("|"):
            yield from _joined(paragraph)
            paragraph = []
        if heading:
            yield from _joined([(number, text[heading.end() :])], is_title=True)
        elif text.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", text):
                if not RULER.fullmatch(cell):
                    yield from _joined([(number, cell)])
        elif text:
            paragraph.append((number, text[item.end() :] if item else text))
    yield from _joined(paragraph)


def of_python(source: str) -> Iterator[Passage]:
    """Yield docstrings, comments, and strings of three words or more."""
    tree = ast.parse(source)
    docstrings: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str()) as constant), *_]:
                    docstrings.add(constant)
                    yield from _docstring(constant)
    yield from _python_comments(source)
    yield from _messages(tree, docstrings)


def of_lua(source: str) -> Iterator[Passage]:
    """Yield the comments; the first line of the header is a title."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(source.splitlines(), start=1):
        text = line.strip()
        comment = text[2:].strip() if text.startswith("--") else ""
        name = FILE_NAME.match(comment)
        if number == 1 and name:
            yield from _joined([(number, comment[name.end() :])], is_title=True)
        elif comment:
            block.append((number, comment))
        else:
            yield from _joined(block)
            block = []
    yield from _joined(block)


def of_comments(lines: Iterable[str], *, first: int = 1) -> Iterator[Passage]:
    """Yield the comments that a hash begins: of shell, TOML, YAML, make and similar."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=first):
        comment = HASH_COMMENT.search(line)
        text = line[comment.end() :].strip() if comment else ""
        stands_alone = comment is not None and not line[: comment.start()].strip()
        if block and not (stands_alone and text):
            yield from _joined(block)
            block = []
        if text and not DIRECTIVE.match(text):
            block.append((number, SECTION_COMMENT.sub("", text, count=1)))
        if not stands_alone:
            yield from _joined(block)
            block = []
    yield from _joined(block)


def of_values(source: str) -> Iterator[Passage]:
    """Yield the values of the keys that hold text for people."""
    for number, line in enumerate(source.splitlines(), start=1):
        for match in TEXT_VALUE.finditer(line):
            yield from _joined([(number, match[2])], is_title=match[1] == "title")


def _docstring(constant: ast.Constant) -> Iterator[Passage]:
    """Yield the first paragraph as a title, then the other paragraphs and sections."""
    assert isinstance(constant.value, str)
    numbered = list(enumerate(constant.value.split("\n"), start=constant.lineno))
    is_title = True
    paragraph: list[tuple[int, str]] = []
    for number, line in [*numbered, (0, "")]:
        text = line.strip()
        # A section's head ("Args:"), an argument ("name: ...") and an item begin a passage.
        begins = re.match(r"(?:[-*+] |\w+:$|[\w*`., ]{1,40}: )", text)
        if paragraph and not is_title and (not text or begins):
            yield from _joined(paragraph)
            paragraph = []
        elif paragraph and not text:
            yield from _joined(paragraph, is_title=True)
            is_title, paragraph = False, []
        if text:
            paragraph.append((number, text))


def _python_comments(source: str) -> Iterator[Passage]:
    block: list[tuple[int, str]] = []
    column = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number, start = token.start
        stands_alone = not token.line[:start].strip()
        text = token.string.lstrip("#: ").rstrip()
        follows = block and stands_alone and start == column and number == block[-1][0] + 1
        if not follows or not text:
            yield from _joined(block)
            block = []
        if text and not DIRECTIVE.match(text):
            block.append((number, SECTION_COMMENT.sub("", text, count=1)))
        column = start if stands_alone else -1
    yield from _joined(block)


def _messages(tree: ast.AST, docstrings: set[ast.expr]) -> Iterator[Passage]:
    """Yield the strings of three words or more, as most of these reach a reader."""
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if node in docstrings or node in inner:
            continue
        match node:
            case ast.JoinedStr(values=values):
                inner.update(values)
                text = "".join(
                    value.value
                    if isinstance(value, ast.Constant) and isinstance(value.value, str)
                    else "X"
                    for value in values
                )
            case ast.Constant(value=str() as text):
                pass
            case _:
                continue
        if text.strip().count(" ") >= 2:
            for number, line in enumerate(text.split("\n"), start=node.lineno):
                yield from _joined([(min(number, node.end_lineno or number), line.strip())])


def _joined(lines: list[tuple[int, str]], *, is_title: bool = False) -> Iterator[Passage]:
    """Yield the passage of these lines, or nothing if they are empty."""
    raw, offsets = "", []
    for _, line in lines:
        offsets.append(len(raw))
        raw += " ".join(line.split()) + " "
    if raw.strip():
        yield Passage(
            _masked(raw), raw, is_title, tuple(offsets), tuple(number for number, _ in lines)
        )


def _masked(text: str) -> str:
    for pattern in (CODE, PLACEHOLDER):
        text = pattern.sub(lambda found: "X" * len(found[0]), text)
    for pattern in (LINK_TARGET, TAG):
        text = pattern.sub(lambda found: " " * len(found[0]), text)
    return text.replace("*", " ").replace("[", " ")
