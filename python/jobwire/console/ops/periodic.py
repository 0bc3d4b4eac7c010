"""Actions of a person on periodic jobs, with the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from jobwire.application.producer import new_jid
from jobwire.console.ops.roles import Action
from jobwire.inspect.periodic import PeriodicJob, described, migrate, next_ticks, run_now
from jobwire.periodic.schedule import Difference, load, set_enabled
from jobwire.protocol import periodic
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic_entry import PeriodicEntry
from jobwire.protocol.wire import Op

__all__ = ["PeriodicOperations"]

T = TypeVar("T")


class Run(Protocol):
    """Runs an operation of Redis."""

    def __call__(self, op: Op[T]) -> T:
        """Return its result."""


class Noted(Protocol):
    """Checks the role, does an action, and keeps it in the journal if its result is true."""

    def __call__(self, act: Action, target: str, change: Callable[[], T]) -> T:
        """Return what `change` returns."""


class PeriodicOperations:
    """Reads and changes the periodic jobs of a Redis; see `Operations.periodic`.

    Args:
        keys: Key names.
        namespace: Namespace of the entries in sidekiq-cron 2.
        run: Runs an operation.
        noted: Does an action.
        clock: Returns epoch seconds.
    """

    def __init__(
        self, keys: Keys, namespace: str, run: Run, noted: Noted, clock: Callable[[], float]
    ) -> None:
        self._keys, self._namespace = keys, namespace
        self._run, self._noted, self._clock = run, noted, clock

    def all(self) -> list[PeriodicJob]:
        """Return all entries, by name."""
        return self._run(described(self._keys, self._namespace, now=self._clock()))

    def find(self, name: str) -> PeriodicJob | None:
        """Return the entry of a name; None if there is none."""
        return next((job for job in self.all() if job.entry.name == name), None)

    def next_ticks(self, job: PeriodicJob, count: int) -> Sequence[int]:
        """Return the next ticks of an entry, also of one that is disabled.

        Raises:
            ConfigError: Its line is not understood.
        """
        return next_ticks(job, count, now=self._clock())

    def history(self, job: PeriodicJob) -> Sequence[Mapping[str, Any]]:
        """Return the newest ten pushes, newest first: `jid` and `enqueued`. [X-CRON-6]"""
        return self._run(periodic.history(self._keys, job.entry))

    def enable(self, job: PeriodicJob) -> bool | None:
        """Enable an entry; return True if that changed it, None if it has gone. [X-CRON-37]"""
        return self._switch("enable_periodic", job, enabled=True)

    def disable(self, job: PeriodicJob) -> bool | None:
        """Disable an entry; return True if that changed it, None if it has gone. [X-CRON-37]"""
        return self._switch("disable_periodic", job, enabled=False)

    def enqueue(self, job: PeriodicJob) -> str:
        """Enqueue the job of an entry now, also of one that is disabled; return the job id.

        Raises:
            InvalidJob: The entry cannot be pushed.
        """
        jid = new_jid()

        def push() -> str:
            self._run(run_now(self._keys, job, jid))
            return jid

        return self._noted("enqueue_periodic", f"{job.entry.name}: {jid}", push)

    def remove(self, job: PeriodicJob) -> bool:
        """Remove an entry with its history; return False if it had gone. [X-CRON-40]"""
        op = periodic.remove(self._keys, job.entry)
        return self._noted("remove_periodic", job.entry.name, lambda: self._run(op))

    def load(self, entries: Sequence[PeriodicEntry], *, schedule: str) -> Difference:
        """Make these the entries of a schedule, and remove its others. [X-CRON-39]

        Raises:
            ConfigError: An entry is invalid; nothing was written.
        """
        op = load(self._keys, entries, schedule=schedule)
        return self._noted("load_periodic", schedule, lambda: self._run(op))

    def difference(self, entries: Sequence[PeriodicEntry], *, schedule: str) -> Difference:
        """Return what `load` would change.

        Raises:
            ConfigError: An entry is invalid.
        """
        return self._run(load(self._keys, entries, schedule=schedule, dry_run=True))

    def migrate(self) -> int:
        """Move all entries of layout 1 to layout 2; return how many. [X-CRON-3]

        A name that layout 2 already has stays where it is.
        """
        op = migrate(self._keys, self._namespace)
        return self._noted("migrate_periodic", self._namespace, lambda: self._run(op))

    def _switch(self, act: Action, job: PeriodicJob, *, enabled: bool) -> bool | None:
        op = set_enabled(self._keys, job.entry, enabled=enabled)
        return self._noted(act, job.entry.name, lambda: self._run(op))
