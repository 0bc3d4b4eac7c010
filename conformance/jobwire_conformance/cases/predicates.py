"""Predicates: conditions on what jobs and processes have done, as a case has them.

`{"performed": "abc", "is": 1}` holds once the job `abc` has run to its end. The value of `is` is a
matcher, and that of `not` a literal that must differ. A list of predicates holds if all do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire_conformance.cases.words import show

__all__ = ["FUNCTIONS", "Predicate", "predicates", "text"]

FUNCTIONS = (
    *("began", "copies", "exit", "items", "life", "looks", "order", "performed", "place"),
    *("share", "started", "stat", "struck", "waited"),
)
"""What a predicate can look at. `schema/case.json` says what each of them is."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """One condition.

    Attributes:
        function: What it looks at.
        of: The job, process, queue or counter.
        wanted: A matcher, or the literal that must differ.
        differs: True if the value must differ.
    """

    function: str
    of: Any
    wanted: Any
    differs: bool = False

    @property
    def subject(self) -> str:
        """The function and its argument, for people."""
        of = ", ".join(map(str, self.of.values())) if isinstance(self.of, Mapping) else self.of
        return f"{self.function}({of})"

    def __str__(self) -> str:
        sign = "!=" if self.differs else "=="
        return f"{self.subject} {sign} {show(self.wanted)}"


def predicates(raw: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Predicate]:
    """Return the conditions of a predicate as a case has it."""
    parts = [raw] if isinstance(raw, Mapping) else raw
    return [_predicate(part) for part in parts]


def text(raw: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """Return a predicate for people."""
    return " and ".join(map(str, predicates(raw)))


def _predicate(raw: Mapping[str, Any]) -> Predicate:
    function = next(name for name in FUNCTIONS if name in raw)
    differs = "not" in raw
    return Predicate(function, raw[function], raw["not" if differs else "is"], differs)
