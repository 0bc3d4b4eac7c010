"""The ticks of an application's periodic jobs, without a server and without waiting."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Any, NamedTuple

from jobwire.application.app import App
from jobwire.errors import ConfigError
from jobwire.periodic.cron import parse
from jobwire.protocol.periodic_entry import PeriodicEntry

__all__ = ["PeriodicTick", "periodic_ticks"]


class PeriodicTick(NamedTuple):
    """One push of a periodic job.

    Attributes:
        at: Its time, in the time zone of the given start.
        name: Name of the entry.
        job: Wire class.
        args: Arguments of the job.
    """

    at: datetime
    name: str
    job: str
    args: list[Any]


def periodic_ticks(
    app: App, start: datetime, end: datetime | timedelta, *, name: str | None = None
) -> Iterator[PeriodicTick]:
    """Advance a clock, and yield the pushes of the periodic jobs of an application in their order.

        year = datetime(2027, 1, 1, tzinfo=UTC)
        nights = list(testing.periodic_ticks(app, year, timedelta(days=365), name="nightly"))
        assert len(nights) == 365

    A line without a zone counts as UTC; `@app.periodic` never leaves one. Entries that are
    disabled have no ticks.

    Args:
        app: The application.
        start: Where the clock starts, with a time zone; a tick at this instant counts.
        end: Where the clock stops, or after how long; a tick at this instant does not count.
        name: Only the entry of this name.

    Raises:
        ConfigError: A time has no zone, or there is no entry of this name.
    """
    stop = start + end if isinstance(end, timedelta) else end
    if start.tzinfo is None or stop.tzinfo is None:
        raise ConfigError(f"{start} to {stop}: a time has no time zone; add tzinfo=UTC")
    entries = [each for each in app.periodic_entries if name in (None, each.name)]
    if name is not None and not entries:
        raise ConfigError(f"the application has no periodic job {name!r}")
    return heapq.merge(
        *(
            _ticks(entry, start.timestamp(), stop.timestamp(), start.tzinfo)
            for entry in entries
            if entry.enabled is not False
        ),
        key=lambda tick: tick.at,
    )


def _ticks(entry: PeriodicEntry, start: float, end: float, zone: tzinfo) -> Iterator[PeriodicTick]:
    line = parse(entry.cron, tz="UTC")
    for tick in line.ticks(-(-start // 1) - 1):
        if tick >= end:
            return
        at = datetime.fromtimestamp(tick, zone)
        args = [*entry.args, float(tick)] if entry.date_as_argument else [*entry.args]
        yield PeriodicTick(at, entry.name, entry.job, args)
