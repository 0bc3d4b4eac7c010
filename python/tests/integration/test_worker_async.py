"""`async def` jobs: they share a loop, and each takes one of the worker's slots."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, current_job
from tests.workers import running


def push(server: Server, *payloads: dict[str, Any]) -> None:
    server.client().lpush("queue:default", *(json.dumps(payload) for payload in payloads))


def test_as_many_run_at_once_as_there_are_slots(server: Server) -> None:
    """EXEC-1, BEAT-5: in one loop, each with a job of its own."""
    app = App()
    running_now: list[int] = []
    most: list[int] = []
    loops = set()
    release = threading.Event()
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    mixed: list[Any] = []

    @app.job(name="Wait")
    async def wait(number: int) -> None:
        variable.set(number)
        running_now.append(number)
        most.append(len(running_now))
        loops.add(asyncio.get_running_loop())
        while not release.is_set():
            await asyncio.sleep(0.005)
        job = current_job()
        if variable.get() != number or job is None or job.args != [number]:
            mixed.append(number)
        running_now.remove(number)

    push(server, *({"class": "Wait", "args": [n]} for n in range(6)))
    with running(app, server, concurrency=3) as launcher:
        wait_until(lambda: len(running_now) == 3)
        assert len(launcher.works()) == 3
        release.set()
        wait_until(lambda: len(most) == 6 and not running_now)
    assert max(most) == 3
    assert mixed == []
    assert len(loops) == 1


def test_errors_and_cancellations_of_its_own_are_failures(server: Server) -> None:
    """RETRY-2, RETRY-10: only an interruption by a stop is not a failure."""
    app = App()

    @app.job(name="Raise")
    async def throw() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    @app.job(name="Cancel")
    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(10)

    @app.job(name="Args")
    async def args(one: int) -> None: ...

    push(server, *({"class": name, "retry": True} for name in ("Raise", "Cancel", "Args")))
    with running(app, server):
        wait_until(lambda: server.client().zcard("retry") == 3)
    members: Any = server.client().zrange("retry", 0, -1)
    errors = {json.loads(text)["class"]: json.loads(text)["error_class"] for text in members}
    assert errors["Raise"] == "ValueError"
    assert errors["Cancel"].endswith("CancelledError")
    assert errors["Args"] == "TypeError"


def test_a_hard_stop_puts_the_job_back_and_cancels_it(server: Server) -> None:
    """SIG-5, FETCH-6, RETRY-10: the finally block of the job runs, awaits included."""
    app = App()
    steps: list[str] = []

    @app.job(name="Long")
    async def long() -> None:
        steps.append("begun")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            steps.append("cleaned")

    text = b'{"class":"Long", "retry":true,"jid":"j"}'
    client = server.client()
    client.lpush("queue:default", text)
    with running(app, server, timeout=0.05) as launcher:
        wait_until(lambda: steps)
        assert launcher.stop() == 1
        assert steps == ["begun", "cleaned"]
        assert client.lrange("queue:default", 0, -1) == [text]
    assert client.zcard("retry") == client.zcard("dead") == 0
    assert client.get("stat:processed") is None


def _exit() -> None:
    sys.exit("a library gave up")


def _interrupt() -> None:
    raise KeyboardInterrupt


def _stop() -> None:
    asyncio.get_running_loop().stop()


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (_exit, "SystemExit('a library gave up') of a task or callback"),
        (_interrupt, "KeyboardInterrupt() of a task or callback"),
        (_stop, "loop.stop()"),
    ],
    ids=["exit", "interrupt", "stop"],
)
def test_the_loop_runs_again_if_a_job_ends_it(
    server: Server, caplog: pytest.LogCaptureFixture, end: Callable[[], None], cause: str
) -> None:
    """EXEC-1, RETRY-2: by a task that the job left behind, by a callback, or by itself.

    The log says so once: nothing is added when a task is collected whose end no job retrieved.
    """
    app = App()
    ran: list[int] = []

    @app.job(name="End")
    async def ends(kind: str) -> None:
        async def background() -> None:
            end()

        if kind == "task":
            task = asyncio.create_task(background())
            with contextlib.suppress(BaseException):
                await asyncio.wait([task])
        elif kind == "callback":
            asyncio.get_running_loop().call_soon(end)
        else:
            end()

    @app.job(name="Take")
    async def take(number: int) -> None:
        await asyncio.sleep(0)
        ran.append(number)

    app.job(name="Sync")(ran.append)
    push(
        server,
        *({"class": "End", "args": [kind], "retry": 0} for kind in ("itself", "task", "callback")),
        *({"class": name, "args": [n]} for n in range(4) for name in ("Take", "Sync")),
    )
    with running(app, server, concurrency=2) as launcher:
        wait_until(lambda: len(ran) == 8)
        wait_until(lambda: not launcher.busy)
        wait_until(lambda: server.client().get("stat:processed") == b"11")
    lines = [each.getMessage() for each in caplog.records if each.levelname == "CRITICAL"]
    assert {f"{cause} ended the event loop of async jobs; it runs again"} == set(lines)
    for each in caplog.records:
        each.exc_info = None  # its frames keep the tasks alive
    gc.collect()
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


def test_a_job_that_cancels_all_tasks_takes_no_outcome_from_them(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-7, RETRY-10: those that it cancelled run again, also if they had not begun."""
    app = App()
    starts: list[int] = []
    ends: list[int] = []
    release = threading.Event()

    @app.job(name="Take")
    async def take(number: int) -> None:
        starts.append(number)
        while not release.is_set():
            await asyncio.sleep(0.005)
        ends.append(number)

    @app.job(name="CancelAll")
    async def cancel_all() -> None:
        while len(starts) < 4:
            await asyncio.sleep(0.005)
        release.set()
        for task in asyncio.all_tasks():
            task.cancel()

    push(
        server,
        {"class": "CancelAll", "retry": True},
        *({"class": "Take", "args": [n]} for n in range(20)),
    )
    with running(app, server, concurrency=8) as launcher:
        wait_until(lambda: set(ends) == set(range(20)))
        wait_until(lambda: not launcher.busy)
        wait_until(lambda: not server.client().hlen(f"jobwire:private:{launcher.identity}"))
        assert not server.client().llen("queue:default")
    assert sorted(ends) == list(range(20))
    assert not server.client().exists("retry", "dead")
    assert "cancelled by other code; the job is put back and will run again" in caplog.text


def test_a_job_that_is_cancelled_every_time_fails(server: Server) -> None:
    """REL-7, REL-10: so that it doesn't run for ever."""
    app = App()
    starts: list[int] = []

    @app.job(name="CancelLater")
    async def cancel_later() -> None:
        starts.append(1)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.sleep(60)

    push(server, {"class": "CancelLater", "retry": True})
    with running(app, server, poison_limit=2):
        wait_until(lambda: server.client().zcard("retry") == 1)
    assert len(starts) == 3
