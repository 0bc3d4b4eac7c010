"""Limits of jobs: so many at once, in a time, or in any window of a time. [X-LIMIT-1]"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, TypeAlias

import msgspec

from jobwire.errors import ConfigError
from jobwire.protocol.keys import Keys
from jobwire.protocol.unique import By, canonical, check_by, chosen
from jobwire.protocol.wire import Script

__all__ = [
    "LIMIT",
    "SLOT_LEASE_S",
    "Limit",
    "LimitOfJob",
    "described",
    "limit_of",
    "script_free",
    "script_rate",
    "script_take",
    "script_window",
]

LIMIT: Final = "jw_limit"  # the payload field [X-LIMIT-2]
SLOT_LEASE_S = 60.0  # of a slot whose process has died [X-LIMIT-4]
LATE_S = 1.0  # after its reserved time, in which a job may start at least [X-LIMIT-9]
MAX_SLOTS = 10_000  # also of the starts in a window, which are all kept
MAX_NUMBER = 1_000_000_000
MAX_KEY_BYTES = 100  # of the text of a key; a longer one is replaced by its digest

Cost: TypeAlias = int | Callable[..., int]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a job: `at_once` running jobs, a `rate`, or a `window` of starts. [X-LIMIT-1]

        @app.job(limit=Limit("mail-api", at_once=5))
        def send(user_id: int) -> None: ...

    All jobs whose limits have one name, and one key, share it, also those of other applications.
    Give the same numbers wherever the name is used: each job is measured by its own. A job over the
    limit waits in `schedule`, in order, and uses no retry.

    Raises:
        ConfigError: A value is invalid.
    """

    name: str
    """Letters, digits, `_`, `.` and `-`."""
    _: KW_ONLY
    at_once: int | None = None
    """Number of jobs that may run at the same time."""
    rate: float | None = None
    """Number of jobs that may start in `per` seconds, and up to `burst` more after a quiet time."""
    window: int | None = None
    """Number of jobs that may start in any `per` seconds, whenever these begin."""
    per: float = 1.0
    """Seconds."""
    burst: int | None = None
    """Number of jobs that may start together after a quiet time; None: `rate`, rounded up."""
    by: By | None = None
    """The arguments in the key, as in `Unique`; each key has a limit of its own. None: all jobs
    share one."""
    cost: Cost = 1
    """Number of jobs that this one counts as, or a function that gets the arguments of the payload
    and returns that number."""

    def __post_init__(self) -> None:
        problem = ""
        if not _NAME.fullmatch(str(self.name)):
            problem = f"name {self.name!r} is not 1 to 100 letters, digits, '_', '.' and '-'"
        elif [self.at_once, self.rate, self.window].count(None) != 2:
            problem = "give one of at_once, rate and window"
        elif self.at_once is not None and not _is_whole(self.at_once, MAX_SLOTS):
            problem = f"at_once {self.at_once!r} is not a whole number from 1 to {MAX_SLOTS}"
        elif self.rate is not None and not _is_number(self.rate):
            problem = f"rate {self.rate!r} is not a number above 0 and up to {MAX_NUMBER}"
        elif self.window is not None and not _is_whole(self.window, MAX_SLOTS):
            problem = f"window {self.window!r} is not a whole number from 1 to {MAX_SLOTS}"
        elif not _is_number(self.per):
            problem = f"per {self.per!r} is not a number of seconds above 0 and up to {MAX_NUMBER}"
        elif self.burst is not None and not _is_whole(self.burst, MAX_NUMBER):
            problem = f"burst {self.burst!r} is not a whole number from 1 to {MAX_NUMBER}"
        elif not callable(self.cost) and not _is_whole(self.cost, self.capacity):
            problem = f"cost {self.cost!r} is not a whole number from 1 to {self.capacity}"
        if problem:
            raise ConfigError(f"limit: {problem}")
        object.__setattr__(self, "by", check_by("limit", self.by))

    @property
    def capacity(self) -> int:
        """The highest cost of a job."""
        if self.rate is None:
            return self.at_once or self.window or 0
        return self.burst or math.ceil(self.rate or 0)


class LimitOfJob(msgspec.Struct, frozen=True):
    """The limit that a payload describes. [X-LIMIT-2]

    Attributes:
        name: The name.
        key: Text of the key; empty for none.
        at_once: Number of jobs at the same time; 0 for a limit of another kind.
        rate: Number of starts in `per` seconds; 0 for a limit of another kind.
        window: Number of starts in any `per` seconds; 0 for a limit of another kind.
        per: Seconds.
        burst: Number of starts together, of a rate.
        cost: Number of jobs that this job counts as.
    """

    name: str
    key: str = ""
    at_once: int = 0
    rate: float = 0.0
    window: int = 0
    per: float = 1.0
    burst: int = 0
    cost: int = 1

    @property
    def ident(self) -> str:
        """Name and key, as in the names of keys."""
        return f"{self.name}:{self.key}" if self.key else self.name

    @property
    def capacity(self) -> int:
        """The highest cost of a job."""
        return self.at_once or self.window or self.burst

    def slot(self, jid: str, token: str) -> str:
        """Return the member for a running job."""
        return f"{self.cost}:{jid}:{token}"

    def text(self) -> bytes:
        """Return the limit without its cost, as the list of limits has it. [X-LIMIT-3]"""
        members: dict[str, Any] = {"name": self.name, "key": self.key}
        if self.at_once:
            members["at_once"] = self.at_once
        elif self.window:
            members |= {"window": self.window, "per": self.per}
        else:
            members |= {"rate": self.rate, "per": self.per, "burst": self.burst}
        return _encode(members)


def described(item: Mapping[str, Any], limit: Limit) -> dict[str, Any]:
    """Return the field that gives the job of an item its limit. [X-LIMIT-1] [X-LIMIT-2]

    Raises:
        ValueError: The arguments have no value that `by` names, or a function returned a wrong
            value.
    """
    args = item["args"]
    field: dict[str, Any] = {"name": limit.name}
    if limit.by is not None:
        text = canonical(chosen(limit.by, args))
        field["key"] = (
            text.decode() if len(text) <= MAX_KEY_BYTES else hashlib.sha256(text).hexdigest()
        )
    if limit.at_once is not None:
        field["at_once"] = limit.at_once
    elif limit.window is not None:
        field |= {"window": limit.window, "per": limit.per}
    else:
        field |= {"rate": limit.rate, "per": limit.per, "burst": limit.capacity}
    cost = limit.cost(*args) if callable(limit.cost) else limit.cost
    if not _is_whole(cost, limit.capacity):
        raise ValueError(
            f"cost returned {cost!r}; expected a whole number from 1 to {limit.capacity}"
        )
    if cost != 1:
        field["cost"] = cost
    return field


def limit_of(value: object) -> LimitOfJob | None:
    """Return the limit that a payload field describes; None if it describes none. [X-LIMIT-2]"""
    try:
        limit = msgspec.convert(value, LimitOfJob)
    except msgspec.ValidationError:
        return None
    if not _NAME.fullmatch(limit.name) or len(limit.key.encode()) > MAX_KEY_BYTES:
        return None
    if [bool(limit.at_once), bool(limit.rate), bool(limit.window)].count(True) != 1:
        return None
    if limit.rate:
        fits = _is_number(limit.rate) and _is_whole(limit.burst, MAX_NUMBER)
    else:
        fits = _is_whole(limit.capacity, MAX_SLOTS)
    fits = fits and (bool(limit.at_once) or _is_number(limit.per))
    return limit if fits and _is_whole(limit.cost, limit.capacity) else None


def script_take(
    keys: Keys,
    limit: LimitOfJob,
    jid: str,
    token: str,
    *,
    renew: bool = False,
    lease: float = SLOT_LEASE_S,
) -> Script:
    """Return the step that takes a slot or a place in line, or renews a slot. [X-LIMIT-3]

    The reply is 1 if the job has a slot, and 0 if it must wait.
    """
    return Script(
        "limit_take",
        [*_slots(keys, limit), keys.limits],
        [
            *(int(renew), limit.cost, jid, token, limit.at_once),
            *(math.ceil(lease * 1000), limit.text()),
        ],
    )


def script_free(
    keys: Keys,
    limit: LimitOfJob,
    queue: str,
    *,
    slot: str = "",
    jid: str = "",
    text: bytes = b"",
    lease: float = SLOT_LEASE_S,
) -> Script:
    """Return the step that frees a slot, or tells where a job waits. [X-LIMIT-5] [X-LIMIT-6]

    It then gives the free slots to the jobs in line. The reply is their number. [X-LIMIT-7]

    Args:
        keys: Key names.
        limit: The limit.
        queue: Queue of the job.
        slot: The slot to free; empty for none.
        jid: The job that waits; empty for none.
        text: Its member of `schedule`.
        lease: Seconds of a lease.
    """
    name = queue.encode()
    place = b"%d:%d:%b%b" % (limit.cost, len(name), name, text) if jid else b""
    return Script(
        "limit_free",
        [*_slots(keys, limit), keys.schedule, keys.queues, keys.queue(queue)],
        [slot, limit.at_once, math.ceil(lease * 1000), queue, jid, place],
    )


def script_rate(keys: Keys, limit: LimitOfJob, jid: str) -> Script:
    """Return the step that lets a job start, or reserves its time. [X-LIMIT-8] [X-LIMIT-9]

    The reply is 0, or the microseconds that the job must wait.
    """
    interval = limit.per / limit.rate * 1e6
    fills = interval * limit.burst
    return Script(
        "limit_rate",
        [keys.limit(limit.ident, "full"), keys.limit(limit.ident, "line"), keys.limits],
        [jid, interval * limit.cost, fills, max(fills, LATE_S * 1e6), limit.text()],
    )


def script_window(keys: Keys, limit: LimitOfJob, jid: str) -> Script:
    """Return the step that lets a job start within a window. [X-LIMIT-10] [X-LIMIT-11]

    The reply is 0, or the microseconds that the job must wait.
    """
    micros = limit.per * 1e6
    return Script(
        "limit_window",
        [keys.limit(limit.ident, "starts"), keys.limit(limit.ident, "line"), keys.limits],
        [jid, limit.cost, limit.window, micros, max(micros, LATE_S * 1e6), limit.text()],
    )


def _slots(keys: Keys, limit: LimitOfJob) -> list[str]:
    return [keys.limit(limit.ident, part) for part in ("held", "line", "jobs")]


def _is_whole(value: object, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= MAX_NUMBER
