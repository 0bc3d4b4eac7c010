"""The stored result of a job, as people look at it. [X-RESULT-3]"""

from __future__ import annotations

from dataclasses import dataclass

from jobwire.inspect.reading import ask, raw
from jobwire.protocol import results
from jobwire.protocol.keys import Keys
from jobwire.protocol.results import Result
from jobwire.protocol.wire import Batch, Op, command

__all__ = ["StoredResult", "read"]


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The result of a job that keeps it.

    Attributes:
        result: The result.
        expires_in: Seconds until Redis removes it; None if the server does not tell.
    """

    result: Result
    expires_in: float | None


def read(keys: Keys, jid: str) -> Op[StoredResult | None]:
    """Return the result of a job; None if there is none."""
    key = raw(keys.result(jid))
    (stored,) = yield from ask([command("GET", key)])
    result = results.read(jid, stored) if isinstance(stored, bytes) else None
    if result is None:
        return None
    # It may be refused, because it is not among the commands that an inspector needs.
    (left,) = yield Batch([command("PTTL", key)])
    return StoredResult(result, left / 1000 if isinstance(left, int) and left >= 0 else None)
