"""Every error jobwire raises on purpose.

    JobwireError
    ├── ConfigError            a setting, URL, flag or definition is wrong; nothing was started
    ├── PayloadError           a payload breaks SPEC.md
    │   ├── InvalidJob         yours: refused before anything was written
    │   └── MalformedPayload   found in Redis: not a payload at all
    ├── UnknownJob             no job with the payload's class is registered here
    ├── JobFailed              an isolated job raised: what, as its process told it
    ├── JobTimeout             a job ran longer than its time limit
    ├── JobCrashed             the process of an isolated job died under it
    └── RedisTrouble           Redis could not be used as asked
        ├── RedisUnreachable   no usable connection; nothing was sent
        ├── RedisRefused       the server answered with an error; nothing was done
        └── NoReply            sent, but no answer came
            └── MaybeWritten   the same for a push: the job may have been written

`Shutdown` stands apart: it interrupts a running job at a hard stop and must not be caught by
`except Exception`. So does `TryAgain`, which jobs raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "ConfigError",
    "InvalidJob",
    "JobCrashed",
    "JobFailed",
    "JobTimeout",
    "JobwireError",
    "MalformedPayload",
    "MaybeWritten",
    "NoReply",
    "PayloadError",
    "RedisRefused",
    "RedisTrouble",
    "RedisUnreachable",
    "Shutdown",
    "TryAgain",
    "UnknownJob",
]


class JobwireError(Exception):
    """Base of all errors that jobwire raises on purpose."""


class ConfigError(JobwireError, ValueError):
    """A setting, URL, flag or job definition is wrong. The text names value, rule and fix."""


class PayloadError(JobwireError, ValueError):
    """A payload breaks SPEC.md. Raised as `InvalidJob` (yours) or `MalformedPayload` (found)."""

    def __init__(self, rule: str, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem} [{rule}]" if field else f"{problem} [{rule}]")
        self.rule = rule  # "PAY-3"
        self.field = field  # wire name with its path, "args[0].price"; "" for the whole text
        self.problem = problem

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.rule, self.field, self.problem)


class InvalidJob(PayloadError):
    """A job that was asked for cannot be written; nothing was. [PUSH-4]

    Attributes:
        job_class: Its wire class, which the text begins with; "" where that is not known.
    """

    job_class = ""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.job_class}: {text}" if self.job_class else text

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"job_class": self.job_class}


class MalformedPayload(PayloadError):
    """Bytes in Redis are not a payload. A worker buries them as they are. [EXEC-3]"""


class UnknownJob(JobwireError, LookupError):
    """No job is registered under the payload's class; an ordinary failure. [EXEC-2]"""


class JobFailed(JobwireError):
    """An isolated job raised an exception, which stayed in the job's own process.

    Stored and logged under the class that it had there.

    Attributes:
        error_class: Name of the exception's class, with its module.
        message: Its text.
        backtrace: Where it was raised, innermost call first.
        expected: Whether it was a `TryAgain`.
    """

    def __init__(
        self,
        error_class: str,
        message: str,
        backtrace: Sequence[str] = (),
        expected: bool = False,
    ) -> None:
        super().__init__(f"{error_class}: {message}")
        self.error_class = error_class
        self.message = message
        self.backtrace = backtrace
        self.expected = expected

    def __reduce__(self) -> tuple[type, tuple[str, str, Sequence[str], bool]]:
        return type(self), (self.error_class, self.message, self.backtrace, self.expected)


class JobTimeout(JobwireError, TimeoutError):
    """A job ran longer than its time limit; an ordinary failure."""


class JobCrashed(JobwireError):
    """The process of an isolated job died: killed by a signal, out of memory, `os._exit`.

    An ordinary failure.
    """


class RedisTrouble(JobwireError):
    """Redis could not be used as asked. For a bulk push, says which jobs exist. [BULK-6]

    Attributes:
        written: Ids of jobs that certainly exist (earlier slices of a bulk push).
        unsure: Ids of jobs that may or may not exist.
    """

    written: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()


class RedisUnreachable(RedisTrouble, ConnectionError):
    """No usable connection could be made, so nothing was sent. [PUSH-8]

    Attributes:
        login_refused: The server answered: it asks for a password, or refuses the one it got.
    """

    login_refused: bool = False


class RedisRefused(RedisTrouble):
    """The server answered with an error and did nothing. [PUSH-8]

    Only a transaction may have failed in part, for Redis rolls nothing back: a push of jobs to
    several queues, of which one is no list, has `written` the others.

    Attributes:
        code: The first word of the message.
        replies: Of a transaction that failed in part, what EXEC returned.
    """

    def __init__(self, message: str, replies: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.code = message.split(" ", 1)[0]
        self.replies = replies


class NoReply(RedisTrouble, ConnectionError):
    """A command went out but its answer never came: it may have been carried out."""


class MaybeWritten(NoReply):
    """A push got no answer: the jobs in `unsure` may have been written. [PUSH-8]

    Pushing again with the same jid is safe only if running the job twice is.
    """


class Shutdown(BaseException):
    """Raised inside a job that a hard stop interrupts, after it was put back. [SIG-5]

    Derives from `BaseException` so that a job's `except Exception` does not swallow it; let it
    pass after cleaning up.
    """


class TryAgain(Exception):
    """For jobs to raise where a failure is nothing to worry about: try again later, quietly.

        if response.status == 429:
            raise TryAgain("rate limited")

    A failure like any other, with its count and its delay, but as long as the job is retried,
    handlers of `App.on_error` are not called, and the log has a line of level INFO. Its last try
    is told as ever. Subclasses are the same.
    """
