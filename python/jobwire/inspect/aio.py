"""The asyncio inspector: `Inspector` with the words async and await."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from jobwire.application.client import url_or_default
from jobwire.connection.aio import AsyncRedis
from jobwire.inspect import activity, processes, progress, sets, summary
from jobwire.inspect.activity import Activity
from jobwire.inspect.entry import Entry, SetName
from jobwire.inspect.filters import Filter
from jobwire.inspect.processes import InFlightSummary, ProcessInfo, Recoveries, Work
from jobwire.inspect.progress import IterationState
from jobwire.inspect.sets import Action, Progress, Swept
from jobwire.inspect.summary import Day, QueueSummary, Stats
from jobwire.inspect.walking import ListWalk, Scan, Walk
from jobwire.protocol import heartbeat as beat
from jobwire.protocol import metrics
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.times import Generation, When, instant
from jobwire.protocol.wire import Op

__all__ = ["AsyncInspector"]

T = TypeVar("T")


class AsyncInspector:
    """Looks at queues, sets and processes from asyncio; the twin of `Inspector`, which documents
    the parameters.

        async with AsyncInspector("redis://localhost:6379/0") as inspector:
            async for job in inspector.entries("retry", only=Filter(error="timeout")):
                await inspector.retry(job)

    Belongs to the event loop in which it is first used.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "",
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = Keys(namespace)
        self._clock = clock
        self.redis = AsyncRedis(url_or_default(url), timeout=timeout)

    # -- totals

    async def stats(self) -> Stats:
        """Return totals and sizes of everything; see `Inspector.stats`."""
        return await self._run(summary.stats(self._keys, now=self._clock()))

    async def history(self, days: int = 30) -> list[Day]:
        """Return the executions by UTC day, today first; see `Inspector.history`."""
        return await self._run(summary.history(self._keys, days=days, now=self._clock()))

    # -- queues

    async def queues(self) -> list[QueueSummary]:
        """Return all queues by name; see `Inspector.queues`."""
        return await self._run(summary.queue_summaries(self._keys, now=self._clock()))

    async def queue(self, name: str) -> QueueSummary:
        """Return one queue, registered or not; see `Inspector.queue`."""
        return await self._run(summary.queue_summary(self._keys, name, now=self._clock()))

    def jobs(self, queue: str, *, only: Filter | None = None) -> AsyncIterator[Entry]:
        """Go through a queue, newest first, a page at a time; see `Inspector.jobs`."""
        return self._each(ListWalk(self._keys, queue), only)

    async def find_job(self, queue: str, jid: str) -> Entry | None:
        """Return the job of a queue with this id; see `Inspector.find_job`."""
        return await self._run(sets.find_in_queue(self._keys, queue, jid))

    async def clear_queue(self, queue: str) -> int:
        """Delete a queue with all its jobs; see `Inspector.clear_queue`."""
        return await self._run(sets.clear_queue(self._keys, queue))

    async def delete_jobs(
        self, queue: str, *, only: Filter, progress: Progress | None = None
    ) -> Swept:
        """Delete the jobs of a queue that the filter means, page by page;
        see `Inspector.delete_jobs`.
        """
        return await self._run(
            sets.sweep_queue(self._keys, queue, now=self._clock(), only=only, progress=progress)
        )

    async def pause(self, queue: str) -> bool:
        """Tell jobwire's workers to leave a queue alone; see `Inspector.pause`."""
        return await self._run(sets.pause(self._keys, queue, paused=True))

    async def unpause(self, queue: str) -> bool:
        """Let a queue be served again; see `Inspector.unpause`."""
        return await self._run(sets.pause(self._keys, queue, paused=False))

    # -- sets

    def entries(self, name: SetName, *, only: Filter | None = None) -> AsyncIterator[Entry]:
        """Go through a set, highest score first, a page at a time; see `Inspector.entries`."""
        return self._each(sets.walk(self._keys, name), only)

    def scan(self, name: SetName, pattern: str) -> AsyncIterator[Entry]:
        """Go through the entries whose text matches a pattern of Redis's, in no order;
        see `Inspector.scan`.
        """
        wide = pattern if "*" in pattern else f"*{pattern}*"
        return self._each(Scan(sets.set_key(self._keys, name), name, wide), None)

    async def find(self, name: SetName, jid: str) -> Entry | None:
        """Return the entry of a set with this job id; see `Inspector.find`."""
        return await self._run(sets.find_in_set(self._keys, name, jid))

    async def fetch(
        self, name: SetName, lowest: float, highest: float | None = None, *, jid: str | None = None
    ) -> list[Entry]:
        """Return the entries with a score in a range, or just `lowest`; see `Inspector.fetch`."""
        top = lowest if highest is None else highest
        return await self._run(sets.fetch(self._keys, name, lowest, top, jid))

    async def delete(self, entry: Entry) -> bool:
        """Delete an entry of a set or a job of a queue; see `Inspector.delete`."""
        return await self._run(sets.delete(self._keys, entry))

    async def retry(self, entry: Entry) -> bool:
        """Push an entry to its queue now, and give the attempt back; see `Inspector.retry`."""
        return await self._run(sets.move_to_queue(self._keys, entry, now=self._clock(), count=True))

    async def add_to_queue(self, entry: Entry) -> bool:
        """Push an entry to its queue now; see `Inspector.add_to_queue`."""
        return await self._run(
            sets.move_to_queue(self._keys, entry, now=self._clock(), count=False)
        )

    async def kill(self, entry: Entry) -> bool:
        """Move an entry to the dead set; see `Inspector.kill`."""
        return await self._run(sets.kill(self._keys, entry, DeadSetLimits(self._clock())))

    async def reschedule(self, entry: Entry, at: When) -> bool:
        """Change when an entry is due; see `Inspector.reschedule`."""
        moment = instant(at, now=self._clock())
        return await self._run(sets.reschedule(self._keys, entry, moment))

    async def sweep(
        self,
        name: SetName,
        action: Action,
        *,
        only: Filter | None = None,
        progress: Progress | None = None,
    ) -> Swept:
        """Do the same to all entries of a set that a filter means, lowest score first;
        see `Inspector.sweep`.
        """
        return await self._run(
            sets.sweep(
                self._keys,
                name,
                action,
                dead_limits=DeadSetLimits(self._clock()),
                only=only or Filter(),
                progress=progress,
            )
        )

    async def clear(self, name: SetName) -> int:
        """Delete a whole set in one step; see `Inspector.clear`."""
        return await self._run(sets.clear_set(self._keys, name))

    # -- processes

    async def processes(self) -> list[ProcessInfo]:
        """Return the processes by identity; see `Inspector.processes`."""
        return await self._run(processes.processes(self._keys))

    async def works(self) -> list[Work]:
        """Return the jobs in execution, the one that began first first; see `Inspector.works`."""
        return await self._run(processes.works(self._keys))

    async def quiet(self, identity: str) -> None:
        """Tell a process to fetch no more, at its next heartbeat; see `Inspector.quiet`."""
        await self._run(processes.signal(self._keys, identity, "TSTP"))

    async def stop(self, identity: str) -> None:
        """Tell a process to end, at its next heartbeat; see `Inspector.stop`."""
        await self._run(processes.signal(self._keys, identity, "TERM"))

    async def dump(self, identity: str) -> None:
        """Tell a process to log what its threads do, at its next heartbeat;
        see `Inspector.dump`.
        """
        await self._run(processes.signal(self._keys, identity, "TTIN"))

    async def prune(self) -> int:
        """Forget processes whose hash has expired, at most once a minute;
        see `Inspector.prune`.
        """
        return await self._run(beat.prune(self._keys))

    async def holdings(self, *, most: int = 100) -> list[InFlightSummary]:
        """Return what each process of the reliable profile holds, `most` jobs of each;
        see `Inspector.holdings`.
        """
        return await self._run(processes.holdings(self._keys, most=most))

    async def recoveries(self) -> Recoveries:
        """Return what became of jobs of dead processes; see `Inspector.recoveries`."""
        return await self._run(processes.recoveries(self._keys))

    # -- iterable jobs

    async def iterations(self, jids: Sequence[str]) -> list[IterationState]:
        """Return how far those of these jobs are that are iterable and have begun;
        see `Inspector.iterations`.
        """
        return await self._run(progress.states(self._keys, jids))

    async def all_iterations(self) -> AsyncIterator[IterationState]:
        """Go through all states of iterable jobs. Looks at every key in the database."""
        cursor: bytes | None = b"0"
        while cursor is not None:
            found, cursor = await self._run(progress.find_states(self._keys, cursor))
            for each in found:
                yield each

    async def cancel(self, jid: str) -> float:
        """Ask an iterable job to stop; see `Inspector.cancel`."""
        return await self._run(progress.cancel(self._keys, jid, now=self._clock()))

    # -- activity

    async def activity(
        self,
        *,
        minutes: int | None = None,
        hours: int | None = None,
        class_name: str = "*",
        generation: Generation = 8,
    ) -> Activity:
        """Return the executions of the last minutes or hours by class;
        see `Inspector.activity`.
        """
        return await self._run(
            activity.activity(
                self._keys,
                now=self._clock(),
                minutes=minutes,
                hours=hours,
                class_name=class_name,
                generation=generation,
            )
        )

    async def job_activity(
        self,
        class_name: str,
        *,
        minutes: int | None = None,
        hours: int | None = None,
        generation: Generation = 8,
    ) -> Activity:
        """Return the executions of one class, by minutes with histograms;
        see `Inspector.job_activity`.
        """
        return await self._run(
            activity.job_activity(
                self._keys,
                class_name,
                now=self._clock(),
                minutes=minutes,
                hours=hours,
                generation=generation,
            )
        )

    async def mark_deploy(self, label: str) -> bool:
        """Mark a deployment for the charts; see `Inspector.mark_deploy`."""
        return await self._run(metrics.mark_deploy(self._keys, label, now=self._clock()))

    # -- itself

    async def close(self) -> None:
        """Close the connections."""
        await self.redis.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, op: Op[T]) -> T:
        return await self.redis.run(op)

    async def _each(self, way: Walk, only: Filter | None) -> AsyncIterator[Entry]:
        meant = only or Filter()
        while page := await self._run(way.next()):
            now = self._clock()
            for each in page:
                if meant.matches(each, now=now):
                    yield each
