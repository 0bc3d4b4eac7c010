"""Database connections around each job, as Django's request signals have them around a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from threading import Thread
from types import TracebackType
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import Error, connections, reset_queries
from django.db.backends.signals import connection_created

from jobwire.application.app import App
from jobwire.protocol.payload import Job

__all__ = ["FreshConnections"]

_inside: ContextVar[bool] = ContextVar("jobwire_fresh_connections", default=False)


class FreshConnections:
    """Makes wrappers that close unusable and old connections before and after each job.

    The outermost wrapper encloses the middleware, which may use the database as well. An isolated
    job has only the inner wrappers in its process, so there is one more there.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._made: set[Any] = set()  # connections of jobs' threads, which may stay open
        connection_created.connect(self._note)
        app.on("exit")(self._exit)

    def _note(self, connection: Any, **_: object) -> None:
        if _inside.get():
            self._made.add(connection)

    def _exit(self) -> None:
        """Close what a worker in this process leaves open: in a test, the process goes on."""
        # In a thread, because Django refuses it in that of a running loop.
        closer = Thread(target=self._close_all, name="jobwire-close")
        closer.start()
        closer.join()

    def _close_all(self) -> None:
        while self._made:
            connection = self._made.pop()
            if not connection.in_atomic_block:
                connection.inc_thread_sharing()
                with suppress(Error):
                    connection.close()
                connection.dec_thread_sharing()

    def _close_thread(self) -> None:
        connections.close_all()
        self._made.difference_update(connections.all(initialized_only=True))

    def around(self, job: Job) -> AbstractContextManager[None]:
        """Return the outermost wrapper."""
        definition = self._app.find(job.fields)
        return _Around(
            is_async=definition is not None and definition.is_async,
            close=None if self._app.transport.overrides else self._close_thread,
        )

    @contextmanager
    def in_child(self, job: Job) -> Iterator[None]:
        """The inner wrapper, which does nothing inside the outermost one."""
        if _inside.get():
            yield
            return
        _clean()
        try:
            yield
        finally:
            _close_old()


class _Around(AbstractContextManager[None]):
    """A wrapper for a sync job, with `with`, and for an async job, with `async with`.

    Async jobs do their sync database work in a thread. Each job has a thread of its own, so that
    the end of one job does not close the connection that another one uses. In tests they keep the
    thread of the test, which has the transaction of the test. An async job behind sync middleware
    enters with `with`, and uses Django's one thread for sync code, as others do at the same time.
    """

    def __init__(self, *, is_async: bool, close: Callable[[], None] | None) -> None:
        self._is_async = is_async
        self._close = close  # closes connections of a thread; None if it is the thread of a test
        self._thread: Any = None if close is None else ThreadSensitiveContext()

    def __enter__(self) -> None:
        self._token = _inside.set(True)
        _clean()
        if self._is_async and self._thread is not None:
            SyncToAsync.single_thread_executor.submit(_close_broken).result()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _close_old()
        _inside.reset(self._token)

    async def __aenter__(self) -> None:
        self._token = _inside.set(True)
        if self._thread is not None:
            await self._thread.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._close is not None:
            try:
                await sync_to_async(self._close, thread_sensitive=True)()
            finally:
                await self._thread.__aexit__(kind, error, trace)
        _inside.reset(self._token)


def _clean() -> None:
    reset_queries()
    _close_old()


def _close_old() -> None:
    """Close unusable and old connections, except in a transaction: a test runs jobs in its own."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _close_broken() -> None:
    """Close only unusable connections, because another job may be between two queries."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred and not connection.in_atomic_block:
            if connection.is_usable():
                connection.errors_occurred = False
            else:
                connection.close()
