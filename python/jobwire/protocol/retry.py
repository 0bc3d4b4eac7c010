"""Decisions about a failed job: retry, kill or discard. [RETRY-18] [RETRY-19] [DEAD-4]"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from jobwire.protocol.payload import Job, encode
from jobwire.protocol.times import Generation, read, stamp

__all__ = [
    "DEFAULT_MAX_RETRIES",
    "Choice",
    "Discard",
    "Failure",
    "Kill",
    "Retry",
    "after_failure",
    "encode_backtrace",
    "retry_delay",
    "scrub",
    "wants_backtrace",
]

DEFAULT_MAX_RETRIES = 25
MAX_COUNTED_RETRIES = 200  # for the delay; that of the 200th retry is 50 years
_FOR_EVER_S = 10**12  # an integer in a payload can be too large for a float
MESSAGE_LIMIT = 10_000  # characters, not bytes [RETRY-3]


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, as the strings that a payload stores."""

    error_class: str
    message: str
    backtrace: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Retry:
    """Store `text` in the retry set, due at epoch second `at`. [RETRY-9]"""

    text: bytes
    at: float
    count: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Store `text` in the dead set. [DEAD-1]

    Attributes:
        text: The payload.
        counted: True if an execution ended, so that the counters count it.
    """

    text: bytes
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Discard:
    """Store nothing: the job asked not to be retried, or not to be kept dead. [RETRY-1] [DEAD-4]

    Attributes:
        text: The payload for death handlers; it is not stored. Empty if the job asked for no
            retries at all, because then the failure is not written into the payload.
        exhausted: True if the job had retries and they are used up, so that its hook is called.
    """

    text: bytes = field(default=b"", compare=False)
    exhausted: bool = field(default=False, compare=False)


Choice: TypeAlias = float | Literal["discard", "kill"] | None
"""The answer of a job's own `retry_in` hook: seconds to wait, "discard" or "kill", or None for the
default delay."""


def retry_delay(retry_count: int, *, jitter: float, chosen: float | None = None) -> float:
    """Return the seconds to wait before a retry. [RETRY-4] [RETRY-11] [RETRY-15]

    Args:
        retry_count: Retries already counted; 0 after the first failure.
        jitter: Uniform draw in [0, 1).
        chosen: Seconds to use in place of the formula, if above 0.

    Returns:
        Seconds: `retry_count**4 + 15`, or `chosen`, plus a whole number below
        `10 * (retry_count + 1)`.

    Raises:
        ValueError: If `retry_count` is negative.
    """
    if retry_count < 0:
        raise ValueError(f"retry_count is negative: {retry_count}")
    delay = retry_count**4 + 15 if chosen is None or chosen <= 0 else chosen
    return delay + int(jitter * 10 * (retry_count + 1))


def after_failure(
    job: Job,
    failure: Failure,
    *,
    now: float,
    jitter: float,
    generation: Generation,
    default_retry: object = None,
    max_retries: int = DEFAULT_MAX_RETRIES,
    choose: Callable[[int], Choice] | None = None,
) -> Retry | Kill | Discard:
    """Decide where a failed job goes, and build the payload to store there. [RETRY-18]

    Args:
        job: The job as fetched.
        failure: The error that the job raised.
        now: Epoch seconds.
        jitter: Uniform draw in [0, 1).
        generation: Generation of the times to write. In 7 both limits of a job with `retry_for`
            count. [RETRY-30]
        default_retry: The `retry` of the job's definition, for a payload without one; None to
            drop such a job. [RETRY-1] [RETRY-31]
        max_retries: Number of retries that `retry: true` stands for.
        choose: The job's own hook. Gets the number of retries counted so far. Not called for an
            exhausted job. [RETRY-11] [RETRY-12] [RETRY-24] [RETRY-26]
    """
    changes: dict[str, Any] = {}
    retry = job.get("retry")
    if retry is None and not job.class_name:
        retry = 0  # no definition can decide, and no worker can ever run it [EXEC-8]
    elif retry is None:
        retry = default_retry
        changes["retry"] = retry
    if retry is None or retry is False:
        return Discard()

    retry_queue = job.get("retry_queue")
    # [RETRY-7] [RETRY-32]
    changes["queue"] = retry_queue if isinstance(retry_queue, str) and retry_queue else job.queue
    changes["error_message"] = scrub(failure.message)
    changes["error_class"] = scrub(failure.error_class)  # [RETRY-20]
    if job.retry_count is None:  # [RETRY-2]
        count = 0
        changes["failed_at"] = stamp(now, generation)
        changes["retry_count"] = count
    else:  # [RETRY-17]
        count = job.retry_count + 1
        changes["retry_count"] = count
        changes["retried_at"] = stamp(now, generation)
        if _time_limit(job) is not None and not _is_past(job.get("failed_at"), now):
            changes["failed_at"] = changes["retried_at"]  # so that the time limit ends [RETRY-14]
    if wants_backtrace(job):
        wanted = job["backtrace"]
        # Of a text, an array or an object, no line. [RETRY-22] [RETRY-19]
        lines = failure.backtrace if wanted is True else failure.backtrace[: _whole(wanted)]
        changes["error_backtrace"] = encode_backtrace(lines)

    text = job.edit(changes)
    limit = retry if type(retry) is int else max_retries
    exhausted = _time_is_over(job, now)
    if exhausted is None or generation == 7:  # there the count ends a job as well [RETRY-30]
        exhausted = exhausted or count >= limit  # [RETRY-5]
    choice: Choice = "kill" if exhausted else choose(count) if choose else None
    if choice == "discard":
        return Discard(text)
    if choice == "kill":
        return Discard(text, exhausted=True) if job.get("dead") is False else Kill(text)
    # A payload may hold any count. The delay must stay a number that a score can hold.
    delay = retry_delay(min(max(count, 0), MAX_COUNTED_RETRIES), jitter=jitter, chosen=choice)
    return Retry(text, at=now + delay, count=count)


def wants_backtrace(job: Job) -> bool:
    """True if the job asks to store its backtrace; 0 asks for an empty one. [RETRY-8]"""
    wanted = job.get("backtrace")
    return wanted is not None and wanted is not False


def encode_backtrace(lines: Sequence[str]) -> str:
    """Return the value of `error_backtrace`: base64 of zlib of a JSON array. [RETRY-8]"""
    text = encode([scrub(line) for line in lines])
    return base64.b64encode(zlib.compress(text)).decode("ascii")


def _time_is_over(job: Job, now: float) -> bool | None:
    """True if the job's `retry_for` has passed; None if it has none. [RETRY-6] [RETRY-29]"""
    seconds = _time_limit(job)
    if seconds is None:
        return None
    # A first failure happens now, even if the payload holds a `failed_at`. [RETRY-2]
    failed_at = None if job.retry_count is None else read(job.get("failed_at"))
    since = now if failed_at is None else min(failed_at, now)
    # Sidekiq compares with "<". Here "<=" makes 0 kill the job at its first failure, even if the
    # clock has not advanced. [RETRY-21]
    return since + seconds <= now


def _time_limit(job: Job) -> float | None:
    """Return the seconds of `retry_for`, 0 included; None if it is not a number. [RETRY-19]"""
    seconds = job.get("retry_for")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return max(-_FOR_EVER_S, min(seconds, _FOR_EVER_S))


def _is_past(value: object, now: float) -> bool:
    time = read(value)
    return time is not None and time <= now


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def scrub(text: str) -> str:
    """Cut `text` to the limit and replace lone surrogates, which UTF-8 cannot hold. [RETRY-3]"""
    cut = text[:MESSAGE_LIMIT]
    if cut.isascii():
        return cut
    return cut.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
