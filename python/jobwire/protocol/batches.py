"""Batches: jobs that belong together, and the jobs that follow when they have ended. [X-BATCH-1]

Members are sets of ids, not counters, so that a job that ends twice counts once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from jobwire.errors import BatchEnded
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.payload import edit, encode
from jobwire.protocol.results import ResultToStore
from jobwire.protocol.times import Generation, stamp
from jobwire.protocol.wire import Arg, Batch, Command, Op, Script, command

__all__ = [
    "BATCH",
    "CALLBACK",
    "EVENTS",
    "MAX_DEPTH",
    "BatchState",
    "BatchStatus",
    "Ended",
    "HowEnded",
    "Membership",
    "batch_keys",
    "batch_of",
    "check_added",
    "is_cancelled",
    "member_in",
    "membership",
    "read_status",
    "script_add",
    "script_end",
    "script_ended",
    "script_open",
    "status_of",
    "status_steps",
    "time_text",
]

BATCH: Final = "jw_batch"  # the payload field of a member [X-BATCH-2]
CALLBACK: Final = "jw_callback"  # the payload field of a callback [X-BATCH-1]
EVENTS: Final = ("on_success", "on_complete", "on_death")
KEPT_S = 2_592_000  # 30 days since the last change [X-BATCH-1]
MAX_DEPTH: Final = 8  # of a batch and those around it [X-BATCH-9]
_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_MARK = f'"{BATCH}"'.encode()

BatchState: TypeAlias = Literal["open", "closed", "complete", "cancelled"]
HowEnded: TypeAlias = Literal["done", "dead", "dropped"]
"""The end of a member: success; death, or a failure without a retry; any other end."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The batch of a job, as its payload names it. [X-BATCH-2]

    Attributes:
        batch: Id of the batch.
        queue: Name of the queue of its callbacks.
        parent: The batch that it is in; None if it is in none. [X-BATCH-9]
    """

    batch: str
    queue: str
    parent: Membership | None = None

    def lineage(self) -> Iterator[Membership]:
        """Return this batch, and those around it from the inside out."""
        level: Membership | None = self
        while level is not None:
            yield level
            level = level.parent

    @property
    def depth(self) -> int:
        """Number of batches: this one, and those around it."""
        return sum(1 for _ in self.lineage())

    def field(self) -> dict[str, Any]:
        """Return the value of the payload field."""
        mark: dict[str, Any] = {"id": self.batch, "queue": self.queue}
        return mark if self.parent is None else {**mark, "parent": self.parent.field()}


class Ended(NamedTuple):
    """The end of a member. [X-BATCH-5]

    Attributes:
        member: The batch.
        jid: The member.
        how: How it ended.
        at: JSON text of the time now, for the callbacks.
    """

    member: Membership
    jid: str
    how: HowEnded
    at: str


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """A batch at one moment.

    Attributes:
        id: Id of the batch.
        description: Text for people.
        state: `open`: it takes members. `closed`: no member comes but from inside a member.
            `complete`: every member has ended. `cancelled`: members are dropped at their start.
        created_at: Epoch second.
        total: Number of members that were added.
        open: Number of members that have not ended.
        failed: Number of members that ended without success: dead, deleted, cancelled or too late.
        queue: Name of the queue of the callbacks.
        waiting: The callbacks that were not pushed yet, such as `on_success`.
        parent: The batch that it is in; None if it is in none.
    """

    id: str
    description: str
    state: BatchState
    created_at: float
    total: int
    open: int
    failed: int
    queue: str
    waiting: Sequence[str]
    parent: Membership | None = None

    @property
    def membership(self) -> Membership:
        """The batch, as payloads of its members name it."""
        return Membership(self.id, self.queue, self.parent)

    @property
    def done(self) -> int:
        """Number of members that succeeded."""
        return self.total - self.open - self.failed


def membership(value: object) -> Membership | None:
    """Return the batch that a payload field names; None if it names none. [X-BATCH-2]"""
    inside_out: list[tuple[str, str]] = []
    while value is not None:
        if not isinstance(value, dict) or len(inside_out) == MAX_DEPTH:
            return None
        batch, queue = value.get("id"), value.get("queue")
        if not isinstance(batch, str) or not _ID.fullmatch(batch):
            return None
        if not isinstance(queue, str) or not queue:
            return None
        inside_out.append((batch, queue))
        value = value.get("parent")
    member: Membership | None = None
    for batch, queue in reversed(inside_out):
        member = Membership(batch, queue, member)
    return member


def batch_of(fields: Mapping[str, Any]) -> Membership | None:
    """Return the batch of a member, or of a callback."""
    return membership(fields.get(BATCH)) or membership(fields.get(CALLBACK))


def member_in(text: bytes) -> tuple[Membership, str] | None:
    """Return batch and id of a member from its payload; None if it is not a member."""
    if _MARK not in text:
        return None
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    member, jid = membership(fields.get(BATCH)), fields.get("jid")
    return (member, jid) if member is not None and isinstance(jid, str) and jid else None


def time_text(now: float, generation: Generation) -> str:
    """Return a time as a payload has it. [GEN-3] [GEN-4]"""
    return encode(stamp(now, generation)).decode()


def batch_keys(keys: Keys, member: Membership) -> list[str]:
    """Return the keys that the end of a member may change."""
    return [
        key
        for level in member.lineage()
        for key in (*_own_keys(keys, level), keys.queue(level.queue))
    ]


def _own_keys(keys: Keys, level: Membership) -> list[str]:
    batch = level.batch
    return [keys.batch(batch), keys.batch_open(batch), keys.batch_failed(batch)]


def script_open(
    keys: Keys,
    member: Membership,
    callbacks: Mapping[str, ReadyPayload],
    *,
    description: str,
    now: float,
) -> Script:
    """Return the step that makes a batch, open for members. [X-BATCH-1] [X-BATCH-9]

    The reply is the state of the batch that it is in; see `check_added`.

    Args:
        keys: Key names.
        member: The batch, as its members will name it.
        callbacks: `on_success`, `on_complete` or `on_death`, and the job to push then.
        description: Text for people.
        now: Epoch seconds.
    """
    words: list[Arg] = ["state", "open", "created_at", now, "total", 0, "queue", member.queue]
    words += ("description", description)
    names = [keys.batch(member.batch)]
    if member.parent is not None:
        words += ("parent", encode(member.parent.field()))
        names += (key for outer in member.parent.lineage() for key in _own_keys(keys, outer))
    for name, job in callbacks.items():
        words += (name, edit(job.text, {}, drop=("enqueued_at",)))
    return Script("batch_open", names, words)


def script_add(keys: Keys, member: Membership, jobs: Sequence[ReadyPayload]) -> Script:
    """Return the step that pushes members. [X-BATCH-2] [X-BATCH-3]

    The reply is the state of the batch; see `check_added`.
    """
    batches = [key for level in member.lineage() for key in _own_keys(keys, level)]
    words: list[Arg] = [member.depth]
    for job in jobs:
        words += (job.queue, job.text, job.jid)
    return Script(
        "batch_add",
        [keys.queues, *batches, *(keys.queue(job.queue) for job in jobs)],
        words,
    )


def check_added(batch_id: str, state: bytes) -> None:
    """Raise unless `script_add` has written the jobs, or `script_open` the batch. [X-BATCH-3]

    Raises:
        BatchEnded: The batch is complete or cancelled, or does not exist.
    """
    if state not in (b"open", b"closed"):
        raise BatchEnded(batch_id, state.decode())


def script_end(
    keys: Keys,
    member: Membership,
    how: HowEnded | Literal["closed", "cancelled"],
    *,
    at: str,
    jid: str = "",
    place: str = "",
    text: bytes = b"",
    result: ResultToStore | None = None,
    lock: str = "",
    dead_limits: DeadSetLimits | None = None,
    dead: str = "",
) -> Script:
    """Return the step that ends a member, or closes or cancels the batch.

    [X-BATCH-4] [X-BATCH-6] [X-BATCH-8]

    Args:
        keys: Key names.
        member: The batch.
        how: How the member ended; `closed` or `cancelled` is for the batch itself.
        at: JSON text of the time now.
        jid: The member.
        place: Key of a list or sorted set to remove the job from; empty for none. Then nothing
            changes unless the job was there.
        text: The payload there.
        result: For a job that was cancelled: its result, without bytes if it keeps none.
        lock: Digest of the lock to release, if the job has it; empty for none. [X-UNIQ-8]
        dead: With a place: key of the set of dead jobs, which the job moves to.
        dead_limits: With `dead`: the time of its death, and the limits of that set.

    The reply is 1, or 0 if nothing was changed.
    """
    names = [*batch_keys(keys, member), keys.queues]
    if place:
        names.append(place)
    if result is not None:
        names += (keys.result(jid), keys.cancelled, keys.iteration(jid))
    end = ResultToStore("", 0, b"") if result is None else result
    words: list[Arg] = [how, jid, member.depth, at, text, end.seconds, end.text, int(bool(lock))]
    if dead_limits is not None:
        names.append(dead)
        words += (dead_limits.now, dead_limits.oldest, dead_limits.limit)
    if lock:
        names.append(keys.unique(lock))
    return Script("batch_end", names, words)


def script_ended(keys: Keys, ended: Ended) -> Script:
    """Return the step that ends a member that is in no place. [X-BATCH-5]"""
    return script_end(keys, ended.member, ended.how, at=ended.at, jid=ended.jid)


def is_cancelled(keys: Keys, member: Membership) -> Op[bool]:
    """Return whether a batch, or one around it, is cancelled. [X-BATCH-7] [X-BATCH-11]"""
    levels = [command("HGET", keys.batch(level.batch), "state") for level in member.lineage()]
    return b"cancelled" in (yield Batch(levels))


def read_status(keys: Keys, batch_id: str) -> Op[BatchStatus | None]:
    """Return a batch as it is now; None if there is none. [X-BATCH-1]"""
    flat, left, failed = yield Batch(status_steps(keys, batch_id), atomic=True)
    return status_of(batch_id, flat, left, failed)


def status_steps(keys: Keys, batch_id: str) -> list[Command]:
    """Return the commands that read a batch; their replies are for `status_of`."""
    return [
        command("HGETALL", keys.batch(batch_id)),
        command("SCARD", keys.batch_open(batch_id)),
        command("SCARD", keys.batch_failed(batch_id)),
    ]


def status_of(batch_id: str, flat: Sequence[bytes], left: int, failed: int) -> BatchStatus | None:
    """Return a batch from the replies to `status_steps`; None if there is none."""
    pairs = iter(flat)
    fields = {
        name.decode("utf-8", "replace"): value for name, value in zip(pairs, pairs, strict=True)
    }
    if "state" not in fields:
        return None
    return BatchStatus(
        id=batch_id,
        description=fields.get("description", b"").decode("utf-8", "replace"),
        state=cast(BatchState, fields["state"].decode("utf-8", "replace")),
        created_at=_number(fields.get("created_at")),
        total=int(_number(fields.get("total"))),
        open=left,
        failed=failed,
        queue=fields.get("queue", b"default").decode("utf-8", "replace"),
        waiting=[name for name in EVENTS if name in fields],
        parent=_parent(fields.get("parent", b"null")),
    )


def _parent(text: bytes) -> Membership | None:
    try:
        return membership(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _number(value: bytes | None) -> float:
    """Return a finite number that another program may have written; 0 for anything else."""
    try:
        number = float(value or 0)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0
