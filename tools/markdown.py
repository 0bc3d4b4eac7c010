"""Markdown as the tools need it: fenced blocks, links, and the anchors of headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FENCE = re.compile(r"^```(?P<kind>[\w-]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
# Directly above a block: the reason why no test runs it, or Python that its example needs.
NOT_RUN = re.compile(r"<!-- not run: (\S[^\n]*) -->\n\n?\Z")
SETUP = re.compile(r"<!-- setup\n((?:(?!-->).)*)-->\n\n?\Z", re.DOTALL)
FILE = re.compile(r"# ([\w./-]+\.\w+|Dockerfile)(, at the end)?$", re.MULTILINE)
INLINE_CODE = re.compile(r"``.+?``|`[^`\n]*`")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\]\((?P<inline>[^)\s]+)\)|^\[[^\]]+\]: +(?P<reference>\S+)$", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    Attributes:
        kind: The word after the fence: the language.
        code: Its lines.
        line: The number of its first line in the page.
        reason: Why no test runs it, if the page says so.
        setup: Python that runs before it and that readers do not see.
    """

    kind: str
    code: str
    line: int
    reason: str | None
    setup: str

    @property
    def file(self) -> str | None:
        """The file that the first line names in a comment, as `# jobs.py`."""
        match = FILE.match(self.code)
        return match[1] if match else None

    @property
    def is_appended(self) -> bool:
        """True if the first line says that the block goes to the end of its file."""
        match = FILE.match(self.code)
        return match is not None and match[2] is not None


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page in their order."""
    for match in FENCE.finditer(text):
        above = text[: match.start()]
        reason, setup = NOT_RUN.search(above), SETUP.search(above)
        yield Block(
            kind=match["kind"],
            code=match["code"],
            line=above.count("\n") + 2,
            reason=reason[1] if reason else None,
            setup=setup[1] if setup else "",
        )


def without_code(text: str) -> str:
    """Return the text with blanks for its code and comments; offsets and lines stay."""
    for pattern in (FENCE, COMMENT, INLINE_CODE):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return text


def links(text: str) -> Iterator[re.Match[str]]:
    """Yield the links of a page; the group that matched holds the target."""
    yield from LINK.finditer(without_code(text))


def anchors(text: str) -> set[str]:
    """Return the fragments that links to the headings of a page may have."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\]\([^)]*\)", "", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found
