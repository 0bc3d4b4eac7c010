"""All errors that jobwire raises on purpose. [SRV-1]

    JobwireError
    ├── ConfigError            a setting, URL, flag or definition is wrong; nothing was started
    ├── BatchEnded             a batch takes no members any more; nothing was written
    ├── DuplicateJob           another job has the key of a unique job; nothing was written
    ├── NotPermitted           the role of a person does not allow an action; nothing was changed
    ├── PayloadError           a payload breaks SPEC.md
    │   ├── InvalidJob         a job to push is refused before anything is written
    │   └── MalformedPayload   bytes in Redis are not a payload
    ├── UnknownJob             no job is registered under the payload's class
    ├── InvalidArgument        an argument does not fit the annotation of its parameter
    ├── JobFailed              an isolated job raised an exception in its own process
    ├── ResultError            a job has no value to return
    ├── OutputGap              items of the output of a job are gone that the reader has not read
    ├── JobTimeout             a job ran longer than its time limit
    ├── JobCrashed             the process of an isolated job died while the job ran
    │   └── PoisonPill         a job was in several processes that died, and runs no more
    └── RedisTrouble           an operation on Redis failed
        ├── RedisUnreachable   no usable connection; nothing was sent
        ├── RedisRefused       the server answered with an error; nothing was done
        ├── BufferFull         Redis is away, and the buffer of pushes is full; nothing was kept
        └── NoReply            commands were sent, but no reply came
            └── MaybeWritten   a push got no reply: the job may have been written

Four more are not subclasses of `JobwireError`. `Shutdown` interrupts a running job at a hard stop,
and `except Exception` does not catch it. `TryAgain`, `Snooze` and `Cancelled` are for jobs to
raise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

__all__ = [
    "BatchEnded",
    "BufferFull",
    "Cancelled",
    "ConfigError",
    "DuplicateJob",
    "InvalidArgument",
    "InvalidJob",
    "JobCrashed",
    "JobFailed",
    "JobTimeout",
    "JobwireError",
    "MalformedPayload",
    "MaybeWritten",
    "NoReply",
    "NotPermitted",
    "OutputGap",
    "PayloadError",
    "PoisonPill",
    "RedisRefused",
    "RedisTrouble",
    "RedisUnreachable",
    "ResultError",
    "Shutdown",
    "Snooze",
    "TryAgain",
    "UnknownJob",
]


MAX_SNOOZE_S = 1_000_000_000  # a larger number is probably an epoch time by mistake


class JobwireError(Exception):
    """Base of all errors that jobwire raises on purpose."""


class ConfigError(JobwireError, ValueError):
    """A setting, URL, flag or job definition is wrong. The text names the value, rule and fix."""


class BatchEnded(JobwireError):
    """A job was not added to a batch, because the batch takes no members any more. [X-BATCH-3]

    Attributes:
        batch_id: Id of the batch.
        state: `complete`, `cancelled`, or empty if the batch does not exist.
    """

    def __init__(self, batch_id: str, state: str) -> None:
        super().__init__(
            f"batch {batch_id} {f'is {state}' if state else 'does not exist'} and takes no jobs; "
            "add jobs before its block ends, or from a member that runs"
        )
        self.batch_id = batch_id
        self.state = state


class DuplicateJob(JobwireError):
    """A unique job was not written, because another job has its key. [X-UNIQ-4]

    Attributes:
        jid: Id of the other job.
        job_class: The wire class of the job.
    """

    def __init__(self, jid: str, job_class: str) -> None:
        super().__init__(
            f"{job_class}: job {jid} has the same unique key; wait for its end, or use its id"
        )
        self.jid = jid
        self.job_class = job_class


class NotPermitted(JobwireError):
    """The role of a person does not allow an action; nothing was changed.

    Attributes:
        act: Name of the action, like `clear`.
        role: The role of the person.
        needed: The lowest role that allows the action.
    """

    def __init__(self, act: str, role: str, needed: str) -> None:
        super().__init__(f"{act} needs the role {needed}; the role here is {role}")
        self.act = act
        self.role = role
        self.needed = needed

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.act, self.role, self.needed)


class PayloadError(JobwireError, ValueError):
    """A payload breaks SPEC.md. Raised as `InvalidJob` (by a push) or `MalformedPayload`.

    Attributes:
        rule: The requirement of SPEC.md, like `PAY-3`. The text of the error leaves it out.
        field: The wire name with its path, `args[0]['price']`; "" for the whole payload.
        problem: The broken rule in words, and the fix.
    """

    def __init__(self, rule: str, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.rule = rule
        self.field = field
        self.problem = problem

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.rule, self.field, self.problem)


class InvalidJob(PayloadError):
    """A job to push is invalid; nothing was written. [PUSH-4]

    Attributes:
        job_class: The wire class of the job, with which the text begins; "" if it is not known.
    """

    job_class = ""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.job_class}: {text}" if self.job_class else text

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"job_class": self.job_class}


class MalformedPayload(PayloadError):
    """Bytes in Redis are not a payload. A worker puts them into the dead set. [EXEC-3]"""


class UnknownJob(JobwireError, LookupError):
    """No job is registered under the payload's class. Counts as a failure of the job. [EXEC-2]"""


class InvalidArgument(JobwireError, ValueError):
    """An argument of a payload does not fit the annotation of its parameter.

    Counts as a failure of the job.
    """


class ResultError(JobwireError):
    """The value of a job was asked for, and there is none: the job is not done, or its value could
    not be kept. The text says which. [X-RESULT-5]"""


class OutputGap(JobwireError):
    """Items of the output of a job were removed before the reader came to them. [X-STEP-15]

    Attributes:
        jid: The job id.
        position: Where to go on, as `after`: right before the oldest item that there is.
        lost: How many items are lost; None if the whole output expired in the meantime.
    """

    def __init__(self, jid: str, position: str, lost: int | None) -> None:
        what = "its items up to here have" if lost is None else f"{lost:,} items have"
        super().__init__(
            f"output of job {jid}: {what} been removed before they were read; "
            f"go on with after={position!r}"
        )
        self.jid = jid
        self.position = position
        self.lost = lost

    def __reduce__(self) -> tuple[type, tuple[str, str, int | None]]:
        return type(self), (self.jid, self.position, self.lost)


class JobFailed(JobwireError):
    """An isolated job raised an exception in its own process.

    The worker stores and logs it under the class of that exception.

    Attributes:
        error_class: Name of the exception's class, with its module.
        message: Its text.
        backtrace: Its backtrace, innermost call first.
        expected: True if it was a `TryAgain`.
        traceback: Its traceback as Python prints it.
    """

    def __init__(
        self,
        error_class: str,
        message: str,
        backtrace: Sequence[str] = (),
        expected: bool = False,
        traceback: str = "",
    ) -> None:
        super().__init__(f"{error_class}: {message}")
        self.error_class = error_class
        self.message = message
        self.backtrace = backtrace
        self.expected = expected
        self.traceback = traceback
        if traceback:
            self.add_note(f"in the process of the job:\n{traceback}")

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        arguments = (self.error_class, self.message, self.backtrace, self.expected, self.traceback)
        return type(self), arguments


class JobTimeout(JobwireError, TimeoutError):
    """A job ran longer than its time limit. Counts as a failure of the job."""


class JobCrashed(JobwireError):
    """The process of an isolated job died: killed by a signal, out of memory, `os._exit`.

    Counts as a failure of the job.
    """


class PoisonPill(JobCrashed):
    """Too many worker processes died while they held the job, so it goes to the dead set.

    Death handlers get it. The dead job has the `error_class` `jobwire.PoisonPill`. [REL-10]
    """


class RedisTrouble(JobwireError):
    """An operation on Redis failed. After a bulk push, it lists the jobs that exist. [BULK-6]

    Attributes:
        written: Ids of jobs that were certainly written (earlier slices of a bulk push).
        unsure: Ids of jobs that may have been written.
    """

    written: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()


class RedisUnreachable(RedisTrouble, ConnectionError):
    """No usable connection could be made, so nothing was sent. [PUSH-8]

    Attributes:
        login_refused: The server answered: it asks for a password, or refuses the one it got.
        refused: The server answered: it refuses the login or the database, so later
            attempts fail as well.
    """

    login_refused: bool = False
    refused: bool = False


# Replies of a server that may take the same commands later.
_TEMPORARY = frozenset(
    [
        *("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM"),
        *("READONLY", "TRYAGAIN", "ASK", "MOVED"),
    ]
)
# In the text of NOPERM, which is inside an ERR if a script met it.
_FORBIDDEN_COMMAND = re.compile("no permissions to run the '([^']+)' command")


class RedisRefused(RedisTrouble):
    """The server answered with an error and did nothing. [PUSH-8]

    The exception is a transaction that failed in part, because Redis does not roll back: if one of
    the queues of a push is not a list, the jobs for the other queues are `written`. So are those of
    a push whose MULTI alone was refused, by an ACL or a proxy without transactions.

    Attributes:
        code: The first word of the message.
        replies: The replies to the commands, if a transaction failed in part.
    """

    def __init__(self, message: str, replies: Sequence[Any] = ()) -> None:
        self.code = message.split(" ", 1)[0]
        if named := _FORBIDDEN_COMMAND.search(message):
            message += f"; the rule +{named[1]} of ACL SETUSER allows it"
        super().__init__(message)
        self.replies = replies

    @property
    def temporary(self) -> bool:
        """True if the server may accept the same command later."""
        return self.code in _TEMPORARY


class BufferFull(RedisTrouble):
    """Redis is away, and the buffer of a client has no room for the jobs of a push.

    They were neither written nor kept, but for those in `written`. See `PushBuffer`.
    """


class NoReply(RedisTrouble, ConnectionError):
    """A command was sent and no reply came: the server may have carried it out."""


class MaybeWritten(NoReply):
    """A push got no reply: the jobs in `unsure` may have been written. [PUSH-8]

    A second push with the same jid is safe only if the job may run twice.
    """


class Shutdown(BaseException):
    """Raised inside a job that a hard stop interrupts, after the job was put back. [SIG-5]

    It derives from `BaseException`, so that a job's `except Exception` does not catch it. Job code
    may clean up, but must let it pass.
    """


class Cancelled(BaseException):
    """For a job to raise when it ends because it was cancelled, as `current_job().cancelled` tells.

    It is not a failure: there is no retry, and error handlers are not called. `except Exception`
    does not catch it. [X-CANCEL-6]
    """


class Snooze(Exception):
    """Raised by a job that wants to run later: it goes to the schedule, and nothing has failed.

        if not partner.is_open():
            raise Snooze(60)

    The number of retries stays as it is, handlers are not called, and no counter counts the run.
    After `limit` times the job fails instead, like any other. [X-TIME-4] [X-TIME-6]

    Args:
        seconds: How long to wait, in seconds, more than 0; or a timedelta.
        limit: How often a job may be put off.
    """

    def __init__(self, seconds: float | timedelta, *, limit: int = 100) -> None:
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ValueError(f"seconds: {seconds!r} is neither a number nor a timedelta")
        if not 0 < seconds <= MAX_SNOOZE_S:
            raise ValueError(f"seconds: {seconds!r} is not between 0 and {MAX_SNOOZE_S}")
        if type(limit) is not int or limit < 1:
            raise ValueError(f"limit: {limit!r} is not a number of times (1 or more)")
        super().__init__(f"put off for {seconds:g} s")
        self.seconds = float(seconds)
        self.limit = limit


class TryAgain(Exception):
    """Raised by a job for an expected failure: try again later, without an alarm.

        if response.status == 429:
            raise TryAgain("rate limited")

    It counts and delays a retry like any other failure. As long as the job is retried, the worker
    does not call the handlers of `App.on_error` and logs a line of level INFO. The failure of the
    last try is reported like any other. Subclasses behave the same.
    """
