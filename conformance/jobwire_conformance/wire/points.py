"""Points: the commands of a process, numbered by label, at which a fault can be injected.

A process runs once in lockstep without faults, which gives its points. Then it runs again for each
point and fault, with a rule for it in its proxy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.faults import Action, Rule
from jobwire_conformance.wire.resp import Refusal, decode

__all__ = ["Point", "has_effect", "points_of"]


@dataclass(frozen=True, order=True, slots=True)
class Point:
    """The n-th command with a label, counted from 1 since the process started: `LPUSH#1`."""

    label: str
    nth: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the point that a text like `LPUSH#1` names."""
        label, _, nth = text.rpartition("#")
        return cls(label, int(nth))

    def rule(self, action: Action) -> Rule:
        """Return the rule that does this at the point, once."""
        return Rule(action, label=self.label, nth=self.nth)

    def __str__(self) -> str:
        return f"{self.label}#{self.nth}"


def points_of(
    calls: Iterable[Call], label: Callable[[Call], str] = lambda call: call.label
) -> Iterator[tuple[Point, Call]]:
    """Return every command with its point; the calls are all of one process, in order."""
    seen: Counter[str] = Counter()
    for call in calls:
        name = label(call)
        seen[name] += 1
        yield Point(name, seen[name]), call


def has_effect(call: Call) -> bool:
    """Return whether a command has changed data.

    A command between MULTI and EXEC has no effect of its own, because EXEC executes it. A command
    without data to change has no effect, nor does a refused one. An empty list is different for a
    script: it may list what the script did not do.
    """
    if call.transaction or call.reply is None or not (call.spec.may_write or call.name == b"EXEC"):
        return False
    reply = decode(call.reply)
    nothing: tuple[object, ...] = (None, 0) if call.spec.kind == "script" else (None, 0, [])
    return not (isinstance(reply, Refusal) or reply in nothing)
