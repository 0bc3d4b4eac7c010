"""The way of complete jobs to Redis: at once, into a buffer, or when a transaction commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from jobwire.application.delivery import Transport, defer, deliver, log_refused
from jobwire.errors import NoReply, RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.payload import LazyJob
from jobwire.protocol.progress import RubyStatus
from jobwire.protocol.pushing import push, push_bulk, replace, slices
from jobwire.protocol.unique import Refused
from jobwire.protocol.wire import Batch, Command, Confirm, Op, command

if TYPE_CHECKING:
    from jobwire.application.push_buffer import Keeper

__all__ = ["JobWriter"]


class JobWriter:
    """Writes the jobs of one client.

    Args:
        keys: Key names.
        clock: Returns epoch seconds.
        confirm: Replicas that must confirm a job before a push counts as done. [PUSH-8]
        transport: Destination of the jobs.
        location: Name or URL by which an application finds the client; "": its default Redis.

    Attributes:
        keeper: The buffer of the client; None if it has none.
    """

    def __init__(
        self,
        keys: Keys,
        clock: Callable[[], float],
        confirm: Confirm | None,
        transport: Transport,
        location: str,
    ) -> None:
        self.keys = keys
        self.transport = transport
        self.keeper: Keeper | None = None
        self._clock = clock
        self.confirm = confirm
        self._location = location

    def may_keep(self) -> bool:
        """True if a push may succeed without Redis."""
        deferral = self.transport.deferral
        return self.keeper is not None or (deferral is not None and deferral.stores)

    def give(self, jobs: Sequence[ReadyPayload], on_commit: bool) -> Op[Refused]:
        """Write jobs, at once or when a transaction commits; return those that were refused."""
        deferral = self.transport.deferral
        if (
            deferral is not None
            and on_commit
            and (yield from defer(deferral, jobs, self._location))
        ):
            return {}
        return (yield from self._write_or_keep(jobs))

    def write(self, jobs: Sequence[ReadyPayload], *, buffered: bool = True) -> Op[None]:
        """Write jobs that were made before, in slices if there are many; see `pushing.push_bulk`.

        A unique job whose key another job has now is left out, with a line in the log.

        Args:
            jobs: The jobs.
            buffered: False to raise while Redis is away, although there is a buffer.
        """
        refused = yield from self._write_or_keep(jobs, buffered=buffered)
        log_refused(refused)

    def _write_or_keep(self, jobs: Sequence[ReadyPayload], *, buffered: bool = True) -> Op[Refused]:
        """Write jobs; return those that were refused."""
        if self.transport.overrides:
            return (yield from deliver(self.transport, jobs))
        if self.keeper is not None and jobs and buffered:
            return (yield from self.keeper.write(jobs, self.send))
        return (yield from self.send(jobs))

    def send(self, jobs: Sequence[ReadyPayload]) -> Op[Refused]:
        """Write complete jobs to Redis now, without a buffer; return those that were refused."""
        status = self.transport.ruby_status
        if status is not None:  # before a worker can have the job and write `working`
            for part in slices(jobs):
                yield from self._show(self._queued(status, part))
        if len(jobs) == 1:
            refused = yield from push(self.keys, jobs, self.confirm)
        else:
            refused = yield from push_bulk(self.keys, jobs, self.confirm)
        if refused:
            refused = yield from self._replaced(jobs, refused)
        if refused and status is not None:
            yield from self._show([command("UNLINK", *map(self.keys.ruby_status, refused))])
        return refused

    def _queued(self, status: RubyStatus, jobs: Sequence[ReadyPayload]) -> list[Command]:
        """Return the commands that say that jobs wait, if their class has a status."""
        read = {job.jid: LazyJob(job.text, job.queue) for job in jobs}
        return [
            step
            for jid, job in read.items()
            if status.covers(job.display_class)
            for step in status.waits(
                *(self.keys, jid, job.display_class, job.fields["args"], self._clock())
            )
        ]

    def _show(self, steps: Sequence[Command]) -> Op[None]:
        """Write a status, which is for people: a refusal of it keeps no job out. [X-ADDON-20]"""
        if steps:
            with suppress(NoReply, RedisRefused):
                yield Batch(steps, atomic=True)

    def _replaced(self, jobs: Sequence[ReadyPayload], refused: Refused) -> Op[Refused]:
        """Write refused jobs that replace others; return those that could not. [X-UNIQ-10]"""
        left = dict(refused)
        for job in jobs:
            if job.lock is None or not job.lock.replaces or job.jid not in refused:
                continue
            left[job.jid] = yield from replace(
                *(self.keys, job, refused[job.jid]), now=self._clock(), confirm=self.confirm
            )
        return {jid: holder for jid, holder in left.items() if holder}

    def close(self, seconds: float) -> Op[None]:
        """Try to write what the buffer keeps, for a time."""
        if self.keeper is not None:
            yield from self.keeper.close(seconds)
