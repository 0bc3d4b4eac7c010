"""Periodic jobs for operators: the meaning of an entry, and the changes of one entry."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from jobwire.errors import ConfigError
from jobwire.inspect.reading import ask, items, raw
from jobwire.inspect.summary import members
from jobwire.periodic.planning import line_of
from jobwire.periodic.schedule import completed, load
from jobwire.protocol import periodic
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic_entry import DEFAULT_NAMESPACE, PeriodicEntry, StoredEntry
from jobwire.protocol.pushing import detect_generation
from jobwire.protocol.wire import Op, command

__all__ = ["PeriodicJob", "described", "migrate", "next_ticks", "run_now", "save"]


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """An entry, with the meaning of its line.

    Attributes:
        entry: The entry as it stands in Redis.
        problem: The reason why its ticks are not taken by workers of jobwire, or `""`.
        next_at: Epoch second of its next tick; None if it is disabled or has a problem.
    """

    entry: StoredEntry
    problem: str
    next_at: int | None


def described(keys: Keys, namespace: str, *, now: float) -> Op[list[PeriodicJob]]:
    """Return all entries, by name; with commands that only read. [INSP-14] [X-CRON-44]

    Args:
        keys: Key names.
        namespace: Namespace of the entries in sidekiq-cron 2.
        now: Epoch seconds, after which the next ticks are.
    """
    places: dict[str, str | None] = {}
    if namespace == DEFAULT_NAMESPACE:
        names, _ = yield from members(keys.cron_entries(None))
        places = dict.fromkeys(names)
    names, _ = yield from members(keys.cron_entries(namespace))
    places |= dict.fromkeys(names, namespace)
    replies = yield from ask([command("HGETALL", raw(keys.cron_entry(each))) for each in places])
    found = periodic.newest_of(
        StoredEntry(member, layout, _fields(items(reply)))
        for (member, layout), reply in zip(places.items(), replies, strict=True)
    )
    found.sort(key=lambda each: each.name)
    return [_described(entry, now) for entry in found]


def _fields(flat: Sequence[bytes]) -> dict[str, str]:
    texts = [each.decode("utf-8", "replace") for each in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _described(entry: StoredEntry, now: float) -> PeriodicJob:
    problem, next_at = entry.problem, None
    if not problem:
        try:
            line = line_of(entry)
        except ConfigError as error:
            problem = str(error)
        else:
            next_at = line.after(now) if entry.enabled else None
    return PeriodicJob(entry, problem, next_at)


def next_ticks(job: PeriodicJob, count: int, *, now: float) -> list[int]:
    """Return the next ticks of an entry, also of one that is disabled.

    Raises:
        ConfigError: Its line is not understood.
    """
    return list(islice(line_of(job.entry).ticks(now), count))


def save(keys: Keys, entry: PeriodicEntry, tz: str | None) -> Op[None]:
    """Write a dynamic entry; options that it leaves out get their defaults. [X-CRON-34]

    Raises:
        ConfigError: The line is not understood. [X-CRON-43]
    """
    yield from load(keys, [completed(entry, tz=tz)], schedule="")


def run_now(keys: Keys, job: PeriodicJob, jid: str) -> Op[None]:
    """Enqueue the job of an entry now, also of one that is disabled.

    Raises:
        InvalidJob: The entry cannot be pushed.
    """
    now = yield from periodic.server_time()
    generation = yield from detect_generation(keys)
    payload = job.entry.payload(jid=jid, now=now, generation=generation, job_id=str(uuid.uuid4()))
    yield from periodic.run_now(keys, job.entry, payload, now=now)


def migrate(keys: Keys, namespace: str) -> Op[int]:
    """Move all entries of layout 1 to layout 2; return how many. [X-CRON-3]

    A name that layout 2 already has stays where it is.
    """
    entries: Sequence[StoredEntry] = yield from periodic.read_entries(keys, namespace)
    old = [entry for entry in entries if entry.layout_namespace is None]
    return (yield from periodic.migrate(keys, old, namespace)) if old else 0
