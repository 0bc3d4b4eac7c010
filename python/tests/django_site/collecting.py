"""Our backend, in the forms that Django's tests of its built-in backends need."""

from __future__ import annotations

from typing import Any

from jobwire import testing
from jobwire.django import app
from jobwire.django.tasks import JobwireBackend
from jobwire.protocol.wire import command, once


class _Tested(JobwireBackend):
    """Has options, and shows those that a test gave it."""

    def __init__(self, alias: str, params: Any) -> None:
        options = {"priority_queues": {1: "urgent", -1: "low"}, "keep_result": 600}
        super().__init__(alias, {**params, "OPTIONS": options})
        self.options = params.get("OPTIONS", {})


class Collecting(_Tested):
    """Keeps what `enqueue` has returned, as the dummy backend; no worker runs."""

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        self.results: list[Any] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def clear(self) -> None:
        self.results.clear()
        app.client.redis.run(once(command("FLUSHDB")))

    def run(self) -> None:
        """Run a worker until all tasks have ended."""
        with testing.worker(app) as worker:
            worker.drain(raise_errors=False)


class Immediate(_Tested):
    """Runs a worker for each task, and returns its stored result.

    It declares no more features than the backend of this name.
    """

    supports_defer = False

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        self.supports_get_result = False

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        Collecting.run(self)
        self.supports_get_result = True
        try:
            return self.get_result(result.id)
        finally:
            self.supports_get_result = False
