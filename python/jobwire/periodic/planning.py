"""The ticks that are due, from the entries and the time.

[X-CRON-15] [X-CRON-16] [X-CRON-22] [X-CRON-24]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from jobwire.errors import ConfigError
from jobwire.periodic.cron import CronLine, parse
from jobwire.protocol.periodic_entry import GRACE_S, CatchUp, StoredEntry

__all__ = ["Agenda", "Due", "due_ticks", "line_of"]


def line_of(entry: StoredEntry, default: tzinfo | None = None) -> CronLine:
    """Return the line of an entry, in its zone. [X-CRON-12]

    Raises:
        ConfigError: The line is not understood.
    """
    return parse(entry.cron, tz=entry.fields.get("jw_tz", ""), default=default)


def due_ticks(
    line: CronLine,
    *,
    now: float,
    since: float | None = None,
    latest_taken: float | None = None,
    rule: CatchUp | None = None,
    grace: int = GRACE_S,
) -> list[int]:
    """Return the ticks to take now, the earliest first.

    Without a rule for late ticks, a first look takes only the latest tick, as sidekiq-cron does.
    A process that has looked before takes every tick since then: each was due while it ran.

    Args:
        line: The cron line.
        now: Epoch seconds.
        since: The time of the last look of this process; None for the first look.
        latest_taken: The latest tick that any process took; None if it is not known.
        rule: The rule for ticks that are later than the grace period.
        grace: Seconds by which a tick may be late.
    """
    latest = line.before(int(now // 1) + 1)  # ticks are whole seconds, so this includes now
    if latest is None:
        return []
    if rule is not None and rule.since_last and latest_taken is not None:
        begin = latest_taken if since is None else max(latest_taken, since)
        return _newest(line, begin, latest, rule.most)
    begin = max(float(latest - 1) if since is None else since, now // 1 - grace - 1)
    ticks = [] if latest <= begin else _newest(line, begin, latest, grace + 1)
    if not ticks and rule is not None and not rule.since_last and latest > (since or -1.0):
        return [latest]
    return ticks


def _newest(line: CronLine, begin: float, latest: int, most: int) -> list[int]:
    """Return the newest ticks in (begin, latest], the earliest first."""
    ticks: list[int] = []
    tick: int | None = latest
    while tick is not None and tick > begin and len(ticks) < most:
        ticks.append(tick)
        tick = line.before(tick)
    return ticks[::-1]


@dataclass(frozen=True, slots=True)
class Due:
    """An entry with ticks to take."""

    entry: StoredEntry
    ticks: Sequence[int]


@dataclass(slots=True)
class _Planned:
    entry: StoredEntry
    line: CronLine
    since: float | None  # up to where the ticks were handled
    latest_taken: float | None
    next_at: float


class Agenda:
    """The entries that a process has read, and when each one is due.

    Args:
        zone: The zone of lines that name none; None for the local zone of the process.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._planned: dict[str, _Planned] = {}
        self._entries: dict[str, StoredEntry] = {}
        self._refused: dict[str, str] = {}

    @property
    def entries(self) -> list[StoredEntry]:
        """The entries of the last update."""
        return list(self._entries.values())

    @property
    def next_at(self) -> float | None:
        """The time at which the next tick is due, or None."""
        return min((planned.next_at for planned in self._planned.values()), default=None)

    def unknown(self, entries: Iterable[StoredEntry]) -> list[StoredEntry]:
        """Return the entries that are new or have changed, and catch up on late ticks."""
        return [entry for entry in entries if entry.catch_up is not None and not self._knows(entry)]

    def update(
        self,
        entries: Sequence[StoredEntry],
        *,
        now: float,
        taken: Mapping[str, float | None] | None = None,
    ) -> list[tuple[StoredEntry, str]]:
        """Use these entries from now on; return those that are refused since now, with the reason.

        An entry that is refused, or is not enabled, has no ticks here. [X-CRON-14] [X-CRON-19]
        [X-CRON-27]

        Args:
            entries: All entries.
            now: Epoch seconds.
            taken: For the entries of `unknown`, the latest tick that was taken, by member.
        """
        taken = taken or {}
        planned: dict[str, _Planned] = {}
        refused: list[tuple[StoredEntry, str]] = []
        reasons: dict[str, str] = {}
        for entry in entries:
            if self._knows(entry):
                if entry.member in self._planned:
                    planned[entry.member] = self._planned[entry.member]
                if entry.member in self._refused:
                    reasons[entry.member] = self._refused[entry.member]
                continue
            try:
                line, problem = line_of(entry, self._zone), entry.problem
            except ConfigError as error:
                line, problem = None, str(error)
            if problem:
                reasons[entry.member] = problem
                refused.append((entry, problem))
            elif line is not None and entry.enabled:
                before = self._planned.get(entry.member)
                if before is not None and before.line == line:
                    planned[entry.member] = replace(before, entry=entry)
                    continue
                latest_taken = taken.get(entry.member)
                planned[entry.member] = _Planned(entry, line, None, latest_taken, now)
        self._planned, self._refused = planned, reasons
        self._entries = {entry.member: entry for entry in entries}
        return refused

    def due(self, now: float) -> list[Due]:
        """Return the entries that are due, the one that is due first before the others."""
        due: list[Due] = []
        waiting = [each for each in self._planned.values() if each.next_at <= now]
        for planned in sorted(waiting, key=lambda each: each.next_at):
            ticks = due_ticks(
                planned.line,
                now=now,
                since=planned.since,
                latest_taken=planned.latest_taken,
                rule=planned.entry.catch_up,
            )
            if ticks:
                due.append(Due(planned.entry, ticks))
            else:
                self.done(planned.entry, now)
        return due

    def done(self, entry: StoredEntry, now: float) -> None:
        """Record that the ticks of an entry up to `now` were handled."""
        planned = self._planned.get(entry.member)
        if planned is not None and planned.entry is entry:
            following = planned.line.after(now)
            if following is None:
                del self._planned[entry.member]
            else:
                planned.since, planned.next_at = now, following

    def forget(self, entry: StoredEntry) -> None:
        """Have an entry count as changed in the next update."""
        self._planned.pop(entry.member, None)
        self._entries.pop(entry.member, None)

    def _knows(self, entry: StoredEntry) -> bool:
        known = self._entries.get(entry.member)
        return known is not None and known.digest == entry.digest
