"""The way from a caller's request to the payload that is written. [PUSH-3] to [PUSH-7]

There are two steps, because client middleware runs between them. `build` makes an item: a plain
dict of wire fields that middleware may change. `finalize` checks the item again and encodes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from jobwire.errors import InvalidJob
from jobwire.protocol.arguments import StrictArgs, check_args, check_value
from jobwire.protocol.expiry import EXPIRES_AT
from jobwire.protocol.limits import LIMIT, Limit, described
from jobwire.protocol.payload import encode
from jobwire.protocol.results import KEEP, MAX_KEEP_S
from jobwire.protocol.times import Generation, epoch, stamp
from jobwire.protocol.unique import UNIQUE, Lock, Unique, declared, lock_of

__all__ = [
    "FAILURE_FIELDS",
    "AsyncClientMiddleware",
    "ClientMiddleware",
    "JobFields",
    "Options",
    "ReadyPayload",
    "build",
    "check_options",
    "finalize",
    "may_share",
]

JobFields = dict[str, Any]
"""Wire fields of a job that is about to be pushed; `at` is an epoch second or absent."""

ClientMiddleware = Callable[[JobFields, Callable[[], JobFields | None]], JobFields | None]
"""`(item, call_next) -> item`: change the item and return `call_next()`, or return None to stop
the push. [PUSH-7] [PUSH-15] [PUSH-16]"""

AsyncClientMiddleware = Callable[
    [JobFields, Callable[[], Awaitable[JobFields | None]]], Awaitable[JobFields | None]
]
"""The same as an `async def` for jobs that are enqueued from asyncio; it awaits `call_next()`."""

_LOG_LEVELS = ("debug", "info", "warn", "error", "fatal")
FAILURE_FIELDS = frozenset(
    [
        *("retry_count", "failed_at", "retried_at"),
        *("error_message", "error_class", "error_backtrace"),
    ]
)
"""Fields that only workers write. A push leaves them out. [PAY-14]"""

_UNIQUE, _LIMIT = f'"{UNIQUE}"'.encode(), f'"{LIMIT}"'.encode()

MAX_RETRY_FOR_S = 1_000_000_000  # a larger number is probably an epoch time by mistake


class Options(TypedDict, total=False):
    """Options of a job, besides its class and arguments. None is written as null. [PUSH-13]"""

    queue: str
    """Bare queue name; default `"default"`."""
    retry: bool | int | None
    """True: retries up to the worker's limit (25). A number: that many retries; with 0 the first
    failure sends the job to the dead set. False: no retry, and the job does not go to the dead
    set. None: the worker's definition of the job decides."""
    retry_for: int | float | None
    """Seconds after the first failure in which the job is retried, instead of a number of tries."""
    retry_queue: str | None
    """Queue of the retries; default: the job's own queue."""
    dead: bool
    """False: discard the job when its retries are used up."""
    backtrace: bool | int
    """Store the traceback with a failure: True for all lines, or the number of lines."""
    tags: Sequence[str]
    """Labels that Sidekiq's web page and logs show."""
    keep_result: float | None
    """Seconds to keep what the job returned, or how it failed; see `Client.result`. None: keep
    nothing."""
    expires_in: float | None
    """Seconds after which a job that has not started is dropped; for a scheduled job, after its
    time. None: it waits for ever."""
    unique: Unique | float | None
    """The wish that no two jobs with the same arguments exist at a time; a number: seconds after
    which another one is accepted in any case. See `Unique`. None: there may be many."""
    limit: Limit | None
    """So many jobs at once, or in a time, of all that share the name; see `Limit`. None: no
    limit."""
    log_level: str | int
    """Log level while Sidekiq runs this job; jobwire's worker stores it but does not use it."""


DEFAULTS: Options = {"retry": True, "queue": "default"}
"""Always written, so that readers need no defaults of their own. [PUSH-6]"""


class ReadyPayload(msgspec.Struct, frozen=True, gc=False):
    """An encoded payload. It goes to the scheduled set if `at` is set, otherwise to its queue.

    The garbage collector need not look at it, so that a large bulk push does not keep it busy.
    """

    jid: str
    queue: str
    at: float | None
    text: bytes
    lock: Lock | None = None
    """The lock of a unique job, as the payload has it."""
    plain: bool = False
    """True if `may_share` of it is known to be False."""

    def with_text(self, text: bytes) -> ReadyPayload:
        """Return the job with another text, of which nothing is known."""
        return msgspec.structs.replace(self, text=text, plain=False)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse an unknown option or an invalid value of one. [PUSH-4]

    Raises:
        InvalidJob: Names the option, the value and the rule.
    """
    for name, value in options.items():
        check = _CHECKS.get(name)
        if check is None:
            import difflib  # slow to load, and only for a mistake

            near = difflib.get_close_matches(name, _CHECKS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(_CHECKS)}"
            raise InvalidJob("PUSH-4", name, f"no such option{hint}")
        problem = check(value)
        if problem:
            raise InvalidJob("PUSH-4", name, f"{value!r} {problem}")


def build(
    class_name: str,
    args: Sequence[Any],
    options: Mapping[str, Any],
    *,
    jid: str,
    now: float,
    generation: Generation,
    at: float | None = None,
    fields: Mapping[str, Any] | None = None,
    strict: StrictArgs = "raise",
) -> JobFields:
    """Return a checked item, with its fields in Sidekiq's order. [PAY-0] [PAY-11]

    It has no fields but those of the caller and the protocol. [KEY-7] [KEY-10] [PAY-31]

    Args:
        class_name: Wire class, such as `HardJob` or `Reports::Monthly`.
        args: Positional arguments.
        options: As in `Options`, with the defaults of the job's definition.
        jid: The job id.
        now: Epoch seconds.
        generation: Generation of the times to write.
        at: Epoch second to run at; None to run at once.
        fields: More payload fields, written unchanged.
        strict: Treatment of arguments for which JSON has no type.

    Raises:
        InvalidJob: The job must not be written.
    """
    check_options(options)
    item: JobFields = {**DEFAULTS, **options}
    if item.get("retry_for") is not None:
        item["retry_for"] = int(item["retry_for"])
    if item.get("tags") is not None:
        item["tags"] = list(item["tags"])
    if (expires_in := item.pop("expires_in", None)) is not None:
        item[EXPIRES_AT] = (now if at is None else at) + expires_in
    if (keep := item.pop("keep_result", None)) is not None:
        item[KEEP] = keep
    unique, limit = item.pop("unique", None), item.pop("limit", None)
    item.update(fields or {})
    checked = check_args(args, strict=strict)
    if at is None:
        item |= {"args": checked, "class": class_name}
    else:
        item |= {"class": class_name, "args": checked, "at": epoch(at)}
    if unique is not None:
        item[UNIQUE] = declared(item, unique)
    if limit is not None:
        try:
            item[LIMIT] = described(item, limit)
        except ValueError as error:
            raise InvalidJob("X-LIMIT-1", "limit", str(error)) from error
    created_at = item.pop("created_at", None)
    item["jid"] = jid
    item["created_at"] = stamp(now, generation) if created_at is None else created_at
    _check_item(item)
    return item


def finalize(item: JobFields, *, now: float, generation: Generation) -> ReadyPayload:
    """Check an item after middleware and encode it.

    [PUSH-3] [PUSH-7] [PUSH-18] [SCHED-12] [SCHED-13]
    """
    _check_item(item)
    body = {name: value for name, value in item.items() if name not in FAILURE_FIELDS}
    at = body.pop("at", None)
    if body.get("created_at") is None:  # middleware may remove it [PUSH-11]
        body["created_at"] = stamp(now, generation)
    if at is None:
        body["enqueued_at"] = stamp(now, generation)
    else:
        at = epoch(at)
        body.pop("enqueued_at", None)
    for field, value in body.items():
        if type(field) is not str:
            raise InvalidJob("PUSH-5", "", f"field name {field!r} is not a string")
        check_value(value, field, depth=2)
    try:
        text = encode(body)
    except ValueError as error:
        # Python refuses to format an integer of more than 4,300 digits, as a guard against attacks.
        raise InvalidJob("PAY-5", "", f"cannot be written: {error}") from None
    lock = lock_of(item.get(UNIQUE))
    return ReadyPayload(item["jid"], item["queue"], at, text, lock, not may_share(text))


def may_share(text: bytes) -> bool:
    """Return whether a payload, or one that it carries, may have a lock or a limit."""
    return _UNIQUE in text or _LIMIT in text


def _check_item(item: JobFields) -> None:
    """Check the values that middleware or a caller's own fields can break.

    [PUSH-4] [PUSH-18] [PAY-12] [PAY-30]
    """
    for field in ("class", "args", "jid", *DEFAULTS):
        if field not in item:
            raise InvalidJob("PUSH-4", field, "is missing")
    for field, check in (("class", _class_name), ("jid", _name)):
        if problem := check(item[field]):
            raise InvalidJob("PUSH-4", field, f"{item[field]!r} {problem}")
    if not isinstance(item["args"], list):
        raise InvalidJob("PAY-12", "args", f"is {type(item['args']).__name__}, not a list")
    created_at = item.get("created_at")
    if not (created_at is None or type(created_at) in (int, float)):
        raise InvalidJob("PUSH-4", "created_at", f"{created_at!r} is not a time")
    check_options({field: value for field, value in item.items() if field in _CHECKS})


def _class_name(value: object) -> str:
    return (
        ""
        if isinstance(value, str) and value.strip() == value and value
        else 'is not a class name; give a string like "HardJob" or "Reports::Monthly"'
    )


def _name(value: object) -> str:
    return "" if isinstance(value, str) and value else "is not a non-empty string"


def _optional_name(value: object) -> str:
    return "" if value is None else _name(value)


def _retry(value: object) -> str:
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, int) and value >= 0:
        return ""
    return "is not True, False, None or a number of retries (0 or more)"


def _retry_for(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is not a number of seconds"
    if not 0 <= value <= MAX_RETRY_FOR_S:
        return f"is not between 0 and {MAX_RETRY_FOR_S} seconds; give a duration, not a time"
    return ""


def _seconds(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is not a number of seconds"
    if not 0 < value <= MAX_KEEP_S:
        return f"is not between 0 and {MAX_KEEP_S} seconds; give a duration, not a time"
    return ""


def _unique(value: object) -> str:
    if isinstance(value, Unique):
        return ""
    return f"{problem}, or Unique(...)" if (problem := _seconds(value)) else ""


def _limit(value: object) -> str:
    return "" if value is None or isinstance(value, Limit) else "is not a Limit(...)"


def _flag(value: object) -> str:
    return "" if value is None or isinstance(value, bool) else "is not True or False"


def _backtrace(value: object) -> str:
    if value is None or (isinstance(value, int) and value >= 0):
        return ""
    return "is not True, False or a number of lines (0 or more)"


def _tags(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return (
            "" if all(isinstance(tag, str) for tag in value) else "has a tag that is not a string"
        )
    return 'is not a list of strings like ["billing"]'


def _log_level(value: object) -> str:
    # Sidekiq 8 loses a job with an unknown log level.
    if value is None or value in _LOG_LEVELS or (type(value) is int and 0 <= value <= 5):
        return ""
    return f"is not one of {', '.join(_LOG_LEVELS)}, or 0 to 5"


_CHECKS: dict[str, Callable[[object], str]] = {
    "queue": _name,
    "retry": _retry,
    "retry_for": _retry_for,
    "retry_queue": _optional_name,
    "dead": _flag,
    "backtrace": _backtrace,
    "tags": _tags,
    "keep_result": _seconds,
    "expires_in": _seconds,
    "unique": _unique,
    "limit": _limit,
    "log_level": _log_level,
}
