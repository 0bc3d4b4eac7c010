"""A large bulk push from asyncio lets the other tasks of its event loop run. [BULK-1]

The clock of the client advances when it is read, so the parts do not depend on the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App
from jobwire.application.producer import ARGS_AT_ONCE, PART_S
from jobwire.protocol.normalize import JobFields, ReadyPayload
from jobwire.protocol.template import Template

JOBS = 5_000
STEP_S = 0.001  # that the clock advances whenever it is read
JOBS_PER_PART = int(PART_S / STEP_S) + 1


class Clock:
    def __init__(self) -> None:
        self.now = 1.7e9

    def __call__(self) -> float:
        self.now += STEP_S
        return self.now


class Work:
    """Counts the work of a push, and notes the count whenever another task can run."""

    def __init__(self) -> None:
        self.done = 0
        self.seen = [0]

    def args_list(self) -> Iterator[list[int]]:
        for number in range(JOBS):
            self.done += 1
            yield [number]

    def middleware(self, item: JobFields, call_next: Callable[[], Any]) -> Any:
        self.done += 1
        return call_next()

    async def watch(self) -> None:
        while True:
            self.seen.append(self.done)
            await asyncio.sleep(0)

    def run(self, server: Server, app: App, args_list: Any) -> list[int]:
        """Push; return the amounts of work between two turns of the other task."""

        @app.job
        def sample(number: int) -> None: ...

        async def main() -> None:
            app.aclient._producer._clock = Clock()
            watching = asyncio.create_task(self.watch())
            await sample.aenqueue_bulk(args_list)
            self.seen.append(self.done)
            watching.cancel()
            await asyncio.wait([watching])
            await app.aclose()

        app.connect(server.url)
        asyncio.run(main())
        assert self.done == JOBS
        assert server.client().llen("queue:default") == JOBS
        return [after - before for before, after in pairwise(self.seen)]


def test_payloads_are_made_in_parts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    make = Template.job

    def count(template: Template, *args: Any, **kwargs: Any) -> ReadyPayload:
        work.done += 1
        return make(template, *args, **kwargs)

    monkeypatch.setattr(Template, "job", count)
    work.done = 1  # the first job becomes the template
    parts = work.run(server, App(generation=8), [[number] for number in range(JOBS)])
    assert max(parts) <= JOBS_PER_PART


def test_middleware_runs_in_parts(server: Server) -> None:
    """PUSH-7: it makes each job slower, so that a part has fewer jobs."""
    work = Work()
    parts = work.run(
        server,
        App(generation=8, client_middleware=[work.middleware]),
        [[number] for number in range(JOBS)],
    )
    assert max(parts) <= JOBS_PER_PART


def test_arguments_are_read_in_parts(server: Server) -> None:
    """A generator may take its time for each job."""
    work = Work()
    parts = work.run(server, App(generation=8), work.args_list())
    assert max(parts) <= ARGS_AT_ONCE * JOBS_PER_PART


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_is_set_does_not_stop_the_pauses(server: Server, seconds: float) -> None:
    work = Work()
    app = App(generation=8, client_middleware=[work.middleware])

    @app.client_middleware.add
    def set_clock(item: JobFields, call_next: Callable[[], Any]) -> Any:
        if item["args"] == [JOBS // 2]:
            clock = app.aclient._producer._clock
            assert isinstance(clock, Clock)
            clock.now += seconds
        return call_next()

    parts = work.run(server, app, [[number] for number in range(JOBS)])
    assert max(parts) <= JOBS_PER_PART
