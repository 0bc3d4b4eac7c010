"""Outcomes on their way to Redis, and the message that carries them with the next fetch. [REL-2]

Outcomes wait here until a fetch carries them: then a job costs its share of one round trip, and
no thread is woken for it. Until an outcome is stored its job stays in the private hash, so that
nothing is lost if this process dies before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec

from jobwire.connection.sync import SyncRedis
from jobwire.errors import NoReply, RedisRefused, RedisUnreachable
from jobwire.protocol import iteration
from jobwire.protocol.batches import script_ended
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import DONE, Outcome
from jobwire.protocol.output import script_tell
from jobwire.protocol.reliable import InFlightJob, script_done, script_finish, set_result
from jobwire.protocol.times import utc_day
from jobwire.protocol.unique import script_unlock
from jobwire.protocol.wire import Batch, Command, ErrorReply, Op, Script, command, once

__all__ = ["Entry", "Outbox"]

MAX_BATCH = 500  # outcomes in one message

_log = logging.getLogger("jobwire.worker")


class Entry(msgspec.Struct, eq=False):  # quicker to make than a dataclass
    """One outcome.

    Attributes:
        held: The job; without a field if it was acknowledged before, and only its result, lock,
            next job or batch is left.
        stored: Set when it is stored; None if no thread waits for that.
        lost: True if the job was no longer held.
        repeated: True if it was sent before and got no reply, so that the first try may have
            stored it. [REL-23]
    """

    held: InFlightJob
    outcome: Outcome
    stored: threading.Event | None = None
    lost: bool = False
    repeated: bool = False


class Outbox:
    """The outcomes of a process that are not stored yet. Thread-safe.

    Args:
        redis: Where outcomes are stored.
        keys: Key names.
        identity: The process that owns the private hash.
        dead_limits: Returns the limits of the dead set at this moment.
        flush_log: Writes the log lines of finished jobs.
        retry_interval: Seconds before outcomes that were not stored are sent again.
        on_failure: Called after outcomes were not stored.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        identity: str,
        *,
        dead_limits: Callable[[], DeadSetLimits],
        flush_log: Callable[[], None],
        retry_interval: float,
        on_failure: Callable[[], None],
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self._dead_limits = dead_limits
        self.flush_log = flush_log
        self._retry_interval = retry_interval
        self._on_failure = on_failure
        self._lock = threading.Lock()  # Guards `_failed`, `_on_the_way`, `_sent`, `_retry_at`,
        # `_reported`, `_collected_at`, and that an entry moves from place to place in one step.
        self._all_stored = threading.Condition(self._lock)
        # Threads append without the lock, which is safe: one append of a deque is one step.
        self._pending: deque[Entry] = deque()  # not sent yet; removed under `_lock`
        self._failed: deque[Entry] = deque()  # sent and not stored; guarded by `_lock`
        self._on_the_way = 0  # entries sent and not answered; guarded by `_lock`
        self._sent: dict[int, list[Entry]] = {}  # the same, by message; guarded by `_lock`
        self._retry_at = 0.0  # monotonic, when to send `_failed` again; guarded by `_lock`
        self._collected_at = 0.0  # monotonic, of the last message; guarded by `_lock`
        self._reported: str | None = None  # trouble in the log; guarded by `_lock`
        self.add = self._pending.append
        """Add an `Entry`, to send with the next message. Called for every job."""

    @property
    def pending(self) -> bool:
        """True if there is an outcome that was not sent."""
        return len(self._pending) > 0

    @property
    def unstored(self) -> int:
        """Number of outcomes that are not stored."""
        with self._lock:
            return self._count()

    def fields(self) -> list[str]:
        """Return the private entries whose outcomes are not stored. [REL-8]"""
        with self._lock:
            places = [self._pending.copy(), self._failed, *self._sent.values()]
            return [entry.held.field for place in places for entry in place]

    def wait_stored(self, timeout: float) -> int:
        """Wait until all outcomes are stored; return how many are not after so many seconds."""
        with self._lock:
            self._all_stored.wait_for(lambda: not self._count(), timeout)
            return self._count()

    def send_with(self, script: Script) -> Callable[[], Any]:
        """Send pending outcomes and `script` in one message; return a function for the reply.

        Call the returned function exactly once. It returns the script's reply, and handles those
        of the outcomes itself.

        Raises:
            RedisTrouble: The script failed; raised when the returned function is called.
        """
        read = self._send(self._collect(), script)

        def reply() -> Any:
            answer = read()
            if isinstance(answer, ErrorReply):
                raise RedisRefused(answer.message)
            return answer

        return reply

    def send_overdue(self, limit: float) -> float | None:
        """Send outcomes that have waited for a fetch for `limit` seconds.

        Returns:
            In how many seconds to call this again; None if nothing is pending.

        Raises:
            RedisTrouble: The outcomes are kept, to be sent again.
        """
        while self._pending:
            with self._lock:
                waited = time.monotonic() - self._collected_at
            if waited < limit:
                return limit
            self._send(self._collect(), None)()
        return None

    def send_failed(self) -> float | None:
        """Send outcomes that were not stored once more, if it is time.

        Returns:
            In how many seconds to call this again; None if there is nothing to send again.

        Raises:
            RedisTrouble: The outcomes are kept, to be sent again.
        """
        while True:
            with self._lock:
                if not self._failed:
                    return None
                wait = self._retry_at - time.monotonic()
                if wait > 0:
                    return wait
                entries = self._move(self._failed)
            self._send(entries, None)()
            with self._lock:
                recovered = self._reported is not None and not self._failed
                if recovered:
                    self._reported = None
            if recovered:
                _log.info("all outcomes are stored again")

    def _count(self) -> int:
        return len(self._pending) + self._on_the_way + len(self._failed)

    def _collect(self) -> list[Entry]:
        with self._lock:
            self._collected_at = time.monotonic()
            return self._move(self._pending)

    def _move(self, waiting: deque[Entry]) -> list[Entry]:
        """Take entries to send them. With the lock held."""
        entries = [waiting.popleft() for _ in range(min(len(waiting), MAX_BATCH))]
        self._on_the_way += len(entries)
        if entries:
            self._sent[id(entries)] = entries
        return entries

    def _send(self, entries: Sequence[Entry], extra: Script | None) -> Callable[[], Any]:
        """Send outcomes that were taken, and a script; return a function for the reply.

        The function returns the script's reply, which may be an error.

        Raises:
            RedisTrouble: Raised by the function: the message got no reply, or the script was
                sent alone and was refused.
        """
        try:
            self.flush_log()  # first: a job that is missing in a killed process's log runs again
            if not entries and extra is not None:
                return self._redis.start(once(extra))
            groups = _group(entries)
            answer = self._redis.start(self._exchange(groups, extra))
        except BaseException as error:  # nothing was sent
            self._keep(entries, str(error))
            self._forget(entries)
            raise

        def read() -> Any:
            try:
                replies = answer()
            except Exception as error:
                answered = isinstance(error, RedisRefused | RedisUnreachable)
                self._keep(entries, str(error), maybe_stored=not answered)
                raise
            else:
                for group, reply in zip(groups, replies, strict=False):
                    if isinstance(reply, ErrorReply):
                        self._keep(group, reply.message)
                    else:
                        self._stored(group)
            finally:
                self._forget(entries)  # after all of them are stored, or kept
            return replies[-1] if extra is not None else None

        return read

    def _exchange(self, groups: Sequence[Sequence[Entry]], extra: Script | None) -> Op[list[Any]]:
        """Store outcomes and send a script; return the replies to the outcomes, and its own.

        The commands that follow an outcome wait for its reply. In one message the server would also
        carry them out if it refused the outcome, or did not have its script. A job that then runs
        again would miss the steps that it has finished, and so would one that was put back.
        """
        day = utc_day(time.time())
        last = [] if extra is None else [extra]
        steps = [self._script(group, day) for group in groups]
        more = [entry for group in groups if group[0].outcome is not DONE for entry in group]
        follows = any(map(self._after, more))
        steps += chain.from_iterable(entry.outcome.beside for entry in more)
        replies: list[Any] = yield Batch(steps if follows else [*steps, *last])
        stored: list[Command | Script] = []
        for group, reply in zip(groups, replies, strict=False):
            _report_lost(group, reply)
            if follows and not isinstance(reply, ErrorReply):
                stored += chain.from_iterable(map(self._after, group))
        if follows and (rest := [*stored, *last]):
            try:
                replies += yield Batch(rest)
            except RedisUnreachable as error:  # which would say that nothing was stored
                raise NoReply(str(error)) from None
        return replies

    def _after(self, entry: Entry) -> Sequence[Command | Script]:
        outcome = entry.outcome
        if entry.lost:
            return outcome.frees
        if outcome.next is not None and not entry.held.field:
            return [command("SADD", self._keys.queues, outcome.next.queue)]
        if outcome.unlocks is None and not entry.held.field:
            return outcome.after[1:]  # the first one is the call
        if outcome.cancelled:
            forget = iteration.forget(self._keys, outcome.cancelled)
            return (*outcome.after, forget, *outcome.frees)
        return (*outcome.after, *outcome.frees)

    def _forget(self, entries: Sequence[Entry]) -> None:
        """End the message of these entries."""
        with self._lock:
            self._sent.pop(id(entries), None)

    def _stored(self, entries: Sequence[Entry]) -> None:
        """Entries are no longer on the way: they are stored."""
        for entry in entries:
            if entry.stored is not None:
                entry.stored.set()
        with self._lock:
            self._on_the_way -= len(entries)
            if not self._count():
                self._all_stored.notify_all()

    def _keep(self, entries: Sequence[Entry], trouble: str, *, maybe_stored: bool = False) -> None:
        """Have outcomes sent again later."""
        if not entries:
            return
        for entry in entries:
            entry.repeated |= maybe_stored
        with self._lock:
            self._on_the_way -= len(entries)
            self._failed.extend(entries)
            self._retry_at = time.monotonic() + self._retry_interval
            count = len(self._failed)
            news = trouble != self._reported
            self._reported = trouble
        if news:
            _log.error("outcomes of jobs are not stored yet (%d now): %s", count, trouble)
        self._on_failure()

    def _script(self, group: Sequence[Entry], day: str) -> Command | Script:
        """Return the call that stores outcomes of one kind."""
        first, repeated = group[0].outcome, group[0].repeated
        keys, me = self._keys, self._identity
        if not group[0].held.field:
            if first.result is not None:
                return set_result(keys, first.result)
            if first.unlocks is not None:
                return script_unlock(keys, *first.unlocks)
            if first.next is not None:
                return command("LPUSH", keys.queue(first.next.queue), first.next.text)
            if first.ended is not None:
                return script_ended(keys, first.ended)
            if first.output is not None:
                return script_tell(keys, *first.output, now=time.time())
            return first.after[0]
        if not first.place and first.words == 3 and first.counted in ("executed", "failed"):
            fields = [entry.held.field for entry in group]
            failed = first.counted == "failed"
            return script_done(keys, me, fields, failed=failed, day=day, repeated=repeated)
        ends = [(entry.held.field, entry.outcome) for entry in group]
        limits = self._dead_limits() if first.trims else None
        return script_finish(keys, me, ends, day=day, dead_limits=limits, repeated=repeated)


def _report_lost(group: Sequence[Entry], reply: object) -> None:
    """Log jobs that were put back while they ran."""
    gone = {field.decode() for field in reply} if isinstance(reply, list) else set()
    for entry in group if gone else ():
        if entry.held.field in gone and not entry.repeated:
            entry.lost = True
            _log.warning(
                "outcome of job %s dropped: it was put back while it ran, and runs again",
                entry.held.field,
            )


def _group(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return entries by script call: one call for all of a kind."""
    groups: dict[object, list[Entry]] = {}
    for entry in entries:
        outcome = entry.outcome
        if outcome is DONE:  # without a call, because most are
            kind: object = entry.repeated
        else:
            kind = (outcome.place, outcome.counted, outcome.words, entry.repeated)
        if outcome.place == "queue":
            kind = (kind, outcome.queue or entry.held.queue)
        elif not entry.held.field:  # a part alone
            kind = entry
        group = groups.get(kind)
        if group is None:
            groups[kind] = [entry]
        else:
            group.append(entry)
    return list(groups.values())
