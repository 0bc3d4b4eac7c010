"""The result of a job that was asked to keep it. [X-RESULT-1] to [X-RESULT-9]

The script of an outcome that comes too late stores none. [X-RESULT-8]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from jobwire.errors import InvalidJob, ResultError
from jobwire.protocol.arguments import check_value
from jobwire.protocol.payload import Job, encode
from jobwire.protocol.retry import MESSAGE_LIMIT, Failure, scrub

__all__ = [
    "KEEP",
    "MAX_KEEP_S",
    "MAX_RESULT_BYTES",
    "Members",
    "Result",
    "ResultOutcome",
    "ResultToStore",
    "failure_members",
    "is_final",
    "json_members",
    "keep_of",
    "keep_seconds",
    "read",
    "result_to_store",
    "value_members",
]

KEEP = "jw_keep"  # the payload field [X-RESULT-1]
MAX_KEEP_S = 1_000_000_000  # a larger number is probably an epoch time by mistake
MAX_RESULT_BYTES = 1024 * 1024  # of the value as JSON [X-RESULT-6]

ResultOutcome: TypeAlias = Literal["done", "retry", "dead", "discarded", "cancelled", "expired"]
_OUTCOMES = frozenset(get_args(ResultOutcome))


class Members(bytes):
    """Members of the JSON object of a result: the value, the failure or a problem."""


_NOTHING = Members()


class ResultToStore(NamedTuple):
    """A result to store together with an outcome.

    Attributes:
        jid: The job id, which names the key.
        seconds: Time to live of the key.
        text: The JSON object.
    """

    jid: str
    seconds: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """The stored end of a job that keeps its result.

    Attributes:
        jid: The job id.
        outcome: `done`: the job returned. `retry`: it failed and is tried again. `dead`: it failed
            and is in the dead set. `discarded`: it failed and is stored nowhere. `cancelled`: a
            person or a program cancelled it. `expired`: it came too late and did not run.
        at: Epoch second of the outcome.
        value: The value that the job returned. None for another outcome than `done`.
        error_class: Class of the failure with its module; None if there is none.
        error_message: Text of the failure; None if there is none.
        problem: Why the value of a `done` job could not be kept; None if it was.
    """

    jid: str
    outcome: ResultOutcome
    at: float
    value: Any = None
    error_class: str | None = None
    error_message: str | None = None
    problem: str | None = None

    @property
    def final(self) -> bool:
        """True if the job does not run again by itself."""
        return self.outcome != "retry"

    def get(self) -> Any:
        """Return the value of a job that is done.

        Raises:
            ResultError: The job has another outcome, or its value could not be kept.
        """
        if self.outcome != "done":
            failure = f": {self.error_class}: {self.error_message}" if self.error_class else ""
            raise ResultError(
                f"job {self.jid} has no value; its outcome is {self.outcome}{failure}"
            )
        if self.problem is not None:
            raise ResultError(f"job {self.jid} is done, but its value was not kept: {self.problem}")
        return self.value


def keep_seconds(value: object) -> int:
    """Return for how many seconds a result is kept; 0 if it is not kept. [X-RESULT-1]

    A value of another type or range than the field allows counts as none, so that it stops no job.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if not 0 < value <= MAX_KEEP_S:  # also for NaN
        return 0
    return math.ceil(value)


def keep_of(job: Job, default: int) -> int:
    """Return for how many seconds to keep the result of a job; `default` if it does not say."""
    value = job.get(KEEP)
    return default if value is None else keep_seconds(value)


def value_members(value: object) -> Members:
    """Return the value that a job returned, or the reason why it is not kept.

    [X-RESULT-5] [X-RESULT-6]
    """
    if type(value) is Members:  # made in the process of an isolated job
        return value
    try:
        check_value(value, "value", depth=2)
        text = encode(value)
    except InvalidJob as error:
        return _problem(f"{error.field}: {error.problem}")
    except (ValueError, RecursionError) as error:  # an integer of more than 4,300 digits
        return _problem(str(error))
    return json_members(text)


def json_members(text: bytes) -> Members:
    """Return a value that is JSON already, or the reason why it is not kept. [X-RESULT-6]"""
    if len(text) > MAX_RESULT_BYTES:
        return _problem(
            f"the value has {len(text):,} bytes as JSON, the limit is {MAX_RESULT_BYTES:,}; "
            "store the data elsewhere and return a reference to it"
        )
    return Members(b'"value":' + text)


def failure_members(failure: Failure) -> Members:
    """Return class and message of a failure. [X-RESULT-4]"""
    fields = {
        "error_class": scrub(failure.error_class),
        "error_message": scrub(failure.message)[:MESSAGE_LIMIT],
    }
    return Members(encode(fields)[1:-1])


def _problem(text: str) -> Members:
    return Members(encode({"problem": scrub(text)})[1:-1])


def result_to_store(
    jid: str, seconds: int, outcome: ResultOutcome, members: Members = _NOTHING, *, now: float
) -> ResultToStore:
    """Return a result to store at epoch second `now`. [X-RESULT-3]"""
    head = encode({"outcome": outcome, "at": now})
    return ResultToStore(jid, seconds, head[:-1] + b"," + members + b"}" if members else head)


def read(jid: str, text: bytes) -> Result | None:
    """Return a stored result; None if the text is not one, which another program may cause."""
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(fields, dict) or fields.get("outcome") not in _OUTCOMES:
        return None
    at = fields.get("at")
    seconds = at if isinstance(at, int | float) and not isinstance(at, bool) else 0
    return Result(
        jid,
        fields["outcome"],
        float(seconds),
        fields.get("value"),
        _text(fields.get("error_class")),
        _text(fields.get("error_message")),
        _text(fields.get("problem")),
    )


def is_final(text: bytes | None) -> bool:
    """True if a stored text is the result of a job that does not run again by itself."""
    result = None if text is None else read("", text)
    return result is not None and result.final


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
