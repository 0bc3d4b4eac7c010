"""Changes between two versions of the specification, id by id."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jobwire_conformance.spec.document import Document, Requirement

__all__ = ["Change", "changes", "markdown"]

_ATTRIBUTES = {
    "keyword": "keyword",
    "level": "level",
    "generations": "generations",
    "claims": "profiles",
}
# A new sentence is a part of an old one if so many of its words stood there.
_SAME_WORDS = 0.65
_LEAST_WORDS = 5


class Change(NamedTuple):
    """The changes of one requirement.

    Attributes:
        kind: "new", "changed" or "retired".
        details: The changes in a few words each.
    """

    id: str
    kind: str
    details: tuple[str, ...]


def changes(old: Document, new: Document) -> list[Change]:
    """Return the requirements that differ between two versions, in the order of the new one."""
    before = old.by_id
    return [change for entry in new.requirements if (change := _change(entry, before, new))]


def markdown(found: list[Change]) -> str:
    """Return a table of changes as Markdown; empty without changes."""
    if not found:
        return ""
    rows = [f"| {change.id} | {change.kind} | {'; '.join(change.details)} |\n" for change in found]
    return "| Id | Change | Details |\n| --- | --- | --- |\n" + "".join(rows)


def _change(entry: Requirement, before: Mapping[str, Requirement], new: Document) -> Change | None:
    name = entry.id
    if name not in before:
        details = [f"{entry.keyword}, {entry.level}, {', '.join(entry.claims)}"]
        if origin := _origin(entry, before, new):
            details.append(f"split from {origin}")
        return Change(name, "new", tuple(details))
    old = before[name]
    if entry.retired is not None and old.retired is None:
        return Change(name, "retired", (f"in {entry.retired}",))
    details = [
        f"{title} {_difference(getattr(old, key), getattr(entry, key))}"
        for key, title in _ATTRIBUTES.items()
        if getattr(old, key) != getattr(entry, key)
    ]
    if old.sha256 != entry.sha256:
        details.append("text")
    return Change(name, "changed", tuple(details)) if details else None


def _origin(entry: Requirement, before: Mapping[str, Requirement], new: Document) -> str | None:
    """Return the id of the old requirement that contained most of a new one's words.

    Only requirements that have changed can have lost a part.
    """
    words = _words(entry.text)
    if len(words) < _LEAST_WORDS:
        return None
    shares = {old.id: len(words & _words(old.text)) / len(words) for old in _reworded(before, new)}
    best = max(shares, key=lambda name: shares[name], default=None)
    return best if best is not None and shares[best] >= _SAME_WORDS else None


def _reworded(before: Mapping[str, Requirement], new: Document) -> Iterator[Requirement]:
    for entry in new.requirements:
        old = before.get(entry.id)
        if old is not None and old.sha256 != entry.sha256:
            yield old


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w`:<>-]{2,}", text.lower()))


def _difference(old: Any, new: Any) -> str:
    if not isinstance(old, tuple):
        return f"{old} → {new}"
    added = [f"+{item}" for item in new if item not in old]
    return ", ".join(added + [f"-{item}" for item in old if item not in new])
