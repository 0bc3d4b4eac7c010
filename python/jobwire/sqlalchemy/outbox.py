"""The outbox of an application that uses SQLAlchemy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Engine, MetaData, NullPool, Table
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import greenlet_spawn

from jobwire.application.app import App
from jobwire.errors import ConfigError
from jobwire.outbox.relay import Relay
from jobwire.outbox.sending import GRACE_S, send_all
from jobwire.sqlalchemy.sessions import SessionJobs
from jobwire.sqlalchemy.table import TableRows, make_table

__all__ = ["Outbox"]

T = TypeVar("T")

AnySession = Session | AsyncSession | scoped_session[Any] | async_scoped_session[Any]


class Outbox:
    """The outbox: jobs that are rows of a transaction until Redis has them.

    Each worker of the application looks every five seconds for rows whose process could not write
    their jobs, because it was killed or because Redis was away.

    Args:
        app: The application, which may have one outbox.
        engine: The engine of the database, for the workers. From an `AsyncEngine`, its URL is
            taken; if that is not enough to connect, give another one than that of the sessions.
        metadata: The schema that gets the table; `outbox.table.metadata` without one.
        table: Name of the table.

    Attributes:
        table: The table, for migrations: `outbox.table.create(engine)`.

    Raises:
        ConfigError: The application has an outbox already, or waits for the commits of Django.
    """

    def __init__(
        self,
        app: App,
        engine: Engine | AsyncEngine,
        metadata: MetaData | None = None,
        *,
        table: str = "jobwire_outbox",
    ) -> None:
        if not isinstance(engine, Engine | AsyncEngine):
            raise ConfigError(f"outbox: engine {engine!r} is not an Engine or AsyncEngine")
        if app.transport.deferral is not None:
            raise ConfigError("outbox: this application has an outbox, or is that of Django")
        self._app = app
        self._is_async = isinstance(engine, AsyncEngine)
        if isinstance(engine, AsyncEngine):
            # Connections belong to an event loop, and that of the relay ends with each pass.
            engine = create_async_engine(engine.url, poolclass=NullPool).sync_engine
        self._engine = engine
        self.table: Table = make_table(MetaData() if metadata is None else metadata, table)
        self._jobs = SessionJobs(app, self.table)
        app.transport.deferral = self._jobs
        self._make_relay().attach(app)

    def using(self, session: AnySession) -> AbstractContextManager[None]:
        """Keep the jobs that this thread or task enqueues in a `with` block as rows of a session.

        The jobs are written when the transaction of the session commits, in the block or after
        it. If it is rolled back, the session is closed, or a savepoint around the job is rolled
        back, there is no job. `on_commit=False` of a job writes it at once.

            with Session.begin() as session, outbox.using(session):
                session.add(order)
                ship.enqueue(order.number)

        Raises:
            ConfigError: It is not a session.
        """
        found: object = session
        if isinstance(found, scoped_session | async_scoped_session):
            found = found()
        if isinstance(found, AsyncSession):
            found = found.sync_session
        if not isinstance(found, Session):
            raise ConfigError(f"outbox: {session!r} is not a Session or AsyncSession")
        return self._jobs.using(found)

    def relay(self, *, grace: float = GRACE_S) -> int:
        """Write the jobs of rows that are `grace` seconds old, in order; return their number.

        Workers do it, so only an application whose workers are all in other languages calls it,
        or `serve`. Do not call it in a running event loop.

        Raises:
            RedisTrouble: Redis is away; the jobs that are left stay.
        """
        return self._run(
            lambda rows: send_all(
                rows, partial(self._app.client.write, buffered=False), grace=grace
            )
        )

    def serve(self) -> None:
        """Write the jobs of rows again and again, until SIGTERM or SIGINT.

        For a process of its own; see `relay`.
        """
        self._make_relay().serve()

    def count(self) -> int:
        """Return the number of committed rows, whose jobs wait. Not in a running event loop."""
        return self._run(lambda rows: rows.count())

    def _make_relay(self) -> Relay:
        return Relay(self.relay, self._engine.dispose)

    def _run(self, function: Callable[[TableRows], T]) -> T:
        call = partial(function, TableRows(self.table, self._engine.begin))
        if self._is_async:
            return asyncio.run(greenlet_spawn(call))
        return call()
