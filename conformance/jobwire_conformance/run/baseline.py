"""The update of the file of deviations after a run. Text written by people stays."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobwire_conformance.cases.case import Case
from jobwire_conformance.errors import Usage
from jobwire_conformance.run.verdicts import FAILURES, CaseVerdict, Deviation

__all__ = ["Change", "change"]

_HEADER = """\
# The known deviations of this implementation: `jobwire conform check` does not count them as
# failures. A reason that begins with TODO is an error.
"""
_ENTRY = re.compile(r"^[ \t]*\[\[[ \t]*deviation[ \t]*\]\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Change:
    """The update of the file.

    Attributes:
        text: The new text.
        added: Ids of the new entries.
        removed: Ids of the removed entries, whose checks pass or do not exist.
        kept: Ids of the other entries.
    """

    text: str
    added: Sequence[str]
    removed: Sequence[str]
    kept: Sequence[str]


def change(
    path: Path,
    known: Sequence[Deviation],
    gone: Sequence[str],
    verdicts: Sequence[CaseVerdict],
    cases: Sequence[Case],
    reason: str | None,
) -> Change:
    """Return the update of the file.

    Args:
        path: Path of the file, which may be missing.
        known: The deviations in the file.
        gone: Ids of the deviations to remove.
        verdicts: The verdicts of a run.
        cases: All cases of the claims and the generation, even if they did not run.
        reason: Reason of the new entries; None for a placeholder with TODO.

    Raises:
        Usage: The form of the file does not allow a change without loss.
    """
    known_ids = {deviation.id for deviation in known}
    failures = _failures(verdicts, cases)
    added = {id_: message for id_, message in failures.items() if id_ not in known_ids}
    head, entries = _entries(path, known)
    kept = [deviation.id for deviation in known if deviation.id not in gone]
    parts = [head or _HEADER]
    parts += [_without(gone, ids, block, path) for ids, block in entries if {*ids} - {*gone}]
    parts += [
        _entry(id_, reason or f"TODO: write the reason. {message}")
        for id_, message in added.items()
    ]
    text = "\n".join(part.strip("\n") + "\n" for part in parts)
    removed = [deviation.id for deviation in known if deviation.id in gone]
    return Change(text, [*added], removed, kept)


def _failures(verdicts: Sequence[CaseVerdict], cases: Sequence[Case]) -> dict[str, str]:
    """Return the ids of the failures, each with its first message.

    A requirement that fails in all its cases has one id. Otherwise each case has an id.
    """
    failed: dict[str, dict[str, str]] = {}
    passed: dict[str, set[str]] = {}
    for verdict in verdicts:
        if verdict.status in FAILURES:
            message = verdict.finding.message or verdict.finding.blocked_by or ""
            failed.setdefault(verdict.requirement, {})[verdict.case] = message
        elif verdict.status not in ("warn", "info"):
            passed.setdefault(verdict.requirement, set()).add(verdict.case)
    messages = {}
    for requirement, by_case in failed.items():
        all_cases = {case.name for case in cases if requirement in case.requirements}
        if requirement not in passed and all_cases <= set(by_case):
            messages[requirement] = next(iter(by_case.values()))
        else:
            messages |= {f"{case}#{requirement}": message for case, message in by_case.items()}
    return messages


def _entries(
    path: Path, known: Sequence[Deviation]
) -> tuple[str, Sequence[tuple[Sequence[str], str]]]:
    """Return the text before the entries, and the ids and the text of each, with comments."""
    if not path.exists():
        return "", []
    text = path.read_text("utf-8")
    starts = [match.start() for match in _ENTRY.finditer(text)]
    ends = [*starts[1:], len(text)] if starts else []
    blocks = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    try:
        ids = [_ids(block) for block in blocks]
    except (ValueError, KeyError, IndexError):
        ids = []
    if [id_ for of in ids for id_ in of] != [deviation.id for deviation in known]:
        raise Usage(
            f"{path}: begin each entry with a line [[deviation]]; in another form, the file cannot "
            "be changed without loss of your text"
        )
    return text[: starts[0]] if starts else text, list(zip(ids, blocks, strict=True))


def _ids(block: str) -> list[str]:
    found = tomllib.loads(block)["deviation"][0]["id"]
    return found if isinstance(found, list) else [found]


def _without(gone: Sequence[str], ids: Sequence[str], block: str, path: Path) -> str:
    """Return the text of an entry without those of its ids that are gone."""
    kept = [id_ for id_ in ids if id_ not in gone]
    if kept == [*ids]:
        return block
    for id_ in ids:
        if id_ in gone:
            block = re.sub(rf"\s*([\"']){re.escape(id_)}\1[ \t]*,?", "", block, count=1)
    if _ids(block) != kept:
        raise Usage(f"{path}: write `id` first in each entry, as texts without escapes")
    return block


def _entry(id_: str, reason: str) -> str:
    return f"[[deviation]]\nid = {_text(id_)}\nreason = {_text(' '.join(reason.split())[:200])}\n"


def _text(text: str) -> str:
    # A JSON string is a basic string of TOML, except for DEL and half a surrogate pair.
    whole = text.encode("utf-8", "replace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")
