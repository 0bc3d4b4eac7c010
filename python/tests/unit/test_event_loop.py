"""jobwire.worker.execute.event_loop: stacks of tasks, and the way to the loop and back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest

from harness.servers import wait_until
from jobwire import App, Job
from jobwire.worker.execute import interruption
from jobwire.worker.execute.compiled_job import JobTable
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.interruption import wake
from jobwire.worker.execute.iterating import Iterations


async def nothing() -> None:
    """Do nothing."""


def test_the_stack_of_a_task_shows_where_it_runs_or_waits() -> None:
    """SIG-3: a task that runs at this moment has no list of inner frames."""
    running, go_on, waiting = threading.Event(), threading.Event(), threading.Event()

    async def blocks() -> None:
        running.set()
        go_on.wait(30)
        waiting.set()
        await asyncio.sleep(30)

    async def outer() -> None:
        await blocks()

    loop = AsyncLoop()
    loop.call(lambda inner: inner.create_task(outer()))
    try:
        assert running.wait(30)
        assert ["in blocks" in stack for stack in loop.stacks().values()] == [True]
        go_on.set()
        assert waiting.wait(30)
        assert ["in blocks" in stack for stack in loop.stacks().values()] == [True]
    finally:
        go_on.set()
        loop.close(nothing)


def test_neighbours_share_one_way_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """EXEC-6: the order is that of the chain."""
    steps: list[str] = []
    trips: list[Callable[[], Any]] = []
    run_around = AsyncLoop.run_around

    def counted(loop: AsyncLoop, around: Any, inner: Callable[[], Any]) -> Any:
        trips.append(inner)
        return run_around(loop, around, inner)

    def make(name: str) -> Any:
        async def middleware(job: Job, call_next: Callable[[], Awaitable[Any]]) -> Any:
            steps.append(name)
            return await call_next()

        def sync(job: Job, call_next: Callable[[], Any]) -> Any:
            steps.append(name)
            return call_next()

        return middleware if name.islower() else sync

    monkeypatch.setattr(AsyncLoop, "run_around", counted)
    app = App(server_middleware=[make(name) for name in "abCDefg"])
    app.job(name="Work")(lambda: steps.append("work"))
    loop = AsyncLoop()
    try:
        job = Job(b"{}", {"class": "Work", "args": []}, "default")
        JobTable(app, loop, None, Mock(Iterations)).find(job).call(job)
    finally:
        loop.close(nothing)
    assert steps == [*"abCDefg", "work"]
    assert len(trips) == 2


def test_an_interruption_ends_a_wait_for_middleware_that_has_not_begun() -> None:
    """SIG-5: the loop is busy with the code of another job."""
    busy, go_on = threading.Event(), threading.Event()
    loop = AsyncLoop()
    errors: list[BaseException] = []

    async def around(call_next: Any) -> None:
        raise AssertionError("not cancelled")

    def wait() -> None:
        try:
            loop.run_around(around, lambda: None)
        except BaseException as error:  # noqa: BLE001 - checked below
            errors.append(error)

    def block(_: object) -> None:
        busy.set()
        go_on.wait(30)

    loop.call(block)
    assert busy.wait(30)
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        assert loop._loop
        ready: Any = loop._loop._ready  # type: ignore[attr-defined]
        wait_until(lambda: len(ready) >= 1)  # the start of `around`
        wait_until(lambda: thread.ident in interruption._wakers)
        assert thread.ident
        assert wake(thread.ident)
        wait_until(lambda: len(ready) >= 2)  # its end
    finally:
        go_on.set()
        thread.join(30)
        loop.close(nothing)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [asyncio.CancelledError]


def test_an_exit_of_middleware_fails_its_job_and_not_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = AsyncLoop()

    async def around(call_next: Any) -> None:
        raise SystemExit(3)

    try:
        for _ in range(2):
            with pytest.raises(SystemExit, match="3"):
                loop.run_around(around, lambda: None)
    finally:
        loop.close(nothing)
    assert "ended the event loop" not in caplog.text


@pytest.mark.parametrize("job_is_async", [False, True])
@pytest.mark.parametrize("middleware_is_async", [False, True])
def test_a_worker_tells_of_jobs_inside_middleware_of_the_other_kind(
    job_is_async: bool, middleware_is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def around(job: Job, call_next: Callable[[], Any]) -> Any: ...
    async def aaround(job: Job, call_next: Callable[[], Any]) -> Any: ...
    def work() -> None: ...
    async def awork() -> None: ...

    app = App(server_middleware=[aaround if middleware_is_async else around])
    app.job(awork if job_is_async else work)
    JobTable(app, AsyncLoop(), None, Mock(Iterations)).announce()
    if job_is_async == middleware_is_async:
        assert caplog.text == ""
    elif job_is_async:
        assert "1 async jobs run inside sync middleware" in caplog.text
        assert "around): each occupies a thread" in caplog.text
    else:
        assert "1 sync jobs run inside async middleware" in caplog.text
        assert "aaround): each makes a detour through the event loop" in caplog.text
