"""An outbox for SQLAlchemy: jobs that are rows of a transaction until Redis has them.

    outbox = Outbox(app, engine, metadata=Base.metadata)

    with Session(engine) as session, session.begin(), outbox.within(session):
        session.add(order)
        pay.enqueue(order.id)

After the commit, this process deletes the rows and writes their jobs. If it cannot, a worker of the
application does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.util import await_only

from jobwire.application.app import App
from jobwire.errors import ConfigError
from jobwire.outbox.relay import Relay
from jobwire.outbox.rows import Row, check_redis, stored
from jobwire.outbox.sending import GRACE_S, Write, send_all, send_now, write_by
from jobwire.protocol.normalize import ReadyPayload

__all__ = ["Outbox"]

T = TypeVar("T")
MAX_JID = 255  # characters
IDS_AT_ONCE = 500

_log = logging.getLogger("jobwire.outbox")


class Outbox:
    """Makes the jobs that are enqueued for a session part of its transaction.

    It is the `Deferral` of the application's transport, and attaches a relay to its workers.

    Args:
        app: The application.
        engine: The engine of the database with the table. After a commit it gives a connection for
            a moment, and in each worker one every five seconds.
        metadata: Where to define the table, so that `create_all` and Alembic find it; default: a
            new one, see `table`.
        name: Name of the table.

    Attributes:
        table: The table.

    Raises:
        ConfigError: The application has an outbox already.
    """

    stores = True

    def __init__(
        self,
        app: App,
        engine: sa.Engine | AsyncEngine,
        *,
        metadata: sa.MetaData | None = None,
        name: str = "jobwire_outbox",
    ) -> None:
        if app.transport.deferral is not None:
            raise ConfigError("this application has an outbox already; use that one")
        self.table = _table(name, sa.MetaData() if metadata is None else metadata)
        self._app = app
        self._engine = engine
        self._session: ContextVar[Session | AsyncSession | None] = ContextVar("session")
        self._open: WeakKeyDictionary[Session, _Pending] = WeakKeyDictionary()
        app.transport.deferral = self
        Relay(self.relay, lambda: None).attach(app)

    @contextmanager
    def within(
        self,
        session: Session | AsyncSession | scoped_session[Any] | async_scoped_session[Any],
    ) -> Iterator[None]:
        """Make the jobs that this thread or task enqueues in the block part of a session.

        They are rows of its transaction, which begins with the first one if there is none. A
        rollback drops them, also one to a savepoint. Jobs of an `AsyncSession` are enqueued with
        `await job.aenqueue(...)`.
        """
        current = session if isinstance(session, Session | AsyncSession) else session()
        token = self._session.set(current)
        try:
            yield
        finally:
            self._session.reset(token)

    def relay(self, *, grace: float = GRACE_S) -> int:
        """Write the jobs of rows that are `grace` seconds old; return their number.

        Each worker of the application does this every five seconds. It blocks, also if the engine
        is an `AsyncEngine`, so call it outside of an event loop.

        Raises:
            RedisTrouble: A Redis is away; its jobs that are left stay.
            SQLAlchemyError: The table cannot be used.
        """
        return self._run(lambda rows: send_all(rows, write_by(self._app), grace=grace))

    # -- the interface for the transport

    def defer(self, jobs: Sequence[ReadyPayload], redis: str) -> bool:
        """Insert jobs for the session of this thread; return False if there is none.

        Raises:
            ConfigError: The Redis has no name, or the session needs asyncio.
        """
        session = self._session.get(None)
        if isinstance(session, AsyncSession):
            raise ConfigError("an AsyncSession needs asyncio: write await job.aenqueue(...)")
        if session is not None:
            self._insert(session, jobs, redis)
        return session is not None

    async def adefer(self, jobs: Sequence[ReadyPayload], redis: str) -> bool:
        """Insert jobs for the session of this task; see `defer`."""
        session = self._session.get(None)
        if not isinstance(session, AsyncSession):
            return self.defer(jobs, redis)
        await session.run_sync(self._insert, jobs, redis, is_async=True)
        return True

    def settle(self) -> None:
        """Do nothing: the rows of a transaction around a test are written after its commit."""

    def _insert(
        self, session: Session, jobs: Sequence[ReadyPayload], redis: str, *, is_async: bool = False
    ) -> None:
        check_redis(redis)
        if not jobs:
            return
        now = time.time()
        rows = [
            {
                "jid": job.jid,
                "queue": job.queue,
                "at": job.at,
                "redis": redis,
                "payload": job.text,
                "created_at": now,
            }
            for job in jobs
        ]
        session.execute(sa.insert(self.table), rows)
        pending = self._open.get(session)
        if pending is None:
            pending = self._open[session] = _Pending(is_async)
            sa.event.listen(session, "after_commit", self._committed)
            sa.event.listen(session, "after_transaction_end", self._ended)
        pending.ids += [job.jid for job in jobs]

    def _committed(self, session: Session) -> None:
        if not session.in_nested_transaction():  # not a savepoint
            self._open[session].is_committed = True

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        """Write the jobs of a committed transaction; its connection is back in the pool."""
        if transaction.parent is not None:
            return
        pending = self._open[session]
        ids = pending.ids if pending.is_committed else []
        pending.ids, pending.is_committed = [], False
        if not ids:
            return
        try:
            self._send(ids, is_async=pending.is_async)
        except Exception as error:  # noqa: BLE001 - any error of any database; the commit succeeded
            _log.warning("jobs stay in the outbox (%s): %s", ", ".join(ids[:5]), error)

    def _send(self, ids: Sequence[str], *, is_async: bool) -> None:
        """Write committed jobs; `is_async` if this is code that an AsyncSession runs."""

        def write(redis: str, jobs: Sequence[ReadyPayload]) -> None:
            await_only(self._app.aclient_of(redis).write(jobs, buffered=False))

        def work(rows: _Rows, write: Write | None = None) -> None:
            send_now(rows, write or write_by(self._app), rows.of(ids))

        if not is_async:
            self._run(work)
        elif isinstance(self._engine, AsyncEngine):
            with self._engine.sync_engine.connect() as connection:
                work(_Rows(connection, self.table), write)
        else:
            await_only(asyncio.to_thread(self._run, work))

    def _run(self, work: Callable[[_Rows], T]) -> T:
        """Run a function on the rows, with a connection of the engine."""
        if isinstance(self._engine, AsyncEngine):
            return asyncio.run(self._arun(self._engine.sync_engine, work))
        with self._engine.connect() as connection:
            return work(_Rows(connection, self.table))

    async def _arun(self, model: sa.Engine, work: Callable[[_Rows], T]) -> T:
        # Connections of asyncio belong to one event loop, so this one needs a pool of its own.
        engine = AsyncEngine(sa.Engine(model.pool.recreate(), model.dialect, model.url))
        try:
            async with engine.connect() as connection:
                return await connection.run_sync(lambda sync: work(_Rows(sync, self.table)))
        finally:
            await engine.dispose()


@dataclass
class _Pending:
    """The jobs of the transaction of a session."""

    is_async: bool
    ids: list[str] = field(default_factory=list)
    is_committed: bool = False


class _Rows:
    """The rows of the outbox; they are `Rows` of jobwire.outbox.

    Args:
        connection: A connection without a transaction.
        table: The table.
    """

    def __init__(self, connection: sa.Connection, table: sa.Table) -> None:
        self._connection = connection
        self._table = table

    def transaction(self) -> AbstractContextManager[object]:
        """Begin a transaction."""
        return self._connection.begin()

    def delete(self, rows: Sequence[Row]) -> int:
        """Delete rows."""
        keys = [row.key for row in rows]
        return self._connection.execute(
            sa.delete(self._table).where(self._table.c.id.in_(keys))
        ).rowcount

    def oldest(self, after: int, age: float, most: int, without: Collection[str]) -> list[Row]:
        """Return the oldest rows after a key."""
        columns = self._table.c
        return self._read(
            columns.id > after,
            columns.created_at <= time.time() - age,
            columns.redis.not_in(list(without)),
            most=most,
        )

    def of(self, ids: Sequence[str]) -> list[Row]:
        """Return the rows of jobs: not those that a rollback to a savepoint has removed."""
        return [
            row
            for start in range(0, len(ids), IDS_AT_ONCE)
            for row in self._read(self._table.c.jid.in_(ids[start : start + IDS_AT_ONCE]))
        ]

    def _read(self, *conditions: sa.ColumnElement[bool], most: int | None = None) -> list[Row]:
        found = sa.select(self._table).where(*conditions).order_by(self._table.c.id).limit(most)
        with self._connection.begin():
            rows: Sequence[Any] = self._connection.execute(found).all()
        return [stored(row) for row in rows]


def _table(name: str, metadata: sa.MetaData) -> sa.Table:
    key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Table(
        name,
        metadata,
        sa.Column("id", key, primary_key=True, autoincrement=True),
        sa.Column("jid", sa.String(MAX_JID), nullable=False, index=True),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("at", sa.Double),  # epoch seconds of a scheduled job
        sa.Column("redis", sa.String(MAX_JID), nullable=False),  # "": the default
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),  # epoch seconds
        sqlite_autoincrement=True,  # keys grow for ever, so their order is that of insertion
    )
