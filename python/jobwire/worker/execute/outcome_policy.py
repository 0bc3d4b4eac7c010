"""The end of an execution: its outcome, handlers and log line. [RETRY-1] to [RETRY-13]"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeGuard, TypeVar

import msgspec

from jobwire.application.app import App
from jobwire.application.current import running
from jobwire.application.jobtype import JobType
from jobwire.connection.sync import SyncRedis
from jobwire.errors import (
    Cancelled,
    InvalidArgument,
    JobFailed,
    JobTimeout,
    MalformedPayload,
    PoisonPill,
    RedisTrouble,
    ResultError,
    Shutdown,
    Snooze,
    TryAgain,
)
from jobwire.protocol import gitlab, steps
from jobwire.protocol.batches import BATCH, is_cancelled, membership
from jobwire.protocol.chains import NEXT, next_job, passed_on
from jobwire.protocol.classes import hand_over
from jobwire.protocol.dead_set import dead_place
from jobwire.protocol.expiry import EXPIRES_AT, SNOOZES, is_late, snoozed, snoozes
from jobwire.protocol.foreign import UNKNOWN, park
from jobwire.protocol.groups import gives
from jobwire.protocol.iteration import Interrupted
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import ThreadMetrics
from jobwire.protocol.outcome import DONE, NextJob, Outcome, after_decision, ending, put_off, told
from jobwire.protocol.payload import Job, LazyJob, decode, edit
from jobwire.protocol.poison import poisoned
from jobwire.protocol.progress import Status
from jobwire.protocol.reliable import InFlightJob
from jobwire.protocol.results import (
    KEEP,
    Members,
    ResultOutcome,
    ResultToStore,
    failure_members,
    keep_of,
    result_to_store,
    value_members,
)
from jobwire.protocol.retry import (
    Choice,
    Discard,
    Kill,
    Retry,
    after_failure,
    scrub,
    wants_backtrace,
)
from jobwire.protocol.ruby_locks import rejects, ruby_lock_of, script_ruby_take, script_ruby_tidy
from jobwire.protocol.times import Generation, stamp
from jobwire.protocol.unique import UNIQUE, lock_of, script_lock, script_unlock
from jobwire.protocol.wire import Batch, Command, Script, once
from jobwire.worker.execute.compiled_job import CancelledIds
from jobwire.worker.execute.execution import Execution
from jobwire.worker.execute.failure import describe, user_trace
from jobwire.worker.execute.hand_over import HandOver
from jobwire.worker.execute.joblog import ended, event
from jobwire.worker.execute.limiting import Limits
from jobwire.worker.outcome.ended_progress import EndedProgress
from jobwire.worker.outcome.sink import OutcomeSink

__all__ = ["OutcomePolicy"]

_CONFLICT = "another job has its lock"
PUT_OFF_S = 5.0  # on average, of a job that waits for another with its key

# The ends of a job that its interruption can have.
_ENDED = (Shutdown, asyncio.CancelledError, concurrent.futures.CancelledError)
_RAN_BEFORE = ("retry_count", SNOOZES)
_log = logging.getLogger("jobwire.worker")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OutcomePolicy:
    """Turns what happened to a job into its outcome, and stores it.

    Args:
        app: The application whose handlers are called.
        keys: Key names.
        sink: Where outcomes go.
        generation: Returns how to write times.
        max_retries: Number of retries of a job with `retry: true`.
        poison_limit: How often a job may be recovered from a dead process before it is killed.
        retries_unknown: True to retry a job of an unknown class without the option `retry`.
        hand_over: Finds the queue of a job that another worker can run.
        ended_progress: Keeps what a job has reported last.
        redis: Where the locks of unique jobs are, at their starts; None: none is looked at.
        limits: The slots of limits; None: no limit is looked at.
        cancelled_ids: The jobs that were cancelled.
    """

    app: App
    keys: Keys
    sink: OutcomeSink
    generation: Callable[[], Generation]
    max_retries: int
    poison_limit: int
    retries_unknown: bool
    hand_over: HandOver
    ended_progress: EndedProgress = field(default_factory=EndedProgress)
    redis: SyncRedis | None = None
    limits: Limits | None = None
    cancelled_ids: CancelledIds = field(default_factory=CancelledIds)

    def began(self, execution: Execution) -> None:
        """Log that the current job starts."""
        if _log.isEnabledFor(logging.INFO):
            execution.logged = True
            event(_log, logging.INFO, "start", returned=execution.held.returned or None)

    def end(
        self, execution: Execution, error: BaseException | None, counters: ThreadMetrics
    ) -> None:
        """Handle the end of the current job, which raised `error`. Blocks only if `may_block`.

        A job that was asked to end keeps the outcome that it has. [X-CANCEL-8]
        """
        try:
            job, compiled, seconds = execution.job, execution.compiled, execution.seconds
            asked = job.progress is not None or job.steps is not None or job.run
            if error is None and execution.plain and not asked:
                self._returned(execution, counters)
                self.sink.record(execution.held, DONE)
                return
            if job.progress is not None:
                self.ended_progress.add(job)
            after: tuple[Command, ...] = ()
            if compiled.finish is not None and (ended_by := compiled.finish(job)) is not None:
                after = (ended_by,)
            if job.steps is not None and job.jid is not None:
                after = (*after, steps.forget(self.keys, job.jid))
            if error is None and gitlab.STATUS_EXPIRATION in job.fields and job.jid is not None:
                after = (*after, *gitlab.forget_status(self.keys, job.fields, job.jid))
            following: NextJob | None = None
            if error is None and (NEXT in job.fields or BATCH in job.fields):
                try:
                    following = self._following(execution)
                except (MalformedPayload, ResultError) as problem:
                    error = problem
            if error is None:
                self._returned(execution, counters)
                result = None
                if compiled.keep or KEEP in job.fields:
                    result = self._done(job, compiled.keep)
                outcome = DONE
                if after or result is not None or following is not None:
                    outcome = Outcome(result=result, after=after, next=following)
                if execution.acknowledged:
                    rest = self._ended(execution.held, outcome, job, execution)
                    self.sink.ran(failed=False, rest=rest)
                else:
                    stored = self._ending(execution.held, outcome, job, execution)
                    self.sink.record(execution.held, stored)
            elif isinstance(error, Cancelled) or (job.cancelled and isinstance(error, _ENDED)):
                self.cancelled(execution, counters)
            elif isinstance(error, Snooze) and self._puts_off(execution, error, counters):
                pass
            elif isinstance(error, Interrupted):
                ended(_log, logging.INFO, "gave way; it goes on later", elapsed=round(seconds, 3))
                counters.record(job.display_class, seconds * 1000, False)
                # [ITER-16] [ITER-17]
                text = edit(
                    execution.held.text, {"enqueued_at": stamp(time.time(), self.generation())}
                )
                outcome = Outcome("queue", text, counted="")
                stored = self._ending(execution.held, outcome, job, execution)
                self.sink.record(execution.held, stored)
            else:
                self._fail(execution, error, counters)
        except Exception as problem:  # noqa: BLE001 - the job must not stay in flight
            if execution.acknowledged:
                _log.exception("the end of a job cannot be recorded; it does not run again")
            else:
                self.unrecorded(execution.held, problem)
        if execution.acknowledged:
            self.free(execution.held)

    def _returned(self, execution: Execution, counters: ThreadMetrics) -> None:
        if execution.logged:
            ended(_log, logging.INFO, "done", elapsed=round(execution.seconds, 3))
        counters.record(execution.job.display_class, execution.seconds * 1000, False)

    def _ending(
        self, held: InFlightJob, outcome: Outcome, job: Job, execution: Execution | None = None
    ) -> Outcome:
        """Return the outcome of a job with the release of its lock and its slot."""
        outcome = self._ended(held, outcome, job, execution)
        return outcome if self.limits is None else self.limits.ending(held, outcome)

    def _following(self, execution: Execution) -> NextJob | None:
        """Return the job that follows one that returned; no other outcome pushes it. [X-FLOW-4]

        Raises:
            MalformedPayload, ResultError: See `chains.next_job`. The job fails. [X-FLOW-6]
                A member of a group fails here as well. [X-FLOW-12]
        """
        if gives(execution.job.fields):
            execution.job.value = passed_on("its group", execution.job.value)
        if NEXT not in execution.job.fields:
            return None
        now = stamp(time.time(), self.generation())
        return next_job(execution.held.text, execution.job.value, now=now)

    def _ended(
        self, held: InFlightJob, outcome: Outcome, job: Job, execution: Execution | None = None
    ) -> Outcome:
        """Return the outcome of a job without a slot, told to those who look at the execution.

        Those who read its output learn it from the same step. [X-STEP-10]
        """
        if execution is not None and execution.plain and not execution.job.run:
            return outcome
        now = time.time()
        outcome = ending(self.keys, outcome, job, now, self.generation())
        read = _may_have_output(held, job, execution)
        watched = execution is not None and (execution.waiter or execution.has_status)
        if job.jid is None or not (read or watched):
            return outcome
        after = [*outcome.after]
        if read and (how := told(outcome)) is not None:
            outcome = msgspec.structs.replace(outcome, output=(job.jid, how))
        if execution is not None:
            if execution.waiter and outcome.place not in ("queue", "schedule"):
                after += gitlab.end_wait(self.keys, execution.waiter, job.jid)
            if execution.has_status and self.app.transport.ruby_status is not None:
                status, progress = _ruby_status(outcome), execution.job.progress
                after += self.app.transport.ruby_status.ends(
                    self.keys, job.jid, status, progress, now
                )
        return msgspec.structs.replace(outcome, after=after)

    def cancelled(self, execution: Execution, counters: ThreadMetrics) -> None:
        """End a job that was cancelled, which is not a failure.

        It goes to the dead set if GitLab has done it. [X-CANCEL-5] [X-CANCEL-6] [X-ADDON-16]
        """
        job, held = execution.job, execution.held
        ended(_log, logging.INFO, "cancelled", elapsed=round(execution.seconds, 3))
        counters.record(job.display_class, execution.seconds * 1000, False)
        keep = keep_of(job, execution.compiled.keep)
        result = self._kept(job, keep, "cancelled", Members()) if keep else None
        outcome = Outcome(cancelled=job.jid or "", result=result)
        if execution.acknowledged:
            self.sink.ran(failed=False, rest=self._ended(held, outcome, job, execution))
        else:
            if job.jid in self.cancelled_ids.by_gitlab:
                self.cancelled_ids.by_gitlab.discard(job.jid)
                outcome = Outcome("dead", held.text, counted="", result=result)
            self.sink.record(held, self._ending(held, outcome, job, execution))
            self.sink.flush_soon()  # people wait for it

    def _puts_off(self, execution: Execution, snooze: Snooze, counters: ThreadMetrics) -> bool:
        """Put a job off; return False if it was put off too often, or ended before it ran.

        [X-TIME-4] [X-TIME-6]
        """
        held, job = execution.held, LazyJob(execution.held.text, execution.held.queue)
        count = snoozes(job) + 1
        if execution.acknowledged or count > snooze.limit:
            return False
        ended(_log, logging.INFO, str(snooze), elapsed=round(execution.seconds, 3))
        counters.record(execution.job.display_class, execution.seconds * 1000, False)
        text = snoozed(held.text, held.queue, count)
        at = time.time() + snooze.seconds
        outcome = Outcome("schedule", text, at, counted="")
        self.sink.record(held, self._ending(held, outcome, job, execution))
        return True

    def expires(self, held: InFlightJob, job: Job, default: int) -> bool:
        """Drop a job that came too late; return True if it was one. [X-TIME-2] [X-TIME-3]

        `default` is the time to keep its result if the payload does not say it.
        """
        if not is_late(job, time.time()):
            return False
        with running(job):
            _log.warning("dropped: it came after its time, which %s says", EXPIRES_AT)
        keep = keep_of(job, default)
        result = self._kept(job, keep, "expired", Members()) if keep else None
        self.sink.record(held, self._ended(held, Outcome(counted="expired", result=result), job))
        for handler in self.app.expired_handlers:
            _contained("expired handler", partial(handler, job))
        return True

    def shows_start(self, execution: Execution) -> None:
        """Write that a job runs, if its class has a status. [X-ADDON-19]"""
        job, of = execution.job, self.app.transport.ruby_status
        if of is None or self.redis is None or job.jid is None or not of.covers(job.display_class):
            return
        execution.has_status = True
        args = job.fields.get("args")  # of any type: the job fails later
        steps = of.begins(self.keys, job.jid, job.display_class, args, time.time())
        with suppress(RedisTrouble):  # a status is for people, and the end writes another
            self.redis.run(once(Batch(steps, atomic=True)))

    def was_cancelled_by_gitlab(self, held: InFlightJob, job: Job) -> bool:
        """Start a job of GitLab; return True if it goes to the dead set instead. [X-ADDON-13]"""
        if job.jid is None or self.redis is None:
            return False
        try:
            if self.redis.run(gitlab.starts(self.keys, job.fields, job.jid)):
                return False
        except RedisTrouble:
            return False  # its cookie ends by itself
        with running(job):
            _log.warning("moved to the dead set: GitLab has cancelled it")
        self.sink.record(held, self._ended(held, Outcome("dead", held.text, counted=""), job))
        return True

    def must_wait(self, held: InFlightJob, job: Job) -> bool:
        """Let a unique job start; return True if it must wait for another with its key."""
        if job.jid is None or self.redis is None:
            return False
        try:
            why = self._lacks(self.redis, job, job.jid)
        except RedisTrouble as error:
            why = f"its lock cannot be taken: {error}"
        if not why:
            return False
        if why == _CONFLICT and rejects(job):  # [X-ADDON-18]
            with running(job):
                _log.warning("moved to the dead set: %s, and on_conflict is reject", why)
            self.sink.record(held, self._ended(held, Outcome("dead", held.text, counted=""), job))
            return True
        at = time.time() + (0.5 + random.random()) * PUT_OFF_S
        with running(job):
            _log.info("put off: %s", why)
        self.sink.record(held, put_off(held.text, held.queue, at))
        return True

    def _lacks(self, redis: SyncRedis, job: Job, jid: str) -> str:
        """Take the locks that a job needs to run, and release those that end with its start.

        [X-UNIQ-6] [X-UNIQ-9] [X-ADDON-2] [X-ADDON-3]

        Returns:
            Why it must wait; empty if it starts.
        """
        lock, ruby = lock_of(job.get(UNIQUE)), ruby_lock_of(job)
        ended: list[Script] = []
        if lock is not None and lock.scope == "while_running":
            if redis.run(once(script_lock(self.keys, lock, jid)))[0]:
                return "another job with its key runs"
        elif lock is not None and lock.scope == "until_start":
            ended.append(script_unlock(self.keys, lock.digest, jid))
        if ruby is not None:
            if ruby.needed and not redis.run(
                once(script_ruby_take(self.keys, ruby, jid, time.time()))
            ):
                return _CONFLICT
            if ruby.ends_at_start:
                ended.append(script_unlock(self.keys, ruby.digest, jid))
                ended.append(script_ruby_tidy(self.keys, ruby.digest))
        if ended:
            # At its end each lock is released once more, in case that this fails.
            with suppress(RedisTrouble):
                redis.run(once(Batch(ended)))
        return ""

    def over_limit(self, held: InFlightJob, job: Job) -> bool:
        """Let a job with a limit start; return True if it must wait. [X-LIMIT-3] [X-LIMIT-8]"""
        if self.limits is None:
            return False
        try:
            outcome = self.limits.refuse(held, job)
            why = "its limit is reached"
        except RedisTrouble as error:
            at = time.time() + (0.5 + random.random()) * PUT_OFF_S
            outcome = put_off(held.text, held.queue, at)
            why = f"its limit cannot be read: {error}"
        if outcome is None:
            return False
        with running(job):
            _log.debug("waits: %s", why)
        self.sink.record(held, self._ended(held, outcome, job))
        self.sink.flush_soon()  # its place in line must not wait for a fetch
        return True

    def free(self, held: InFlightJob) -> None:
        """Free the slot of a job whose outcome cannot carry that. [X-LIMIT-5]"""
        if self.limits is not None:
            self.limits.free(held)

    def is_dropped(self, held: InFlightJob, job: Job, default: int) -> bool:
        """Drop a member of a batch that was cancelled; return True if it was one. [X-BATCH-7]

        `default` is the time to keep its result if the payload does not say it.
        """
        member = membership(job.get(BATCH))
        if member is None or self.redis is None:
            return False
        try:
            if not self.redis.run(is_cancelled(self.keys, member)):
                return False
        except RedisTrouble:
            return False  # it runs, as members do that have begun
        with running(job):
            _log.info("dropped: batch %s was cancelled", member.batch)
        keep = keep_of(job, default)
        result = self._kept(job, keep, "cancelled", Members()) if keep else None
        self.sink.record(held, self._ended(held, Outcome(counted="", result=result), job))
        return True

    def leaves(self, held: InFlightJob, job: Job, reason: str, to: str) -> bool:
        """Leave a job, unchanged and uncounted, to a worker that can run it. [X-CLASS] [X-PARK-3]

        `reason` says why to park it, and `to` names the queue for its class; either may be empty.

        Returns:
            False if the job is to run here.
        """
        queue = self.hand_over.queue_for(held, job, to) if to or reason == UNKNOWN else ""
        with running(job):
            if queue:
                _log.info("handed over to queue %s", queue)
                self.sink.record(held, hand_over(self.keys, held.text, queue))
            elif reason:
                _log.info("parked: %s", reason)
                self.sink.record(held, park(self.keys, held.text, reason, time.time()))
        return bool(queue or reason)

    def unrecorded(self, held: InFlightJob, problem: BaseException) -> None:
        """Kill a job whose outcome cannot be recorded because of `problem`."""
        text, job = held.text, LazyJob(held.text, held.queue)
        with suppress(Exception):  # otherwise it is killed unchanged
            failure = describe(problem, backtrace=False)
            changes = {
                "error_message": scrub(f"its outcome cannot be recorded: {failure.message}"),
                "error_class": scrub(failure.error_class),
                "failed_at" if job.get("failed_at") is None else "retried_at": stamp(
                    time.time(), self.generation()
                ),
            }
            text = edit(held.text, changes)
        _contained("killing it", partial(self._record_death, held, job, Kill(text), problem, 0))
        _log.error("killed a job whose outcome cannot be recorded", exc_info=problem)

    def unreadable(self, held: InFlightJob, error: MalformedPayload) -> None:
        """Store a payload that cannot be decoded as it is, uncounted. [EXEC-3] [EXEC-11]"""
        _log.error("payload in queue %s moved to the dead set unchanged: %s", held.queue, error)
        self.sink.record(held, Outcome(dead_place(error), held.text, counted=""))

    def kills(self, held: InFlightJob, job: Job, keep: int = 0) -> bool:
        """Kill a job that has ended too many processes; return True if it was one. [REL-10]

        `keep` is the time to keep its result if the payload does not say it.
        """
        outcome = poisoned(
            job,
            held.recovered,
            now=time.time(),
            generation=self.generation(),
            limit=self.poison_limit,
        )
        if outcome is None:
            return False
        error = PoisonPill(decode(outcome.text, job.queue)["error_message"])
        with running(job):
            _log.error("killed: %s", error)
        self._record_death(held, job, outcome, error, keep)
        return True

    def may_block(self, error: BaseException | None) -> bool:
        """True if `end` waits for an outcome to be stored, before death handlers are called."""
        return error is not None and bool(self.app.death_handlers)

    def _fail(self, execution: Execution, error: BaseException, counters: ThreadMetrics) -> None:
        held, seconds = execution.held, execution.seconds
        definition = execution.compiled.definition
        job = LazyJob(held.text, held.queue)  # as fetched, without changes by its code [EXEC-5]
        outcome = self._outcome(execution, job, error)
        if definition is not None:  # the number of unknown class names has no limit
            counters.record(job.display_class, seconds * 1000, True)
        keep = execution.compiled.keep
        if execution.acknowledged:
            result = self._failed(job, keep, "discarded", error)
            rest = Outcome(counted="failed", result=result)
            self.sink.ran(failed=True, rest=self._ended(held, rest, job, execution))
            self._tell_of_death(job, error)
        elif isinstance(outcome, Retry):
            result = self._failed(job, keep, "retry", error)
            stored = self._ending(held, after_decision(outcome, result), job, execution)
            self.sink.record(held, stored)
        else:
            self._record_death(held, job, outcome, error, keep, execution)
        if _expected(error, outcome):
            return
        if self.app.error_handlers:
            self.sink.flush_soon()  # the outcome must not wait for an error tracker
        for handler in self.app.error_handlers:
            _contained("error handler", partial(handler, job, error))

    def _outcome(
        self, execution: Execution, job: Job, error: BaseException
    ) -> Retry | Kill | Discard:
        definition, seconds = execution.compiled.definition, execution.seconds
        failure = describe(error, backtrace=wants_backtrace(job))
        default_retry: object = True if definition is not None or self.retries_unknown else None
        if definition is not None and definition.defaults.get("retry") is not None:
            default_retry = definition.defaults["retry"]
        choices: list[Choice] = []
        outcome: Retry | Kill | Discard = Discard()
        if not execution.acknowledged:
            outcome = after_failure(
                job,
                failure,
                now=time.time(),
                jitter=random.random(),
                generation=self.generation(),
                default_retry=default_retry,
                max_retries=self.max_retries,
                choose=_chooser(definition, error, job, choices),
            )
        fate = _fate(outcome, choices)
        if isinstance(outcome, Kill) or (isinstance(outcome, Discard) and outcome.exhausted):
            asked, outcome = outcome, _last_word(outcome, definition, error, job)
            if outcome is not asked:
                fate = "no retry left; dropped, as its exhausted hook decides"
        if isinstance(outcome, Discard) and default_retry is None and job.get("retry") is None:
            fate = "dropped, because its class is unknown and unknown_jobs is sidekiq"
        if execution.acknowledged:
            fate = "no retry, because redeliver is false; dropped"
        expected = _expected(error, outcome)
        level = logging.WARNING if isinstance(outcome, Retry) else logging.ERROR
        ended(
            _log,
            logging.INFO if expected else level,
            f"fail: {scrub(failure.error_class)}: {scrub(failure.message):.1000s}; {fate}",
            error=None if expected or _is_told(error) else error,
            elapsed=round(seconds, 3),
        )
        return outcome

    def _done(self, job: Job, default: int) -> ResultToStore | None:
        """Return the result of a job that returned; None if it keeps none. [X-RESULT-3]"""
        keep = keep_of(job, default)
        return self._kept(job, keep, "done", _members(job)) if keep else None

    def _failed(
        self, job: Job, default: int, outcome: ResultOutcome, error: BaseException
    ) -> ResultToStore | None:
        """Return the result of a job that failed; None if it keeps none. [X-RESULT-4]"""
        keep = keep_of(job, default)
        if not keep:
            return None
        return self._kept(job, keep, outcome, failure_members(describe(error, backtrace=False)))

    def _kept(
        self, job: Job, keep: int, outcome: ResultOutcome, members: Members
    ) -> ResultToStore | None:
        jid = job.jid
        return (
            None if jid is None else result_to_store(jid, keep, outcome, members, now=time.time())
        )

    def _record_death(
        self,
        held: InFlightJob,
        job: Job,
        outcome: Kill | Discard,
        error: BaseException,
        keep: int,
        execution: Execution | None = None,
    ) -> None:
        """Record the end of a job, then call the death handlers. [RETRY-13] [RETRY-25] [DEAD-6]"""
        result = self._failed(
            job, keep, "dead" if isinstance(outcome, Kill) else "discarded", error
        )
        stored = self._ending(held, after_decision(outcome, result), job, execution)
        if not self.app.death_handlers:
            self.sink.record(held, stored)
            return
        if not self.sink.store(held, stored):
            return
        text = outcome.text or job.text
        if isinstance(outcome, Discard) and outcome.text:
            text = edit(text, {"discarded_at": stamp(time.time(), self.generation())})
        self._tell_of_death(LazyJob(text, job.queue), error)

    def _tell_of_death(self, dead: Job, error: BaseException) -> None:
        for handler in self.app.death_handlers:
            _contained("death handler", partial(handler, dead, error))


def _may_have_output(held: InFlightJob, job: Job, execution: Execution | None) -> bool:
    """True if this execution has emitted, or if there may have been one before. [X-STEP-10]"""
    if execution is not None and (execution.job.run or not execution.cancellable):
        return True  # an iterable job has given way before without a trace in its payload
    return held.returned > 0 or any(job.get(field) is not None for field in _RAN_BEFORE)


def _ruby_status(outcome: Outcome) -> Status:
    if outcome.place == "retry":
        return "retrying"
    if outcome.place in ("queue", "schedule"):
        return "interrupted"
    if outcome.cancelled or (outcome.place == "dead" and not outcome.counted):
        return "stopped"
    return "failed" if outcome.counted == "failed" else "complete"


def _members(job: Job) -> Members:
    """Return the value of a job that is done; log it if it cannot be kept. [X-RESULT-5]"""
    members = value_members(job.value)
    if members.startswith(b'"problem"'):
        problem = members.partition(b":")[2].decode()
        _log.error("the job is done, but its result cannot be kept: %s", problem)
    return members


def _chooser(
    definition: JobType[..., Any] | None,
    error: BaseException,
    job: Job,
    choices: list[Choice],
) -> Callable[[int], Choice] | None:
    """Return a function that asks the retry_in hook, and adds its answer to `choices`."""
    hook = None if definition is None else definition.retry_hook
    if hook is None:
        return None

    def choose(count: int) -> Choice:
        choice = _contained("retry_in", lambda: _checked(hook(job, error, count)))
        choices.append(choice)
        return choice

    return choose


def _checked(choice: Choice) -> Choice:
    """Return what a `retry_in` hook chose; None if it is not a choice."""
    if choice is None or choice == "discard" or choice == "kill" or _is_seconds(choice):
        return choice
    _log.error(
        "retry_in returned %.100s; expected seconds, 'discard' or 'kill'; ignored", _shown(choice)
    )
    return None


def _is_seconds(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # an int of more than 4,300 digits
        return f"an {type(value).__name__} that is too long"


def _last_word(
    outcome: Kill | Discard, definition: JobType[..., Any] | None, error: BaseException, job: Job
) -> Kill | Discard:
    """Ask the exhausted hook. [RETRY-13] [RETRY-28]"""
    hook = None if definition is None else definition.exhausted_hook
    if hook is None:
        return outcome
    seen = LazyJob(outcome.text, job.queue)
    if _contained("exhausted", lambda: hook(seen, error) == "discard"):
        return Discard(outcome.text)
    return outcome


def _expected(error: BaseException, outcome: Retry | Kill | Discard) -> bool:
    """True if a failure is not reported: the job foresaw it, and is retried."""
    foreseen = isinstance(error, TryAgain) or (isinstance(error, JobFailed) and error.expected)
    return foreseen and isinstance(outcome, Retry)


def _is_told(error: BaseException) -> bool:
    """True if a traceback would add nothing: the job's code did not run, or has ended."""
    return isinstance(error, InvalidArgument | JobTimeout) and user_trace(error) is None


def _contained(what: str, call: Callable[[], T]) -> T | None:
    """Call a hook of the application; if it raises, log that and return None. [RETRY-27]"""
    try:
        return call()
    except BaseException:  # noqa: BLE001 - a broken hook must cost neither job nor thread
        _log.exception("%s failed and is ignored", what)
        return None


def _fate(outcome: Retry | Kill | Discard, choices: Sequence[Choice]) -> str:
    chosen = "kill" in choices or "discard" in choices
    left = "its retry_in hook decides" if chosen else "no retry left"
    match outcome:
        case Retry(at=at, count=count):
            return f"retry {count + 1} in {at - time.time():.0f} s"
        case Kill():
            return f"{left}; moved to the dead set"
        case Discard(text=b""):
            return "no retry, because retry is false; dropped"
        case Discard(exhausted=True):
            return f"{left}; dropped, because dead is false"
        case Discard():
            return f"{left}; dropped"
