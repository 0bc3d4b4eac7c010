# Generated from sync.py by tools/twins.py; change sync.py instead.
"""The asyncio inspector, the twin of `Inspector`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

from jobwire.application.generation import GenerationSetting
from jobwire.application.redis_url import find_address
from jobwire.connection.aio import AsyncRedis
from jobwire.connection.closing import AsyncClosing
from jobwire.connection.cluster import keys_at
from jobwire.inspect import activity, batches, limits, locks, processes, progress, sets, summary
from jobwire.inspect.activity import Activity
from jobwire.inspect.batches import Batches, BatchMembers, MissingMembers
from jobwire.inspect.entry import Entry, SetName
from jobwire.inspect.filters import Filter
from jobwire.inspect.fleet import Fleet, fleet
from jobwire.inspect.limits import LimitPage, LimitState
from jobwire.inspect.locks import Locks, UniqueLock
from jobwire.inspect.processes import InFlightSummary, ProcessInfo, Recoveries, Work
from jobwire.inspect.progress import IterationState
from jobwire.inspect.sets import Action, Progress, Swept
from jobwire.inspect.summary import Day, QueueSummary, Stats
from jobwire.inspect.walking import ListWalk, Scan, Walk
from jobwire.protocol import cancelling, groups, heartbeat, metrics
from jobwire.protocol.batches import BatchStatus, read_status
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.groups import Member
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.times import Generation, When, instant
from jobwire.protocol.wire import Op

__all__ = ["AsyncInspector"]

T = TypeVar("T")


class AsyncInspector(AsyncClosing):
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
        generation: GenerationSetting = "auto",
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._generation = generation
        self._clock = clock
        address = find_address(url)
        self._keys = keys_at(address.url, namespace)
        self.redis = AsyncRedis(address.url, timeout=timeout, advice=address.advice)

    # -- totals

    async def stats(self) -> Stats:
        """Return totals and sizes of everything. [INSP-1] [STAT-1]"""
        return await self._run(summary.stats(self._keys, now=self._clock()))

    async def fleet(self) -> Fleet:
        """Return the numbers for monitoring, in two round trips. [INSP-1] [STAT-1]"""
        return await self._run(fleet(self._keys, now=self._clock()))

    async def history(self, days: int = 30) -> list[Day]:
        """Return the executions by UTC day, today first; 1 to 1,825 days. [STAT-2]"""
        return await self._run(summary.history(self._keys, days=days, now=self._clock()))

    # -- queues

    async def queues(self) -> list[QueueSummary]:
        """Return all queues by name. [INSP-1] [INSP-2]"""
        return await self._run(summary.queue_summaries(self._keys, now=self._clock()))

    async def queue(self, name: str) -> QueueSummary:
        """Return one queue, registered or not. [INSP-1] [INSP-2]"""
        return await self._run(summary.queue_summary(self._keys, name, now=self._clock()))

    def jobs(self, queue: str, *, only: Filter | None = None) -> AsyncIterator[Entry]:
        """Go through a queue, newest first, a page at a time."""
        return self._each(ListWalk(self._keys, queue), only)

    async def find_job(self, queue: str, jid: str) -> Entry | None:
        """Return the job of a queue with this id. O(n)."""
        return await self._run(sets.find_in_queue(self._keys, queue, jid))

    async def clear_queue(self, queue: str) -> int:
        """Delete a queue with all its jobs; return how many. [INSP-9]"""
        return await self._run(sets.clear_queue(self._keys, queue))

    async def delete_jobs(
        self, queue: str, *, only: Filter, progress: Progress | None = None
    ) -> Swept:
        """Delete the jobs of a queue that the filter means, page by page."""
        return await self._run(
            sets.sweep_queue(self._keys, queue, now=self._clock(), only=only, progress=progress)
        )

    async def pause(self, queue: str) -> bool:
        """Tell jobwire's workers to leave a queue alone; return whether that is new. [REL-9]"""
        return await self._run(sets.pause(self._keys, queue, paused=True))

    async def unpause(self, queue: str) -> bool:
        """Resume a paused queue; return whether it was paused. [REL-9]"""
        return await self._run(sets.pause(self._keys, queue, paused=False))

    # -- sets

    def entries(
        self, name: SetName, *, only: Filter | None = None, rising: bool = False
    ) -> AsyncIterator[Entry]:
        """Go through a set, a page at a time.

        Entries may be deleted, retried or killed on the way without others being left out.

        Args:
            name: The set.
            only: Which entries; all of them by default.
            rising: True to begin with the lowest score, such as the job that is due next.
        """
        return self._each(sets.walk(self._keys, name, rising=rising), only)

    def scan(self, name: SetName, pattern: str) -> AsyncIterator[Entry]:
        """Go through the entries whose text matches a pattern of Redis's, in no order.

        Args:
            name: The set.
            pattern: With `*`, `?`, `[...]` and backslash; text without a `*` is looked for
                anywhere.
        """
        wide = pattern if "*" in pattern else f"*{pattern}*"
        return self._each(Scan(sets.set_key(self._keys, name), name, wide), None)

    async def find(self, name: SetName, jid: str) -> Entry | None:
        """Return the entry of a set with this job id. O(n) for the server. [INSP-10]"""
        return await self._run(sets.find_in_set(self._keys, name, jid))

    async def fetch(
        self, name: SetName, lowest: float, highest: float | None = None, *, jid: str | None = None
    ) -> list[Entry]:
        """Return the entries with a score in a range, or just `lowest`; of one jid if given."""
        top = lowest if highest is None else highest
        return await self._run(sets.fetch(self._keys, name, lowest, top, jid))

    async def delete(self, entry: Entry) -> bool:
        """Delete an entry of a set or a job of a queue; False if it was gone. [INSP-4]"""
        return await self._run(sets.delete(self._keys, entry, now=self._clock()))

    async def retry(self, entry: Entry) -> bool:
        """Push an entry to its queue now, and give the attempt back; False if it was gone.
        [INSP-5]

        Raises:
            MalformedPayload: It cannot be read, or names no queue; it stays.
        """
        return await self._run(
            sets.move_to_queue(
                *(self._keys, entry),
                now=self._clock(),
                count=True,
                generation=self._generation,
            )
        )

    async def add_to_queue(self, entry: Entry) -> bool:
        """Push an entry to its queue now; False if it was gone; see `retry`. [INSP-6]"""
        return await self._run(
            sets.move_to_queue(
                *(self._keys, entry),
                now=self._clock(),
                count=False,
                generation=self._generation,
            )
        )

    async def kill(self, entry: Entry) -> bool:
        """Move an entry to the dead set; False if it was gone. [INSP-7]"""
        return await self._run(sets.kill(self._keys, entry, DeadSetLimits(self._clock())))

    async def reschedule(self, entry: Entry, at: When) -> bool:
        """Change when an entry is due; False if it was gone. [INSP-8]

        Args:
            entry: Of the scheduled or the retry set.
            at: As in `Client.push_in`.
        """
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
        """Do the same to all entries of a set that a filter means, lowest score first.

        A page at a time, each in one step and by exact bytes: however long the set is, memory
        and the time for which the server is busy stay small.

        Args:
            name: The set.
            action: `retry`, `add_to_queue`, `kill` or `delete`.
            only: Which entries; all of them by default.
            progress: Called after each page.
        """
        return await self._run(
            sets.sweep(
                self._keys,
                name,
                action,
                dead_limits=DeadSetLimits(self._clock()),
                only=only or Filter(),
                generation=self._generation,
                progress=progress,
            )
        )

    async def clear(self, name: SetName) -> int:
        """Delete a whole set in one step; return how many entries. [INSP-9]"""
        return await self._run(sets.clear_set(self._keys, name))

    # -- processes

    async def processes(self) -> list[ProcessInfo]:
        """Return the processes by identity. [INSP-11]"""
        return await self._run(processes.processes(self._keys))

    async def classes(self) -> dict[str, list[str]]:
        """Return each announced class with the processes that can run it. [X-CLASS-1]"""
        return await self._run(processes.classes(self._keys))

    async def works(self) -> list[Work]:
        """Return the jobs in execution, the one that began first first. [INSP-12]"""
        return await self._run(processes.works(self._keys))

    async def quiet(self, identity: str) -> None:
        """Tell a process to fetch no more, at its next heartbeat. [INSP-13]"""
        await self._run(processes.signal(self._keys, identity, "TSTP"))

    async def stop(self, identity: str) -> None:
        """Tell a process to end, at its next heartbeat. [INSP-13]"""
        await self._run(processes.signal(self._keys, identity, "TERM"))

    async def dump(self, identity: str) -> None:
        """Tell a process to log what its threads do, at its next heartbeat. [INSP-13]"""
        await self._run(processes.signal(self._keys, identity, "TTIN"))

    async def prune(self) -> int:
        """Forget processes whose hash has expired, at most once a minute; how many. [BEAT-8]"""
        return await self._run(heartbeat.prune(self._keys))

    async def holdings(self, *, most: int = 100) -> list[InFlightSummary]:
        """Return what each process of the reliable profile holds, `most` jobs of each. [REL-1]"""
        return await self._run(processes.holdings(self._keys, most=most))

    async def recoveries(self) -> Recoveries:
        """Return what became of jobs whose process died or was slow. [REL-7] [REL-12]"""
        return await self._run(processes.recoveries(self._keys))

    # -- unique jobs

    async def locks(self, *, limit: int = 1_000, examine: int = 100_000) -> Locks:
        """Return locks of unique jobs, each with the job that has it. [X-UNIQ-3]

        Args:
            limit: Maximum number of locks.
            examine: Maximum number of keys of the server to examine for locks, and of jobs that
                wait to examine for those that have them.
        """
        return await self._run(locks.read(self._keys, limit=limit, examine=examine))

    async def lock(self, digest: str) -> UniqueLock | None:
        """Return one lock, without its job; None if it is free."""
        return next(iter(await self._run(locks.locks_of(self._keys, [digest]))), None)

    async def unlock(self, lock: UniqueLock) -> bool:
        """Release a lock; False if its job does not have it any more.

        The job stays where it is, and a second one with the same key is accepted.
        """
        return await self._run(locks.release(self._keys, lock))

    # -- batches

    async def batches(self, *, limit: int = 100, examine: int = 100_000) -> Batches:
        """Return the newest batches of those that are found. [X-BATCH-1]

        Args:
            limit: Maximum number.
            examine: Maximum number of keys of the server to examine.
        """
        return await self._run(batches.read(self._keys, limit=limit, examine=examine))

    async def batch(self, batch_id: str) -> BatchStatus | None:
        """Return one batch; None if there is none: 30 days after its last change. [X-BATCH-1]"""
        return await self._run(read_status(self._keys, batch_id))

    async def batch_members(self, batch_id: str) -> BatchMembers:
        """Return the ids of some members of a batch, however many it has. [X-BATCH-2]"""
        return await self._run(batches.members(self._keys, batch_id))

    async def missing_members(self, batch_id: str, *, examine: int = 1_000_000) -> MissingMembers:
        """Return the open members of a batch that were found in no place. O(n). [X-BATCH-6]

        Another program removed them without their ends, or a crash did. A member may also run
        in a worker that has not told of it yet.

        Args:
            batch_id: Its id.
            examine: Maximum number of members, and of jobs that wait.
        """
        return await self._run(batches.missing(self._keys, batch_id, examine=examine))

    async def cancel_batch(self, batch_id: str) -> bool:
        """Drop the members that have not begun, and all callbacks. [X-BATCH-7]

        Members that run go on. False if the batch is complete, cancelled or gone.
        """
        return await self._run(batches.cancel(self._keys, batch_id, now=self._clock()))

    # -- limits

    async def limits(self, *, limit: int = 1_000) -> list[LimitState]:
        """Return the limits of jobs that were used in the last day. [X-LIMIT-3]

        `limit` is the maximum number; those that were used last come first into it.
        """
        return await self._run(limits.read(self._keys, limit=limit))

    async def limit_page(self, *, start: int = 0, count: int = 50, wanted: str = "") -> LimitPage:
        """Return some limits by name and key, of those that were used last. [X-LIMIT-3]

        Args:
            start: Position of the first one, from 0.
            count: Maximum number.
            wanted: Part of a name, in any case; empty for all.
        """
        return await self._run(limits.page(self._keys, start=start, count=count, wanted=wanted))

    # -- iterable jobs

    async def iterations(self, jids: Sequence[str]) -> list[IterationState]:
        """Return how far those of these jobs are that are iterable and have begun. [ITER-1]"""
        return await self._run(progress.states(self._keys, jids))

    async def progress(self, jids: Sequence[str]) -> dict[str, JobProgress]:
        """Return the progress of those of these jobs that have reported it. [X-PROG-6]"""
        return await self._run(progress.reported(self._keys, jids))

    async def group_members(self, fields: Mapping[str, Any]) -> list[Member]:
        """Return the members of the group that a job is or belongs to, from its payload fields."""
        return await self._run(groups.read_members(self._keys, fields))

    async def all_iterations(self) -> AsyncIterator[IterationState]:
        """Go through all states of iterable jobs. Looks at every key in the database."""
        cursor: bytes | None = b"0"
        while cursor is not None:
            states, cursor = await self._run(progress.find_states(self._keys, cursor))
            for item in states:
                yield item

    async def cancel(self, jid: str) -> Cancellation:
        """Cancel a job; see `Client.cancel`. [ITER-7] [X-CANCEL-1]"""
        return await self._run(cancelling.cancel(self._keys, jid, now=self._clock()))

    # -- activity

    async def activity(
        self,
        *,
        minutes: int | None = None,
        hours: int | None = None,
        class_name: str = "*",
        generation: Generation = 8,
    ) -> Activity:
        """Return the executions of the last minutes or hours by class. [MET-1]

        Args:
            minutes: How many, 1 to 480; 60 unless `hours` are given.
            hours: Instead: how many, 1 to 72, ten minutes a bucket.
            class_name: Pattern with `*`, `?` and `[...]`, as for file names.
            generation: 7 reads what Sidekiq 7 writes, which has no hours. [MET-4]
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
        """Return the executions of one class, by minutes with histograms. [MET-2]"""
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
        """Mark a deployment for the charts; False if it was within the last minute. [MET-5]"""
        return await self._run(metrics.mark_deploy(self._keys, label, now=self._clock()))

    # -- itself

    async def close(self) -> None:
        """Close the connections."""
        await self.redis.close()

    async def _run(self, op: Op[T]) -> T:
        return await self.redis.run(op)

    async def _each(self, walk: Walk, only: Filter | None) -> AsyncIterator[Entry]:
        wanted = only or Filter()
        while page := await self._run(walk.next()):
            now = self._clock()
            for entry in page:
                if wanted.matches(entry, now=now):
                    yield entry
