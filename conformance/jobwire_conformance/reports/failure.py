"""The explanation of a check that did not pass, as it stands in the terminal and in JUnit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobwire_conformance import data

if TYPE_CHECKING:
    from jobwire_conformance.reports.results import Check

__all__ = ["explanation"]


def explanation(check: Check, again: str) -> Iterator[str]:
    """Yield the paragraphs: the difference, the evidence, the requirement, the command to replay.

    Lines of evidence begin with spaces.

    Args:
        check: The check, as results.json holds it.
        again: The command that runs one case again, without the name of the case.
    """
    if "blocked_by" in check:
        ended = check.get("by") in ("adapter", "harness")
        yield f"{'' if ended else 'blocked by an earlier failure: '}{check['blocked_by']}"
    else:
        yield check.get("message", "")
    yield from (f"  {line}" for line in check.get("evidence", ()))
    if "blocked_by" not in check:
        requirement = data.requirements().get(check["requirement"])
        if requirement is not None:
            text, table, _ = requirement.text.partition("\n|")
            more = f" (the table: jobwire conform explain {requirement.id})" if table else ""
            yield f"[{requirement.id}] {text.rstrip()}{more}"
    if "follows" in check:
        yield f"probably follows from {check['follows']}, which fails for the same reason"
    if "reason" in check:
        yield f"declared: {check['reason']}"
    if again:
        yield f"again: {again} {check.get('again', check['case'])}"
