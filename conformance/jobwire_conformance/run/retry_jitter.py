"""The random parts of delays: how far the times of a set of retries are spread. [RETRY-4]

One time cannot show whether a draw was made, many times can. Nothing here is asked of the generator
but that it draws: a fleet that draws only ten of a hundred numbers passes, and so does any order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jobwire_conformance.cases.match import TIMES

__all__ = ["problem"]

_NEAR = 0.1  # seconds from a whole number: the clock may be read twice, for the field and the score
_MILLISECONDS = 1e11  # the least number that is no longer one of seconds [GEN-3]
_FAILED = [name for name in reversed(TIMES) if name in ("retried_at", "failed_at")]


def problem(
    members: Sequence[bytes], scores: Sequence[float], wanted: Mapping[str, Any]
) -> tuple[object, object] | None:
    """Return the expected and the seen value if delays are not as wanted; None if they are.

    Args:
        members: Payloads of failed jobs.
        scores: When each is due, in epoch seconds.
        wanted: `base`, the seconds that are not drawn; `below`, the number that no draw reaches;
            `distinct`, the least number of different draws; `span`, the least difference of the
            largest and the smallest.
    """
    failed = [_failed_at(member) for member in members]
    drawn = [score - at - wanted["base"] for at, score in zip(failed, scores, strict=True)]
    whole = [round(each) for each in drawn]
    cut = 1 if _are_cut(scores) or _are_cut(failed) else 0  # seconds that a difference may be off
    odd = [each for each in drawn if abs(each - round(each)) > _NEAR]
    if not cut and len(odd) * 4 > len(drawn):  # not one: a process may stand still between readings
        return "whole numbers of seconds", [round(each, 3) for each in odd[:10]]
    # A late reading of the clock makes a delay longer, but hardly two of them by just one second.
    late = [each for each in whole if each >= wanted["below"] + cut]
    if min(whole, default=0) < -cut or len(late) > 1 or max(whole, default=0) > wanted["below"] + 1:
        return f"from {wanted['base']}, below {wanted['base'] + wanted['below']}", [
            wanted["base"] + each for each in (min(whole), max(whole))
        ]
    span = max(whole, default=0) - min(whole, default=0)
    if span < wanted["span"]:
        return f"{wanted['span']} s from the shortest to the longest", span
    if len(set(whole)) < wanted["distinct"]:
        return f"{wanted['distinct']} different draws", len(set(whole))
    return None


def _are_cut(times: Sequence[float]) -> bool:
    """Return whether a writer cuts its clock to whole seconds, as section 3.1 allows."""
    return all(each == int(each) for each in times)


def _failed_at(member: bytes) -> float:
    """Return the epoch second of the last failure of a payload; 0 if it has none."""
    payload = json.loads(member)
    for name in _FAILED:
        value = payload.get(name)
        if isinstance(value, int | float):
            return value / 1000 if value >= _MILLISECONDS else float(value)
    return 0.0
