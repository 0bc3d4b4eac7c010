"""Jobs that wait for the commit of the database transactions in which they were enqueued."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from jobwire.application.app import App
from jobwire.django.outbox.outbox import Outbox
from jobwire.protocol.normalize import ReadyPayload

__all__ = ["OnCommit"]


class OnCommit:
    """Keeps jobs until every open transaction of this thread, on any database, has committed.

    A rollback of one of them drops the jobs, and so does a rollback to a savepoint that is older
    than the jobs. It is a `Deferral` of the application's transport.
    """

    def __init__(self, app: App, outbox: Outbox | None = None) -> None:
        self.stores = outbox is not None
        self._app = app
        self._outbox = outbox

    def defer(self, jobs: Sequence[ReadyPayload], redis: str) -> bool:
        """Keep jobs; return False if this thread is in no transaction."""
        aliases = [connection.alias for connection in _opened() if _in_transaction(connection)]
        if not aliases or not jobs:
            return bool(aliases)
        # No database can hold a row for the transactions of two.
        if self._outbox is not None and aliases == [self._outbox.alias]:
            kept: _Kept = _InOutbox(self._app, redis, jobs, self._outbox)
        else:
            kept = _Kept(self._app, redis, jobs, len(aliases))
        for alias in aliases:
            transaction.on_commit(kept, using=alias)
        return True

    async def adefer(self, jobs: Sequence[ReadyPayload], redis: str) -> bool:
        """Keep jobs that were pushed from asyncio: the transactions are those of Django's thread
        for sync code.
        """
        kept: bool = await sync_to_async(self.defer, thread_sensitive=True)(jobs, redis)
        return kept

    def settle(self) -> None:
        """Write the jobs whose transactions have ended, except for that of a `TestCase`."""
        for connection in _opened():
            if connection.in_atomic_block and not _in_transaction(connection):
                callbacks = connection.run_on_commit
                kept = [entry[1] for entry in callbacks if isinstance(entry[1], _Kept)]
                connection.run_on_commit = [
                    entry for entry in callbacks if not isinstance(entry[1], _Kept)
                ]
                for jobs in kept:
                    jobs()


class _Kept:
    """Jobs that are written at the last of several commits."""

    def __init__(self, app: App, redis: str, jobs: Sequence[ReadyPayload], commits: int) -> None:
        self._app = app
        self._redis = redis
        self._jobs = jobs
        self._commits = commits

    def __call__(self) -> None:
        self._commits -= 1
        if self._commits == 0:
            self._write()

    def _write(self) -> None:
        self._app.client_of(self._redis).write(self._jobs)


class _InOutbox(_Kept):
    """Jobs that are rows of the transaction as well."""

    def __init__(self, app: App, redis: str, jobs: Sequence[ReadyPayload], outbox: Outbox) -> None:
        super().__init__(app, redis, jobs, commits=1)
        self._outbox = outbox
        self._rows = outbox.add(jobs, redis)

    def _write(self) -> None:
        self._outbox.send_now(self._app, self._rows)


def _opened() -> Iterator[Any]:
    yield from connections.all(initialized_only=True)


def _in_transaction(connection: Any) -> bool:
    """True if code of the program, not only a `TestCase`, has begun a transaction."""
    return connection.in_atomic_block and not all(
        getattr(block, "_from_testcase", False) for block in connection.atomic_blocks
    )
