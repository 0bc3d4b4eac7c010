"""Our backend with the list of results that Django's tests of the dummy backend look at."""

from __future__ import annotations

from typing import Any

from jobwire.django.tasks import JobwireBackend


class Collecting(JobwireBackend):
    """Keeps what `enqueue` has returned."""

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(
            alias, {**params, "OPTIONS": {"priority_queues": {1: "urgent", -1: "low"}}}
        )
        self.options = params.get("OPTIONS", {})
        self.results: list[Any] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def clear(self) -> None:
        self.results.clear()
