"""The comparison of two implementations that play the same actions.

A difference may be a gap in the specification.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobwire_conformance.cases.match import TIMES
from jobwire_conformance.cases.values import members
from jobwire_conformance.model.actions import Action
from jobwire_conformance.model.trial import Trial
from jobwire_conformance.sandbox.sandbox import Sandbox

__all__ = ["Difference", "Differential"]

_OWN = frozenset(["jid", *TIMES, "error_backtrace"])  # fields whose form alone is comparable


@dataclass(slots=True)
class Difference:
    """One difference between two implementations."""

    what: str  # the place of the difference
    one: str  # the value of the first implementation
    other: str  # the value of the second one
    actions: Sequence[Action]  # the first example that showed it
    times: int = 1  # number of examples that showed it

    def as_data(self) -> dict[str, Any]:
        """Return the difference as JSON data."""
        example = [{"verb": action.verb, **action.given} for action in self.actions]
        seen = {"what": self.what, "one": self.one, "other": self.other}
        return {**seen, "times": self.times, "example": example}


@dataclass(slots=True)
class Differential:
    """Compares the states of Redis after two implementations have played the same actions.

    Attributes:
        one: The implementation under test, which has just played the example.
        other: The other implementation.
    """

    one: Trial
    other: Trial
    _differences: dict[tuple[str, str, str], Difference] = field(default_factory=dict)

    @property
    def differences(self) -> list[Difference]:
        """All differences, in the order of their frequency."""
        return sorted(self._differences.values(), key=lambda difference: -difference.times)

    def compare(self, actions: Sequence[Action]) -> None:
        """Play the actions with the other implementation, and compare."""
        if self.other.known(actions):
            return
        failure = self.other.play(actions)
        if failure is not None:
            self._add(failure.requirement, "holds", failure.message, actions)
            return
        one, other = _state(self.one.sandbox), _state(self.other.sandbox)
        for place in sorted({*one, *other}):
            if one.get(place) != other.get(place):
                self._add(place, one.get(place, "nothing"), other.get(place, "nothing"), actions)

    def _add(self, place: str, one: str, other: str, actions: Sequence[Action]) -> None:
        key = place, one, other
        if key in self._differences:
            self._differences[key].times += 1
        else:
            self._differences[key] = Difference(place, one, other, [*actions])


def _state(sandbox: Sandbox) -> dict[str, str]:
    """Return the values in Redis by place. Ids and times are reduced to their form."""
    return dict(_described(sandbox))


def _described(sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    prefix = sandbox.config.prefix
    names = sorted(sandbox.link.call("SMEMBERS", f"{prefix}queues"))
    yield "members of queues", " ".join(name.decode("utf-8", "replace") for name in names)
    for name in names:
        key = f"queue:{name.decode()}"
        yield from _payloads(key, sandbox.link.call("LRANGE", prefix + key, 0, -1))
    for name in ("schedule", "retry", "dead"):
        yield from _payloads(name, sandbox.link.call("ZRANGE", prefix + name, 0, -1))


def _payloads(key: str, texts: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    # Sorted by content, because neither order nor bytes need be equal.
    jobs = sorted((_comparable(text) for text in texts), key=json.dumps)
    yield f"jobs in {key}", str(len(jobs))
    for fields in jobs:
        for name, value in fields.items():
            yield f"{name!r} of {fields.get('args')} in {key}", value


def _comparable(text: bytes) -> Mapping[str, str]:
    try:
        spelt = members(text.decode())
    except ValueError:
        return {"": "not a JSON object"}
    return {
        name: f"a {value.kind}" if name in _OWN else value.raw
        for name, value in sorted(spelt.items())
    }
