"""The same steps on two implementations: where they differ is where a specification has holes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobwire_conformance.cases.match import TIMES
from jobwire_conformance.cases.values import members
from jobwire_conformance.model.actions import Act
from jobwire_conformance.model.trial import Trial
from jobwire_conformance.sandbox.sandbox import Sandbox

__all__ = ["Difference", "Differential"]

_OWN = frozenset(["jid", *TIMES, "error_backtrace"])  # of which only the form may be compared


@dataclass(slots=True)
class Difference:
    """Something that two implementations did not do alike.

    Attributes:
        what: Where it shows.
        one: What the first one has.
        other: What the second one has.
        acts: The first example in which it was seen.
        times: In how many.
    """

    what: str
    one: str
    other: str
    acts: Sequence[Act]
    times: int = 1

    def as_data(self) -> dict[str, Any]:
        """Return it for programs."""
        example = [{"verb": act.verb, **act.given} for act in self.acts]
        seen = {"what": self.what, "one": self.one, "other": self.other}
        return {**seen, "times": self.times, "example": example}


@dataclass(slots=True)
class Differential:
    """Compares what is left in Redis by two implementations that did the same.

    Attributes:
        one: The implementation that is explored; it has just played the example.
        other: The other one.
    """

    one: Trial
    other: Trial
    _found: dict[tuple[str, str, str], Difference] = field(default_factory=dict)

    @property
    def found(self) -> list[Difference]:
        """All differences, the frequent ones first."""
        return sorted(self._found.values(), key=lambda each: -each.times)

    def compare(self, acts: Sequence[Act]) -> None:
        """Have the other one do the same, and compare."""
        if self.other.known(acts):
            return
        failure = self.other.play(acts)
        if failure is not None:
            self._add(failure.requirement, "holds", failure.message, acts)
            return
        one, other = _left(self.one.sandbox), _left(self.other.sandbox)
        for what in sorted({*one, *other}):
            if one.get(what) != other.get(what):
                self._add(what, one.get(what, "nothing"), other.get(what, "nothing"), acts)

    def _add(self, what: str, one: str, other: str, acts: Sequence[Act]) -> None:
        key = what, one, other
        if key in self._found:
            self._found[key].times += 1
        else:
            self._found[key] = Difference(what, one, other, [*acts])


def _left(sandbox: Sandbox) -> dict[str, str]:
    """Return what is where, with ids and times by their form only."""
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
    # By what they are about, for neither order nor bytes need be the same.
    found = sorted((_comparable(text) for text in texts), key=json.dumps)
    yield f"jobs in {key}", str(len(found))
    for fields in found:
        for name, value in fields.items():
            yield f"{name!r} of {fields.get('args')} in {key}", value


def _comparable(text: bytes) -> Mapping[str, str]:
    try:
        spelt = members(text.decode())
    except ValueError:
        return {"": "no JSON object"}
    return {
        name: f"a {value.kind}" if name in _OWN else value.raw
        for name, value in sorted(spelt.items())
    }
