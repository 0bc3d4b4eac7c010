"""The buffer of a client: pushes that Redis does not take now are kept, and written later."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from jobwire.application.delivery import log_refused
from jobwire.application.held_jobs import HeldJobs
from jobwire.application.shards import may_pass
from jobwire.application.spool import SpoolFile, check_directory, left_in, new_file
from jobwire.connection.sync import SyncRedis
from jobwire.errors import (
    BufferFull,
    ConfigError,
    MaybeWritten,
    RedisRefused,
    RedisTrouble,
)
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.unique import Refused
from jobwire.protocol.wire import Batch, Local, Op, command, once
from jobwire.text import counted

__all__ = ["Keeper", "PendingPushes", "PushBuffer"]

JOBS_AT_ONCE = 100  # few, because all of them are unsure if no reply comes
BYTES_AT_ONCE = 1024 * 1024
EXIT_S = 5.0  # for a last attempt when the process ends
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 2.0  # between two attempts to reach Redis
NAMED = 20  # job ids in a line of the log

_log = logging.getLogger("jobwire.client")


class Sender(Protocol):
    """Writes jobs; the writer of a client."""

    keeper: Keeper | None

    def send(self, jobs: Sequence[ReadyPayload]) -> Op[Refused]:
        """Write jobs to Redis now; return the unique ones that were refused."""


class Connection(Protocol):
    """Reaches Redis for the thread of a `Keeper`. Each call may raise `RedisTrouble`."""

    def reach(self) -> None:
        """Check that the server answers."""

    def send(self, jobs: Sequence[ReadyPayload]) -> None:
        """Write jobs in one transaction."""

    def close(self) -> None:
        """Disconnect, because all jobs are written. The next call connects again."""


class _Connection:
    def __init__(self, redis: SyncRedis, sender: Sender) -> None:
        self._redis, self._sender = redis, sender
        self.close = redis.close

    def reach(self) -> None:
        try:
            self._redis.run(once(Batch([command("PING")])))
        except RedisRefused as error:
            if error.temporary:
                raise

    def send(self, jobs: Sequence[ReadyPayload]) -> None:
        log_refused(self._redis.run(self._sender.send(jobs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBuffer:
    """Settings of the buffer of a client, which keeps pushes while Redis is away.

        app = App(buffer=PushBuffer())

    Raises:
        ConfigError: A value is invalid.
    """

    max_jobs: int = 1_000
    """The largest number of jobs. A push that finds no room raises `BufferFull`."""
    max_bytes: int = 16 * 1024 * 1024
    """The largest sum of their payloads."""
    spool: str | os.PathLike[str] | None = None
    """Directory for files with the jobs, so that they survive the end of the process. The next
    process with the same directory writes them. None: in memory only."""
    sync: bool = True
    """Wait until the disk has what is written to the spool. False survives a killed process, and
    not a power failure."""
    resend_unsure: bool = False
    """Push jobs again, with the same ids, that may have been written before the connection broke.
    Such a job may run twice. False: the push raises `MaybeWritten`, and a job from the buffer is
    given up, with its id in the log. [PUSH-9]"""

    def __post_init__(self) -> None:
        for name in ("max_jobs", "max_bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"buffer: {name} {value!r} is not a whole number of 1 or more")
        if self.spool is not None and not isinstance(self.spool, str | os.PathLike):
            raise ConfigError(f"buffer: spool {self.spool!r} is not the path of a directory")

    def attach(self, sender: Sender, url: str, timeout: float) -> Keeper:
        """Let a sender keep its jobs while the Redis at a URL is away."""
        redis = SyncRedis(url, timeout=timeout, max_connections=1, role="buffer")
        keeper = Keeper(self, _Connection(redis, sender))
        sender.keeper = keeper
        return keeper


@dataclass(frozen=True, slots=True)
class PendingPushes:
    """Numbers of the jobs that the buffer of a client holds and has given up."""

    jobs: int = 0
    """Jobs that wait for Redis."""
    bytes: int = 0
    """The sum of their payloads."""
    since: float | None = None
    """Epoch seconds at which the oldest one was pushed."""
    unsure: int = 0
    """Jobs so far that may have been written, and were not pushed again."""
    refused: int = 0
    """Jobs so far that the server refused for good."""


class Keeper:
    """Keeps the jobs of one client and writes them from a thread, in order. Threads may share it.

    While it holds a job, it takes all further ones, so that the jobs of a queue stay in order.

    Args:
        settings: See `PushBuffer`.
        connection: Reaches Redis, from the thread.
        clock: Returns epoch seconds.
    """

    def __init__(
        self,
        settings: PushBuffer,
        connection: Connection,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._connection = connection
        self._directory = None if settings.spool is None else Path(settings.spool)
        self._begin()
        _keepers.add(self)
        if self._directory is not None:
            check_directory(self._directory)
            with self._change:
                self._adopt(self._directory)

    def _begin(self) -> None:
        settings = self._settings
        self._held: HeldJobs[SpoolFile | None] = HeldJobs(settings.max_jobs, settings.max_bytes)
        self._file: SpoolFile | None = None  # of this process, for the jobs to come
        self._change = threading.Condition()  # guards all fields
        self._thread: threading.Thread | None = None
        self._pause = FIRST_PAUSE_S  # before the next attempt
        self._end: float | None = None  # monotonic time of the last attempt; None: go on
        self._given_up = PendingPushes()

    @property
    def holds(self) -> bool:
        """True while there is a job to write."""
        return len(self._held) > 0

    def pending(self) -> PendingPushes:
        """Return the numbers of now."""
        with self._change:
            held = self._held
            return replace(self._given_up, jobs=len(held), bytes=held.bytes, since=held.since)

    def write(
        self, jobs: Sequence[ReadyPayload], send: Callable[[Sequence[ReadyPayload]], Op[Refused]]
    ) -> Op[Refused]:
        """Write jobs with `send`, or keep them; return the unique ones that were refused.

        Raises:
            BufferFull: There is no room for them.
            RedisTrouble: The server refuses them for good, or they may have been written.
        """
        if self.holds and (yield self._local(self._follow, jobs)):
            return {}
        try:
            return (yield from send(jobs))
        except RedisTrouble as error:
            if not self.may_come_again(error):
                raise
            written = set(error.written)
            left = [job for job in jobs if job.jid not in written]
            try:
                yield self._local(self._keep, left, error)
            except BufferFull as full:
                full.written = error.written
                raise full from error
            return {}

    def close(self, seconds: float) -> Op[None]:
        """Try to write all that is kept, for a time. The rest is kept until the process ends."""
        if self.holds or self._thread is not None:
            call = partial(self.end, seconds)
            yield Local(call, partial(asyncio.to_thread, call))

    def begin_again(self) -> None:
        """Begin with nothing, in a child process: the jobs and their files are the parent's."""
        for file in {*self._held.sources(), self._file} - {None}:
            assert file is not None
            file.close()
        self._begin()

    def _local(self, function: Callable[..., Any], *args: Any) -> Local:
        call = partial(function, *args)
        if self._directory is None:  # takes microseconds
            return Local(call, partial(_at_once, call))
        return Local(call, partial(asyncio.to_thread, call))

    def may_come_again(self, error: RedisTrouble) -> bool:
        """Return whether it keeps the jobs of a push that failed."""
        return may_pass(error) or (isinstance(error, MaybeWritten) and self._settings.resend_unsure)

    # -- called by pushes

    def _follow(self, jobs: Sequence[ReadyPayload]) -> bool:
        """Keep jobs behind those that are kept already; False if there are none."""
        with self._change:
            if not len(self._held):
                return False
            self._add(jobs)
            return True

    def _keep(self, jobs: Sequence[ReadyPayload], error: RedisTrouble) -> None:
        with self._change:
            begins = not len(self._held)
            self._add(jobs)
            if begins:
                _log.warning("Redis is away, jobs are kept until it is back: %s", error)

    def _add(self, jobs: Sequence[ReadyPayload]) -> None:
        self._held.check(jobs)
        now = self._clock()
        if self._directory is not None:
            try:
                if self._file is None:
                    self._file = new_file(self._directory, sync=self._settings.sync)
                self._file.add(jobs, since=now)
            except OSError as error:
                raise BufferFull(f"the spool {self._directory} takes no more: {error}") from None
        self._held.add(jobs, since=now, source=self._file)
        self._work()

    def _adopt(self, directory: Path) -> None:
        """Take the jobs of processes that have ended."""
        for file, jobs, unsure in left_in(directory, sync=self._settings.sync):
            gone = 0 if self._settings.resend_unsure else min(unsure, len(jobs))
            if gone:
                file.done(gone)
                self._give_up("unsure", [job for job, _ in jobs[:gone]], "its process was killed")
            for job, since in jobs[gone:]:
                self._held.add([job], since=since, source=file, counts=False)
            if gone == len(jobs):
                file.remove()
        if len(self._held):
            held = counted(len(self._held), "job")
            _log.warning("%s of an earlier process found in %s", held, directory)
            self._work()

    def _work(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="jobwire-buffer", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the process ends, and `end` is going to be called
                self._thread = None

    def end(self, seconds: float) -> None:
        """Wait for a time until all is written."""
        with self._change:
            self._end = time.monotonic() + seconds
            self._change.notify_all()
            thread = self._thread
            if thread is None:
                self._thread = threading.current_thread()
        if thread is None:
            self._run()
        else:
            # An attempt may be under way, which its own timeout ends.
            thread.join()
        with self._change:
            self._end = None

    def end_process(self) -> None:
        """Write what is kept, for a time, and say what is left."""
        if self.holds:
            self.end(EXIT_S)
        if left := len(self._held):
            jobs = counted(left, "job")
            if self._directory is None:
                _log.error("Redis is away at the end of the process: %s lost", jobs)
            else:
                _log.warning("Redis is away: %s left in the spool %s", jobs, self._directory)

    # -- the thread

    def _run(self) -> None:
        try:
            self._write_all()
        finally:
            with self._change:
                if self._thread is threading.current_thread():  # a defect; the next push goes on
                    self._thread = None
            self._connection.close()

    def _write_all(self) -> None:
        begun, written, most = time.monotonic(), 0, JOBS_AT_ONCE
        reached = False  # only then do jobs count as being sent
        while self._more():
            if not reached:
                try:
                    self._connection.reach()
                except RedisTrouble:
                    if not self._rest():
                        return
                    continue
                reached = True
            jobs, file = self._next(most)
            try:
                self._connection.send(jobs)
            except RedisTrouble as trouble:
                if self.may_come_again(trouble):
                    self._forget(0, file)
                    reached = False
                    if not self._rest():
                        return
                elif isinstance(trouble, RedisRefused) and len(jobs) > 1 and not trouble.written:
                    self._forget(0, file)
                    most = 1  # to find the job that is refused
                else:
                    kind = "unsure" if isinstance(trouble, MaybeWritten) else "refused"
                    lost = [job for job in jobs if job.jid not in trouble.written]
                    self._give_up(kind, lost, str(trouble))
                    self._forget(len(jobs), file)
                    written += len(jobs) - len(lost)
            else:
                self._forget(len(jobs), file)
                self._pause, most, written = FIRST_PAUSE_S, JOBS_AT_ONCE, written + len(jobs)
        if written:
            seconds = time.monotonic() - begun
            done = counted(written, "kept job")
            _log.info("Redis is back: %s written after %.1f s", done, seconds)

    def _more(self) -> bool:
        """Return False, for the end of the thread, if all jobs are written."""
        with self._change:
            if not len(self._held):
                self._thread = None
                return False
            return True

    def _next(self, most: int) -> tuple[list[ReadyPayload], SpoolFile | None]:
        """Return the next jobs to send, and their file, which says so from now on."""
        with self._change:
            jobs, file = self._held.first(most, BYTES_AT_ONCE)
            if file is not None:
                self._mark(lambda: file.sending(len(jobs)))
            return jobs, file

    def _rest(self) -> bool:
        """Wait before the next attempt; return False, for the end of the thread, if it is over."""
        with self._change:
            seconds, self._pause = self._pause, min(2 * self._pause, MAX_PAUSE_S)
            end, now = self._end, time.monotonic()
            if end is not None:
                if now >= end:
                    self._thread = None
                    return False
                seconds = min(FIRST_PAUSE_S, end - now)
            self._change.wait_for(lambda: self._end is not end, seconds)
            return True

    def _forget(self, count: int, file: SpoolFile | None) -> None:
        """Forget the oldest jobs, none after an attempt that failed, and files without jobs."""
        with self._change:
            self._held.drop(count)
            if file is None:
                return
            # The jobs of a file are side by side.
            if self._held.source is file:
                self._mark(lambda: file.done(count))
            else:
                self._mark(file.remove)
                if file is self._file:
                    self._file = None

    def _mark(self, note: Callable[[], None]) -> None:
        try:
            note()
        except OSError as error:  # the next process may push its jobs again
            _log.error("the spool %s cannot be written to: %s", self._directory, error)

    def _give_up(self, kind: str, jobs: Sequence[ReadyPayload], reason: str) -> None:
        counts = self._given_up
        self._given_up = replace(counts, **{kind: getattr(counts, kind) + len(jobs)})
        ids = ", ".join(job.jid for job in jobs[:NAMED])
        more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
        what = "may have been written" if kind == "unsure" else "refused"
        _log.error(
            "%s %s, not pushed again: %s%s (%s)",
            counted(len(jobs), "kept job"),
            what,
            ids,
            more,
            reason,
        )


async def _at_once(call: Callable[[], Any]) -> Any:
    return call()


_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _at_exit() -> None:
    for keeper in [*_keepers]:
        keeper.end_process()


def _after_fork() -> None:
    for keeper in [*_keepers]:
        keeper.begin_again()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
