"""`async def` jobs: they share a loop, and each takes one of the worker's slots."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from typing import Any

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
