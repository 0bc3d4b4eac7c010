"""Checks of connections that a process must not use again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobwire_conformance.cases.values import ABSENT
from jobwire_conformance.run.checks.context import TOGETHER_S, Check, Context, Miss, text_of
from jobwire_conformance.run.state import struck
from jobwire_conformance.run.transactions import units
from jobwire_conformance.wire.faults import Refuse

__all__ = ["PARTS"]


def _discarded(context: Context, step: Mapping[str, Any]) -> None:
    """Check that a connection with a missing reply is not used before the reply comes."""
    process = step.get("process", "driver")
    calls = context.sandbox.calls()
    held_back = struck(calls, process)
    if not held_back:
        raise Miss(f"late replies to {process}", "at least one", ABSENT)
    for call, answered in held_back:
        for name, other in calls:
            same = name == process and other.connection == call.connection
            # Commands that were sent together with it arrive at once.
            if same and call.at + TOGETHER_S < other.at < answered:
                words = [word.decode("utf-8", "replace") for word in other.words[:3]]
                subject = f"connection {call.connection} of {process}, whose reply is missing"
                raise Miss(subject, "no further use", words)


def _moved(context: Context, step: Mapping[str, Any]) -> None:
    """Check that a process leaves a connection on which a command was refused."""
    refused: set[int] = set()
    for unit in units(context.sent(step)):
        first = unit[0]
        if first.connection in refused and first.name.upper() != b"QUIT":
            subject = f"connection {first.connection}, on which a command was refused"
            raise Miss(subject, "no further use", text_of(first))
        if any(isinstance(call.action, Refuse) for call in unit):
            refused.add(first.connection)
    if not refused:
        raise Miss("refused commands", "at least one", ABSENT)


PARTS: Mapping[str, Check] = {
    "discarded": _discarded,
    "moved": _moved,
}
