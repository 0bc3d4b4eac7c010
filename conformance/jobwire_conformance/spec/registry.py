"""schema/registry.json: the keys, fields, signals, error classes, members and prefixes of SPEC.md.

The tables of SPEC.md are the source. schema/registry.schema.json describes the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jobwire_conformance.spec.document import CITATION, Document

__all__ = ["FORMAT", "Table", "build", "render", "tables"]

FORMAT = 1
_PARTS = (
    "keys",
    "reserved_keys",
    "fields",
    "reserved_fields",
    "signals",
    "errors",
    "members",
    "prefixes",
)
_REGISTERED = {
    "Signal": "signals",
    "Error class": "errors",
    "Member": "members",
    "Prefix": "prefixes",
}
_CODE = re.compile(r"`([^`]+)`")
_CELL = re.compile(r"(?<!\\)\|")
_ID = re.compile(CITATION.pattern)


class Table(NamedTuple):
    """A table of SPEC.md, inside a block or outside.

    Attributes:
        section: The number of the section that contains it.
        rows: A row is the name of each column to the text of its cell.
    """

    section: str
    columns: tuple[str, ...]
    rows: list[dict[str, str]]


def tables(document: Document) -> Iterator[Table]:
    """Yield all tables, in the order of the document."""
    lines = dict(document.outside)
    for requirement in document.requirements:
        lines |= enumerate(requirement.text.splitlines(), requirement.line + 1)
    starts = [(section.line, section.number) for section in document.sections]
    group: list[str] = []
    for number in range(1, max(lines, default=0) + 2):
        if lines.get(number, "").startswith("|"):
            group.append(lines[number])
            continue
        if len(group) > 1:
            section = next((name for line, name in reversed(starts) if line < number), "")
            columns, _, *rows = (_cells(line) for line in group)
            named = [dict(zip(columns, row, strict=False)) for row in rows]
            yield Table(section, tuple(columns), named)
        group = []


def build(document: Document) -> dict[str, Any]:
    """Return the registry of a document."""
    made: dict[str, list[dict[str, Any]]] = {part: [] for part in _PARTS}
    for table in tables(document):
        for part, entries in _entries(table):
            made[part] += entries
    return {"format": FORMAT, "version": document.version, **made}


def render(registry: Mapping[str, Any]) -> str:
    """Return the registry as text with one entry on each line."""
    head = [f'"{name}": {json.dumps(registry[name])}' for name in ("format", "version")]
    parts = []
    for part in _PARTS:
        lines = ",\n".join(
            json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in registry[part]
        )
        parts.append(f'"{part}": [\n{lines}\n]' if lines else f'"{part}": []')
    return "{\n" + ",\n".join(head + parts) + "\n}\n"


def _entries(table: Table) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    first = table.columns[0]
    section = table.section.partition(".")[0]
    if section == "5" and first == "Key" and "Type" in table.columns:
        yield "keys", [entry for row in table.rows for entry in _keys(row)]
    elif section == "5" and table.columns == ("Reserved", "Owner"):
        yield "reserved_keys", [entry for row in table.rows for entry in _reserved(row, first)]
    elif section == "6" and first == "Field" and "Type" in table.columns:
        yield "fields", [entry for row in table.rows for entry in _fields(row)]
    elif section == "6" and table.columns == ("Field", "Owner"):
        yield "reserved_fields", [entry for row in table.rows for entry in _reserved(row, first)]
    elif section == "27" and first in _REGISTERED:
        yield _REGISTERED[first], [entry for row in table.rows for entry in _registered(row, first)]


def _keys(row: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for name in _names(row["Key"]):
        yield {
            "name": name,
            "owner": "jobwire" if name.startswith("jobwire:") else "sidekiq",
            "generations": _generations(row.get("Generations", "all")),
            "type": row["Type"],
            "content": row.get("Content", ""),
            "ttl": row.get("Time to live", ""),
            "see": _ID.findall(row.get("See", "")),
        }


def _fields(row: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    about = " ".join(row.values())
    for name in _names(row["Field"]):
        yield {
            "name": name,
            "owner": "jobwire" if name.startswith("jw_") else "sidekiq",
            "type": _plain(row["Type"]),
            "written": row.get("Written by, when", ""),
            "reserved": "commercial" in about,
            "see": list(dict.fromkeys(_ID.findall(about))),
        }


def _reserved(row: Mapping[str, str], first: str) -> Iterator[dict[str, Any]]:
    for name in _names(row[first]):
        yield {"name": name, "owner": _plain(row["Owner"])}


def _registered(row: Mapping[str, str], first: str) -> Iterator[dict[str, Any]]:
    for name in _names(row[first]):
        yield {
            "name": name,
            **({"of": row["Of"].strip("`")} if "Of" in row else {}),
            "owner": row["Owner"],
            "status": row["Status"],
            "meaning": row["Meaning"],
            "see": _ID.findall(row["Meaning"]),
        }


def _names(cell: str) -> list[str]:
    return _CODE.findall(cell)


def _plain(cell: str) -> str:
    return cell.replace("`", "")


def _generations(cell: str) -> list[str]:
    found = re.findall(r"\d\.\d", cell)
    return found or ["6.4", "7.3", "8.1"]


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(inner)]
