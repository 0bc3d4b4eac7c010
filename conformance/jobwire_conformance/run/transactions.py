"""Commands of a process that belong together: transactions and round trips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobwire_conformance.wire.call import Call

__all__ = ["burst", "executed", "units"]


def units(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield the commands of each transaction as one list, and each other command as a list."""
    for connection in {call.connection for call in calls}:
        unit: list[Call] = []
        for call in (call for call in calls if call.connection == connection):
            unit.append(call)
            if not call.transaction:
                yield unit
                unit = []


def executed(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield the commands except those of transactions that were aborted or discarded.

    A transaction whose EXEC has no reply yet may still be aborted, so it is left out as well.
    """
    for unit in units(calls):
        *queued, last = unit
        if not queued or (last.name == b"EXEC" and last.reply and not last.reply.startswith(b"-")):
            yield from unit


def burst(calls: Sequence[Call]) -> int:
    """Return the largest number of payloads that a process sent before it waited for a reply."""
    most = 0
    for connection in {call.connection for call in calls}:
        jobs, answered = 0, 0.0
        for call in (call for call in calls if call.connection == connection):
            if call.at >= answered:
                jobs = 0
            jobs += sum(word.startswith(b"{") and b'"jid"' in word for word in call.words)
            most = max(most, jobs)
            answered = max(answered, call.answered or 0.0)
    return most
