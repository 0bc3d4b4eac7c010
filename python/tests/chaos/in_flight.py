"""The age of private entries, in heartbeats of the process that holds them. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["BEATS", "SLACK", "Entry", "InFlight", "Process"]

BEATS = 2  # of the process, after which no entry may be left that it had before them [REL-8]
APART = 9.0  # seconds between two beats that count: a process compares every ten seconds only
SLACK = 5.0  # seconds after the last of these beats

Entry: TypeAlias = tuple[str, str]  # identity of the process, field


@dataclass(frozen=True)
class Process:
    """A living process that is not suspended.

    Attributes:
        beat: Time of its last heartbeat.
        faults: Number of faults that have struck it or its server.
    """

    beat: float
    faults: int


@dataclass
class _Seen:
    since: float
    faults: int
    beat: float
    beats: int = 0
    due: float = float("inf")


class InFlight:
    """Finds private entries that outlive two heartbeats of their living process.

    A beat that fails does not count, nor does one that comes early, because more jobs run or an
    outage has ended: no comparison need follow it. A fault may also interrupt the audit that
    follows a beat, so the age of an entry begins again with every fault that strikes its process.
    No job of the run takes more than a second, so an entry of this age does not belong to a running
    job.

    Attributes:
        overdue: The entries found, with their age in seconds at the last look that saw them.
    """

    def __init__(self) -> None:
        self.overdue: dict[Entry, float] = {}
        self._seen: dict[Entry, _Seen] = {}

    def look(
        self, entries: Iterable[Entry], processes: Mapping[str, Process], *, now: float
    ) -> None:
        """Compare the entries with those of the last look.

        Args:
            entries: All private entries, read before the processes.
            processes: The living processes, by identity.
            now: Monotonic time.
        """
        before, self._seen = self._seen, {}
        for entry in entries:
            process = processes.get(entry[0])
            if process is None:
                continue
            seen = before.get(entry)
            if seen is None or seen.faults != process.faults:
                seen = _Seen(now, process.faults, process.beat)
            elif process.beat >= seen.beat + APART:
                seen.beat = process.beat
                seen.beats += 1
                if seen.beats == BEATS:
                    seen.due = now + SLACK
            if now >= seen.due:
                self.overdue[entry] = now - seen.since
            self._seen[entry] = seen
