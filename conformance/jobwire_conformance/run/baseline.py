"""Bring the file of deviations up to date with what a run found. What people wrote stays."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobwire_conformance.cases.case import Case
from jobwire_conformance.errors import Usage
from jobwire_conformance.run.verdicts import FAILURES, CaseVerdict, Deviation

__all__ = ["Change", "change"]

_HEADER = """\
# What this implementation does otherwise, and knows of: `jobwire conform check` counts these as
# deviations. A reason that begins with TODO is none yet, and an error.
"""
_ENTRY = re.compile(r"^[ \t]*\[\[[ \t]*deviation[ \t]*\]\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the file.

    Attributes:
        text: The new one.
        added: Ids that are new.
        removed: Ids that are gone: their checks pass, or there are none.
        kept: Ids that stay.
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
    """Return the file as it should be now.

    Args:
        path: Of the file, which need not be there.
        known: What it says now.
        gone: Ids in it that are to be taken out.
        verdicts: What a run found.
        cases: All that could have run: those of the claims and the generation.
        reason: Of the new entries; None for one that people have to write.

    Raises:
        Usage: The file is written in a way that nobody but its author can change.
    """
    failures = _failures(verdicts, cases)
    added = {id_: why for id_, why in failures.items() if id_ not in {each.id for each in known}}
    head, entries = _entries(path, known)
    kept = [each.id for each in known if each.id not in gone]
    parts = [head or _HEADER, *(entries[id_] for id_ in kept)]
    parts += [_entry(id_, reason or f"TODO: say why. {why}") for id_, why in added.items()]
    text = "\n".join(part.strip("\n") + "\n" for part in parts)
    removed = [each.id for each in known if each.id in gone]
    return Change(text, [*added], removed, kept)


def _failures(verdicts: Sequence[CaseVerdict], cases: Sequence[Case]) -> dict[str, str]:
    """Return the ids that say what failed, with the first message of each.

    A requirement that fails wherever it is checked has one entry; otherwise each case has its own.
    """
    failed: dict[str, dict[str, str]] = {}
    passed: dict[str, set[str]] = {}
    for verdict in verdicts:
        if verdict.status in FAILURES:
            why = verdict.finding.message or verdict.finding.blocked_by or ""
            failed.setdefault(verdict.requirement, {})[verdict.case] = why
        elif verdict.status not in ("warn", "info"):
            passed.setdefault(verdict.requirement, set()).add(verdict.case)
    found = {}
    for requirement, where in failed.items():
        everywhere = {case.name for case in cases if requirement in case.requirements}
        if requirement not in passed and everywhere <= set(where):
            found[requirement] = next(iter(where.values()))
        else:
            found |= {f"{case}#{requirement}": why for case, why in where.items()}
    return found


def _entries(path: Path, known: Sequence[Deviation]) -> tuple[str, Mapping[str, str]]:
    """Return what stands before the entries, and id to text of each, comments and all."""
    if not path.exists():
        return "", {}
    text = path.read_text("utf-8")
    starts = [found.start() for found in _ENTRY.finditer(text)]
    ends = [*starts[1:], len(text)] if starts else []
    blocks = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    try:
        ids = [tomllib.loads(block)["deviation"][0]["id"] for block in blocks]
    except (ValueError, KeyError, IndexError):
        ids = []
    if ids != [each.id for each in known]:
        raise Usage(
            f"{path}: write each entry as a table of its own, beginning with [[deviation]]; "
            "otherwise they cannot be changed without losing what you wrote"
        )
    return text[: starts[0]] if starts else text, dict(zip(ids, blocks, strict=True))


def _entry(id_: str, reason: str) -> str:
    return f"[[deviation]]\nid = {_text(id_)}\nreason = {_text(' '.join(reason.split())[:200])}\n"


def _text(text: str) -> str:
    # A basic string of TOML is one of JSON, but for DEL; half a pair of surrogates is none.
    whole = text.encode("utf-8", "replace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")
