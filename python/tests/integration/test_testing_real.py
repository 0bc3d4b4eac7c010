"""jobwire.testing with real servers and workers; Client.cancel; middleware of real pushes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from harness.servers import Server, wait_until
from jobwire import App, AsyncClient, Client, ConfigError, testing
from jobwire.application.config import CapsuleConfig
from jobwire.inspect import Inspector
from jobwire.protocol.iteration import Cancellation, Cursor
from jobwire.testing import RealWorker
from tests.workers import environment

# -- a worker


def test_a_drain_waits_for_all_that_follows(server: Server) -> None:
    app, did = App(), []

    @app.job(queue="low")
    def parent(depth: int) -> None:
        time.sleep(0.01)
        if depth:
            parent.enqueue(depth - 1)
            later.enqueue(depth)
        did.append(depth)

    @app.job
    async def later(number: int) -> None:
        await asyncio.sleep(0.02)
        did.append(-number)

    with testing.worker(app, server.url) as worker:
        parent.enqueue(3)
        assert worker.drain() == 7
        assert sorted(did) == [-3, -2, -1, 0, 1, 2, 3]
        assert worker.drain() == 0
        asyncio.run(_enqueue_and_drain(later, worker))
        assert did[-1] == -9
    assert app.url is None


async def _enqueue_and_drain(later: Any, worker: RealWorker) -> None:
    await later.aenqueue(9)
    assert await worker.adrain() == 1
    await later.app.aclose()


def test_a_drain_does_not_miss_what_a_handler_enqueues(server: Server) -> None:
    """The job is enqueued when the failed one has been recorded, and the drain runs it."""
    app, did = App(), []

    @app.job(retry=False)
    def broken(count: int) -> None:
        raise ValueError(count)

    @app.job(retry=False)
    async def abroken(count: int) -> None:
        raise ValueError(count)

    @app.job
    def after(count: int) -> None:
        did.append(count)

    @app.on_death  # called when the end of the job is stored
    def follow(job: Any, error: BaseException) -> None:
        time.sleep(0.1)  # a drain could see no work in this time
        after.enqueue(job.args[0])

    with testing.worker(app, server.url) as worker:
        kinds: list[Any] = [broken, abroken, broken, abroken]
        for count, job in enumerate(kinds):
            job.enqueue(count)
            assert worker.drain(raise_errors=False) == 2
            assert did[-1] == count
        assert [(job.args, str(error)) for job, error in worker.errors] == [
            ([count], str(count)) for count in range(4)
        ]


def test_a_failed_job_makes_the_drain_raise(server: Server) -> None:
    """RETRY-1: the job also went to the retry set; the drain after that is clean."""
    app = App()

    @app.job
    def broken(message: str) -> None:
        raise ValueError(message)

    with testing.worker(app, server.url, concurrency=1) as worker:
        broken.enqueue("first")
        broken.enqueue("second")
        with pytest.raises(ValueError, match="first") as caught:
            worker.drain()
        assert "broken" in caught.value.__notes__[0]
        assert "2 failed in total" in caught.value.__notes__[0]
        assert server.client().zcard("retry") == 2
        worker.drain()
        assert worker.promote() == 2
        with pytest.raises(ValueError, match=r"first|second"):  # in the order of their times
            worker.drain()
        assert len(worker.errors) == 4
        broken.enqueue("third")
        worker.drain(raise_errors=False)
        with pytest.raises(ValueError, match="third"):
            worker.drain()
    assert app.error_handlers == []


def test_a_job_that_would_end_the_test_run_does_not(server: Server) -> None:
    app = App()

    @app.job(retry=False)
    def leave() -> None:
        raise SystemExit(3)

    with testing.worker(app, server.url) as worker:
        leave.enqueue()
        with pytest.raises(RuntimeError, match="SystemExit"):
            worker.drain()


def test_scheduled_jobs_run_when_due_or_promoted(server: Server) -> None:
    """SCHED-5: by the worker's own poller."""
    app, did = App(), []

    @app.job
    def note(number: int) -> None:
        did.append(number)

    with testing.worker(app, server.url, poll_interval=0.02) as worker:
        note.enqueue_in(3600, 1)
        app.client.push("note", [2], at=time.time() - 1)  # scheduled although due
        assert worker.drain(due=True) == 1
        assert (did, server.client().zcard("schedule")) == ([2], 1)
        assert worker.promote() == 1
        assert worker.drain() == 1
        assert did == [2, 1]


def test_a_drain_says_what_is_not_done(server: Server) -> None:
    app = App()
    go = threading.Event()

    @app.job
    def slow() -> None:
        go.wait(60)

    @app.job(retry=False)
    def broken() -> None:
        raise KeyError("broken")

    with testing.worker(app, server.url, concurrency=1) as worker:
        broken.enqueue()
        slow.enqueue()
        slow.enqueue()
        try:
            wait_until(lambda: worker.errors and worker.launcher.works())
            with pytest.raises(TimeoutError, match=r"0\.3 s: .*1 running") as caught:
                worker.drain(0.3)
            assert isinstance(caught.value.__cause__, KeyError)
        finally:
            go.set()
        assert worker.drain(raise_errors=False) == 3


def test_a_job_that_waits_in_vain_is_told(server: Server) -> None:
    """The log does not name jobs of a class that other workers serve."""
    app = App()

    @app.job
    def note() -> None: ...

    with testing.worker(app, server.url, queues=["default"]) as worker:
        app.client.push("Ruby::Job", queue="ruby")
        note.enqueue()
        assert worker.drain() == 1
        note.options(queue="odd").enqueue()
        with pytest.raises(ConfigError, match="'odd', but the worker serves only default"):
            worker.drain()


def test_settings_are_those_of_the_worker(server: Server) -> None:
    app = App(namespace="app:")

    @app.job(queue="other", retry_queue="again")
    def note() -> None: ...

    mail = {"mail": CapsuleConfig(queues={"other": 0}, concurrency=1)}
    with testing.worker(app, server.url, capsules=mail, tag="t") as worker:
        note.enqueue()
        assert worker.drain() == 1
        assert (worker.launcher.config.tag, worker.launcher.config.concurrency) == ("t", 1)
    with testing.worker(app, server.url) as worker:
        (capsule,) = worker.launcher.config.capsules.values()
        assert list(capsule.queues) == ["default", "other", "again"]


def test_real_brings_its_own_server() -> None:
    app, did = App("redis://127.0.0.1:1/0"), []

    @app.job
    def note(number: int) -> None:
        did.append(number)

    with testing.real(app, concurrency=1) as worker:
        note.enqueue_bulk([[1], [2]])
        assert worker.drain() == 2
    assert (did, app.url) == ([1, 2], "redis://127.0.0.1:1/0")


# -- a server


def test_a_database_in_use_is_refused_and_left_alone(server: Server) -> None:
    client = server.client()
    client.set("precious", 1)
    with (
        pytest.raises(ConfigError, match=r"not empty \(1 keys\), and tests delete"),
        testing.server(server.url),
    ):
        pass
    assert client.get("precious") == b"1"
    client.flushdb()
    with testing.server(server.url) as own:
        client.set("a", 1)
        own.flush()
        assert client.dbsize() == 0
        client.set("b", 1)
    assert client.dbsize() == 0


def test_the_password_of_a_database_in_use_is_not_told(server_factory: Any) -> None:
    server = server_factory(password="secret")
    server.client().set("a", 1)
    with pytest.raises(ConfigError) as caught, testing.server(server.url):
        pass
    assert "secret" not in str(caught.value)


_HOLDS = """
import sys, time
from jobwire import testing
from jobwire.inspect import Inspector
with testing.server() as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
@pytest.mark.parametrize("how", ["end", "kill"])
def test_no_server_is_left_behind(how: str, tmp_path: Path) -> None:
    """However the tests end; its directory is also removed."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS],
        env=environment(TMPDIR=str(tmp_path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with Client(url) as client:
            client.push("A")
        if how == "kill":
            os.kill(process.pid, signal.SIGKILL)
        process.stdin.close()
        process.wait(60)

        def gone() -> bool:
            try:
                with Inspector(url) as inspector:
                    inspector.stats()
            except OSError:
                return not list(tmp_path.iterdir())
            return False

        wait_until(gone, what="server and directory to be gone")


# -- without the fake client


def test_fake_ends_and_jobs_go_to_redis_again(server: Server) -> None:
    app = App(server.url)
    with testing.fake(app):
        app.client.push("A")
        asyncio.run(_push(app))
    app.client.push("B")
    assert server.client().llen("queue:default") == 1
    assert b'"B"' in server.client().lindex("queue:default", 0)
    app.close()


async def _push(app: App) -> None:
    await app.aclient.push("A")
    await app.aclose()


def test_cancelling_by_id(server: Server) -> None:
    """ITER-7: by either client; the first wish counts."""

    async def main() -> Cancellation:
        async with AsyncClient(server.url) as client:
            return await client.cancel("a")

    with Client(server.url) as client, patch("time.time", lambda: 1_700_000_000.5):
        client._producer._clock = time.time
        first = client.cancel("a")
    redis = server.client()
    redis.hset("it-a", "ex", 1)
    assert (first.at, first.started) == (1_700_000_000, False)
    second = asyncio.run(main())
    assert (second.at, second.started) == (1_700_000_000, True)
    assert redis.hget("it-a", "cancelled") == b"1700000000"
    assert redis.ttl("it-a") > 2_500_000


def test_a_cancelled_job_ends(server: Server) -> None:
    """ITER-7, ITER-9: also a job that has not begun."""
    app = App()
    did: list[Any] = []

    @app.iterable(on_cancel=lambda cursor: did.append("cancelled"))
    def items(cursor: Cursor) -> Iterator[int]:
        yield 0
        did.append(0)

    with testing.worker(app, server.url, concurrency=1) as worker:
        items.cancel("b" * 24)
        app.client.push("items", jid="b" * 24)
        assert worker.drain() == 1
    assert did == ["cancelled"]


def test_a_job_that_is_unknown_is_cancelled(server: Server) -> None:
    """X-CANCEL-1: the answer says that no place has the job, also for a plain function."""
    app = App(server.url)
    plain = app.job(name="Plain")(lambda: None)

    async def main() -> str:
        try:
            return (await plain.acancel("a")).place
        finally:
            await app.aclient.close()

    assert plain.cancel("a").place == "unknown"
    assert asyncio.run(main()) == "unknown"
    app.close()


def test_async_middleware_of_an_async_client(server: Server) -> None:
    """PUSH-7: around a real push."""

    async def mark(item: Any, call_next: Any) -> Any:
        await asyncio.sleep(0)
        item["mark"] = 1
        result = await call_next()
        return result if result["args"] else None

    async def main() -> list[Any]:
        async with AsyncClient(server.url, middleware=[mark]) as client:
            return [await client.push("A", [1]), *await client.push_bulk("B", [[], [1]])]

    one, none, other = asyncio.run(main())
    assert (one is None, none, other is None) == (False, None, False)
    payloads = server.client().lrange("queue:default", 0, -1)
    assert [b'"mark":1' in each for each in payloads] == [True, True]
    with Client(server.url, middleware=[mark]) as client, pytest.raises(ConfigError, match="async"):
        client.push("A")
    assert server.client().llen("queue:default") == 2
