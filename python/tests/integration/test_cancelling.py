"""Cancelling jobs of any kind: a truthful answer, and an end within a second. [X-CANCEL-1]"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, Cancelled, Client, Cursor, JobType, current_job
from jobwire.application.config import FetchMode
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.cancelling import REMEMBER_S, cancel
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Op
from tests.apps.isolated_ends import app as ends_app
from tests.apps.isolated_ends import wait
from tests.integration.clients import push_job
from tests.workers import running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
MARKS = "jobwire:cancelled"
PAYLOAD = '{"class":"Work","args":[],"jid":"%s","queue":"default"}'


def empty(server: Server) -> bool:
    """True if no job is left anywhere, and no mark of a cancellation."""
    client: Any = server.client()
    return not client.exists("queue:default", "retry", "schedule", "dead", MARKS)


@pytest.mark.parametrize("place", ["queue", "schedule", "retry"])
def test_a_waiting_job_is_removed(server: Server, place: str) -> None:
    """X-CANCEL-4, X-CANCEL-5: answer queued; the other jobs stay; the result says it."""
    app = App()
    job = app.job(name="Work", keep_result=60)(lambda number: number)
    app.connect(server.url)
    client: Any = server.client()
    others = job.enqueue_bulk([[number] for number in range(1_500)])
    jid = job.enqueue_in(3600, 1) if place == "schedule" else job.enqueue(1)
    assert jid is not None
    if place == "retry":
        client.zadd("retry", {client.lpop("queue:default"): 5})
    else:
        job.enqueue_bulk([[number] for number in range(1_500)])
    answer = job.cancel(jid)
    assert (answer.place, answer.started) == ("queued", False)
    assert (result := job.result(jid)) is not None
    assert (result.outcome, result.value) == ("cancelled", None)
    assert client.llen("queue:default") == len(others) * (1 if place == "retry" else 2)
    assert not client.exists("schedule", "retry", MARKS, f"it-{jid}")
    assert job.cancel(jid).place == "done"
    app.close()


def test_an_unknown_job_is_marked(server: Server) -> None:
    """X-CANCEL-1, X-CANCEL-2, X-CANCEL-3: for a day; a job that comes later is refused."""
    ran: list[int] = []
    app = App()
    app.job(name="Work", keep_result=60)(lambda: ran.append(1))
    client: Any = server.client()
    client.zadd(MARKS, {"ancient": time.time() - REMEMBER_S - 5})
    app.connect(server.url)
    assert app.client.cancel("ab" * 12).place == "unknown"
    assert client.zrange(MARKS, 0, -1) == [b"ab" * 12]
    assert 0 < client.ttl(MARKS) <= REMEMBER_S
    with running(app, server):
        wait_until(lambda: "jobwire-wakeup" in str(client.client_list()))
        push_job(server, "Work")
        result = app.client.result("ab" * 12, timeout=60)
        wait_until(lambda: empty(server))
    assert result is not None
    assert result.outcome == "cancelled"
    assert ran == []
    assert int(client.get("stat:failed") or 0) == 0


def sync_job(begun: Callable[[], None]) -> Callable[[], Any]:
    def work() -> None:
        begun()
        job = current_job()
        assert job is not None
        while not job.cancelled:
            time.sleep(0.005)
        raise Cancelled

    return work


def async_job(begun: Callable[[], None]) -> Callable[[], Any]:
    async def work() -> None:
        begun()
        await asyncio.sleep(60)

    return work


@pytest.mark.process
@FETCH
@pytest.mark.parametrize("make", [sync_job, async_job])
@pytest.mark.parametrize("middleware", [False, True])
def test_a_running_job_ends_within_a_second(
    server: Server, fetch: FetchMode, make: Any, middleware: bool
) -> None:
    """X-CANCEL-7, X-CANCEL-6: no failure, no retry, no handler; the result says cancelled."""
    app = App()
    started = threading.Event()
    job = app.job(name="Work", keep_result=60)(make(started.set))
    told: list[Any] = []
    app.on_error(lambda job, error: told.append(error))
    app.on_death(lambda job, error: told.append(error))
    if middleware:
        app.server_middleware.append(lambda job, call_next: call_next())
    with running(app, server, fetch=fetch):
        jid = job.enqueue() or ""
        assert started.wait(60)
        wait_until(lambda: app.client.redis is not None)
        client: Any = server.client()
        if fetch == "basic":  # only a work record shows that the job runs
            wait_until(lambda: client.keys("*:work"))
        asked = time.monotonic()
        assert job.cancel(jid).place == "running"
        result = job.result(jid, timeout=60)
        took = time.monotonic() - asked
        assert result is not None
        assert result.outcome == "cancelled"
        wait_until(lambda: empty(server))
    assert told == []
    assert int(client.get("stat:failed") or 0) == 0
    assert took < 5  # a second, on a machine that does nothing else


def test_a_task_is_cancelled_before_its_first_step(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """X-CANCEL-6: while another job holds the loop; the job is not taken for one to put back."""
    app = App()
    entered, go = threading.Event(), threading.Event()
    ran: list[int] = []

    @app.job
    async def hold() -> None:
        entered.set()
        go.wait(60)

    @app.job(keep_result=60)
    async def work() -> None:
        ran.append(1)

    client: Any = server.client()
    with running(app, server) as launcher:
        hold.enqueue()
        assert entered.wait(60)
        jid = work.enqueue() or ""
        wait_until(lambda: not client.exists("queue:default"))
        tasks = launcher._capsules[0]._tasks
        assert tasks is not None
        wait_until(lambda: any(one.job.jid == jid for one in tasks._current()))
        assert work.cancel(jid).place == "running"
        wait_until(lambda: jid in tasks._cancelled_ids.ids)
        go.set()
        result = work.result(jid, timeout=60)
        wait_until(lambda: empty(server))
    assert result is not None
    assert result.outcome == "cancelled"
    assert ran == []
    assert "cancelled by other code" not in caplog.text


def test_a_job_that_ignores_the_token_is_done(server: Server) -> None:
    """X-CANCEL-8: the outcome is the truth, also after the request."""
    app = App()
    started, go = threading.Event(), threading.Event()

    def work() -> int:
        started.set()
        go.wait(60)
        return 7

    job = app.job(name="Work", keep_result=60)(work)
    with running(app, server):
        jid = job.enqueue() or ""
        assert started.wait(60)
        assert job.cancel(jid).place == "running"
        go.set()
        result = job.result(jid, timeout=60)
        assert job.cancel(jid).place == "done"
    assert result is not None
    assert (result.outcome, result.value) == ("done", 7)


def test_others_go_on(server: Server) -> None:
    """X-CANCEL-3: only the job with the id ends."""
    app = App()
    started: list[int] = []
    go = threading.Event()

    @app.job(name="Work", keep_result=60)
    async def work(number: int) -> int:
        started.append(number)
        while not go.is_set():
            await asyncio.sleep(0.005)
        return number

    with running(app, server, concurrency=3):
        jids = work.enqueue_bulk([[number] for number in range(3)])
        wait_until(lambda: len(started) == 3)
        assert work.cancel(jids[1] or "").place == "running"
        first = work.result(jids[1] or "", timeout=60)
        go.set()
        results = [first, *(work.result(jids[number] or "", timeout=60) for number in (0, 2))]
    assert [each and each.outcome for each in results] == ["cancelled", "done", "done"]


@pytest.mark.parametrize(
    ("holder", "place"), [("private", "running"), ("work", "running"), (None, "unknown")]
)
def test_a_held_job_is_running(server: Server, holder: str | None, place: str) -> None:
    """X-CANCEL-1: found in a private hash or a work record, among values that are odd.

    Without a holder, there is no such job in a long set, nor in a key of another type.
    """
    client: Any = server.client()
    payload = PAYLOAD % "held"
    odd = {"1": b"\xff held", "2": "[held", "3": '["held"]', "4": '{"payload":["held"]}'}
    if holder == "private":
        client.sadd("jobwire:owners", "p")
        client.hset("jobwire:private:p", mapping={**odd, "5:default": payload})
    elif holder == "work":
        client.sadd("processes", "p")
        client.hset("p:work", mapping={**odd, "t": json.dumps({"payload": payload})})
    client.set("schedule", "not a set")
    client.zadd(
        "retry", {f'{{"class":"Work","args":["held"],"jid":"{n}"}}': n for n in range(2_000)}
    )
    with Client(server.url) as jobs:
        assert jobs.cancel("held").place == place
    assert client.zcard("retry") == 2_000


def test_a_dead_job_is_done(server: Server) -> None:
    """X-CANCEL-1, X-CANCEL-4: it does not run by itself, and stays where it is."""
    client: Any = server.client()
    dead = ['{"class":"Work","args":["gone"],"jid":"x"}', '{"jid":"gone"']
    client.zadd("dead", {text: n for n, text in enumerate([*dead, PAYLOAD % "gone"])})
    with Client(server.url) as jobs:
        assert jobs.cancel("gone").place == "done"
    assert client.zcard("dead") == 3


def test_a_job_that_is_fetched_meanwhile_is_running(server: Server) -> None:
    """X-CANCEL-1: it left its queue while the places were looked at."""
    client: Any = server.client()
    payload = PAYLOAD % "held"

    def fetched_after_the_mark() -> Op[str]:
        op = cancel(Keys(), "held", now=time.time())
        step = next(op)
        while True:
            reply = yield step
            if isinstance(step, Batch) and step.atomic:
                client.sadd("jobwire:owners", "p")
                client.hset("jobwire:private:p", "1:default", payload)
            try:
                step = op.send(reply)
            except StopIteration as done:
                return str(done.value.place)

    redis = SyncRedis(server.url)
    assert redis.run(fetched_after_the_mark()) == "running"
    redis.close()


@pytest.mark.full
def test_the_answer_is_right_at_a_thousand_moments(server: Server) -> None:
    """X-CANCEL-5 to X-CANCEL-8: seven kinds of jobs, each answer against a ledger of the jobs."""
    app = App()
    client: Any = server.client()
    begun: set[int] = set()

    @app.job(name="brief", keep_result=600)
    def brief(number: int) -> None:
        begun.add(number)
        time.sleep(0.002)

    @app.job(name="brief async", keep_result=600)
    async def brief_async(number: int) -> None:
        begun.add(number)
        await asyncio.sleep(0.002)

    @app.job(name="token", keep_result=600)
    def token(number: int) -> None:
        begun.add(number)
        job = current_job()
        assert job is not None
        while not job.cancelled:
            time.sleep(0.005)
        raise Cancelled

    @app.job(name="async", keep_result=600)
    async def long_async(number: int) -> None:
        begun.add(number)
        await asyncio.sleep(60)

    @app.iterable(name="steps", keep_result=600)
    def steps(cursor: Cursor, number: int) -> Iterator[int]:
        begun.add(number)
        for each in range(cursor.value or 0, 100_000):
            time.sleep(0.002)
            yield each

    kinds: list[tuple[str, JobType[Any, Any]]] = [
        *(("brief", brief), ("brief async", brief_async), ("token", token), ("async", long_async)),
        *(("steps", steps), ("later", brief), ("isolated", wait)),
    ]
    wrong: list[str] = []
    took: dict[str, list[float]] = {}
    answers: Counter[tuple[str, str]] = Counter()

    def cancel_some(first: int) -> None:
        draw = random.Random(first)
        for number in range(first, first + 100):
            (kind, job), *_ = draw.choices(kinds, (20, 20, 20, 20, 2, 10, 8))
            if kind == "isolated":
                jid = wait.options(queue="isolated").enqueue(str(number))
            elif kind == "later":
                jid = brief.enqueue_in(3_600, number)
            else:
                jid = job.enqueue(number)
            assert jid is not None
            time.sleep(draw.uniform(0, 0.3 if kind == "isolated" else 0.015))
            asked = time.monotonic()
            place = job.cancel(jid).place
            result = job.result(jid, timeout=60)
            took.setdefault(kind, []).append(time.monotonic() - asked)
            answers[kind, place] += 1
            assert result is not None, (kind, place)
            if kind == "isolated":
                jobs = client.lrange("queue:begun", 0, -1)
                begun.update(int(json.loads(text)["args"][0]) for text in jobs)
            cancelled = "done" if kind == "steps" else "cancelled"  # ITER-7
            right = {
                "queued": number not in begun and result.outcome == "cancelled",
                "running": result.outcome == cancelled or kind.startswith("brief"),
                # An iterable job may read the request before its first item.
                "done": (number in begun or kind == "steps") and result.outcome == "done",
            }
            if not right.get(place):
                wrong.append(f"{kind} {number}: {place}, {result.outcome}, {number in begun}")

    with (
        running(app, server, concurrency=10),
        running(ends_app, server, queues={"isolated": 0}, concurrency=2),
        ThreadPoolExecutor(10) as callers,
    ):
        for done in [callers.submit(cancel_some, first) for first in range(0, 1_000, 100)]:
            done.result()
        # The marks of jobs that had ended before stay for a day.
        places = ("queue:default", "queue:isolated", "retry", "schedule", "dead")
        wait_until(lambda: not client.exists(*places))
    assert wrong == []
    assert int(client.get("stat:failed") or 0) == 0
    worst = {kind: f"{max(each):.2f} s" for kind, each in took.items()}
    figures = f"answers {dict(answers)}; until the end of the job, at most {worst}"
    logging.getLogger(__name__).info(figures)  # shown by -o log_cli=true -o log_cli_level=INFO
    assert max(*took["async"], *took["isolated"]) < 5, figures  # a second, on a quiet machine
