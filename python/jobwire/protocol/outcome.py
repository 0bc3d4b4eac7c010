"""The outcome of a job: its new place, its counters and its result. [REL-2]"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from jobwire.protocol.batches import BATCH, Ended, HowEnded, membership, time_text
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job, edit
from jobwire.protocol.results import ResultOutcome, ResultToStore
from jobwire.protocol.retry import Discard, Kill, Retry
from jobwire.protocol.ruby_locks import (
    LOCK_DIGEST,
    ruby_lock_of,
    script_ruby_take,
    script_ruby_tidy,
)
from jobwire.protocol.times import Generation
from jobwire.protocol.unique import UNIQUE, lock_of, script_unlock
from jobwire.protocol.wire import Command, Script

__all__ = [
    "DONE",
    "Counted",
    "NextJob",
    "Outcome",
    "Place",
    "after_decision",
    "ending",
    "put_off",
    "told",
]

_WAITS = frozenset(["retry", "schedule", "queue", "parked"])  # the places of jobs that run later

Place: TypeAlias = Literal["retry", "schedule", "dead", "unreadable", "parked", "queue", ""]
"""Where a job is stored: a sorted set, the queue that it came from, or nowhere."""

Counted: TypeAlias = Literal["executed", "failed", "expired", ""]
"""The kind of a job for the counters: `failed` is also an execution; `expired` came too late."""


class NextJob(NamedTuple):
    """A job that is pushed by the step that stores the end of another.

    Attributes:
        queue: Name of its queue.
        text: Its payload, complete.
    """

    queue: str
    text: bytes


class Outcome(msgspec.Struct, frozen=True):  # quicker to make than a dataclass
    """The end of a job, as its worker stores it in one step.

    Attributes:
        place: Where the job goes. The text goes to the head of a queue.
        text: The payload to store; empty without a place.
        at: Epoch second that is the score in `retry`, `schedule` and `parked`. In the dead set it
            is the time of the step.
        counted: The kind of the job for the counters. [STAT-1] [X-TIME-3]
        cancelled: Id whose mark as cancelled is removed, with the state of its iteration; empty
            for none. [X-CANCEL-5]
        result: The result to store, if the job keeps one. [X-RESULT-2]
        unlocks: Name of the lock to release, and the job that must have it. [X-UNIQ-7]
        ended: The end of a member of a batch. [X-BATCH-5]
        next: The job to push if this one was still held. [REL-2]
        queue: The queue, if it is another one than that of the job. [X-CLASS-4]
        output: The job, and how the execution ended, for those who read its output. [X-STEP-10]
        beside: Sent after the step in the same message, so that no crash of the process comes
            between; also if the step is refused, so it must do no harm then. [X-PARK-4] [X-ADDON-6]
        after: Sent once the step is stored: deletes the data that the job leaves in Redis. Not sent
            if the job was put back while it ran: its next execution has that data.
        frees: Sent also then: frees the slot of a limit that this execution had. [X-LIMIT-5]
    """

    place: Place = ""
    text: bytes = b""
    at: float = 0.0
    counted: Counted = "executed"
    cancelled: str = ""
    result: ResultToStore | None = None
    unlocks: tuple[str, str] | None = None
    after: Sequence[Command | Script] = ()
    queue: str = ""
    next: NextJob | None = None
    ended: Ended | None = None
    output: tuple[str, ResultOutcome] | None = None
    frees: Sequence[Command | Script] = ()
    beside: Sequence[Command | Script] = ()

    @property
    def trims(self) -> bool:
        """True if the place is trimmed when a job is added. [DEAD-2] [DEAD-3]"""
        return self.place == "dead" or self.place == "unreadable"

    @property
    def words(self) -> Literal[3, 7, 14]:
        """Number of arguments that describe it in `finish.lua`.

        3: nothing else changes with the place and the counters.
        """
        if self.next is not None or self.ended is not None or self.output is not None:
            return 14
        plain = self.result is None and not self.cancelled and self.unlocks is None
        return 3 if plain else 7

    def key(self, keys: Keys, queue: str) -> str:
        """Return the key of the place, for a job from this queue; `retry` for none."""
        match self.place:
            case "queue":
                return keys.queue(self.queue or queue)
            case "schedule":
                return keys.schedule
            case "dead":
                return keys.dead
            case "unreadable":
                return keys.unreadable
            case "parked":
                return keys.parked
        return keys.retry


DONE = Outcome()
"""The job succeeded, keeps no result and leaves no data."""


def after_decision(decision: Retry | Kill | Discard, result: ResultToStore | None) -> Outcome:
    """Return the outcome of a job that failed, or that is not run. [RETRY-9] [DEAD-1] [DEAD-4]"""
    match decision:
        case Retry(text, at):
            return Outcome("retry", text, at, "failed", result=result)
        case Kill(text, counted):
            return Outcome("dead", text, counted="failed" if counted else "", result=result)
    return Outcome(counted="failed", result=result)


def ending(keys: Keys, outcome: Outcome, job: Job, now: float, generation: Generation) -> Outcome:
    """Return the outcome of a job with the release of its lock, and its end in its batch.

    [X-UNIQ-6] [X-UNIQ-7] [X-BATCH-5] [X-ADDON-4] [X-ADDON-17]

    Args:
        keys: Key names.
        outcome: The outcome.
        job: The job.
        now: Epoch seconds, for callbacks of the batch.
        generation: Generation of the times to write.
    """
    jid = job.jid
    if jid is None:
        return outcome
    if (value := job.get(UNIQUE)) is not None:
        lock = lock_of(value)
        waits = outcome.place in _WAITS and lock is not None and lock.scope != "while_running"
        if lock is not None and lock.scope != "for_time" and not waits:
            outcome = msgspec.structs.replace(outcome, unlocks=(lock.digest, jid))
    if job.get(LOCK_DIGEST) is not None:
        outcome = _ruby_unlocked(keys, outcome, job, jid, now)
    if outcome.place not in _WAITS and (value := job.get(BATCH)) is not None:
        member = membership(value)
        if member is not None:
            ended = Ended(member, jid, _how(outcome), time_text(now, generation))
            outcome = msgspec.structs.replace(outcome, ended=ended)
    return outcome


def told(outcome: Outcome) -> ResultOutcome | None:
    """Return how an execution ended; None if the job goes on later, without a failure.

    [X-STEP-11]
    """
    if outcome.place == "retry":
        return "retry"
    if outcome.place in _WAITS:
        return None
    if outcome.place:
        return "dead"
    if outcome.counted == "executed":
        return "cancelled" if outcome.cancelled else "done"
    if outcome.counted == "failed":
        return "discarded"
    return "expired" if outcome.counted else "cancelled"


def _ruby_unlocked(keys: Keys, outcome: Outcome, job: Job, jid: str, now: float) -> Outcome:
    """Return the outcome of a job with the release of its locks of sidekiq-unique-jobs."""
    if (lock := ruby_lock_of(job)) is None:
        return outcome
    names = lock.released(waits=outcome.place in _WAITS, done=_how(outcome) == "done")
    after = [*outcome.after]
    for name in names:
        tidy = script_ruby_tidy(keys, name)  # does nothing while a job has the lock
        if outcome.unlocks is None:
            outcome = msgspec.structs.replace(outcome, unlocks=(name, jid), beside=(tidy,))
        else:
            after += (script_unlock(keys, name, jid), tidy)
    if outcome.place == "retry" and lock.kind == "until_executing":
        after.append(script_ruby_take(keys, lock, jid, now))  # [X-ADDON-17]
    return msgspec.structs.replace(outcome, after=after)


def _how(outcome: Outcome) -> HowEnded:
    if outcome.cancelled or (not outcome.place and outcome.counted in ("", "expired")):
        return "dropped"
    return "dead" if outcome.place or outcome.counted == "failed" else "done"


def put_off(text: bytes, queue: str, at: float) -> Outcome:
    """Return the outcome of a job that waits for the end of another with its key. [X-UNIQ-9]"""
    later = edit(text, {"queue": queue}, drop=("enqueued_at",))
    return Outcome("schedule", later, at, counted="")
