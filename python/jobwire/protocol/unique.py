"""Jobs of which there is one at a time: their key, and the lock that holds it. [X-UNIQ-1]"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec

from jobwire.errors import ConfigError, InvalidJob
from jobwire.protocol import active_job
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job
from jobwire.protocol.ruby_locks import LOCK_DIGEST, ruby_lock_of
from jobwire.protocol.wire import Script

__all__ = [
    "DIGEST",
    "UNIQUE",
    "By",
    "Duplicate",
    "Lock",
    "Refused",
    "Scope",
    "Unique",
    "canonical",
    "check_by",
    "chosen",
    "declared",
    "digest",
    "held_by",
    "held_in",
    "key_of",
    "lock_in",
    "lock_of",
    "milliseconds",
    "script_kill",
    "script_lock",
    "script_unlock",
]

UNIQUE: Final = "jw_unique"  # the payload field [X-UNIQ-2]
MAX_SECONDS = 1_000_000_000

Scope: TypeAlias = Literal["until_done", "until_start", "while_running", "for_time"]
Duplicate: TypeAlias = Literal["raise", "drop", "replace"]
By: TypeAlias = Callable[..., Any] | Sequence[str | int]

_SCOPES = get_args(Scope)
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MARK = f'"{UNIQUE}"'.encode()
_RUBY_MARK = f'"{LOCK_DIGEST}"'.encode()
_encode = msgspec.json.Encoder(order="deterministic").encode  # the names of objects in order

Refused: TypeAlias = Mapping[str, str]
"""Id of each job that was not written, to the id of the job that has its lock."""


@dataclass(frozen=True, slots=True)
class Unique:
    """The wish that no two jobs with the same key exist, or run, at a time. [X-UNIQ-1]

        @app.job(unique=Unique(3600, by=["user_id"]))
        def sync(user_id: int, *, why: str = "") -> None: ...

    A plain number stands for `Unique(number)`.

    Raises:
        ConfigError: A value is invalid.
    """

    seconds: float
    """The bound of the lock: seconds after the push, or after the time of a scheduled job. A lock
    that nothing released ends then, even if its job still runs."""
    _: KW_ONLY
    by: By | None = None
    """The arguments in the key: names of parameters, positions in the list, or a function that
    gets the arguments of the payload and returns a JSON value. None: all arguments. Class and queue
    always belong to the key."""
    scope: Scope = "until_done"
    """The time of the lock: `until_done` from the push until the job succeeds, dies, is deleted or
    dropped, through all retries; `until_start` from the push to its first start; `while_running`
    during each execution, so that jobs with the same key run one after the other; `for_time` from
    the push for all `seconds`."""
    duplicate: Duplicate = "raise"
    """The fate of a job whose key another job has: `raise` refuses it with `DuplicateJob`; `drop`
    leaves it out, and the push returns None; `replace` removes the other job if it still waits, and
    raises if it runs. `while_running` ignores this."""

    def __post_init__(self) -> None:
        if not _is_bound(self.seconds):
            raise ConfigError(
                f"unique: seconds {self.seconds!r} is not a number of seconds "
                f"between 0 and {MAX_SECONDS}"
            )
        for name, value, known in (
            ("scope", self.scope, _SCOPES),
            ("duplicate", self.duplicate, get_args(Duplicate)),
        ):
            if value not in known:
                raise ConfigError(f"unique: {name} {value!r} is not one of {', '.join(known)}")
        object.__setattr__(self, "by", check_by("unique", self.by))


class Lock(msgspec.Struct, frozen=True):
    """The lock that a payload describes. [X-UNIQ-2]

    Attributes:
        digest: The key, as 64 hex digits.
        scope: See `Unique`.
        seconds: The bound of the lock.
        replaces: True if a waiting job with the lock is removed. Not in the payload.
    """

    digest: str
    scope: Scope
    seconds: float
    replaces: bool = False

    @property
    def at_push(self) -> bool:
        """True if the push takes the lock. [X-UNIQ-3]"""
        return self.scope != "while_running"


def digest(class_name: str, queue: str, values: object) -> str:
    """Return the key of a job: SHA-256 over its canonical JSON, in hex. [X-UNIQ-1]

    Raises:
        ValueError: JSON has no form for a value.
    """
    return hashlib.sha256(canonical([class_name, queue, values])).hexdigest()


def canonical(value: object) -> bytes:
    """Return the text of a JSON value that all clients write alike.

    Raises:
        ValueError: JSON has no form for it.
    """
    return _encode(value)


def check_by(option: str, by: By | None) -> By | None:
    """Return the arguments that an option chooses, a list as a tuple.

    Raises:
        ConfigError: `by` is not a function and not a list of names or positions.
    """
    if by is None or callable(by):
        return by
    words = isinstance(by, str) or not isinstance(by, Sequence)
    if words or not all(type(one) in (str, int) for one in by):
        raise ConfigError(
            f"{option}: by {by!r} is not a function and not a list of names or positions"
        )
    return tuple(by)


def declared(item: Mapping[str, Any], wish: Unique | float) -> dict[str, Any]:
    """Return the field that makes the job of an item unique. [X-UNIQ-1] [X-UNIQ-2]

    Raises:
        InvalidJob: See `key_of`.
    """
    unique = wish if isinstance(wish, Unique) else Unique(wish)
    key = key_of(item["class"], item["queue"], item["args"], unique.by)
    return {"digest": key, "scope": unique.scope, "seconds": unique.seconds}


def key_of(class_name: str, queue: str, args: list[Any], by: By | None) -> str:
    """Return the key of a job from its class, queue and arguments. [X-UNIQ-1]

    Raises:
        InvalidJob: The arguments have no value that `by` names, or it returned no JSON value.
    """
    described = active_job.inner({"class": class_name, "args": args})
    if described is not None:  # its own id differs in each job
        class_name, args = described["job_class"], described.get("arguments") or []
    try:
        return digest(class_name, queue, chosen(by, args))
    except ValueError as error:
        raise InvalidJob("X-UNIQ-1", "unique", str(error)) from error


def chosen(by: By | None, args: Sequence[Any]) -> object:
    """Return the value of the arguments that `by` chooses; all of them for None.

    Raises:
        ValueError: `by` has names, or returned no JSON value.
    """
    if by is None:
        return args
    if callable(by):
        value = by(*args)
        try:
            return msgspec.json.decode(_encode(value))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise ValueError(f"by returned {value!r}, which JSON cannot write") from error
    values = []
    for one in by:
        if isinstance(one, str):
            raise ValueError(
                f"by names {one!r}, but only a job type knows names; give a position, from 0"
            )
        # A parameter that was left out has its default, which the payload does not know.
        values.append(args[one] if -len(args) <= one < len(args) else None)
    return values


def lock_of(value: object) -> Lock | None:
    """Return the lock that a payload field describes; None if it describes none. [X-UNIQ-2]"""
    if not isinstance(value, dict):
        return None
    key, scope, seconds = value.get("digest"), value.get("scope"), value.get("seconds")
    if not isinstance(key, str) or not DIGEST.fullmatch(key) or scope not in _SCOPES:
        return None
    return Lock(key, cast(Scope, scope), cast(float, seconds)) if _is_bound(seconds) else None


def lock_in(text: bytes) -> Lock | None:
    """Return the lock that a payload of a client describes."""
    return lock_of(msgspec.json.decode(text).get(UNIQUE)) if _MARK in text else None


def held_by(text: bytes) -> tuple[str, str] | None:
    """Return name and job id of the lock that a waiting job has; None if it has none."""
    if _MARK not in text and _RUBY_MARK not in text:
        return None
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    name, jid = held_in(fields), fields.get("jid")
    return (name, jid) if name and isinstance(jid, str) else None


def held_in(fields: Mapping[str, Any] | Job) -> str:
    """Return the name of the lock that a waiting job may have; empty if it has none.

    [X-UNIQ-8] [X-ADDON-7]
    """
    if (lock := lock_of(fields.get(UNIQUE))) is not None:
        return "" if lock.scope == "for_time" else lock.digest
    ruby = ruby_lock_of(fields)
    return "" if ruby is None else ruby.released(waits=False, done=False)[-1]


def script_lock(keys: Keys, lock: Lock, jid: str) -> Script:
    """Return the step that takes a lock alone, or renews its own. [X-UNIQ-9]

    The reply is a list of one: the id of the job that has the lock; empty if it is this job now.
    """
    words = ("", "", "", jid, "PX", milliseconds(lock.seconds))
    return Script("lock", [keys.queues, keys.unique(lock.digest)], words)


def script_unlock(keys: Keys, key: str, jid: str, *, place: str = "", text: bytes = b"") -> Script:
    """Return the step that releases a lock if this job has it. [X-UNIQ-7] [X-UNIQ-8]

    Args:
        keys: Key names.
        key: The digest.
        jid: The job.
        place: Key of a list or sorted set to remove the job from; empty for none. Then the lock is
            released only if the job was there.
        text: The payload there.

    The reply is 1 if the job was removed; without a place, if the lock was released. Otherwise 0.
    """
    names = [keys.unique(key), place] if place else [keys.unique(key)]
    return Script("unlock", names, [jid, text])


def script_kill(
    keys: Keys,
    key: str,
    jid: str,
    *,
    place: str,
    text: bytes,
    dead: str,
    dead_limits: DeadSetLimits,
) -> Script:
    """Return the step that moves a job from a sorted set to the dead set, without its lock.

    [X-UNIQ-8]

    Args:
        keys: Key names.
        key: The digest.
        jid: The job.
        place: Key of its set.
        text: The payload there.
        dead: Key of the dead set.
        dead_limits: The time of its death, and the limits of the dead set.

    The reply is 1 if the job was there, otherwise 0.
    """
    limits = (dead_limits.now, dead_limits.oldest, dead_limits.limit)
    return Script("unlock", [keys.unique(key), place, dead], [jid, text, *limits])


def milliseconds(seconds: float) -> int:
    """Return seconds as whole milliseconds, rounded up."""
    return math.ceil(seconds * 1000)


def _is_bound(seconds: object) -> bool:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return False
    return 0 < seconds <= MAX_SECONDS
