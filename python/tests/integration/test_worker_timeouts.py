"""Time limits of jobs, in threads and in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from typing import Any, NoReturn
from unittest.mock import patch

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.errors import ConfigError, JobTimeout
from jobwire.worker.execute.event_loop import _stack
from jobwire.worker.execute.processor import Processor
from jobwire.worker.execute.time_limit import limited
from tests.integration.clients import push_job, scored
from tests.workers import running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
PUNCTUAL = "ran longer than its time limit of 0.05 s"
KIND = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def run_for_ever() -> NoReturn:
    """Run Python code, which a time limit can interrupt."""
    while True:
        sum(range(100))


def block(seconds: float) -> None:
    """Hold the thread in one call outside of Python code.

    No time limit can interrupt it, so a job that calls this ends late on purpose.
    """
    time.sleep(seconds)


@pytest.fixture
def _never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no job as late, which it may be on a busy machine."""
    monkeypatch.setattr("jobwire.worker.execute.time_limit.LATE_S", 600.0)


NEVER_LATE = pytest.mark.usefixtures("_never_late")


@KIND
@FETCH
@NEVER_LATE
def test_a_job_over_its_time_limit_fails_and_frees_its_slot(
    server: Server, fetch: FetchMode, is_async: bool
) -> None:
    """RETRY-2: as any failure; its finally blocks run, and the next job starts."""
    app = App()
    cleaned: list[bool] = []
    if is_async:

        @app.job(name="Hang", timeout=0.05)
        async def ahang() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                cleaned.append(True)
    else:

        @app.job(name="Hang", timeout=0.05)
        def hang() -> None:
            try:
                run_for_ever()
            finally:
                cleaned.append(True)

    ran: list[bool] = []
    app.job(name="Next", timeout=60)(lambda: ran.append(True))
    push_job(server, "Hang", retry=True)
    push_job(server, "Next")
    with running(app, server, concurrency=1, fetch=fetch):
        ((payload, _),) = wait_until(lambda: scored(server, "retry"))
        wait_until(lambda: ran)
    assert cleaned == [True]
    assert payload["error_class"] == "jobwire.errors.JobTimeout"
    assert payload["error_message"] == PUNCTUAL


@pytest.mark.process
def test_a_job_that_ends_long_after_its_time_limit_says_so(server: Server) -> None:
    """RETRY-10: a thread outside of Python code, or cleaning up, does not end at once."""
    app = App()

    @app.job(name="Hang", timeout=0.05)
    def hang() -> None:
        try:
            run_for_ever()
        finally:
            block(1.1)

    push_job(server, "Hang", retry=True)
    with running(app, server, concurrency=1):
        ((payload, _),) = wait_until(lambda: scored(server, "retry"))
    message = payload["error_message"]
    assert message.startswith(f"{PUNCTUAL}; it ended only after ")
    assert message.endswith("isolated=True ends a job in time")


@pytest.mark.process
@pytest.mark.parametrize("caught", [OSError, BaseException])
def test_a_job_that_ignores_its_limit_is_not_done(
    server: Server, caplog: pytest.LogCaptureFixture, caught: type[BaseException]
) -> None:
    """RETRY-10: it is interrupted again, and fails at its end."""
    app = App()
    caught_at: list[int] = []

    @app.job(name="Hang", timeout=0.05)
    def hang() -> None:
        for part in range(30):
            ends = time.monotonic() + 0.03
            try:
                while time.monotonic() < ends:
                    sum(range(100))
            except caught:
                caught_at.append(part)

    push_job(server, "Hang", retry=True)
    with running(app, server, concurrency=1):
        ((payload, _),) = wait_until(lambda: scored(server, "retry"))
    message = payload["error_message"]
    assert payload["error_class"] == "jobwire.errors.JobTimeout"
    assert message.startswith("ran longer than its time limit of 0.05 s")
    if caught is OSError:
        assert len(caught_at) == 1
    else:
        assert len(caught_at) > 1
        assert message.endswith("because it caught the error of the limit and went on")
    assert not [record for record in caplog.records if record.message.startswith("done")]


def test_a_time_limit_counts_from_the_first_job_of_a_thread(server: Server) -> None:
    """RETRY-10: also if the thread has its job before the one that started it continues."""
    app, begun, ended = App(server.url), threading.Event(), threading.Event()

    @app.job(name="Hang", timeout=0.05)
    def hang() -> None:
        begun.set()
        try:
            run_for_ever()
        finally:
            ended.set()

    def slowly(processor: Processor) -> None:
        start(processor)
        assert begun.wait(60)
        ended.wait(1)

    start = Processor.start
    push_job(server, "Hang", retry=True)
    with (
        patch.object(Processor, "start", slowly),
        running(app, server, concurrency=1, fetch="basic"),
    ):
        ((payload, _),) = wait_until(lambda: scored(server, "retry"))
    assert payload["error_class"] == "jobwire.errors.JobTimeout"


def test_a_time_limit_must_be_a_time() -> None:
    app = App()
    with pytest.raises(ConfigError, match="timeout 0 is not above 0 seconds"):
        app.job(name="X", timeout=0)(lambda: None)


# -- async jobs that block the event loop


@pytest.mark.process
def test_an_async_job_that_blocks_the_loop_beyond_its_limit_fails(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """RETRY-10: although no timer of the loop can interrupt it."""
    app = App()

    @app.job(name="Hang", timeout=0.05)
    async def hang() -> None:
        await asyncio.sleep(0)
        block(1.2)

    push_job(server, "Hang", retry=True)
    with running(app, server, concurrency=1):
        ((payload, _),) = wait_until(lambda: scored(server, "retry"))
    assert payload["error_class"] == "jobwire.errors.JobTimeout"
    message = payload["error_message"]
    found = re.search(
        r"; it ended only after ([0-9.]+) s.* blocked the event loop for ([0-9.]+) s", message
    )
    assert message.startswith(PUNCTUAL)
    assert found
    assert min(map(float, found.groups())) >= 1.1
    assert "done" not in [record.message.split()[0] for record in caplog.records]


@NEVER_LATE
def test_the_error_of_an_async_job_shows_where_the_job_was(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """RETRY-10: the traceback in the log has the calls that waited."""
    app = App()

    async def answer_of_a_service() -> None:
        await asyncio.sleep(60)

    @app.job(name="Hang", timeout=0.05)
    async def hang() -> None:
        await answer_of_a_service()

    push_job(server, "Hang", retry=True)
    with running(app, server, concurrency=1):
        wait_until(lambda: scored(server, "retry"))
    (record,) = (record for record in caplog.records if record.message.startswith("fail: "))
    trace = record.exc_text or ""
    assert ", in hang\n" in trace
    assert ", in answer_of_a_service\n    await asyncio.sleep(60)\n" in trace
    assert trace.endswith(f"jobwire.errors.JobTimeout: {PUNCTUAL}")
    assert "time_limit.py" not in trace


def limits(*jobs: Any) -> list[Any]:
    """Run jobs in one loop, in their order; return their results or errors."""

    async def together() -> list[Any]:
        return await asyncio.gather(*jobs, return_exceptions=True)

    return asyncio.run(together())


@pytest.mark.process
def test_a_job_that_another_one_delays_is_not_blamed() -> None:
    """RETRY-10: its wait was over in time, and the loop could not tell it."""

    async def waits() -> str:
        await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        return "late"

    async def blocks() -> None:
        await asyncio.sleep(0.01)
        block(3)

    assert limits(limited(waits(), 2), blocks()) == ["late", None]


@NEVER_LATE
def test_a_job_that_waits_too_long_fails_although_another_one_blocks() -> None:
    """RETRY-10: the time of the delay counts once."""

    async def blocks() -> None:
        block(0.5)

    began = time.monotonic()
    ended, _ = limits(limited(asyncio.sleep(60), 0.2), blocks())
    assert isinstance(ended, JobTimeout)
    assert str(ended) == "ran longer than its time limit of 0.2 s"
    assert time.monotonic() - began < 30


@pytest.mark.process
def test_an_async_job_that_ignores_its_limit_is_cancelled_again_but_not_while_it_cleans_up() -> (
    None
):
    """RETRY-10: and it fails, although it returns."""
    seen: list[str] = []

    async def ignores() -> str:
        for _ in range(3):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                await asyncio.sleep(0.5)
                seen.append("cleaned")
        return "done"

    (ended,) = limits(limited(ignores(), 0.05))
    assert isinstance(ended, JobTimeout)
    assert str(ended).endswith("because it caught the error of the limit and went on")
    assert seen == ["cancelled", "cleaned"] * 3


def test_an_async_job_that_ends_at_its_second_interruption_was_over_its_limit() -> None:
    async def ignores() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    (ended,) = limits(limited(ignores(), 0.05))
    assert isinstance(ended, JobTimeout)


def test_a_job_that_blocks_and_then_waits_is_interrupted_at_once() -> None:
    """RETRY-10: it gets no more time, because it was the one that blocked the loop."""
    reached: list[bool] = []

    async def blocks() -> None:
        block(0.5)
        await asyncio.sleep(60)
        reached.append(True)

    (ended,) = limits(limited(blocks(), 0.3))
    assert isinstance(ended, JobTimeout)
    assert reached == []


def test_errors_and_values_pass_through_a_limit() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise TimeoutError("its own")

    async def catches() -> str:
        try:
            await asyncio.wait_for(asyncio.sleep(60), 0.01)
        except TimeoutError:
            return "caught"
        return ""

    error, value = limits(limited(fails(), 60), limited(catches(), 60))
    assert (type(error), str(error)) == (TimeoutError, "its own")
    assert value == "caught"


def test_the_stack_of_a_task_goes_on_behind_a_limit() -> None:
    """SIG-3: an operator sees where a job with a time limit is."""

    async def inner() -> None:
        await asyncio.sleep(60)

    async def job() -> None:
        await inner()

    async def seen() -> str:
        task = asyncio.create_task(limited(job(), 60))
        await asyncio.sleep(0.01)
        stack = _stack(task, threading.current_thread())
        task.cancel()
        return stack

    (stack,) = limits(seen())
    assert ", in job\n" in stack
    assert ", in inner\n" in stack
