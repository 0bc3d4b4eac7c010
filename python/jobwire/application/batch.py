"""Batches: jobs that belong together, and the jobs that follow their end. [X-BATCH-1]"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeAlias

from jobwire.application import workflows
from jobwire.application.call import Call
from jobwire.errors import ConfigError, InvalidJob
from jobwire.protocol.batches import MAX_DEPTH, BatchStatus, Membership

if TYPE_CHECKING:
    from jobwire.application.clients import Clients

__all__ = ["Batch", "NewBatch"]

Ending: TypeAlias = Literal["closed", "cancelled"]


class Batch:
    """A batch in Redis. Threads and tasks may share it.

    Args:
        clients: The application.
        id: Its id.
        queue: Name of the queue of its callbacks.
        redis: Name of its Redis; "": that of `url`.
        parent: The batch that it is in; None if it is in none.
    """

    __slots__ = ("_clients", "_parent", "_redis", "id", "queue")

    def __init__(
        self,
        clients: Clients,
        id: str,
        queue: str,
        redis: str = "",
        parent: Membership | None = None,
    ) -> None:
        self._clients = clients
        self._parent = parent
        self.id = id
        self.queue = queue
        self._redis = redis

    def __repr__(self) -> str:
        return f"<Batch {self.id}>"

    def add(self, *calls: Call) -> list[str]:
        """Push jobs as members: `batch.add(resize.s(1), resize.s(2))`; return their ids.

        Each slice of a thousand jobs is one atomic step. A job that middleware stops is left out.

        Raises:
            BatchEnded: The batch is complete or cancelled, or does not exist.
            InvalidJob, RedisTrouble: See `Client.push_bulk`.
        """
        return self.add_all(calls)

    def add_all(self, calls: Iterable[Call]) -> list[str]:
        """Push many jobs as members: `batch.add_all(resize.s(n) for n in range(9000))`."""
        client, members = self._clients.client_of(self._redis), map(self._checked, calls)
        return client._produce(workflows.add_to_batch, self._member, members)

    async def aadd(self, *calls: Call) -> list[str]:
        """Push jobs as members; see `add`."""
        return await self.aadd_all(calls)

    async def aadd_all(self, calls: Iterable[Call]) -> list[str]:
        """Push many jobs as members; see `add_all`."""
        client = self._clients.aclient_of(self._redis)
        return await client._produce(
            workflows.add_to_batch, self._member, map(self._checked, calls)
        )

    def cancel(self) -> bool:
        """Drop the members that have not begun, and all callbacks; return False if it is gone.

        Members that run go on. A member is dropped when a worker takes it. The batches inside it
        are cancelled with it. [X-BATCH-7] [X-BATCH-11]
        """
        client = self._clients.client_of(self._redis)
        return client._produce(workflows.end_batch, self._member, "cancelled")

    async def acancel(self) -> bool:
        """Drop the members that have not begun, and all callbacks; see `cancel`."""
        client = self._clients.aclient_of(self._redis)
        return await client._produce(workflows.end_batch, self._member, "cancelled")

    def status(self) -> BatchStatus | None:
        """Return how far it is; None if it is gone: 30 days after its last change."""
        client = self._clients.client_of(self._redis)
        return client._produce(workflows.batch_status, self.id)

    async def astatus(self) -> BatchStatus | None:
        """Return how far it is; see `status`."""
        client = self._clients.aclient_of(self._redis)
        return await client._produce(workflows.batch_status, self.id)

    def _checked(self, call: Call) -> Call:
        """Return a member; refuse one whose key may be on another shard than the batch.

        Raises:
            TypeError: The member is not a job with its arguments.
            InvalidJob: The member has a key, and its type has no shard.
        """
        if not isinstance(call, Call):
            raise TypeError(
                f"batch: {call!r} is not a job with its arguments; give job.s(...). A chain or a "
                "group cannot be a member; let a member enqueue one"
            )
        keyed = call.options.get("unique") or call.options.get("limit")
        sharded = self._redis in self._clients.shards
        if keyed and sharded and getattr(call, "redis", "") != self._redis:
            error = InvalidJob(
                "X-BATCH-2",
                "unique, limit",
                f"the batch is on the shard {self._redis!r}, and a key has a shard of its own; "
                "give the type of the job a shard, @app.job(redis=SHARD), and make the batch in "
                "app.via(SHARD)",
            )
            error.job_class = call.class_name
            raise error
        return call

    @property
    def _member(self) -> Membership:
        return Membership(self.id, self.queue, self._parent)


class NewBatch:
    """A batch that is made at the begin of a `with` or `async with` block, and closed at its end.

    If the block raises, the batch is cancelled: members that have begun end, all others are
    dropped, and no callback runs.

    Args:
        clients: The application.
        callbacks: `on_success`, `on_complete` or `on_death`, and the job to push then.
        description: Text for people.
        redis: Name of its Redis; "": that of `url`.
        parent: The batch that it is in; None if it is in none.
    """

    __slots__ = ("_batch", "_callbacks", "_description")

    def __init__(
        self,
        clients: Clients,
        callbacks: Mapping[str, Call | None],
        description: str,
        redis: str,
        parent: Batch | None,
    ) -> None:
        for name, call in callbacks.items():
            if call is not None and not isinstance(call, Call):
                raise ConfigError(
                    f"{name}: {call!r} is not a job with its arguments; give job.s(...)"
                )
        self._callbacks = {name: call for name, call in callbacks.items() if call is not None}
        self._description = description
        around = None
        if parent is not None:
            around, redis = _membership(parent), parent._redis
        self._batch = Batch(clients, os.urandom(12).hex(), "", redis, around)

    def __enter__(self) -> Batch:
        batch = self._batch
        batch._redis = batch._clients.place(batch._redis)
        client = batch._clients.client_of(batch._redis)
        batch.queue = client._produce(
            workflows.open_batch, batch.id, self._callbacks, self._description, batch._parent
        )
        return batch

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        batch = self._batch
        client = batch._clients.client_of(batch._redis)
        how: Ending = "closed" if error is None else "cancelled"
        client._produce(workflows.end_batch, batch._member, how)

    async def __aenter__(self) -> Batch:
        batch = self._batch
        batch._redis = await batch._clients.aplace(batch._redis)
        client = batch._clients.aclient_of(batch._redis)
        batch.queue = await client._produce(
            workflows.open_batch, batch.id, self._callbacks, self._description, batch._parent
        )
        return batch

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        batch = self._batch
        client = batch._clients.aclient_of(batch._redis)
        how: Ending = "closed" if error is None else "cancelled"
        await client._produce(workflows.end_batch, batch._member, how)


def _membership(parent: Batch) -> Membership:
    """Return the batch around a new one; refuse what cannot be that. [X-BATCH-9]"""
    if not isinstance(parent, Batch):
        raise ConfigError(
            f"parent: {parent!r} is not a batch; give that of a `with` block, app.current_batch() "
            "or app.find_batch(id)"
        )
    if parent._member.depth >= MAX_DEPTH:
        raise ConfigError(
            f"parent: batch {parent.id} is inside {MAX_DEPTH - 1} others, and batches are at most "
            f"{MAX_DEPTH} deep; add the jobs to it without a batch of their own"
        )
    return parent._member
