"""Batches in memory, by the rules of those in Redis. [X-BATCH-1]"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jobwire.errors import Cancelled, Snooze
from jobwire.protocol import times
from jobwire.protocol.batches import EVENTS, BatchState, BatchStatus, HowEnded
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.payload import decode, edit

__all__ = ["BatchStore", "how_ended"]


@dataclass
class _Batch:
    queue: str
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
        self, batch_id: str, callbacks: Mapping[str, ReadyPayload], queue: str, description: str
    ) -> None:
        """Make a batch, open for members. [X-BATCH-1]"""
        with self._lock:
            made = _Batch(queue, description, time.time(), dict(callbacks))
            self._batches[batch_id] = made

    def add(self, batch_id: str, jobs: Sequence[ReadyPayload]) -> str:
        """Enter members; return the state, `open` or `closed` if they were entered. [X-BATCH-3]"""
        with self._lock:
            batch = self._batches.get(batch_id)
            if batch is None or batch.state not in ("open", "closed"):
                return "" if batch is None else batch.state
            batch.open.update(job.jid for job in jobs)
            batch.total += len(jobs)
            return batch.state

    def end_member(self, batch_id: str, jid: str, how: HowEnded) -> list[ReadyPayload]:
        """End a member; return the callbacks that are due. [X-BATCH-5]"""
        with self._lock:
            batch = self._batches.get(batch_id)
            if batch is None or jid not in batch.open | batch.failed:
                return []
            batch.open.discard(jid)
            (batch.failed.discard if how == "done" else batch.failed.add)(jid)
            due = _take(batch, "on_death") if how == "dead" else []
            return due + _completed(batch, succeeded=how == "done")

    def end(self, batch_id: str, how: Literal["closed", "cancelled"]) -> list[ReadyPayload] | None:
        """Close or cancel a batch; return the callbacks that are due, None if there is none.

        [X-BATCH-4] [X-BATCH-7]
        """
        with self._lock:
            batch = self._batches.get(batch_id)
            if batch is None:
                return None
            if how == "cancelled":
                batch.callbacks.clear()
                batch.state = how
            elif batch.state == "open":
                batch.state = how
            return _completed(batch, succeeded=True)

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
                queue=batch.queue,
                waiting=[name for name in EVENTS if name in batch.callbacks],
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


def _completed(batch: _Batch, *, succeeded: bool) -> list[ReadyPayload]:
    """Return the callbacks that are due because no member is open any more."""
    if batch.open or batch.state == "open":
        return []
    if batch.state == "closed":
        batch.state = "complete"
    due = _take(batch, "on_complete")
    return due + (_take(batch, "on_success") if succeeded and not batch.failed else [])


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
