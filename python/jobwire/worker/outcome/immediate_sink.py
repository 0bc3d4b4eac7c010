"""The outcomes of basic fetch: stored at once, by the thread that ran the job. [FETCH-1]"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisTrouble, Shutdown
from jobwire.protocol import cancelling
from jobwire.protocol.batches import script_ended
from jobwire.protocol.dead_set import DeadSetLimits, kill
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import DONE, Outcome
from jobwire.protocol.output import script_tell
from jobwire.protocol.reliable import InFlightJob, set_result
from jobwire.protocol.stats import count
from jobwire.protocol.times import utc_day
from jobwire.protocol.unique import script_unlock
from jobwire.protocol.wire import Batch, Command, Script, Step, command, once
from jobwire.worker.base.outage import next_pause
from jobwire.worker.outcome.sink import OutcomeSink

__all__ = ["ExecutionCounts", "ImmediateSink", "send_until_stored", "until_done"]

_log = logging.getLogger("jobwire.worker")


class ExecutionCounts:
    """Executions that are counted in memory and written with the heartbeat. [STAT-1]

    Those whose outcome no script stores and counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processed = 0  # guarded by `_lock`
        self._failed = 0  # guarded by `_lock`

    def add(self, *, failed: bool, counted: bool = False) -> None:
        """Count one execution; if it was `counted` before, only its failure."""
        with self._lock:
            self._processed += not counted
            self._failed += failed

    def flush(self, redis: SyncRedis, keys: Keys) -> None:
        """Write the counts; keep them if that fails."""
        with self._lock:
            processed, failed = self._processed, self._failed
            self._processed = self._failed = 0
        if not processed and not failed:
            return
        day = utc_day(time.time())
        try:
            redis.run(once(count(keys, processed=processed, failed=failed, day=day)))
        except RedisTrouble:
            with self._lock:
                self._processed += processed
                self._failed += failed
            raise


class ImmediateSink(OutcomeSink):
    """Stores each outcome before it returns.

    Args:
        redis: Where outcomes are stored.
        keys: Key names.
        counts: Shared by the process.
        dead_limits: Returns the limits of the dead set at this moment.
        flush_log: Writes the log lines of finished jobs.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        *,
        counts: ExecutionCounts,
        dead_limits: Callable[[], DeadSetLimits],
        flush_log: Callable[[], None],
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._counts = counts
        self._dead_limits = dead_limits
        self._flush_log = flush_log
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """End all tries, because the jobs were put back. Their threads get `Shutdown`."""
        self._given_up.set()

    def record(self, held: InFlightJob, outcome: Outcome) -> None:
        """Store the outcome of a job, trying until Redis takes it or the process stops.

        The result goes along in one transaction. [X-RESULT-2]
        """
        self._flush_log()
        if outcome.counted in ("executed", "failed"):
            self._counts.add(failed=outcome.counted == "failed")  # [DEAD-5]
        key = outcome.key(self._keys, held.queue)
        commands: list[Command | Script] = []
        if outcome.counted == "expired":
            commands.append(command("INCRBY", self._keys.expired, 1))
        if outcome.cancelled:
            commands += cancelling.forget(self._keys, outcome.cancelled)
        if outcome.place == "queue":
            if outcome.queue:
                commands.append(command("SADD", self._keys.queues, outcome.queue))  # [KEY-1]
            commands.append(command("LPUSH", key, outcome.text))
        elif outcome.trims:
            commands += kill(key, outcome.text, self._dead_limits()).steps
        elif outcome.place:
            commands.append(command("ZADD", key, outcome.at, outcome.text))
        self._send(commands, outcome)

    def ran(self, *, failed: bool, rest: Outcome = DONE) -> None:
        """Count the end of a job."""
        self._flush_log()
        self._counts.add(failed=failed)
        self._send([], rest)

    def store(self, held: InFlightJob, outcome: Outcome) -> bool:
        """Store the outcome of a job; always True, because no other process can have the job."""
        self.record(held, outcome)
        return True

    def _send(self, commands: list[Command | Script], outcome: Outcome) -> None:
        if outcome.result is not None:
            commands.append(set_result(self._keys, outcome.result))
        if outcome.unlocks is not None:
            commands.append(script_unlock(self._keys, *outcome.unlocks))
        if outcome.ended is not None:
            commands.append(script_ended(self._keys, outcome.ended))
        if outcome.next is not None:
            queue, text = outcome.next
            commands.append(command("SADD", self._keys.queues, queue))
            commands.append(command("LPUSH", self._keys.queue(queue), text))
        commands += (*outcome.beside, *outcome.after, *outcome.frees)
        if commands:
            step: Step = commands[0] if len(commands) == 1 else Batch(commands, atomic=True)
            send_until_stored(
                self._redis, step, "outcome of a job not stored yet", given_up=self._given_up
            )
        if outcome.output is not None:
            self._tell(*outcome.output)

    def _tell(self, jid: str, how: str) -> None:
        """Tell the readers of an output the end, if there is one. [X-STEP-10]

        Not in the step of the outcome: a user without the rule for scripts would store none.
        """
        with suppress(RedisTrouble):
            if self._redis.run(once(command("TYPE", self._keys.output(jid)))) == b"stream":
                self._redis.run(once(script_tell(self._keys, jid, how, now=time.time())))


def send_until_stored(
    redis: SyncRedis,
    step: Step,
    complaint: str,
    deadline: float = math.inf,
    given_up: threading.Event | None = None,
) -> None:
    """Send a step until Redis takes it; the rest is as in `until_done`. [RETRY-23]"""
    until_done(lambda: redis.run(once(step)), complaint, deadline, given_up)


def until_done(
    attempt: Callable[[], object],
    complaint: str,
    deadline: float = math.inf,
    given_up: threading.Event | None = None,
) -> None:
    """Repeat an attempt until it raises no `RedisTrouble`.

    Args:
        attempt: A call that may raise it.
        complaint: Text that is logged once, with the error.
        deadline: Monotonic time at which to give up.
        given_up: Ends the tries when it is set.

    Raises:
        Shutdown: `given_up` is set.
        RedisTrouble: No attempt succeeded before the deadline.
    """
    began = time.monotonic()
    reported = False
    while True:
        try:
            attempt()
            return
        except RedisTrouble as error:
            now = time.monotonic()
            if now >= deadline:
                raise
            if not reported:
                _log.error("%s: %s", complaint, error)
                reported = True
            pause = next_pause(now - began, jitter=random.random())
            if given_up is None:
                time.sleep(pause)
            elif given_up.wait(pause):
                raise Shutdown from error
