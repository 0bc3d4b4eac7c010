"""Steps of a job, which later executions do not repeat."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import App, InvalidArgument, Snooze
from jobwire.application.config import FetchMode
from jobwire.application.current import running as inside
from jobwire.protocol import steps
from jobwire.protocol.iteration import Cursor
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import decode
from jobwire.testing import fake
from tests.rows import over
from tests.workers import Workers, brisk, running

QUICK = brisk()
LEDGER = "app:ledger"
JOBS, STEPS, KILLS = 8, 200, 2
MANY = """
import redis
from jobwire import App
app = App()
ledger = redis.Redis.from_url("{url}")
@app.job(name="Many", isolated={isolated})
def many(number: int, count: int) -> None:
    for n in range(count):
        app.step(f"step-{{n}}", ledger.rpush, "app:ledger", f"{{number}}/{{n}}")
"""


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


def ledger(client: redis.Redis) -> list[str]:
    return [one.decode() for one in cast("list[bytes]", client.lrange(LEDGER, 0, -1))]


def two_steps(kind: str, client: redis.Redis) -> App:
    """Return an app with the job Work of two steps, whose first execution ends between them."""
    app = App()
    first = iter([True])

    def charge(amount: int) -> dict[str, int]:
        client.rpush(LEDGER, f"charge {amount}")
        return {"paid": amount}

    def between() -> None:
        if next(first, False):
            raise Snooze(0.01)

    def work() -> None:
        paid = app.step("charge", charge, 7)
        between()
        app.step("mail", lambda: client.rpush(LEDGER, f"mail {paid['paid']}") and None)

    async def acharge(amount: int) -> dict[str, int]:
        return charge(amount)

    async def amail(paid: int) -> None:
        client.rpush(LEDGER, f"mail {paid}")

    async def awork() -> None:
        paid = await app.astep("charge", acharge, amount=7)
        between()
        await app.astep("mail", amail, paid["paid"])

    def iterable(cursor: Cursor) -> Iterator[object]:
        yield 1
        work()

    if kind == "iterable":
        app.iterable(name="Work")(iterable)
    else:
        app.job(name="Work")(work if kind == "sync" else awork)
    return app


@pytest.mark.parametrize("fetch", ["reliable", "basic"])
@pytest.mark.parametrize("kind", ["sync", "async", "iterable"])
def test_a_finished_step_is_not_repeated(
    kind: str, fetch: FetchMode, server: Server, client: redis.Redis
) -> None:
    """X-STEP-5, X-STEP-6: its value comes back, and success removes the key."""
    app = two_steps(kind, client)
    with running(app, server, timings=QUICK, fetch=fetch):
        jid = app.client.push("Work")
        wait_until(lambda: ledger(client) == ["charge 7", "mail 7"])
        wait_until(lambda: not client.exists(f"jobwire:steps:{jid}"))
    assert ledger(client) == ["charge 7", "mail 7"]


def test_the_steps_of_a_dead_job_stay(server: Server, client: redis.Redis) -> None:
    """X-STEP-1, X-STEP-3: a person may retry it. A value is there before the next step begins."""
    app = App()
    seen: list[object] = []

    def look() -> int:
        [key] = client.keys("jobwire:steps:*")
        seen.append(client.hgetall(key))
        return len(seen)

    @app.job(name="Work", retry=0)
    def work() -> None:
        app.step("one", str, "é")
        app.step("two", look)
        raise ValueError

    with running(app, server, timings=QUICK):
        jid = work.enqueue()
        wait_until(lambda: client.zcard("dead") == 1)
    assert seen == [{b"one": b'"\xc3\xa9"'}]
    assert client.hgetall(f"jobwire:steps:{jid}") == {b"one": b'"\xc3\xa9"', b"two": b"1"}
    assert 2_591_000 < int(client.ttl(f"jobwire:steps:{jid}")) <= 2_592_000


@pytest.mark.real_time
@pytest.mark.parametrize("isolated", [False, True])
def test_kills_repeat_the_step_that_was_cut_off_at_most(
    isolated: bool, server: Server, client: redis.Redis, workers: Workers, tmp_path: Path
) -> None:
    """X-STEP-1, X-STEP-5: `kill -9` at random moments, each followed by a new process."""
    (tmp_path / "many.py").write_text(MANY.format(isolated=isolated, url=server.url))
    app = App(server.url)
    app.client.push_bulk("Many", [[number, STEPS] for number in range(JOBS)])
    for kill in range(KILLS):
        worker = workers.start("many:app", "--redis", server.url)
        enough = random.Random(kill).randrange(100, 400) + 400 * kill
        wait_until(lambda: len(ledger(client)) > enough)  # noqa: B023 - it is called at once
        worker.kill()
    workers.start("many:app", "--redis", server.url)
    wait_until(lambda: client.get("stat:processed") == str(JOBS).encode())
    done = ledger(client)
    assert set(done) == {f"{job}/{step}" for job in range(JOBS) for step in range(STEPS)}
    assert len(done) <= JOBS * STEPS + KILLS * JOBS
    app.close()


def test_the_first_of_two_executions_decides(server: Server) -> None:
    """X-STEP-2: at-least-once delivery may run a job twice at the same time."""
    keys = Keys("")
    app = App(server.url)
    one = app.client.redis
    assert one.run(steps.commit(keys, "j", "a", b"1")) == b"1"
    assert one.run(steps.commit(keys, "j", "a", b"2")) == b"1"
    assert one.run(steps.load(keys, "j")) == {"a": b"1"}
    app.close()


@over("reply", [[b"a", b"1"], {b"a": b"1"}])
def test_both_protocols_of_redis_are_read(reply: object) -> None:
    """X-STEP-5: RESP2 replies with a list, RESP3 with a map."""
    reading = steps.load(Keys(""), "j")
    next(reading)
    with pytest.raises(StopIteration) as ended:
        reading.send(reply)
    assert ended.value.value == {"a": b"1"}


@over(
    ("value", "says"),
    [
        (object(), "step 'a' returned a value that cannot be kept"),
        ({1: 2}, "step 'a' returned a value that cannot be kept"),
        ("x" * 1024 * 1024, "step 'a' returned 1,048,578 bytes of JSON; at most 1,048,576"),
    ],
)
def test_a_value_that_cannot_be_kept_is_refused(value: object, says: str) -> None:
    """X-STEP-1."""
    with pytest.raises(InvalidArgument, match=says):
        steps.encoded("a", value)


def test_a_name_is_used_once_in_an_execution(server: Server) -> None:
    """X-STEP-4: unless its function raised."""
    app = App(server.url)
    job = decode(b'{"class":"Work","args":[],"jid":"9f2c1b7a4d3e5f60718293a4"}', "default")
    with inside(job):
        with pytest.raises(ZeroDivisionError):
            app.step("a", lambda: 1 // 0)
        assert app.step("a", lambda: 5) == 5
        with pytest.raises(InvalidArgument, match="step 'a' was used before in this execution"):
            app.step("a", lambda: 6)
    app.close()


def test_outside_of_a_worker_a_step_is_a_call() -> None:
    """Without Redis: in a program, and where tests collect the jobs."""
    app = App("redis://localhost:1/0")
    calls: list[int] = []

    @app.job(name="Work")
    def work() -> None:
        app.step("a", calls.append, 1)
        app.step("a", calls.append, 2)

    work()
    with fake(app) as jobs:
        work.enqueue()
        jobs.drain()
    assert calls == [1, 2, 1, 2]
