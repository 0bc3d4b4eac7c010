"""Predicates: conditions on the past of jobs and processes, as a case has them.

`{"performed": "abc", "is": 1}` holds once the job `abc` has run to its end. `is` has a matcher, and
`not` a literal that must differ. A list of predicates holds if all of them do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobwire_conformance.cases.describe import describe

__all__ = ["OF_JOBS", "OF_PROCESSES", "SUBJECTS", "Predicate", "Raw", "named", "predicates", "text"]

Raw = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A predicate, or several, as a case has them."""

SUBJECTS = {
    "began": "number of runs of job {} that began",
    "copies": "number of copies of job {} in Redis",
    "exit": "exit status of {}",
    "held": "number of delays in {} that have begun",
    "items": "items of job {} that began",
    "life": "reports of job {}",
    "looks": "number of looks of {} for due jobs",
    "order": "jobs in queue {} from its head",
    "performed": "number of runs of job {} that succeeded",
    "place": "place of job {}",
    "share": "percentage of jobs with ids {jids}* among the first {of} that {worker} began",
    "started": "jobs in the order in which they began",
    "stat": "counter stat:{}",
    "struck": "number of replies held back from {}",
    "waited": "number of blocking fetches of {} that ended without a job",
}
"""Each function, with its meaning in plain words."""

OF_JOBS = frozenset(["began", "copies", "items", "life", "performed", "place"])
"""The functions that look at a job."""

OF_PROCESSES = frozenset(["exit", "held", "looks", "share", "struck", "waited"])
"""The functions that look at a process."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """One condition.

    Attributes:
        function: The function that it looks at, one of `SUBJECTS`.
        of: The job, process, queue or counter; for `share`, a process, a prefix and a number.
        wanted: A matcher, or the literal that must differ.
        differs: True if the value must differ.
    """

    function: str
    of: Any
    wanted: Any
    differs: bool = False

    @property
    def subject(self) -> str:
        """Its subject, in plain words."""
        template = SUBJECTS[self.function]
        if isinstance(self.of, Mapping):
            return template.format_map(self.of)
        return template.format(self._argument)

    @property
    def expected(self) -> str:
        """The value that it wants, in plain words."""
        return f"{'not ' if self.differs else ''}{describe(self.wanted)}"

    @property
    def name(self) -> str:
        """Its subject in short: `place(abc)`."""
        return f"{self.function}({self._argument})"

    def __str__(self) -> str:
        return f"{self.name} {'!=' if self.differs else '=='} {describe(self.wanted)}"

    @property
    def _argument(self) -> str:
        return ", ".join(map(str, self.of.values())) if isinstance(self.of, Mapping) else self.of


def predicates(raw: Raw) -> list[Predicate]:
    """Return the conditions of a predicate as a case has it."""
    return [_predicate(part) for part in ([raw] if isinstance(raw, Mapping) else raw)]


def text(raw: Raw) -> str:
    """Return a predicate for people."""
    return " and ".join(map(str, predicates(raw)))


def named(predicate: Predicate, name: Callable[[str], str]) -> Predicate:
    """Return a predicate with its texts replaced, such as `{w1}` by the identity of a process."""

    def inside(value: Any) -> Any:
        if isinstance(value, str):
            return name(value)
        if isinstance(value, Mapping):
            return {key: inside(part) for key, part in value.items()}
        return [inside(part) for part in value] if isinstance(value, list) else value

    return replace(predicate, of=inside(predicate.of), wanted=inside(predicate.wanted))


def _predicate(raw: Mapping[str, Any]) -> Predicate:
    function = next(name for name in SUBJECTS if name in raw)
    differs = "not" in raw
    return Predicate(function, raw[function], raw["not" if differs else "is"], differs)
