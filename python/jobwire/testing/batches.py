"""Batches in memory, by the rules of those in Redis. [X-BATCH-1]"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jobwire.errors import Cancelled, Snooze
from jobwire.protocol import times
from jobwire.protocol.batches import EVENTS, BatchState, BatchStatus, HowEnded, Membership
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.payload import decode, edit

__all__ = ["BatchStore", "how_ended"]


@dataclass
class _Batch:
    member: Membership
    description: str
    created_at: float
    callbacks: dict[str, ReadyPayload]
    state: BatchState = "open"
    total: int = 0
    open: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


class BatchStore:
    """The batches of one `fake` or `inline`. Threads may share it."""

    def __init__(self) -> None:
        self._batches: dict[str, _Batch] = {}
        self._lock = threading.Lock()

    def make(
        self, member: Membership, callbacks: Mapping[str, ReadyPayload], description: str
    ) -> str:
        """Make a batch, open for members; return its state, or that of the batch it is in.

        [X-BATCH-1] [X-BATCH-9]
        """
        with self._lock:
            if member.parent is not None:
                state = self._enter(member.parent, [_name(member)])
                if state not in ("open", "closed"):
                    return state
            made = _Batch(member, description, time.time(), dict(callbacks))
            self._batches[member.batch] = made
            return "open"

    def add(self, member: Membership, jobs: Sequence[ReadyPayload]) -> str:
        """Enter members; return the state, `open` or `closed` if they were entered. [X-BATCH-3]"""
        with self._lock:
            return self._enter(member, [job.jid for job in jobs])

    def end_member(self, member: Membership, jid: str, how: HowEnded) -> list[ReadyPayload]:
        """End a member; return the callbacks that are due. [X-BATCH-5] [X-BATCH-10]"""
        with self._lock:
            ends: HowEnded = "done" if how == "done" else "dropped"
            return self._end(member, jid, ends, died=how == "dead")

    def end(
        self, member: Membership, how: Literal["closed", "cancelled"]
    ) -> list[ReadyPayload] | None:
        """Close or cancel a batch; return the callbacks that are due, None if there is none.

        [X-BATCH-4] [X-BATCH-7]
        """
        with self._lock:
            batch = self._batches.get(member.batch)
            if batch is None:
                return None
            if how == "cancelled" or batch.state == "open":
                batch.state = how
            return self._completed(batch, died=False, succeeded=True)

    def is_cancelled(self, member: Membership) -> bool:
        """Return whether a batch, or one around it, is cancelled. [X-BATCH-7] [X-BATCH-11]"""
        with self._lock:
            return self._is_cancelled(member)

    def _enter(self, member: Membership, names: Sequence[str]) -> str:
        batch = self._batches.get(member.batch)
        if batch is None:
            return ""
        if self._is_cancelled(member):
            return "cancelled"
        if batch.state in ("open", "closed"):
            batch.open.update(names)
            batch.total += len(names)
        return batch.state

    def _is_cancelled(self, member: Membership) -> bool:
        levels = (self._batches.get(level.batch) for level in member.lineage())
        return any(level is not None and level.state == "cancelled" for level in levels)

    def _end(
        self, member: Membership, name: str, how: HowEnded | None, *, died: bool
    ) -> list[ReadyPayload]:
        """End a member, or only tell of a death inside it."""
        batch = self._batches.get(member.batch)
        if batch is None or name not in batch.open | batch.failed:
            return []
        if how is not None:
            batch.open.discard(name)
            (batch.failed.discard if how == "done" else batch.failed.add)(name)
        return self._completed(batch, died=died, succeeded=how == "done", ends=how is not None)

    def _completed(
        self, batch: _Batch, *, died: bool, succeeded: bool, ends: bool = True
    ) -> list[ReadyPayload]:
        """Return the callbacks that are due, with those of the batches around it."""
        if self._is_cancelled(batch.member):
            batch.callbacks.clear()
            batch.state = "cancelled"
        due = _take(batch, "on_death") if died else []
        completes = ends and not batch.open and batch.state != "open"
        succeeds = completes and succeeded and not batch.failed and batch.state != "cancelled"
        if completes:
            due += _take(batch, "on_complete")
            if batch.state == "closed":
                batch.state = "complete"
        if succeeds:
            due += _take(batch, "on_success")
        if batch.member.parent is None or not (completes or died):
            return due
        how: HowEnded | None = None
        if completes:
            how = "done" if succeeds else "dropped"
        return due + self._end(batch.member.parent, _name(batch.member), how, died=died)

    def status(self, batch_id: str) -> BatchStatus | None:
        """Return a batch as it is now; None if there is none."""
        with self._lock:
            batch = self._batches.get(batch_id)
            if batch is None:
                return None
            return BatchStatus(
                id=batch_id,
                description=batch.description,
                state=batch.state,
                created_at=batch.created_at,
                total=batch.total,
                open=len(batch.open),
                failed=len(batch.failed),
                queue=batch.member.queue,
                waiting=[name for name in EVENTS if name in batch.callbacks],
                parent=batch.member.parent,
            )

    def clear(self) -> None:
        """Forget all batches."""
        with self._lock:
            self._batches.clear()


def how_ended(error: BaseException | None) -> HowEnded | None:
    """Return how a member ended that raised an error, or returned; None if it runs again.

    No job is retried in memory, so a failure is a death.
    """
    if isinstance(error, Snooze):
        return None
    if isinstance(error, Cancelled):
        return "dropped"
    return "done" if error is None else "dead"


def _name(member: Membership) -> str:
    """Return how a batch is named among the members of the one around it. [X-BATCH-9]"""
    return f"batch:{member.batch}"


def _take(batch: _Batch, name: str) -> list[ReadyPayload]:
    """Return a callback if it was not pushed yet; it then has the time of its push."""
    callback = batch.callbacks.pop(name, None)
    if callback is None:
        return []
    form: times.Generation = 8
    if isinstance(decode(callback.text, callback.queue).get("created_at"), float):
        form = 7
    text = edit(callback.text, {"enqueued_at": times.stamp(time.time(), form)})
    return [ReadyPayload(callback.jid, callback.queue, None, text)]
