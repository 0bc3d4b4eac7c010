"""The stored result of a job and its output, as people look at them. [X-RESULT-3] [X-STEP-12]"""

from __future__ import annotations

from dataclasses import dataclass

from jobwire.inspect.reading import ask, raw
from jobwire.protocol import output, results
from jobwire.protocol.keys import Keys
from jobwire.protocol.output import OutputItem, Tail
from jobwire.protocol.results import Result
from jobwire.protocol.wire import Batch, Op, command

__all__ = ["StoredResult", "read", "read_output"]

MOST_ITEMS = 200  # of an output, on a page


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


def read_output(keys: Keys, jid: str) -> Op[list[OutputItem]]:
    """Return the last items of the output of a job; none if there is no output."""
    key = raw(keys.output(jid))
    (exists,) = yield from ask([command("EXISTS", key)])
    if exists != 1:  # an inspector without the rules for outputs is refused nothing
        return []
    step = command("XREVRANGE", key, "+", "-", "COUNT", MOST_ITEMS)
    entries = list(reversed((yield from ask([step]))[0]))
    before = "" if not entries else output.before(entries[0])
    return Tail(jid, before).take(entries)
