"""Steps of a job, which later executions do not repeat, and its output, which others read."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import (
    App,
    Cancelled,
    InvalidArgument,
    Job,
    OutputGap,
    OutputItem,
    RedisRefused,
    Snooze,
    current_job,
)
from jobwire.application.config import FetchMode
from jobwire.application.current import running as inside
from jobwire.connection.sync import SyncRedis
from jobwire.protocol import output, steps
from jobwire.protocol.iteration import Cursor
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import decode
from jobwire.protocol.wire import ErrorReply, once
from jobwire.testing import fake
from tests.apps.isolated import app as isolated
from tests.integration.clients import listening
from tests.rows import over
from tests.server_fixtures import ServerFactory
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

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
EMITTER = """
from jobwire import App
app = App()
@app.job(name="Many")
def many(count: int) -> None:
    for n in range(count):
        app.emit(n)
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


def test_a_job_that_was_put_back_keeps_its_steps(server: Server, client: redis.Redis) -> None:
    """X-STEP-6: the end of the execution that lost it removes none."""
    app = App()
    begun, goes_on = threading.Event(), threading.Event()

    @app.job(name="Work")
    def work() -> None:
        app.step("one", int)
        begun.set()
        assert goes_on.wait(60)

    with running(app, server, timings=QUICK) as launcher:
        jid = work.enqueue()
        assert begun.wait(60)
        client.delete(f"jobwire:private:{launcher.identity}")
        goes_on.set()
        wait_until(lambda: client.get("jobwire:stat:lost") == b"1", what="the late outcome")
    assert client.hgetall(f"jobwire:steps:{jid}") == {b"one": b"0"}


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


# -- output


class Reader(threading.Thread):
    """Reads an output to its end."""

    def __init__(self, app: App, jid: str, **how: Any) -> None:
        super().__init__(daemon=True)
        self.items: list[OutputItem] = []
        self._open: Callable[[], Iterator[OutputItem]] = lambda: app.output(jid, **how)
        self.start()

    def run(self) -> None:
        for item in self._open():
            self.items.append(item)

    @property
    def values(self) -> list[Any]:
        return [item.value for item in self.items]

    def all(self) -> list[Any]:
        """Return the values of all items, after the end of the job."""
        self.join(30)
        assert not self.is_alive()
        return self.values


def talker(kind: str, go: threading.Event) -> App:
    """Return an app with the job Work, which emits `a`, waits for `go` and emits `b` and `c`."""
    app = App()

    def work() -> None:
        app.emit("a")
        go.wait(60)
        app.emit("b", {"c": [1, None]})

    async def awork() -> None:
        await app.aemit("a")
        while not go.is_set():
            await asyncio.sleep(0.01)
        await app.aemit("b", {"c": [1, None]})

    def iterable(cursor: Cursor) -> Iterator[object]:
        yield 1
        work()

    if kind == "iterable":
        app.iterable(name="Work")(iterable)
    else:
        app.job(name="Work")(work if kind == "sync" else awork)
    return app


@FETCH
@pytest.mark.parametrize("kind", ["sync", "async", "iterable"])
def test_a_reader_has_each_item_while_the_job_runs(
    kind: str, fetch: FetchMode, server: Server
) -> None:
    """X-STEP-7, X-STEP-12, X-STEP-13: and learns that the job is over."""
    go = threading.Event()
    app = talker(kind, go)
    with running(app, server, timings=QUICK, fetch=fetch):
        jid = app.client.push("Work") or ""
        reader = Reader(app, jid)
        wait_until(lambda: reader.values == ["a"])
        assert reader.is_alive()
        go.set()
        assert reader.all() == ["a", "b", {"c": [1, None]}]
        assert [item.position.split("-")[1] for item in reader.items] == ["1", "2", "3"]
        assert abs(reader.items[0].at - time.time()) < 60
        after = reader.items[1].position
        assert [item.value for item in app.output(jid, after=after)] == [{"c": [1, None]}]

        async def read() -> list[Any]:
            values = [item.value async for item in app.aoutput(jid, timeout=30)]
            await app.aclose()
            return values

        assert asyncio.run(read()) == ["a", "b", {"c": [1, None]}]


@FETCH
@pytest.mark.parametrize("how", ["done", "dead", "discarded", "cancelled"])
def test_a_retry_goes_on_and_every_end_ends(
    how: str, fetch: FetchMode, server: Server, client: redis.Redis
) -> None:
    """X-STEP-10, X-STEP-11: the second execution has another name, the third emits nothing."""
    app = App(retry=2)
    rounds = iter(range(9))

    @app.job(name="Work")
    def work() -> None:
        job, number = current_job(), next(rounds)
        assert job is not None
        if number < 2:
            app.emit(number)
            raise ValueError if number else Snooze(0.01)
        if how == "cancelled":
            raise Cancelled
        if how != "done":
            raise KeyError

    @work.retry_in
    def _(job: Job, error: BaseException, count: int) -> float | Literal["kill", "discard"]:
        return 0.01 if isinstance(error, ValueError) else "kill" if how == "dead" else "discard"

    with running(app, server, timings=QUICK, fetch=fetch, poll_interval=0.1):
        jid = work.enqueue() or ""
        reader = Reader(app, jid)
        wait_until(lambda: client.zcard("retry") == 1)
        client.zadd("retry", dict.fromkeys(waiting(client), 1), xx=True)
        assert reader.all() == [0, 1]
    assert len({item.run for item in reader.items}) == 2
    ends = [fields[b"end"] for _, fields in entries(client, jid) if b"end" in fields]
    assert ends == [b"retry", how.encode()]


def waiting(client: redis.Redis) -> list[bytes]:
    return cast("list[bytes]", client.zrange("retry", 0, -1))


def entries(client: redis.Redis, jid: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    found: Any = client.xrange(f"jobwire:out:{jid}")
    return list(found)


def test_a_job_that_emits_nothing_has_no_command(server: Server, client: redis.Redis) -> None:
    """X-STEP-10: its end takes none either, and its result ends the wait of a reader."""
    app = App()
    go = threading.Event()
    app.job(name="Work", keep_result=60)(lambda: go.wait(60) and None)
    with running(app, server, timings=QUICK), listening(server) as heard:
        jid = app.client.push("Work") or ""
        wait_until(lambda: client.llen("queue:default") == 0)
        go.set()
        wait_until(lambda: client.exists(f"jobwire:result:{jid}"))
        assert not any(b"jobwire:out" in word for line in heard() for word in line.words)
        assert Reader(app, jid).all() == []


@pytest.mark.process
def test_isolated_jobs_emit(server: Server, client: redis.Redis) -> None:
    """X-STEP-7: from their own process; a time limit that kills it still tells the end."""
    with running(isolated, server, timings=QUICK):
        jid = isolated.client.push("Emit", [2, 0]) or ""
        assert Reader(isolated, jid).all() == [0, 1]
        jid = isolated.client.push("Emit", [1, 60], retry=False) or ""
        assert Reader(isolated, jid).all() == [0]
    assert entries(client, jid)[-1][1] == {b"end": b"discarded"}


def test_a_job_that_is_cancelled_between_two_tries_ends(
    server: Server, client: redis.Redis
) -> None:
    app = App(server.url)
    text = b'{"class":"Work","jid":"j","queue":"default","args":[],"retry_count":0}'
    with inside(decode(text, "default")):
        app.emit("early")
    client.zadd("retry", {text: 4e9})
    reader = Reader(app, "j")
    wait_until(lambda: reader.values == ["early"])
    assert app.client.cancel("j").place == "queued"
    assert reader.all() == ["early"]
    app.close()


def test_a_reader_that_comes_back_50_times_gets_each_item_once(
    server: Server, client: redis.Redis
) -> None:
    """X-STEP-12: at random moments, by a thread and by tasks, while the job emits."""
    app = App()

    @app.job(name="Many")
    def many(count: int) -> None:
        for number in range(count):
            app.emit(number)

    with running(app, server, timings=QUICK):
        jid = app.client.push("Many", [3_000]) or ""
        draw, got, after = random.Random(7), list[int](), ""
        for _ in range(50):
            most = draw.randrange(1, 80)
            for item in app.output(jid, after=after, timeout=30):
                got.append(item.value)
                after = item.position
                most -= 1
                if not most:
                    break
        assert len(got) > 50
        got += [item.value for item in app.output(jid, after=after, timeout=30)]
        assert got == list(range(3_000))
    assert 3_500 < int(client.ttl(f"jobwire:out:{jid}")) <= 3_600


@pytest.mark.real_time
def test_readers_outlive_a_kill(server: Server, workers: Workers, tmp_path: Path) -> None:
    """X-STEP-7, X-STEP-13: `kill -9` in the middle; the reader goes on with the next execution."""
    (tmp_path / "many.py").write_text(EMITTER)
    app = App(server.url)
    worker = workers.start("many:app", "--redis", server.url)
    jid = app.client.push("Many", [3_000]) or ""
    reader = Reader(app, jid)
    wait_until(lambda: len(reader.items) > 200)
    worker.kill()
    workers.start("many:app", "--redis", server.url)
    values = reader.all()
    names = list(dict.fromkeys(item.run for item in reader.items))
    assert len(names) == 2
    first = [item.value for item in reader.items if item.run == names[0]]
    assert first == list(range(len(first)))
    assert values == first + list(range(3_000))
    app.close()


def test_a_reader_is_told_of_what_is_gone(server: Server, client: redis.Redis) -> None:
    """X-STEP-9, X-STEP-15: by number, from the beginning and from a position."""
    app = App(server.url)
    with inside(decode(b'{"jid":"j"}', "default")):
        app.emit(*range(output.MAX_ITEMS), keep=7)
        [first, *_, last] = app.output("j", timeout=0)
        app.emit(*range(output.MAX_ITEMS))
        length = int(client.xlen("jobwire:out:j"))
        assert output.MAX_ITEMS <= length < output.MAX_ITEMS * 1.1
        lost = 2 * output.MAX_ITEMS - length
        with pytest.raises(OutputGap, match=r"job j: [\d,]+ items .* go on with after=") as gap:
            list(app.output("j", timeout=0))
        assert gap.value.lost == lost
        assert len(list(app.output("j", after=gap.value.position, timeout=0))) == length
        with pytest.raises(OutputGap) as gap:
            list(app.output("j", after=first.position, timeout=0))
        assert gap.value.lost == lost - 1
        client.delete("jobwire:out:j")
        app.emit("again")
        with pytest.raises(OutputGap, match="its items up to here have") as gap:
            list(app.output("j", after=last.position, timeout=0))
        [again] = app.output("j", after=gap.value.position, timeout=0)
        assert (again.value, gap.value.lost) == ("again", None)
    app.close()


def test_a_reader_waits_no_longer_than_it_wants(server: Server) -> None:
    app = App(server.url)
    assert list(app.output("nobody", timeout=0.05)) == []
    with pytest.raises(InvalidArgument, match="after: 'x' is not a position"):
        list(app.output("j", after="x"))
    app.close()


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (object(), "an item cannot be written"),
        ("x" * 16_383, "an item has 16,385 bytes of JSON; at most 16,384"),
    ],
)
def test_an_item_is_json_and_small(item: object, words: str) -> None:
    """X-STEP-8: also outside a job."""
    with pytest.raises(InvalidArgument, match=words):
        App().emit(item)
    with pytest.raises(InvalidArgument, match="keep is 0; pass seconds from 1"):
        App().emit(1, keep=0)


def test_shards_are_searched(server_factory: ServerFactory) -> None:
    urls = {name: server_factory().url for name in "ab"}
    app = App(shards=urls)
    keys, two = Keys(""), SyncRedis(urls["b"])
    two.run(once(output.script_emit(keys, "j", "r", [b"1", b"2"], keep=60, now=1.0)))
    reader = Reader(app, "j")
    wait_until(lambda: reader.values == [1, 2])
    two.run(once(output.script_tell(keys, "j", "done", now=2.0)))
    assert reader.all() == [1, 2]
    two.close()
    app.close()


def test_tests_see_output() -> None:
    """Without Redis, also of iterable jobs."""
    go = threading.Event()
    go.set()
    for kind in ("sync", "async", "iterable"):
        app = talker(kind, go)
        with fake(app) as jobs:
            jid = app.client.push("Work") or ""
            assert list(app.output(jid)) == []
            jobs.drain()
            items = list(app.output(jid))
            assert [item.value for item in items] == ["a", "b", {"c": [1, None]}]
            assert list(app.output(jid, after=items[1].position)) == items[2:]


def test_a_reader_has_the_items_before_a_gap_first() -> None:
    """X-STEP-15: and the gap with the next read; a reply that is an error is one."""
    entries = [[b"%d-%d" % (at, at), [b"item", b"%d" % at, b"run", b"r"]] for at in (1, 2, 9)]
    tail = output.Tail("j")
    assert [item.value for item in tail.take(entries)] == [1, 2]
    with pytest.raises(OutputGap) as gap:
        tail.take(entries[1:])
    assert (gap.value.lost, tail.position) == (6, "9-8")
    assert [item.value for item in tail.take(entries[2:])] == [9]
    assert output.before(entries[2]) == "9-8"
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        tail.take(ErrorReply("WRONGTYPE a hash"))
