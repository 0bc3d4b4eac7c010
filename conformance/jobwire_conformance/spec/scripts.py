"""lua/README.md: the SHA-1 of each script, and its contract from the specification.

A script whose header cites requirements of an annex alone belongs to that annex. Its header is its
contract.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from jobwire_conformance.spec.document import Document
from jobwire_conformance.spec.registry import tables

__all__ = ["page", "undescribed"]

# Cells of a row about a script, in the tables of sections 18 and 19.
_CONTRACT = 4
_CONDITION = 3
_OF_ANNEX = re.compile(r"\[X-[A-Z]+-\d+\]")
_OF_SPEC = re.compile(r"\[[A-Z]{2,5}-\d+\]")
_TITLE = re.compile(r"-- \w+\.lua: (.*?)\.?(?: \[.*)?\n")


def page(root: Path, document: Document) -> str:
    """Return lua/README.md; every script has to be described."""
    contracts, conditions = _rows(document, _CONTRACT), _rows(document, _CONDITION)
    lines = [
        "# Scripts",
        "",
        "Made by `make generate`; `make lint` fails when it is out of date.",
        "",
        "Each script is one atomic step. Its header describes its keys and arguments.",
        "[The reliable profile](../spec/reliable.md) describes its guarantees.",
        "",
        "| Script | SHA-1 | Purpose |",
        "| --- | --- | --- |",
    ]
    names = sorted(_names(root), key=[*contracts].index)
    for name in names:
        lines.append(_row(root, name))
    lines += [
        "",
        "## Contracts",
        "",
        "| Script | KEYS; ARGV | Returns | Complexity | Acts if |",
        "| --- | --- | --- | --- | --- |",
    ]
    condition = ""
    for name in names:
        if (acts_if := conditions[name][0]) != "the same":  # as the row before it
            condition = acts_if
        lines.append(f"| {name} | {' | '.join(contracts[name])} | {condition} |")
    if of_annexes := _of_annexes(root):
        lines += [
            "",
            "## Scripts of annexes",
            "",
            "The requirements are those of [the annexes](../spec/README.md).",
            "",
            "| Script | SHA-1 | Purpose |",
            "| --- | --- | --- |",
            *(_row(root, name) for name in of_annexes),
        ]
    lines += ["", "## State after a crash", "", *_paragraph(document, "A crash of the caller")]
    return "\n".join(lines) + "\n"


def undescribed(root: Path, document: Document) -> Iterator[tuple[str, str]]:
    """Yield the scripts that a table leaves out, and the section of the table."""
    for cells, section in ((_CONTRACT, "18"), (_CONDITION, "19")):
        known = _rows(document, cells)
        yield from ((name, section) for name in _names(root) if name not in known)


def _names(root: Path) -> list[str]:
    """Return the names of the scripts that the specification describes."""
    of_annexes = _of_annexes(root)
    names = (path.stem for path in (root / "lua").glob("*.lua"))
    return sorted(name for name in names if name not in of_annexes)


def _of_annexes(root: Path) -> list[str]:
    """Return the names of the scripts that belong to an annex."""
    return sorted(
        path.stem
        for path in (root / "lua").glob("*.lua")
        if _OF_ANNEX.search(_header(path)) and not _OF_SPEC.search(_header(path))
    )


def _header(path: Path) -> str:
    lines = path.read_text("utf-8").splitlines()
    return "\n".join(takewhile(lambda line: line.startswith("--"), lines))


def _row(root: Path, name: str) -> str:
    source = (root / "lua" / f"{name}.lua").read_bytes()
    sha = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    title = _TITLE.match(source.decode())
    return f"| [{name}]({name}.lua) | `{sha}` | {title[1] if title else ''} |"


def _rows(document: Document, cells: int) -> dict[str, list[str]]:
    """Return the rows about scripts with `cells` cells: script name to the other cells."""
    return {
        row["Script"].strip("`"): [*row.values()][1:]
        for table in tables(document)
        if table.columns[0] == "Script" and len(table.columns) == cells
        for row in table.rows
    }


def _paragraph(document: Document, beginning: str) -> list[str]:
    lines: list[str] = []
    for _, line in document.outside:
        if lines and not line.strip():
            break
        if lines or line.startswith(beginning):
            lines.append(line)
    return lines
