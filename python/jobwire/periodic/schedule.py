"""Writing entries: definitions with their lines completed, and the differences of a load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jobwire.errors import ConfigError
from jobwire.periodic.cron import available, parse
from jobwire.periodic.planning import line_of
from jobwire.protocol import periodic
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic import Saving
from jobwire.protocol.periodic_entry import DEFAULT_NAMESPACE, PeriodicEntry, StoredEntry
from jobwire.protocol.wire import Op

__all__ = ["Difference", "check", "completed", "load", "saved", "set_enabled"]

_TRIES = 10  # of a load, if other programs write entries at the same time


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes that a load makes, by name.

    Attributes:
        added: Entries that do not exist yet.
        changed: Name and names of the fields that differ.
        unchanged: Entries that are as they should be.
        removed: Entries of the schedule that it no longer has.
        taken_over: Entries that another schedule or program wrote, and that the load rewrites.
    """

    added: Sequence[str]
    changed: Sequence[tuple[str, Sequence[str]]]
    unchanged: Sequence[str]
    removed: Sequence[str]
    taken_over: Sequence[str]

    def __bool__(self) -> bool:
        """Return True if the load changes something."""
        return bool(self.added or self.changed or self.removed)


def completed(entry: PeriodicEntry, *, tz: str | None = None) -> PeriodicEntry:
    """Return the definition with a zone at the end of its line. [X-CRON-13]

    Args:
        entry: The definition.
        tz: The zone, which the line must not name as well; None for UTC, if it names none.

    Raises:
        ConfigError: The line is not understood, or there is no such zone. [X-CRON-43]
    """
    named = parse(entry.cron).zone_name
    if named is not None:
        if tz is not None and tz != named:
            raise ConfigError(
                f"periodic job {entry.name!r}: the line {entry.cron!r} names a zone, and tz is "
                f"{tz!r}; give one of them"
            )
        return entry
    words = entry.cron.split()
    joined = " ".join([*words, *(["on"] if words[0][0].isalpha() else []), tz or "UTC"])
    parse(joined)
    return replace(entry, cron=joined)


def check(entry: PeriodicEntry, *, tz: str | None = None) -> PeriodicEntry:
    """Return `completed(entry)`; without the extra `periodic` nothing is checked here."""
    return completed(entry, tz=tz) if available() else entry


def saved(entries: Iterable[PeriodicEntry], *, now: float) -> list[Saving]:
    """Return the definitions with their latest ticks. [X-CRON-35] [X-CRON-43]"""
    return [Saving(entry, parse(entry.cron).before(now // 1)) for entry in entries]


def load(
    keys: Keys,
    entries: Sequence[PeriodicEntry],
    *,
    schedule: str,
    remove_others: bool = True,
    dry_run: bool = False,
) -> Op[Difference]:
    """Make the entries of a schedule those given; return the changes. [X-CRON-38] [X-CRON-39]

    Entries of other schedules and dynamic entries stay. Each namespace is one atomic step.

    Args:
        keys: Key names.
        entries: The entries of the schedule.
        schedule: Its name; `""` saves dynamic entries.
        remove_others: Remove entries of this schedule that are not given.
        dry_run: Change nothing.

    Raises:
        ConfigError: Two entries have one name, or a line is invalid.
    """
    by_namespace: dict[str, list[PeriodicEntry]] = {DEFAULT_NAMESPACE: []}
    for entry in entries:
        by_namespace.setdefault(entry.namespace, []).append(entry)
    parts = []
    for namespace, of_namespace in by_namespace.items():
        names = [entry.name for entry in of_namespace]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(
                f"periodic job {min(twice)!r} is defined twice; give one of them another name"
            )
        parts.append(
            (yield from _load(keys, namespace, of_namespace, schedule, remove_others, dry_run))
        )
    return Difference(
        *(
            [each for part in parts for each in getattr(part, name)]
            for name in ("added", "changed", "unchanged", "removed", "taken_over")
        )
    )


def _load(
    keys: Keys,
    namespace: str,
    entries: Sequence[PeriodicEntry],
    schedule: str,
    remove_others: bool,
    dry_run: bool,
) -> Op[Difference]:
    for _ in range(_TRIES):
        place = yield from periodic.find_layout(keys, namespace)
        seen = yield from periodic.members(keys, place)
        stored = yield from periodic.read_entries(keys, namespace)
        here = {entry.name: entry for entry in stored if entry.layout_namespace == place}
        given = {entry.name for entry in entries}
        removals = [
            entry
            for name, entry in here.items()
            if remove_others
            and schedule
            and entry.fields.get("jw_source") == schedule
            and name not in given
        ]
        found = _difference(entries, here, removals, schedule, layout=1 if place is None else 2)
        if dry_run or not (entries or removals):
            return found
        now = yield from periodic.server_time()
        removed = yield from periodic.load(
            keys,
            place,
            saved(entries, now=now),
            schedule=schedule,
            removals=removals,
            seen=seen if schedule and remove_others else None,
        )
        if removed is not None:
            return found
    raise ConfigError(
        f"schedule {schedule!r}: other programs write entries all the time; try again"
    )


def _difference(
    entries: Sequence[PeriodicEntry],
    here: dict[str, StoredEntry],
    removals: Sequence[StoredEntry],
    schedule: str,
    *,
    layout: int,
) -> Difference:
    added, changed, unchanged, taken_over = [], [], [], []
    for entry in entries:
        before = here.get(entry.name)
        if before is None:
            added.append(entry.name)
            continue
        if before.schedule != schedule:
            taken_over.append(entry.name)
        fields = entry.fields(layout=layout)
        if schedule:
            fields |= {"source": "dynamic", "jw_source": schedule}
        names = [name for name, text in fields.items() if before.fields.get(name) != text]
        if names:
            changed.append((entry.name, names))
        else:
            unchanged.append(entry.name)
    return Difference(added, changed, unchanged, [entry.name for entry in removals], taken_over)


def set_enabled(keys: Keys, entry: StoredEntry, *, enabled: bool) -> Op[bool | None]:
    """Enable or disable an entry; return True if that changed it, None if it has gone.

    [X-CRON-36] [X-CRON-37]
    """
    latest = None
    if enabled:
        now = yield from periodic.server_time()
        try:
            latest = line_of(entry).before(now // 1)
        except ConfigError:
            latest = None  # a line of sidekiq-cron, which has no ticks here [X-CRON-14]
    return (yield from periodic.set_status(keys, entry, enabled=enabled, latest=latest))
