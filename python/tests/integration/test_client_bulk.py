"""Bulk pushes of both clients: order, slices, times, and pauses for other tasks. [BULK-1]"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App, InvalidJob
from jobwire.application.producer import ARGS_AT_ONCE, PART_S
from jobwire.protocol.normalize import JobFields, ReadyPayload
from jobwire.protocol.template import Template
from tests.integration.clients import Connect, listening


def test_bulk_errors_name_the_job(server: Server, connect: Connect) -> None:
    """PUSH-12: the error holds the number of the job, the path and the value."""
    with pytest.raises(
        InvalidJob, match=r"^A: job 1: args\[0\]\['when'\]: .* is set, for which JSON"
    ):
        connect(server.url, generation=8).push_bulk("A", [[1], [{"when": {5}}]])


def test_bulk_goes_out_in_slices(server: Server, connect: Connect) -> None:
    """BULK-1 and PUSH-2: at most 1,000 jobs in a transaction, in the order given."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        jids = client.push_bulk("A", [[n] for n in range(2_500)])
        lines = heard()
    assert [line.name for line in lines] == ["MULTI", "SADD", "LPUSH", "EXEC"] * 3
    assert [len(line.words) - 2 for line in lines if line.name == "LPUSH"] == [1_000, 1_000, 500]
    stored = [json.loads(text) for text in reversed(server.client().lrange("queue:default", 0, -1))]
    assert [job["args"] for job in stored] == [[n] for n in range(2_500)]
    assert [job["jid"] for job in stored] == jids


def test_bulk_of_large_jobs_goes_out_in_slices_of_bytes(server: Server, connect: Connect) -> None:
    """BULK-1: at most 1 MiB in a transaction, but at least one job."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        client.push_bulk("A", [["x" * size] for size in (400_000,) * 5 + (2_000_000, 5)])
        lines = heard()
    assert [len(line.words) - 2 for line in lines if line.name == "LPUSH"] == [2, 2, 1, 1, 1]


JOBS = 5_000
STEP_S = 0.001  # that the clock advances whenever it is read
JOBS_PER_PART = int(PART_S / STEP_S) + 1


class Clock:
    """It advances when it is read, so that the parts do not depend on the machine."""

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
