"""Jobs that are enqueued inside of a session, as rows of its transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, Table, event, inspect
from sqlalchemy.orm import Session, SessionTransaction, registry
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from jobwire.application.app import App
from jobwire.errors import ConfigError
from jobwire.outbox.rows import Row
from jobwire.outbox.sending import Write, send_now
from jobwire.protocol.normalize import ReadyPayload
from jobwire.sqlalchemy.table import TableRows

__all__ = ["SessionJobs"]


class SessionJobs:
    """Keeps jobs until the transaction of a session commits.

    It is a `Deferral` of the application's transport. The session inserts the rows when it flushes,
    so enqueueing does not wait for the database, and a rollback to a savepoint drops them.
    """

    stores = True

    def __init__(self, app: App, table: Table) -> None:
        self._app = app
        self._table = table
        self._session: ContextVar[Session | None] = ContextVar("jobwire_session", default=None)
        # A class of its own, because an application may have several outboxes.
        self._row: type[Any] = type("OutboxJob", (), {})
        registry(metadata=table.metadata).map_imperatively(self._row, table)

    @contextmanager
    def using(self, session: Session) -> Iterator[None]:
        """Keep the jobs that this thread or task enqueues in a block."""
        before = self._session.get()
        self._session.set(session)
        try:
            yield
        finally:
            # Not by a token: frameworks may end a generator in another context.
            self._session.set(before)

    def defer(self, jobs: Sequence[ReadyPayload]) -> bool:
        """Keep jobs; return False outside of a block."""
        session = self._session.get()
        if session is None:
            return False
        if self._app.elsewhere:
            raise ConfigError(
                "outbox: a job for another Redis (app.via) cannot be a row, because the relay "
                "writes all rows to one Redis; enqueue it with on_commit=False"
            )
        kept = self._kept(session)
        now = time.time()
        for job in jobs:
            row = self._row()
            row.jid, row.queue, row.at, row.payload = job.jid, job.queue, job.at, job.text
            row.created_at = now
            session.add(row)
            kept.waiting.append((row, job))
        return True

    async def adefer(self, jobs: Sequence[ReadyPayload]) -> bool:
        """Keep jobs that were pushed from asyncio; see `defer`."""
        return self.defer(jobs)

    def settle(self) -> None:
        """Do nothing: a session of a test commits as well, if only to a savepoint."""

    def _kept(self, session: Session) -> _Kept:
        kept = session.info.get(self)
        if kept is None:
            kept = session.info[self] = _Kept()
            event.listen(session, "after_commit", self._after_commit)
            event.listen(session, "after_transaction_end", self._after_end)
        found: _Kept = kept
        return found

    def _after_commit(self, session: Session) -> None:
        if session.in_nested_transaction():  # the commit of a savepoint
            return
        kept = self._kept(session)
        for row, job in kept.waiting:
            # A row whose savepoint was rolled back has no key.
            if (identity := inspect(row).identity) is not None:
                kept.committed.append(Row(identity[0], job))
        kept.waiting.clear()

    def _after_end(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is not None:
            return
        kept = self._kept(session)
        kept.waiting.clear()  # of a transaction that was rolled back
        rows, kept.committed = kept.committed, []
        if rows:
            self._send(session, rows)

    def _send(self, session: Session, rows: Sequence[Row]) -> None:
        bind = session.get_bind(self._row)
        if isinstance(bind, Engine):
            send_now(TableRows(self._table, bind.begin), self._write(), rows)
        elif self._app.transport.overrides:  # a test, in a transaction of its own
            send_now(TableRows(self._table, partial(_nested, bind)), self._write(), rows)
        # Else the commit of the session may not be the last one, so a relay writes the jobs.

    def _write(self) -> Write:
        if in_greenlet():  # an `AsyncSession`
            return lambda jobs: await_only(self._app.aclient.write(jobs, buffered=False))
        return partial(self._app.client.write, buffered=False)


class _Kept:
    """The jobs of one session."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, ReadyPayload]] = []
        self.committed: list[Row] = []


@contextmanager
def _nested(connection: Connection) -> Iterator[Connection]:
    with connection.begin_nested():
        yield connection
