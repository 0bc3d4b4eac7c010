"""Database connections around each job, as Django's request signals have them around a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
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
        return _Around(shares_thread=bool(self._app.transport.overrides))

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
    thread of the test, which has the transaction of the test.
    """

    def __init__(self, *, shares_thread: bool) -> None:
        self._thread: Any = None if shares_thread else ThreadSensitiveContext()

    def __enter__(self) -> None:
        self._token = _inside.set(True)
        _clean()

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
