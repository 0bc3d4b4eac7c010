"""Groups of failures in the retry set and the dead set, by their signature."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from jobwire.console.ops.signature import Signature, signature
from jobwire.errors import ConfigError
from jobwire.inspect.activity import Mark, deployments
from jobwire.inspect.entry import Entry
from jobwire.inspect.filters import Filter
from jobwire.inspect.reading import ask, whole
from jobwire.inspect.sets import set_key
from jobwire.inspect.walking import SetWalk
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import MARK_TTL_S
from jobwire.protocol.wire import Op, command

__all__ = ["FailureGroup", "FailureGroups", "FailureSet", "Grouping", "read"]

FailureSet = Literal["retry", "dead"]
BATCH_SIZE = 500  # entries of one round trip
MAX_GROUPS = 1000
MAX_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures with the same signature. Times are epoch seconds.

    Attributes:
        key: 16 hex digits that name the group; `Selection` takes it.
        error_class: Class of the error.
        message: Message without numbers, ids, hex digits and quoted values.
        frame: File and function of the innermost call of the application, or "".
        job_class: Display class of the job.
        count: Number of jobs.
        places: Number of jobs by set: `retry`, `dead`.
        first_seen: Time of the earliest failure of a job in the group, or None.
        last_seen: Time of the latest failure, or None.
        jids: Ids of up to three of its jobs.
        deployed: The newest deployment at or before `first_seen` that Redis still knows, or None.
            A mark is rounded down to its minute.
    """

    key: str
    error_class: str
    message: str
    frame: str
    job_class: str
    count: int
    places: Mapping[str, int]
    first_seen: float | None
    last_seen: float | None
    jids: Sequence[str]
    deployed: Mark | None = None


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """The groups of the entries that were examined, the largest first.

    Attributes:
        groups: The groups.
        seen: Number of entries that were examined.
        total: Number of entries in the sets.
        rest: Number of examined entries that are in none of the groups, because there were more
            groups than fit into memory. If it is not 0, the counts of groups are lower bounds.
        matched: Number of examined entries that the filter matched.
    """

    groups: Sequence[FailureGroup]
    seen: int
    total: int
    rest: int
    matched: int

    @property
    def complete(self) -> bool:
        """True if all entries were examined and each is in a group."""
        return self.rest == 0 and self.seen >= self.total


@dataclass(slots=True)
class _Group:
    count: int = 0
    places: Counter[str] = field(default_factory=Counter)
    first: float | None = None
    last: float | None = None
    jids: list[str] = field(default_factory=list)


class Grouping:
    """Collects entries into groups, in bounded memory.

    It holds up to twice `most` groups. If there are more, the smallest are given up and their
    entries count as `rest`. So a group that is large is not lost, even if it begins late.

    Args:
        most: Number of groups to keep, at least 1.
    """

    def __init__(self, most: int = MAX_GROUPS) -> None:
        if most < 1:
            raise ConfigError(f"most: {most} is less than 1")
        self._most = most
        self._groups: dict[Signature, _Group] = {}
        self.matched = 0
        self.rest = 0

    def add(self, entries: Iterable[Entry]) -> None:
        """Count entries of the retry set or the dead set."""
        for one in entries:
            named = signature(one)
            group = self._groups.get(named)
            if group is None:
                group = self._groups[named] = _Group()
            group.count += 1
            group.places[one.place] += 1
            self.matched += 1
            first, last = _times(one)
            group.first = _lower(group.first, first)
            group.last = _higher(group.last, last)
            if one.jid is not None and len(group.jids) < MAX_SAMPLES:
                group.jids.append(one.jid)
        if len(self._groups) > 2 * self._most:
            self._shrink()

    def groups(self) -> list[FailureGroup]:
        """Return the groups, the largest first; of equal ones, the one seen last."""
        self._shrink()
        return [
            FailureGroup(
                named.key,
                *named,
                group.count,
                dict(group.places),
                group.first,
                group.last,
                tuple(group.jids),
            )
            for named, group in self._groups.items()
        ]

    def _shrink(self) -> None:
        """Sort the groups, and give up the smallest beyond `most`."""
        ordered = sorted(
            self._groups.items(), key=lambda pair: (-pair[1].count, -(pair[1].last or 0.0), pair[0])
        )
        self.rest += sum(group.count for _, group in ordered[self._most :])
        self._groups = dict(ordered[: self._most])


def read(
    keys: Keys,
    places: Sequence[FailureSet] = ("retry", "dead"),
    *,
    now: float,
    only: Filter | None = None,
    examine: int | None = None,
    most: int = MAX_GROUPS,
    progress: Callable[[int, int], None] | None = None,
) -> Op[FailureGroups]:
    """Read sets page by page, those with the highest score first, and return the groups.

    The deployments of all groups are read in one round trip at the end.

    Args:
        keys: Key names.
        places: The sets to read.
        now: Epoch seconds, for a filter by age.
        only: The entries to count; all by default.
        examine: Maximum number of entries to examine of each set; all by default.
        most: Maximum number of groups.
        progress: Called after each page with the numbers seen and to see.

    Raises:
        ConfigError: A set has no failures, or `most` is less than 1.
    """
    if not set(places) <= {"retry", "dead"}:
        raise ConfigError(f"places: {', '.join(places)} are not retry or dead")
    grouping = Grouping(most)
    sizes = yield from ask([command("ZCARD", set_key(keys, place)) for place in places])
    totals = [whole(size) for size in sizes]
    limits = [total if examine is None else min(total, examine) for total in totals]
    seen = 0
    for place, limit in zip(places, limits, strict=True):
        walk = SetWalk(set_key(keys, place), place, page=BATCH_SIZE)
        left = limit
        while left > 0 and (page := (yield from walk.next())):
            page = page[:left]
            left -= len(page)
            seen += len(page)
            grouping.add(one for one in page if only is None or only.matches(one, now=now))
            if progress:
                progress(seen, sum(limits))
    groups = yield from _with_deployments(keys, grouping.groups(), now)
    return FailureGroups(groups, seen, sum(totals), grouping.rest, grouping.matched)


def _with_deployments(keys: Keys, groups: list[FailureGroup], now: float) -> Op[list[FailureGroup]]:
    if all(group.first_seen is None for group in groups):
        return groups
    marks, _ = yield from deployments(keys, start=now - MARK_TTL_S, now=now)
    times = [mark.at for mark in marks]
    found = []
    for group in groups:
        index = 0 if group.first_seen is None else bisect_right(times, group.first_seen)
        found.append(replace(group, deployed=marks[index - 1]) if index else group)
    return found


def _times(one: Entry) -> tuple[float | None, float | None]:
    """Return the times of the first and of the last failure."""
    died = one.score if one.place == "dead" else None
    failed, retried = one.failed_at, one.retried_at
    last = failed if retried is None else retried
    first = last if failed is None else failed
    return died if first is None else first, died if last is None else last


def _lower(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _higher(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)
