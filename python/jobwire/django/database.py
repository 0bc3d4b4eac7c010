"""Database connections around each job, as Django's request signals have them around a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections, reset_queries

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

    def around(self, job: Job) -> AbstractContextManager[None]:
        """Return the outermost wrapper."""
        definition = self._app.jobs.get(job.class_name)
        return _Around(
            is_async=definition is not None and definition.is_async,
            shares_thread=bool(self._app.transport.overrides),
        )

    @contextmanager
    def in_child(self, job: Job) -> Iterator[None]:
        """The inner wrapper, which does nothing inside of the outermost one."""
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

    def __init__(self, *, is_async: bool, shares_thread: bool) -> None:
        self._is_async = is_async
        self._thread: Any = None if shares_thread else ThreadSensitiveContext()

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
        if self._thread is not None:
            try:
                await sync_to_async(connections.close_all, thread_sensitive=True)()
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
