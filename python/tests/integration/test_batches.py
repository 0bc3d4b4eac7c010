"""Batches: members as sets of ids, callbacks pushed by the step that ends the last one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from harness.servers import Server, wait_until
from jobwire import (
    App,
    Batch,
    BatchEnded,
    Cancelled,
    Filter,
    Inspector,
    InvalidJob,
    RedisRefused,
    Unique,
    chain,
)
from jobwire.application import workflows
from jobwire.application.config import FetchMode
from jobwire.errors import ConfigError, MaybeWritten, NoReply, RedisUnreachable
from jobwire.inspect import AsyncInspector
from jobwire.inspect.sets import sweep_queue
from jobwire.ops import Operations
from jobwire.protocol.batches import (
    EVENTS,
    Membership,
    batch_of,
    member_in,
    read_status,
    script_end,
    script_open,
)
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.outcome import DONE, ending
from jobwire.protocol.payload import decode
from jobwire.protocol.pushing import push_members
from jobwire.protocol.unique import digest
from jobwire.protocol.wire import Confirm, Op
from jobwire.testing.batches import BatchStore
from jobwire.web import Visitor, WebApp
from tests.workers import Workers, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


class Shop:
    """An application that counts its callbacks; a test gives the work of its members."""

    def __init__(self, server: Server, **options: Any) -> None:
        self.app = App()
        self.calls: Counter[str] = Counter()
        self.runs: list[int] = []
        self.act: Any = lambda number: None
        self.lock = threading.Lock()
        self.client: Any = server.client()

        @self.app.job(name="Work", **options)
        def work(number: int) -> None:
            self.runs.append(number)
            self.act(number)

        @self.app.job(name="Follow")
        def follow(event: str) -> None:
            with self.lock:
                self.calls[event] += 1

        self.work, self.follow = work, follow
        self.app.connect(server.url)

    def batch(self, parent: Batch | None = None, name: str = "") -> Any:
        """Return a batch with all callbacks; they count with its name."""
        events = ("on_success", "on_complete", "on_death")
        calls = {event: self.follow.s(name + event) for event in events}
        return self.app.batch(**calls, description="pictures", parent=parent)

    def filled(self, count: int = 1) -> Batch:
        """Return a closed batch with members."""
        with self.batch() as batch:
            batch.add_all(self.work.s(n) for n in range(count))
        assert isinstance(batch, Batch)
        return batch

    def pushed(self) -> Counter[str]:
        """Return the callbacks that wait in the queue."""
        texts = self.client.lrange("queue:default", 0, -1)
        jobs = [json.loads(text) for text in texts]
        return Counter(job["args"][0] for job in jobs if job["class"] == "Follow")

    def ended(self) -> None:
        """Wait until no job is left in a queue, or with a worker."""
        wait_until(
            lambda: (
                not self.client.llen("queue:default") and not self.client.keys("jobwire:private:*")
            ),
            what="the end of all jobs",
        )


@pytest.fixture
def shop(server: Server) -> Iterator[Shop]:
    made = Shop(server)
    yield made
    made.app.close()


def state(batch: Batch) -> tuple[str, int, int, int]:
    """Return state, and numbers of open, failed and done members."""
    status = batch.status()
    assert status is not None
    return status.state, status.open, status.failed, status.done


@FETCH
def test_callbacks_follow_the_last_member(server: Server, shop: Shop, fetch: FetchMode) -> None:
    """X-BATCH-1, X-BATCH-2, X-BATCH-4, X-BATCH-5, X-BATCH-8: once, and as jobs pushed now."""
    before = time.time()
    with shop.batch() as batch:
        assert len(batch.add(shop.work.s(1), shop.work.s(2))) == 2
        with running(shop.app, server, fetch=fetch):
            wait_until(lambda: state(batch) == ("open", 0, 0, 2), what="the members")
            shop.ended()
            batch.add_all(shop.work.s(n) for n in range(3, 6))
            wait_until(lambda: state(batch) == ("open", 0, 0, 5), what="the members")
        assert not shop.calls
    assert shop.pushed() == {"on_success": 1, "on_complete": 1}
    job = json.loads(shop.client.lindex("queue:default", 0))
    assert before * 1000 - 1 <= job["enqueued_at"] <= time.time() * 1000
    status = batch.status()
    assert (status.description, status.queue, status.total) == ("pictures", "default", 5)
    assert status.waiting == ["on_death"]
    assert before - 1 < status.created_at < time.time() + 1
    for key in shop.client.keys("jobwire:batch:*"):
        assert 2_591_000 < shop.client.ttl(key) <= 2_592_000
    with running(shop.app, server, fetch=fetch):
        # Basic fetch takes a job from its queue before it runs.
        wait_until(lambda: shop.calls.total() == 2, what="the callbacks")
        shop.ended()
    assert shop.calls == {"on_success": 1, "on_complete": 1}


def test_a_batch_without_members_has_succeeded(shop: Shop) -> None:
    """X-BATCH-4: at the end of its block."""
    batch = shop.filled(0)
    assert shop.pushed() == {"on_success": 1, "on_complete": 1}
    assert state(batch) == ("complete", 0, 0, 0)


ENDS = ["done", "dead", "discarded", "cancelled", "expired", "once", "failed once"]


@FETCH
@pytest.mark.parametrize("end", ENDS)
def test_every_end_of_a_member(server: Server, fetch: FetchMode, end: str) -> None:
    """X-BATCH-5: success, death, no retry, cancelling, expiry, acknowledged jobs."""
    retry: Any = {"dead": 0, "discarded": False, "once": False, "failed once": False}.get(end, True)
    shop = Shop(server, retry=retry, redeliver="once" not in end)

    def act(number: int) -> None:
        if end in ("dead", "discarded", "failed once"):
            raise ValueError
        if end == "cancelled":
            raise Cancelled

    shop.act = act
    with shop.batch() as batch:
        options: Any = {"expires_in": 0.001} if end == "expired" else {}
        batch.add(shop.work.options(**options).s(1))
    time.sleep(0.01 if end == "expired" else 0)
    succeeds = end in ("done", "once")
    wanted = Counter(["on_complete"])
    wanted += Counter(["on_success"] * succeeds)
    wanted += Counter(["on_death"] * (end in ("dead", "discarded", "failed once")))
    with running(shop.app, server, fetch=fetch):
        wait_until(lambda: state(batch)[0] == "complete", what="the end")
        wait_until(lambda: shop.calls == wanted, what="the callbacks")
        shop.ended()
    assert shop.calls == wanted
    assert state(batch) == ("complete", 0, int(not succeeds), int(succeeds))
    shop.app.close()


@FETCH
def test_a_retry_is_not_an_end(server: Server, shop: Shop, fetch: FetchMode) -> None:
    """X-BATCH-5: the member stays open, through failures and promotions."""
    failures = iter([ValueError, ValueError])

    def act(number: int) -> None:
        for failure in failures:
            raise failure

    shop.act = act
    shop.work.retry_in(lambda job, error, count: 3600)
    batch = shop.filled()
    with running(shop.app, server, fetch=fetch, poll_interval=0.1):
        for runs in (1, 2):
            wait_until(lambda: shop.client.zcard("retry"), what="the retry")
            assert state(batch) == ("closed", 1, 0, 0)
            (member,) = shop.client.zrange("retry", 0, -1)
            shop.client.zadd("retry", {member: 5})
            wait_until(lambda: len(shop.runs) > runs, what="the promotion")  # noqa: B023
        wait_until(lambda: shop.calls["on_success"], what="the success")
    assert len(shop.runs) == 3


@FETCH
def test_a_dead_member_that_succeeds_later(server: Server, fetch: FetchMode) -> None:
    """X-BATCH-5: death, a retry by a person: then every member has succeeded."""
    shop = Shop(server, retry=0)
    dies = threading.Event()
    dies.set()

    def act(number: int) -> None:
        if dies.is_set() and number < 2:
            raise ValueError

    shop.act = act
    batch = shop.filled(3)
    with running(shop.app, server, fetch=fetch), Inspector(server.url) as inspector:
        wait_until(lambda: state(batch) == ("complete", 0, 2, 1), what="the deaths")
        wait_until(lambda: shop.calls == {"on_death": 1, "on_complete": 1}, what="the callbacks")
        one, _ = inspector.entries("dead")
        assert inspector.retry(one)
        wait_until(lambda: len(list(inspector.entries("dead"))) == 2, what="the second death")
        assert state(batch) == ("complete", 0, 2, 1)
        dies.clear()
        for each in list(inspector.entries("dead")):
            assert inspector.retry(each)
        wait_until(lambda: shop.calls["on_success"], what="the success")
        shop.ended()
    assert state(batch) == ("complete", 0, 0, 3)
    assert shop.calls == {"on_death": 1, "on_complete": 1, "on_success": 1}
    shop.app.close()


@FETCH
def test_twenty_members_that_end_at_once(server: Server, shop: Shop, fetch: FetchMode) -> None:
    """X-BATCH-5: of the ends of twenty threads, one pushes the callbacks."""
    barrier = threading.Barrier(20)
    shop.act = lambda number: barrier.wait(60)
    batches = [shop.filled(20) for _ in range(10)]
    with running(shop.app, server, fetch=fetch, concurrency=20):
        wait_until(
            lambda: shop.calls == {"on_success": 10, "on_complete": 10}, what="the callbacks"
        )
        shop.ended()
    assert shop.calls == {"on_success": 10, "on_complete": 10}
    assert {state(batch) for batch in batches} == {("complete", 0, 0, 20)}


def test_a_job_that_ends_twice_counts_once(server: Server, shop: Shop) -> None:
    """X-BATCH-5: two copies of one member; a late death does not undo the success."""
    with shop.batch() as batch:
        batch.add(shop.work.s(1))
        (text,) = shop.client.lrange("queue:default", 0, -1)
        shop.client.lpush("queue:default", text, text)
        batch.add(shop.work.s(2))
        with running(shop.app, server):
            shop.ended()
        assert state(batch) == ("open", 0, 0, 2)
        member, jid = member_in(text) or (None, "")
        assert member is not None
        late = script_end(Keys(), member, "dead", at="1", jid=jid)
        assert shop.app.client.redis.run(one(late)) == 0
    assert state(batch) == ("complete", 0, 0, 2)
    assert shop.pushed() == {"on_success": 1, "on_complete": 1}


def one(step: Any) -> Op[Any]:
    return (yield step)


@FETCH
def test_a_member_adds_members(server: Server, shop: Shop, fetch: FetchMode) -> None:
    """X-BATCH-3: the batch cannot be complete before the member that adds them ends."""

    def act(number: int) -> None:
        batch = shop.app.current_batch()
        assert batch is not None
        if number < 5:
            batch.add(shop.work.s(number + 1), shop.work.s(9))

    shop.act = act
    with shop.batch() as batch:
        batch.add(shop.work.s(0))
    with running(shop.app, server, fetch=fetch, concurrency=5):
        wait_until(lambda: len(shop.calls) == 2, what="both callbacks")
    assert sorted(shop.runs) == [0, 1, 2, 3, 4, 5, 9, 9, 9, 9, 9]
    assert shop.calls == {"on_success": 1, "on_complete": 1}
    assert state(batch) == ("complete", 0, 0, 11)
    with pytest.raises(BatchEnded, match=f"batch {batch.id} is complete and takes no jobs"):
        batch.add(shop.work.s(1))
    assert shop.app.current_batch() is None


def test_a_callback_knows_its_batch(server: Server, shop: Shop) -> None:
    """X-BATCH-1: and is not a member of it."""
    seen: list[Any] = []

    @shop.app.job(name="Report")
    def report() -> None:
        batch = shop.app.current_batch()
        seen.append(batch and batch.status())

    with shop.app.batch(on_complete=report.options(queue="low").s()) as batch:
        batch.add(shop.work.s(1))
    with running(shop.app, server, queues={"default": 1, "low": 1}):
        wait_until(lambda: seen, what="the callback")
    assert seen == [batch.status()]
    assert (seen[0].queue, seen[0].done) == ("low", 1)


def test_a_block_that_raises(server: Server, shop: Shop) -> None:
    """X-BATCH-7: its members are dropped, and no callback is pushed."""

    def breaks() -> None:
        with shop.batch() as batch:
            batches.append(batch)
            batch.add(shop.work.s(1), shop.work.options(keep_result=60).s(2))
            raise ZeroDivisionError

    batches: list[Batch] = []
    with pytest.raises(ZeroDivisionError):
        breaks()
    (batch,) = batches
    with pytest.raises(BatchEnded, match="is cancelled"):
        batch.add(shop.work.s(3))
    with running(shop.app, server):
        shop.ended()
    assert not shop.runs
    assert not shop.calls
    assert state(batch) == ("cancelled", 0, 2, 0)
    assert b'"cancelled"' in shop.client.get(shop.client.keys("jobwire:result:*")[0])


@pytest.mark.parametrize("place", ["queue:default", "retry"])
@pytest.mark.parametrize("how", ["inspector", "sweep", "ops", "kill", "cancel"])
def test_a_member_that_people_end(server: Server, shop: Shop, place: str, how: str) -> None:
    """X-BATCH-6: deleted alone, among others, by the page; killed; cancelled while it waits."""
    with shop.batch() as batch:
        (jid,) = batch.add(shop.work.s(1))
    (text,) = shop.client.lrange("queue:default", 0, -1)
    if place == "retry":
        shop.client.zadd("retry", {text: 5})
        shop.client.delete("queue:default")
    with Inspector(server.url) as inspector, Operations(server.url, role="operator") as operations:
        name: Any = place
        queued = place == "queue:default"
        (entry,) = list(inspector.jobs("default") if queued else inspector.entries(name))
        if how == "inspector" or (how == "kill" and queued):
            assert inspector.delete(entry)
            assert not inspector.delete(entry)
        elif how == "ops":
            assert operations.delete(entry).count == 1
        elif how == "kill":
            assert inspector.kill(entry)
        elif how == "cancel":
            assert shop.work.cancel(jid).place == "queued"
        elif queued:
            steps = sweep_queue(Keys(), "default", now=0, only=Filter())
            assert inspector.redis.run(steps).done == 1
        else:
            assert inspector.sweep(name, "delete", only=Filter()).done == 1
    assert state(batch) == ("complete", 0, 1, 0)
    killed = how == "kill" and place == "retry"
    assert shop.pushed() == Counter(["on_complete"] + ["on_death"] * killed)


@pytest.mark.parametrize("how", ["delete", "kill", "sweep", "cancel"])
def test_a_member_that_people_end_releases_its_lock(server: Server, shop: Shop, how: str) -> None:
    """X-BATCH-6, X-UNIQ-8: in the step that moves it; the lock of another job stays."""
    work = shop.work.options(unique=Unique(600, scope="while_running"))
    with shop.batch() as batch:
        jids = batch.add(work.s(1), work.s(2))
    texts = shop.client.lrange("queue:default", 0, -1)
    shop.client.delete("queue:default")
    shop.client.zadd("retry", dict.fromkeys(texts, 5))
    keys = [f"jobwire:unique:{digest('Work', 'default', [number])}" for number in (1, 2)]
    shop.client.mset({keys[0]: jids[0], keys[1]: "another"})
    with Inspector(server.url) as inspector:
        if how == "cancel":
            for jid in jids:
                assert work.cancel(jid).place == "queued"
        elif how == "sweep":
            assert inspector.sweep("retry", "kill", only=Filter()).done == 2
        else:
            act = inspector.kill if how == "kill" else inspector.delete
            for entry in list(inspector.entries("retry")):
                assert act(entry)
                assert not act(entry)
        assert state(batch) == ("complete", 0, 2, 0)
        killed = how in ("kill", "sweep")
        assert len(list(inspector.entries("dead"))) == 2 * killed
    assert shop.pushed() == Counter(["on_complete"] + ["on_death"] * killed)
    assert shop.client.mget(keys) == [None, b"another"]


@FETCH
def test_a_death_inside_an_inner_batch(server: Server, fetch: FetchMode) -> None:
    """X-BATCH-10: is told to every batch around it at once; success later reaches them as well."""
    shop = Shop(server, retry=0)
    dies = threading.Event()
    dies.set()

    def act(number: int) -> None:
        if dies.is_set() and number == 1:
            raise ValueError

    shop.act = act
    with shop.batch() as outer, shop.batch(outer, "middle ") as middle:
        with shop.batch(middle, "inner ") as inner:
            inner.add(shop.work.s(1), shop.work.s(2))
        with running(shop.app, server, fetch=fetch), Inspector(server.url) as inspector:
            names = ("", "middle ", "inner ")
            wanted = Counter([f"{name}on_death" for name in names] + ["inner on_complete"])
            wait_until(lambda: shop.calls == wanted, what="the death")
            assert [state(each) for each in (outer, middle, inner)] == [
                *(("open", 1, 0, 0), ("open", 0, 1, 0), ("complete", 0, 1, 1))
            ]
            dies.clear()
            (entry,) = inspector.entries("dead")
            assert inspector.retry(entry)
            wait_until(lambda: state(inner) == ("complete", 0, 0, 2), what="the success")
            shop.ended()
        assert state(middle) == ("open", 0, 0, 1)
    assert state(outer) == ("complete", 0, 0, 1)
    assert shop.pushed() + shop.calls == wanted + Counter(
        ["inner on_success", "on_complete", "on_success", "middle on_complete", "middle on_success"]
    )
    shop.app.close()


def test_people_see_and_end_inner_batches(server: Server, shop: Shop) -> None:
    """X-BATCH-9, X-BATCH-10: as a tree; a deletion ends every batch that ends with it."""
    with shop.batch() as outer, shop.batch(outer, "inner ") as inner:
        inner.add(shop.work.s(1))
    app = WebApp(server.url, authorize=lambda _: Visitor("ada", "admin"))
    with Inspector(server.url) as inspector, closing(app), TestClient(app) as pages:
        tree = [(depth, one.id) for depth, one in inspector.batches().nested()]
        assert tree == [(0, outer.id), (1, inner.id)]
        assert f'↳ <a href="/batches/{inner.id}">' in pages.get("/batches").text
        assert f'<a href="/batches/{outer.id}"><code>' in pages.get(f"/batches/{inner.id}").text
        assert f'<a href="/batches/{inner.id}"><code>' in pages.get(f"/batches/{outer.id}").text
        assert inspector.missing_members(outer.id).jids == []
        (entry,) = inspector.jobs("default")
        assert inspector.delete(entry)
        assert [state(each) for each in (outer, inner)] == [("complete", 0, 1, 0)] * 2
        assert shop.pushed() == {"on_complete": 1, "inner on_complete": 1}
        assert list(inspector.batch_members(outer.id).failed) == [f"batch:{inner.id}"]
        shop.client.sadd(f"jobwire:batch:{outer.id}:open", "batch:gone")
        assert inspector.missing_members(outer.id).jids == ["batch:gone"]


def test_how_deep_batches_are(shop: Shop) -> None:
    """X-BATCH-9: eight, so that a step has an end; a batch that ended takes no other."""
    with shop.batch() as outermost:
        batches = [outermost]
        for _ in range(7):
            batches.append(shop.batch(batches[-1]).__enter__())
        (jid,) = batches[-1].add(shop.work.s(1))
        with pytest.raises(ConfigError, match="is inside 7 others, and batches are at most 8 deep"):
            shop.batch(batches[-1])
        job: Any = shop.work
        with pytest.raises(ConfigError, match="is not a batch; give that of a `with` block"):
            shop.batch(job)
        assert shop.client.smembers(f"jobwire:batch:{batches[-1].id}:open") == {jid.encode()}
    for batch in reversed(batches[1:]):
        shop.app.client._produce(workflows.end_batch, batch._member, "closed")
    assert shop.work.cancel(jid).place == "queued"
    assert {state(batch) for batch in batches} == {("complete", 0, 1, 0)}
    before = set(shop.client.keys())
    with pytest.raises(BatchEnded, match=f"batch {outermost.id} is complete"):
        shop.batch(outermost).__enter__()
    assert set(shop.client.keys()) == before


def test_an_inner_batch_with_asyncio(shop: Shop) -> None:
    """X-BATCH-9: the twins."""

    async def main() -> None:
        async with shop.batch() as outer, shop.batch(outer) as inner:
            await inner.aadd(shop.work.s(1))
            assert await outer.acancel()
            with pytest.raises(BatchEnded):
                await inner.aadd(shop.work.s(2))
        await shop.app.aclose()

    asyncio.run(main())


ORDERS = [
    (order, hows)
    for order in permutations(["a", "b", "close outer", "close inner", "x"])
    for hows in product(["done", "dead", "dropped"], ["done", "dead"])
]


@pytest.mark.process
@pytest.mark.parametrize("x", ["a", "retry a", "cancel outer", "cancel inner"])
def test_every_order_of_ends(shop: Shop, x: str) -> None:
    """X-BATCH-10, X-BATCH-11: in Redis and in memory, with one end twice or a batch cancelled."""
    run = shop.app.client.redis.run
    callback = ReadyPayload("c", "q", None, b'{"class":"A","args":[]}')
    for number, (order, hows) in enumerate(ORDERS):
        outer = Membership(f"o{number}", "outer")
        inner = Membership(f"i{number}", "inner", outer)
        store = BatchStore()
        due: Counter[str] = Counter()
        places = {"a": inner, "b": outer}
        for batch in (outer, inner):
            events = {
                event: ReadyPayload(f"{batch.queue} {event}", batch.queue, None, callback.text)
                for event in EVENTS
            }
            store.make(batch, events, "")
            run(one(script_open(Keys(), batch, events, description="", now=1)))
        for jid, batch in places.items():
            job = ReadyPayload(jid, "q", None, b"{}")
            store.add(batch, [job])
            run(push_members(Keys(), batch, [job]))
        seen: Counter[str] = Counter()
        for event in (x if each == "x" else each for each in order):
            word, _, name = event.rpartition(" ")
            if word in ("close", "cancel"):
                batch = outer if name == "outer" else inner
                made = store.end(batch, "closed" if word == "close" else "cancelled") or []
                how: Any = "closed" if word == "close" else "cancelled"
                run(one(script_end(Keys(), batch, how, at="1")))
            else:
                how = "done" if word else hows[name == "b"]
                made = store.end_member(places[name], name, how)
                run(one(script_end(Keys(), places[name], how, at="1", jid=name)))
            due.update(job.jid for job in made)
            for batch in (outer, inner):
                status = run(read_status(Keys(), batch.batch))
                expected = store.status(batch.batch)
                assert status is not None
                assert expected is not None
                assert (status.state, status.open, status.failed, status.waiting) == (
                    *(expected.state, expected.open, expected.failed, expected.waiting),
                ), (order, hows, event)
                seen[batch.queue] = shop.client.llen(f"queue:{batch.queue}")
        assert max(due.values(), default=1) == 1
        assert seen.total() == due.total()
        shop.client.delete("queue:outer", "queue:inner", "queue:q")
        if "cancel" not in x:
            final = [store.status(each.batch) for each in (outer, inner)]
            assert {each and each.state for each in final} == {"complete"}
            assert due["outer on_complete"] == due["inner on_complete"] == 1
        if x == "a":
            assert due["inner on_success"] == (hows[0] == "done")
            assert due["outer on_success"] == (hows == ("done", "done"))
            assert due["outer on_death"] == ("dead" in hows)


@pytest.mark.process
def test_kill_9_of_the_worker(server: Server, workers: Workers, tmp_path: Path) -> None:
    """X-BATCH-5, X-BATCH-10, GUAR-1: the callbacks come once, after every member of each batch."""
    (tmp_path / "jobs.py").write_text(
        "import jobwire\n"
        f"app = jobwire.App({server.url!r})\n"
        "def count(name):\n"
        "    from jobwire.protocol.wire import command\n"
        "    return (yield command('INCR', name))\n"
        "@app.job(name='Work')\n"
        "def work(number):\n"
        "    app.client.redis.run(count('runs'))\n"
        "@app.job(name='Follow')\n"
        "def follow(event):\n"
        "    app.client.redis.run(count(event))\n"
    )
    shop = Shop(server)
    with shop.batch() as batch:
        for name in "abcd":
            with shop.batch(batch, name) as inner:
                inner.add_all(shop.work.s(n) for n in range(500))
    for number in range(1, 5):
        worker = workers.start("jobs:app")
        identity = worker.identity(shop.client)
        wait_until(
            lambda: int(shop.client.get("runs") or 0) > 300 * number,  # noqa: B023
            what="some runs",
        )
        worker.kill()
        shop.client.delete(identity)  # its lease is over
    workers.start("jobs:app")
    wait_until(lambda: shop.client.get("on_success"), what="the success")
    assert state(batch) == ("complete", 0, 0, 4)
    for name in ("", *"abcd"):
        wait_until(
            lambda: shop.client.mget(name + "on_complete", name + "on_success") == [b"1"] * 2,  # noqa: B023
            what="the callbacks",
        )
    assert not shop.client.exists("on_death")
    shop.app.close()


@pytest.mark.process
def test_many_members(shop: Shop) -> None:
    """X-BATCH-2: in slices; all of them are in the batch."""
    with shop.batch() as batch:
        jids = batch.add_all(shop.work.s(n) for n in range(3500))
    assert state(batch) == ("closed", 3500, 0, 0)
    assert shop.client.smembers(f"jobwire:batch:{batch.id}:open") == {j.encode() for j in jids}


def test_asyncio(server: Server) -> None:
    """X-BATCH-1: the twins."""
    shop = Shop(server)

    async def main() -> None:
        async with shop.batch() as batch:
            await batch.aadd(shop.work.s(1))
            await batch.aadd_all([shop.work.s(2)])
        found = await shop.app.afind_batch(batch.id)
        assert found is not None
        assert await found.astatus() == await batch.astatus()
        assert await shop.app.afind_batch("other") is None
        assert await found.acancel()
        with pytest.raises(BatchEnded):
            await found.aadd(shop.work.s(3))
        made = shop.batch()
        batch = await made.__aenter__()
        await made.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
        assert (await batch.astatus()).state == "cancelled"
        await shop.app.aclose()

    asyncio.run(main())


def test_a_batch_is_found_by_its_id(shop: Shop) -> None:
    """X-BATCH-1, X-BATCH-3: and is gone 30 days after its last change."""
    batch = shop.filled()
    found = shop.app.find_batch(batch.id)
    assert found is not None
    assert repr(found) == f"<Batch {batch.id}>"
    assert found.status() == batch.status()
    shop.client.delete(*shop.client.keys("jobwire:batch:*"))
    assert shop.app.find_batch(batch.id) is None
    assert not found.cancel()
    with pytest.raises(BatchEnded, match="does not exist") as raised:
        found.add(shop.work.s(1))
    assert (raised.value.batch_id, raised.value.state) == (batch.id, "")
    assert shop.client.keys("jobwire:batch:*") == []


def test_a_member_of_a_batch_that_is_gone_or_broken(server: Server, shop: Shop) -> None:
    """X-BATCH-5: ends as any other job, and leaves no keys."""
    gone, broken = shop.filled(), shop.filled()
    shop.client.delete(*shop.client.keys(f"jobwire:batch:{gone.id}*"))
    shop.client.delete(f"jobwire:batch:{broken.id}")
    shop.client.set(f"jobwire:batch:{broken.id}", "in the way")
    with running(shop.app, server):
        shop.ended()
    assert len(shop.runs) == 2
    assert shop.client.get("stat:processed") == b"2"
    assert not shop.client.keys(f"jobwire:batch:{gone.id}*")


def test_an_end_waits_for_the_queue_of_its_callbacks(server: Server, shop: Shop) -> None:
    """X-BATCH-5: nothing is stored while its key has another type, and nothing is lost."""
    with shop.app.batch(on_success=shop.follow.options(queue="low").s("on_success")) as batch:
        batch.add(shop.work.s(1))
    shop.client.set("queue:low", "in the way")
    with running(shop.app, server, queues={"default": 1}):
        wait_until(lambda: shop.runs, what="the run")
        assert state(batch) == ("closed", 1, 0, 0)
        shop.client.delete("queue:low")
        wait_until(lambda: state(batch)[0] == "complete", what="the end")
    assert shop.client.llen("queue:low") == 1
    assert shop.client.sismember("queues", "low")


def test_a_push_into_a_key_of_another_type(shop: Shop) -> None:
    """X-BATCH-2: neither job nor member."""
    shop.client.set("queue:bad", "in the way")
    with shop.batch() as batch:
        with pytest.raises(RedisRefused, match="WRONGTYPE queue:bad is not a list"):
            batch.add(shop.work.s(1), shop.work.options(queue="bad").s(2))
        assert state(batch) == ("open", 0, 0, 0)
    assert not shop.client.exists("jobwire:batch:{batch.id}:open")


def test_wishes_without_sense(shop: Shop) -> None:
    """X-BATCH-1, X-BATCH-2: refused with a reason, before anything is written."""
    low = shop.follow.options(queue="low")
    mixed = shop.app.batch(on_success=low.s("a"), on_death=shop.follow.s("b"))
    with pytest.raises(ConfigError, match="the queues default, low are not one"):
        mixed.__enter__()
    job: Any = shop.follow
    with pytest.raises(ConfigError, match=r"on_success: .* is not a job with its arguments"):
        shop.app.batch(on_success=job)
    with shop.batch() as batch:
        wrong: Any = chain(shop.work.s(1))
        with pytest.raises(TypeError, match=r"batch: chain\(.* is not a job with its arguments"):
            batch.add(wrong)
        with pytest.raises(InvalidJob, match="scope until_done cannot be in a batch"):
            batch.add(shop.work.s(1), shop.work.options(unique=60).s(1))
        batch.add(shop.work.options(unique=Unique(60, scope="while_running")).s(1))


def test_middleware(server: Server) -> None:
    """X-BATCH-2, PUSH-7: a member that it stops is left out; a callback has to pass."""
    stopped: set[str] = {"Work"}

    def stop(item: dict[str, Any], call_next: Any) -> Any:
        return None if item["class"] in stopped else call_next()

    app = App(client_middleware=[stop])
    app.connect(server.url)
    work, follow = app.job(name="Work")(lambda: None), app.job(name="Follow")(lambda: None)
    with app.batch(on_success=follow.s()) as batch:
        assert batch.add(work.s()) == []
    assert server.client().llen("queue:default") == 1
    stopped.add("Follow")
    with pytest.raises(ConfigError, match="middleware stopped Follow; let it pass"):
        app.batch(on_success=follow.s()).__enter__()
    app.close()


def test_a_push_without_a_reply_is_unsure() -> None:
    """X-BATCH-2, PUSH-8: and one that was refused names the jobs of the slices before it."""
    jobs = [ReadyPayload(str(n), "q", None, b"{}") for n in range(1001)]
    unreachable = RedisUnreachable("x")
    for confirm in (None, Confirm(1, 1.0)):
        for error, kind in [(NoReply("x"), MaybeWritten), (unreachable, RedisUnreachable)]:
            steps = push_members(Keys(), Membership("b", "q"), jobs, confirm)
            next(steps)
            steps.send(b"open" if confirm is None else [b"open"])
            with pytest.raises(kind) as raised:
                steps.throw(error)
            assert len(raised.value.written) == 1000
    assert raised.value.unsure == ()


def test_payloads_without_a_batch() -> None:
    """X-BATCH-2: a field of another form counts as none."""
    texts = [b'{"jw_batch":1', b'{"jw_batch":1}', b'["jw_batch"]', b'"jw_batch"\xff', b"{}"]
    texts += [b'{"jw_batch":{"id":"a b","queue":"q"}}', b'{"jw_batch":{"id":"a"},"jid":"j"}']
    texts += [b'{"jw_batch":{"id":"a","queue":"q"}}']
    texts += [b'{"jw_batch":{"id":"a","queue":"q","parent":1},"jid":"j"}']
    deep: Any = None
    for _ in range(9):
        deep = {"id": "a", "queue": "q", "parent": deep}
    texts += [json.dumps({"jw_batch": deep, "jid": "j"}).encode()]
    assert [member_in(text) for text in texts] == [None] * len(texts)
    for text in (b'{"class":"A","args":[]}', b'{"class":"A","args":[],"jid":"j","jw_batch":1}'):
        assert ending(Keys(), DONE, decode(text, "q"), 0, 8) == DONE
    assert batch_of({"jw_callback": {"id": "a", "queue": "q"}}) == Membership("a", "q")


def test_a_namespace(server: Server) -> None:
    """KEY-4: all keys of a batch."""
    app = App(namespace="x:")
    app.connect(server.url)
    work = app.job(name="Work")(lambda: None)
    with app.batch() as batch:
        batch.add(work.s())
    keys = {key.decode() for key in server.client().scan_iter()}
    assert {f"x:jobwire:batch:{batch.id}", f"x:jobwire:batch:{batch.id}:open"} <= keys
    assert all(key.startswith("x:") for key in keys)
    app.close()


@pytest.mark.process
def test_people_see_a_large_batch(server: Server) -> None:
    """X-BATCH-1, X-BATCH-2: its numbers, and some members of 100,000; odd keys are left out."""
    client: Any = server.client()
    client.hset("jobwire:batch:b", mapping={"state": "closed", "total": 100_002, "queue": "q"})
    for start in range(0, 100_000, 10_000):
        members = [f"{number:024x}" for number in range(start, start + 10_000)]
        client.sadd("jobwire:batch:b:open", *members)
    client.sadd("jobwire:batch:b:failed", "lost")
    client.hset(
        "jobwire:batch:odd",
        mapping={"state": b"\xff", "total": "x", "created_at": "nan", "parent": b"\xff{"},
    )
    client.hset("jobwire:batch:none", "queue", "q")
    client.set("jobwire:batch:wrong:open", "x")
    client.hset("jobwire:batch:wrong", "state", "open")
    app = WebApp(server.url, authorize=lambda _: Visitor("ada", "admin"))
    with Inspector(server.url) as inspector, closing(app), TestClient(app) as pages:
        read = inspector.batches()
        assert read.complete
        assert [(one.id, one.total) for one in read.batches] == [("b", 100_002), ("odd", 0)]
        assert not inspector.batches(limit=1).complete
        some = inspector.batch_members("b")
        assert (len(some.open), list(some.failed)) == (100, ["lost"])
        assert "2 of 100,002" in pages.get("/batches").text
        one = pages.get("/batches/b").text
        assert f'href="/jobs/{some.open[0]}"' in one
        assert "100 of 100,000" in one
        assert "Cancel this batch" in one
        assert pages.get("/batches/gone").status_code == 404
        assert inspector.cancel_batch("b")
        assert not inspector.cancel_batch("b")
        assert not inspector.cancel_batch("gone")
        assert "Cancel this batch" not in pages.get("/batches/b").text

    async def main() -> None:
        async with AsyncInspector(server.url) as inspector:
            status = await inspector.batch("b")
            assert status is not None
            assert (status.state, status.open, status.failed) == ("cancelled", 100_000, 1)

    asyncio.run(main())
