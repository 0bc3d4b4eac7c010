"""The blocking operator of periodic jobs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from jobwire.application.producer import new_jid
from jobwire.application.redis_url import find_address
from jobwire.connection.closing import Closing
from jobwire.connection.cluster import keys_at
from jobwire.connection.sync import SyncRedis
from jobwire.inspect.periodic import PeriodicJob, described, migrate, next_ticks, run_now, save
from jobwire.periodic.schedule import Difference, load, set_enabled
from jobwire.protocol import periodic
from jobwire.protocol.periodic_entry import DEFAULT_NAMESPACE, PeriodicEntry

__all__ = ["PeriodicJobs"]


class PeriodicJobs(Closing):
    """The periodic jobs of a Redis, those of Ruby included. [X-CRON-44]

    `AsyncPeriodicJobs` is its asyncio twin.

        with PeriodicJobs() as jobs:
            for job in jobs.all():
                print(job.entry.name, job.next_at)

    Args:
        url: URL of Redis; see `Client`.
        namespace: Prefix of every key. [KEY-4]
        cron_namespace: Namespace of the entries in sidekiq-cron 2.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "",
        cron_namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        self._redis = SyncRedis(find_address(url).url)
        self._keys = keys_at(self._redis.url, namespace)
        self._namespace = cron_namespace

    def all(self) -> list[PeriodicJob]:
        """Return all entries, by name."""
        return self._redis.run(described(self._keys, self._namespace, now=time.time()))

    def find(self, name: str) -> PeriodicJob | None:
        """Return the entry of a name; None if there is none."""
        jobs = self._redis.run(described(self._keys, self._namespace, now=time.time()))
        return next((job for job in jobs if job.entry.name == name), None)

    def next_ticks(self, job: PeriodicJob, count: int) -> Sequence[int]:
        """Return the next ticks of an entry, also of one that is disabled.

        Raises:
            ConfigError: Its line is not understood.
        """
        return next_ticks(job, count, now=time.time())

    def save(self, entry: PeriodicEntry, *, tz: str | None = None) -> None:
        """Write a dynamic entry; options that it leaves out get their defaults. [X-CRON-34]

        Raises:
            ConfigError: The line is not understood. [X-CRON-43]
        """
        self._redis.run(save(self._keys, entry, tz))

    def load(
        self, entries: Sequence[PeriodicEntry], *, schedule: str, dry_run: bool = False
    ) -> Difference:
        """Make these the entries of a schedule, and remove its others. [X-CRON-39]

        Args:
            entries: The entries.
            schedule: Name of the schedule.
            dry_run: Only return what would change.

        Raises:
            ConfigError: An entry is invalid; nothing was written.
        """
        return self._redis.run(load(self._keys, entries, schedule=schedule, dry_run=dry_run))

    def enable(self, job: PeriodicJob) -> bool | None:
        """Enable an entry; return True if that changed it, None if it has gone. [X-CRON-37]"""
        return self._redis.run(set_enabled(self._keys, job.entry, enabled=True))

    def disable(self, job: PeriodicJob) -> bool | None:
        """Disable an entry; return True if that changed it, None if it has gone. [X-CRON-37]"""
        return self._redis.run(set_enabled(self._keys, job.entry, enabled=False))

    def run(self, job: PeriodicJob) -> str:
        """Enqueue the job of an entry now, also of one that is disabled; return the job id.

        Raises:
            InvalidJob: The entry cannot be pushed.
        """
        jid = new_jid()
        self._redis.run(run_now(self._keys, job, jid))
        return jid

    def history(self, job: PeriodicJob) -> Sequence[dict[str, Any]]:
        """Return the newest ten pushes, newest first: `jid` and `enqueued`. [X-CRON-6]"""
        return self._redis.run(periodic.history(self._keys, job.entry))

    def remove(self, job: PeriodicJob) -> bool:
        """Remove an entry; return False if it had gone. [X-CRON-40]"""
        return self._redis.run(periodic.remove(self._keys, job.entry))

    def migrate(self) -> int:
        """Move all entries of layout 1 to layout 2; return how many. [X-CRON-3]

        A name that layout 2 already has stays where it is.
        """
        return self._redis.run(migrate(self._keys, self._namespace))

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()
