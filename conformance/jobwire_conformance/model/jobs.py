"""A job in the model: its constant parts, and its next state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["SPELLINGS", "Fate", "Job", "spelt"]

Fate = Literal["done", "retry", "dead", "dropped"]

SPELLINGS: Mapping[str, Mapping[str, Any]] = {
    "compact": {"ensure_ascii": False, "separators": (",", ":")},
    "escaped": {"ensure_ascii": True, "separators": (",", ":")},
    "spaced": {"ensure_ascii": False, "separators": (" , ", " : ")},
}
"""Spellings of the same JSON. A reader accepts all of them. [PAY-1]"""

_LIMIT = 25  # retries of a job with `retry` true [RETRY-1]


@dataclass(slots=True, eq=False)
class Job:
    """One job.

    Attributes:
        jid: Its id, or the variable that holds it in braces.
        kind: Name of the class without `Jobwire`.
        args: Arguments.
        queue: Bare name of the queue.
        fields: Fields that no transition owns.
        retry: The field `retry`.
        count: The field `retry_count`; None before the first failure.
        failed_at: The field `failed_at` of the seed, which never changes. [RETRY-2]
        aged: Seconds by which the times in the payload were made older since its first failure.
        raw: The exact text; None if a client wrote it.
        due: Seconds from now until its promotion.
        began: Number of starts.
        ended: Number of successful ends.
    """

    jid: str
    kind: str
    args: list[Any]
    queue: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    retry: bool | int = True
    count: int | None = None
    failed_at: float | int | None = None
    aged: float = 0.0
    raw: str | None = None
    due: float = 0.0
    began: int = 0
    ended: int = 0

    @property
    def class_(self) -> str:
        """The name of its class."""
        return f"Jobwire{self.kind}"

    @property
    def same(self) -> Any:
        """A matcher for its id."""
        if self.jid.startswith("{"):
            return {"$": "same", "name": self.jid.strip("{}")}
        return self.jid

    def run(self) -> Fate:
        """Run the job to its end; return its fate. [RETRY-1] [RETRY-2] [RETRY-5]"""
        self.began += 1
        if not self._fails():
            self.ended += 1
            return "done"
        if self.retry is False:
            return "dropped"
        self.count = 0 if self.count is None else self.count + 1
        limit = _LIMIT if self.retry is True else self.retry
        return "dead" if self.count >= limit else "retry"

    def _fails(self) -> bool:
        if self.kind == "Flaky":
            return self.began <= int(self.args[0])
        return self.kind == "Fail"

    @property
    def message(self) -> str | None:
        """The message of its failure; None if it is not certain."""
        return str(self.args[0]) if self.kind == "Fail" else None

    def payload(self) -> dict[str, Any]:
        """Return the payload of a job that is seeded."""
        payload: dict[str, Any] = {
            "class": self.class_,
            "args": self.args,
            "jid": self.jid,
            "queue": self.queue,
        }
        payload |= {"retry": self.retry, "created_at": 1700000000.5, **self.fields}
        if self.count is not None:
            payload |= {"retry_count": self.count, "failed_at": self.failed_at}
            payload |= {"error_message": "old", "error_class": "Old"}
        return payload


def spelt(payload: Mapping[str, Any], spelling: str) -> str:
    """Return a payload as text."""
    return json.dumps(payload, **SPELLINGS[spelling])
