"""Every error jobwire raises on purpose.

    JobwireError
    ├── ConfigError            a setting, URL, flag or definition is wrong; nothing was started
    ├── PayloadError           a payload breaks SPEC.md
    │   ├── InvalidJob         yours: refused before anything was written
    │   └── MalformedPayload   found in Redis: not a payload at all
    ├── UnknownJob             no job with the payload's class is registered here
    ├── RedisUnreachable       no usable connection; nothing was written
    ├── RedisRefused           the server answered with an error; nothing was written
    └── MaybeWritten           sent, but no answer came; the write may have happened

`Shutdown` stands apart: it interrupts a running job at a hard stop and must not be caught by
`except Exception`.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "ConfigError",
    "InvalidJob",
    "JobwireError",
    "MalformedPayload",
    "MaybeWritten",
    "PayloadError",
    "RedisRefused",
    "RedisUnreachable",
    "Shutdown",
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
    """A job that was asked for cannot be written; nothing was. [PUSH-4]"""


class MalformedPayload(PayloadError):
    """Bytes in Redis are not a payload. A worker buries them as they are. [EXEC-3]"""


class UnknownJob(JobwireError, LookupError):
    """No job is registered under the payload's class; an ordinary failure. [EXEC-2]"""


class RedisUnreachable(JobwireError, ConnectionError):
    """No usable connection could be made, so nothing was written. [PUSH-8]"""


class RedisRefused(JobwireError):
    """The server answered with an error and did nothing. `code` is its first word."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message.split(" ", 1)[0] if message else ""


class MaybeWritten(JobwireError, ConnectionError):
    """The command went out but its answer never came: it may have been carried out. [PUSH-8]

    Pushing again may run the job twice. `written` holds the ids of jobs that certainly exist
    (earlier slices of a bulk push), `unsure` those of the write in question. [BULK-6]
    """

    def __init__(
        self, message: str, *, written: Sequence[str] = (), unsure: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.written = tuple(written)
        self.unsure = tuple(unsure)


class Shutdown(BaseException):
    """Raised inside a job that a hard stop interrupts, after it was put back. [SIG-5]

    Derives from `BaseException` so that a job's `except Exception` does not swallow it; let it
    pass after cleaning up.
    """
