"""A thread that takes jobs and runs them, one at a time. [EXEC-1] to [EXEC-7]"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection
from contextvars import copy_context

from jobwire.application.current import current, running
from jobwire.errors import Cancelled, JobTimeout, MalformedPayload, RedisTrouble, Shutdown
from jobwire.protocol.batches import BATCH
from jobwire.protocol.expiry import EXPIRES_AT
from jobwire.protocol.gitlab import is_of_gitlab, take_waiter
from jobwire.protocol.heartbeat import Work
from jobwire.protocol.limits import LIMIT
from jobwire.protocol.metrics import ThreadMetrics
from jobwire.protocol.payload import Job, decode
from jobwire.protocol.reliable import InFlightJob
from jobwire.protocol.ruby_locks import LOCK_DIGEST
from jobwire.protocol.unique import UNIQUE
from jobwire.worker.execute.compiled_job import CancelledIds, CompiledJob, JobTable
from jobwire.worker.execute.execution import FEATURES, Execution
from jobwire.worker.execute.interruption import Interruption, Overdue, make_interruption, wake
from jobwire.worker.execute.outcome_policy import OutcomePolicy
from jobwire.worker.execute.tasks import Tasks
from jobwire.worker.execute.time_limit import AGAIN_S, MAX_AGAIN_S, timed_out
from jobwire.worker.fetch.job_source import JobSource

__all__ = ["Processor"]

ATTEMPT_INTERVAL_S = 0.05  # at most, between attempts to interrupt a job

_log = logging.getLogger("jobwire.worker")


class Processor:
    """One thread of a capsule.

    Args:
        tid: The thread's name in work records.
        name: The thread's name in the log.
        source: Where the jobs come from.
        tasks: Runs async jobs that need no thread; None to run them here.
        job_table: How to run the jobs.
        outcome_policy: Handles the end of each job.
        counters: Counts the jobs of this thread.
        watch: Called when a job with a time limit starts.
        cancelled_ids: The jobs that must not start, because they were cancelled.
    """

    def __init__(
        self,
        tid: str,
        name: str,
        source: JobSource,
        *,
        tasks: Tasks | None,
        job_table: JobTable,
        outcome_policy: OutcomePolicy,
        counters: ThreadMetrics,
        watch: Callable[[], None],
        cancelled_ids: CancelledIds,
    ) -> None:
        self.tid = tid
        self._take = source.take
        self._acknowledge = source.acknowledge
        self._starting = None if source.lead is None else source.lead.starting
        self._tasks = tasks
        self._job_table = job_table
        self._marks = job_table.marks | FEATURES
        self._outcome_policy = outcome_policy
        self._has_status = outcome_policy.app.transport.ruby_status is not None
        self._counters = counters
        self._watch = watch
        self._cancelled_ids = cancelled_ids
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # Written by this thread only, as a whole; read by any.
        self._held: InFlightJob | None = None
        self._execution: Execution | None = None
        # Guards the following, except where this thread enters a job's code.
        self._guard = threading.Lock()
        self._in_user_code = False  # in the job's own code, where an interruption may strike
        self._raised: type[BaseException] | None = None  # the error that interrupts the job
        self._raised_at = 0.0  # monotonic
        self._again_at: float | None = None  # monotonic; None: not known that it was raised
        self._strikes = 0
        self._interruption: Interruption  # of this thread
        self._expires: float | None = None  # monotonic
        self._acknowledged: InFlightJob | None = None  # the last job that nothing may put back
        self._returning = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; return True if it ended or was never started."""
        if self._thread.is_alive():
            self._thread.join(max(timeout, 0))
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        """True if the thread runs."""
        return self._thread.is_alive()

    @property
    def held(self) -> InFlightJob | None:
        """The job in progress."""
        return self._held

    def give_back(self) -> InFlightJob | None:
        """Return the job in progress if it may run again; from now on, acknowledge none."""
        with self._guard:
            self._returning = True
            held = self._held
            return None if held is self._acknowledged else held

    @property
    def work(self) -> Work | None:
        """The work record of the job in progress. [BEAT-5]"""
        execution = self._execution
        if execution is None:
            return None
        held = execution.held
        return Work(held.queue, held.text, execution.began_at, execution.job)

    @property
    def hangs(self) -> bool:
        """True if the thread has a job, and is not in code of the job that may go on for long.

        It is then in code of ours, in a handler of the application or in the log, or in a job that
        is over its limit and does not end.
        """
        return self._held is not None and (not self._in_user_code or self._raised is not None)

    def enforce_time_limit(self, now: float) -> float | None:
        """Interrupt the job in progress if it is over its time limit, or goes on. [RETRY-10]

        Args:
            now: Monotonic time.

        Returns:
            Seconds until this must be called again; None if there is no reason.
        """
        with self._guard:
            if not self._in_user_code:
                return None
            if self._raised is None:
                if self._expires is None:
                    return None
                if self._expires > now:
                    return self._expires - now
                self._interrupt(JobTimeout, now)
            elif not self._interruption.raised:
                self._interruption.attempt()
            elif self._again_at is None:
                self._interruption.rest()
                self._again_at = now + min(AGAIN_S * 2**self._strikes, MAX_AGAIN_S)
            elif self._again_at <= now:
                self._strikes += 1
                self._interrupt(Shutdown if self._raised is Shutdown else Overdue, now)
            if self._again_at is not None:
                return self._again_at - now
            return min((now - self._raised_at) / 8, ATTEMPT_INTERVAL_S)

    def interrupt(self, error: type[BaseException]) -> None:
        """Raise `error` inside the job, if there is one. [SIG-5] [RETRY-10] [RETRY-16]"""
        with self._guard:
            if self._in_user_code:
                self._strikes = 0
                self._interrupt(error, time.monotonic())
        self._watch()

    def cancel(self, ids: Collection[str | None]) -> None:
        """Tell the job in progress that it was cancelled, if its id is among these. [X-CANCEL-7]

        Async and isolated jobs are ended. A sync job looks at `cancelled` by itself.
        """
        with self._guard:
            execution = self._execution
            if execution is None or execution.job.cancelled or not execution.cancellable:
                return
            if execution.job.jid not in ids:
                return
            execution.job.cancelled = True
            definition = execution.compiled.definition
            waits = definition is not None and (definition.is_async or definition.isolated)
            if waits and self._in_user_code and self._thread.ident is not None:
                wake(self._thread.ident)

    def _interrupt(self, error: type[BaseException], now: float) -> None:
        """With the guard held."""
        self._raised, self._raised_at, self._again_at = error, now, None
        self._interruption.ask(error)

    def _run(self) -> None:
        take = self._take
        self._interruption = make_interruption(threading.get_ident(), Processor._execute.__code__)
        ran: float | None = None  # None: there is no slot to be freed
        while True:
            try:
                last, ran = ran, None
                held = take(last)
                if held is None:
                    return
                ran = 0.0  # also if this fails
                self._held = held
                ran = self._process(held)
                self._held = None
            except Shutdown:
                self._held = None
                return  # the job was put back; this thread is not needed any more
            except Exception as error:  # noqa: BLE001 - ours, and the thread must live
                _log.exception("processor failed, which is a bug; it goes on")
                if self._held is not None:
                    self._outcome_policy.unrecorded(self._held, error)
                    self._held = None

    def _process(self, held: InFlightJob) -> float | None:
        """Return for how many seconds the job ran; None if a task runs it now."""
        try:
            job = decode(held.text, held.queue)
        except MalformedPayload as error:
            self._outcome_policy.unreadable(held, error)
            return 0.0
        plain = self._marks.isdisjoint(job.fields)  # one look, because each job comes here
        compiled = self._job_table.find(job, plain=plain)
        parked, to = compiled.parked, compiled.handed_to
        if (parked or to) and self._outcome_policy.leaves(held, job, parked, to):
            return 0.0
        if (held.recovered or not plain) and self._ends_unstarted(held, job, compiled):
            return 0.0
        execution = Execution(held, job, compiled, time.time())
        self._counters.began(execution.began_at, job.fields.get("enqueued_at"))
        if not plain and is_of_gitlab(job.fields):
            execution.waiter = take_waiter(job)
        if self._has_status:
            self._outcome_policy.shows_start(execution)
        execution.plain = plain and compiled.plain and not (held.returned or self._has_status)
        if not compiled.redeliver and not self._acknowledged_first(execution):
            self._outcome_policy.free(held)
            return 0.0
        if compiled.native is not None and self._tasks is not None:
            self._tasks.submit(execution, compiled.native)
            return None
        # In a context of its own, as a task has: the next job must not see its variables.
        copy_context().run(self._perform, execution)
        return execution.seconds

    def _ends_unstarted(self, held: InFlightJob, job: Job, compiled: CompiledJob) -> bool:
        """Ask each feature of the payload; return True if the job does not run now."""
        fields, policy = job.fields, self._outcome_policy
        locked = UNIQUE in fields or LOCK_DIGEST in fields
        return (
            (EXPIRES_AT in fields and policy.expires(held, job, compiled.keep))
            or (held.recovered > 0 and policy.kills(held, job, compiled.keep))
            or (BATCH in fields and policy.is_dropped(held, job, compiled.keep))
            or (is_of_gitlab(fields) and policy.was_cancelled_by_gitlab(held, job))
            or (locked and policy.must_wait(held, job))
            or (LIMIT in fields and policy.over_limit(held, job))
        )

    def _acknowledged_first(self, execution: Execution) -> bool:
        """End a job in Redis; return False if it must not run, because that is not certain."""
        held = execution.held
        problem = "the worker stops" if self._returning else ""
        try:
            if not problem and not self._acknowledge(held):
                problem = "another process has it"
        except RedisTrouble as error:
            problem = f"it runs later if Redis still has it: {error}"
        with self._guard:
            if not problem and self._returning:
                problem = "the worker stops"
            if not problem:
                self._acknowledged = held
                execution.acknowledged = True
        if problem:
            with running(execution.job):
                _log.error("not run, because redeliver is false; %s", problem)
        return execution.acknowledged

    def _perform(self, execution: Execution) -> None:
        self._execution = execution
        job, compiled = execution.job, execution.compiled
        current.set(job)
        error: BaseException | None = None
        try:
            if self._starting is not None:
                self._starting(compiled.seconds)
            self._outcome_policy.began(execution)
            started = time.perf_counter()
            # After `_execution` is set, so that a mark is seen here or by `cancel`.
            if (
                self._cancelled_ids.ids
                and job.jid in self._cancelled_ids.ids
                and execution.cancellable
            ):
                error = Cancelled()
            else:
                error = self._execute(job, compiled)
            execution.seconds = seconds = time.perf_counter() - started
            compiled.took(seconds)
            self._outcome_policy.end(execution, error, self._counters)
        except Shutdown:
            with running(job):
                execution.log_interruption(_log)
            raise
        finally:
            self._execution = None
            # The error's traceback has this frame. Without the cycle, the collector has no work.
            error = None

    def _execute(self, job: Job, compiled: CompiledJob) -> BaseException | None:
        """Run the job; return what it raised, or the error of a job that was over its limit."""
        timeout = compiled.timeout
        expires = math.inf
        try:
            try:
                # Without the guard: an interruption strikes only after the second step.
                self._raised = None
                self._in_user_code = True
                if timeout is not None:
                    self._strikes = 0
                    self._expires = expires = time.monotonic() + timeout
                    self._watch()
                compiled.call(job)
            finally:
                with self._guard:
                    self._in_user_code = False
                    self._expires = None
                if self._raised is not None:
                    self._interruption.end()
        except BaseException as error:
            # User code runs only here. SystemExit and the like also come from the job and must
            # not end the worker; a Shutdown that this process did not raise is the job's own.
            # [EXEC-14]
            if self._raised is Shutdown:
                raise Shutdown from error
            if self._raised is not None:
                late = time.monotonic() - expires
                return timed_out(timeout or 0.0, late, error.__traceback__)
            return error
        if timeout is not None and (late := time.monotonic() - expires) > 0:
            ignored = self._raised is not None and self._interruption.raised
            return timed_out(timeout, late, None, ignored=ignored)
        return None
