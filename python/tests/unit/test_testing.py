"""jobwire.testing without Redis: jobs that are collected, and jobs that run inline."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from jobwire import (
    App,
    Batch,
    BatchEnded,
    Cancelled,
    Client,
    ConfigError,
    InvalidJob,
    Job,
    Snooze,
    current_job,
    testing,
)
from jobwire.application.batch import NewBatch
from jobwire.errors import JobTimeout, UnknownJob
from jobwire.protocol.iteration import Cursor
from jobwire.testing import Jobs

NOWHERE = "redis://127.0.0.1:1/0"  # a connection to it fails at once


class Shop:
    """An application, and a record of its jobs' actions."""

    def __init__(self) -> None:
        self.app = app = App(NOWHERE)
        self.did: list[Any] = []
        self.threads: list[threading.Thread] = []

        @app.job(name="HardJob", queue="critical", retry=3)
        def hard(count: Any, label: Any = "x") -> None:
            self.did.append((count, label))
            self.threads.append(threading.current_thread())

        @app.job
        async def later(name: str) -> None:
            await asyncio.sleep(0)
            self.did.append((name, asyncio.get_running_loop()))

        @app.job
        def parent(depth: int) -> None:
            self.did.append(depth)
            if depth:
                parent.enqueue(depth - 1)

        @app.job
        async def aparent(depth: int) -> None:
            self.did.append(depth)
            if depth:
                await aparent.aenqueue(depth - 1)

        @app.job
        async def blocking(depth: int) -> None:
            self.did.append(depth)
            if depth:
                blocking.enqueue(depth - 1)

        @app.job
        def broken() -> None:
            raise KeyError("broken")

        self.hard, self.later, self.broken = hard, later, broken
        self.parent, self.aparent, self.blocking = parent, aparent, blocking


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def jobs(shop: Shop) -> Iterator[Jobs]:
    with testing.fake(shop.app) as jobs:
        yield jobs


# -- collecting


def test_what_is_enqueued_is_collected_as_a_worker_would_read_it(shop: Shop, jobs: Jobs) -> None:
    given = [1, 2]
    jid = shop.hard.options(tags=["a"]).enqueue(given, label="two")
    given.append(3)
    (job,) = jobs.enqueued()
    assert (job.class_name, job.jid, job.queue, job.at) == ("HardJob", jid, "critical", None)
    assert (job.args, job["tags"], job["retry"]) == ([[1, 2], "two"], ["a"], 3)
    assert job["enqueued_at"] == job["created_at"]
    assert (len(jobs), list(jobs), shop.did) == (1, [job], [])
    assert "HardJob [[1, 2], 'two'] queue=critical" in repr(jobs)


def test_jobs_are_found_by_what_was_said(shop: Shop, jobs: Jobs) -> None:
    soon, then = timedelta(minutes=5), datetime(2100, 1, 1, tzinfo=UTC)
    shop.hard.enqueue(1)
    shop.hard.options(queue="low").enqueue([1, 2])
    shop.hard.enqueue_in(90, 3)
    shop.hard.enqueue_in(soon, 4)
    shop.hard.enqueue_at(then, 5)
    shop.app.client.push("Ruby::Job", [1], queue="ruby")

    def first(**only: Any) -> list[Any]:
        return [job.args[0] for job in jobs.enqueued(**only)]

    assert len(jobs.enqueued()) == 6
    assert len(jobs.enqueued("HardJob")) == len(jobs.enqueued(shop.hard)) == 5
    assert jobs.enqueued("hard") == []
    assert first(queue="low") == [[1, 2]] == first(args=[(1, 2)])[0:1]
    assert first(args=[1]) == [1, 1]
    assert first(at=None) == [1, [1, 2], 1]
    assert [first(at=90), first(at=soon), first(at=then)] == [[3], [4], [5]]
    assert first(at=then.timestamp()) == [5]
    assert first(at=91) == []
    assert first(job="HardJob", args=[1], queue="critical", at=None) == [1]


def test_everything_is_checked_as_ever(shop: Shop, jobs: Jobs) -> None:
    """PUSH-4, PUSH-5: a job that a push would refuse is not collected."""
    with pytest.raises(InvalidJob, match="datetime"):
        shop.hard.enqueue(datetime.now(UTC))
    with pytest.raises(TypeError, match="HardJob"):
        shop.hard.enqueue()  # type: ignore[call-arg]
    with pytest.raises(InvalidJob, match="no such option"):
        shop.app.client.push("HardJob", [], nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidJob, match="job 1"):
        shop.hard.enqueue_bulk([[1], [{1}]])
    assert jobs.enqueued() == []


def test_client_middleware_runs(shop: Shop, jobs: Jobs) -> None:
    """PUSH-7: middleware changes a job, or stops it."""

    def tag(item: Any, call_next: Any) -> Any:
        item["mark"] = len(item["args"])
        return call_next() if item["args"] != [0] else None

    shop.app.client_middleware.add(tag)
    assert shop.hard.enqueue(0) is None
    assert shop.hard.enqueue(1)
    assert shop.hard.enqueue_bulk([[0], [2]])[0] is None
    assert [(job.args, job["mark"]) for job in jobs] == [([1], 1), ([2], 1)]


def test_clients_that_were_there_before_are_collected_from_and_others_are_not(shop: Shop) -> None:
    client, other = shop.app.client, Client(NOWHERE)
    with testing.fake(shop.app) as jobs:
        client.push("A")
        with pytest.raises(OSError, match="127"):
            other.push("B")
    assert [job.class_name for job in jobs] == ["A"]
    with pytest.raises(OSError, match="127"):
        client.push("A")


def test_fakes_nest_and_end_whatever_happens(shop: Shop) -> None:
    with testing.fake(shop.app) as outer:
        shop.hard.enqueue(1)
        with suppress(ZeroDivisionError), testing.fake(shop.app) as inner:
            shop.hard.enqueue(2)
            raise ZeroDivisionError
        shop.hard.enqueue(3)
    assert [[job.args[0] for job in jobs] for jobs in (outer, inner)] == [[1, 3], [2]]
    assert shop.app.transport.overrides == []


def test_each_application_has_its_own(shop: Shop) -> None:
    other = Shop()
    with testing.fake(shop.app) as mine, testing.fake(other.app) as theirs:
        shop.hard.enqueue(1)
        other.hard.enqueue(2)
    assert [job.args for job in mine] == [[1]]
    assert [job.args for job in theirs] == [[2]]


def test_asyncio_clients_are_collected_from(shop: Shop, jobs: Jobs) -> None:
    async def main() -> None:
        await shop.hard.aenqueue(1)
        await shop.hard.aenqueue_in(90, 2)
        await shop.hard.aenqueue_bulk([[3], [4]])
        await shop.app.aclient.cancel("a")

    asyncio.run(main())
    assert [job.args[0] for job in jobs] == [1, 2, 3, 4]
    assert jobs.cancelled == ["a"]


def test_all_threads_are_collected_from(shop: Shop, jobs: Jobs) -> None:
    def enqueue(number: int) -> None:
        for count in range(50):
            shop.hard.enqueue(number, count)

    threads = [threading.Thread(target=enqueue, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(jobs.enqueued()) == 200


def test_clear_forgets(shop: Shop, jobs: Jobs) -> None:
    """ITER-7: a recorded cancellation is also cleared."""
    shop.hard.enqueue_bulk([[1], [2]])
    jobs.perform_one()
    assert shop.app.client.cancel("a").at > 1_000_000_000
    assert jobs.cancelled == ["a"]
    jobs.clear()
    assert (jobs.enqueued(), jobs.performed(), jobs.cancelled, len(jobs)) == ([], [], [], 0)


# -- running


def test_one_is_performed(shop: Shop, jobs: Jobs) -> None:
    for count in (1, 2, 3):
        shop.hard.enqueue(count)
    assert jobs.perform_one().args == [1]
    assert jobs.perform_one("HardJob", args=[3]).args == [3]
    assert shop.did == [(1, "x"), (3, "x")]
    assert [job.args for job in jobs.performed()] == [[1], [3]]
    assert [job.args for job in jobs.enqueued()] == [[2]]
    with pytest.raises(LookupError, match=r"no such job waits.*HardJob \[2\]"):
        jobs.perform_one("Other")
    shop.app.client.push("Ruby::Job")
    with pytest.raises(UnknownJob, match="Ruby::Job"):
        jobs.perform_one("Ruby::Job")


def test_draining_runs_what_jobs_enqueue_and_later_ones_last(shop: Shop, jobs: Jobs) -> None:
    shop.hard.enqueue_in(90, "later")
    shop.hard.enqueue_in(30, "soon")
    shop.parent.enqueue(2)
    shop.app.client.push("Ruby::Job", [1])
    assert jobs.drain(scheduled=False) == 3
    assert shop.did == [2, 1, 0]
    assert jobs.drain() == 2
    assert shop.did[3:] == [("soon", "x"), ("later", "x")]
    assert [job.class_name for job in jobs] == ["Ruby::Job"]  # for others
    assert jobs.drain() == 0


def test_a_job_that_enqueues_itself_for_ever_is_told(shop: Shop, jobs: Jobs) -> None:
    @shop.app.job
    def again() -> None:
        again.enqueue_in(60)

    again.enqueue()
    with pytest.raises(RuntimeError, match=r"100 jobs ran .* <again \[\] .*scheduled=False"):
        jobs.drain(limit=100)
    assert len(jobs.performed()) == 100


def test_an_error_comes_out_of_the_drain(shop: Shop, jobs: Jobs) -> None:
    """The job is removed, the others wait; hooks and handlers are not called."""
    shop.broken.retry_in(lambda *_: shop.did.append("hook"))
    shop.app.on_error(lambda *_: shop.did.append("handler"))
    shop.hard.enqueue(1)
    shop.broken.enqueue()
    shop.hard.enqueue(2)
    with pytest.raises(KeyError, match="broken"):
        jobs.drain()
    assert [job.args for job in jobs] == [[2]]
    assert jobs.drain() == 1
    assert shop.did == [(1, "x"), (2, "x")]


def test_jobs_run_as_in_a_worker(shop: Shop, jobs: Jobs) -> None:
    """EXEC-6: middleware wraps wrappers, which wrap the job; `current_job` is set."""
    current: list[Job | None] = []

    def middleware(job: Job, call_next: Callable[[], Any]) -> Any:
        shop.did.append(("middleware", job.class_name))
        return call_next()

    @shop.app.wrap
    @contextmanager
    def around(job: Job) -> Iterator[None]:
        shop.did.append("in")
        yield
        shop.did.append("out")

    @shop.app.job
    def who(given: list[int]) -> None:
        current.append(current_job())
        given.append(1)

    jid = who.enqueue([0])
    shop.app.server_middleware.add(middleware)  # takes effect for the next job that runs
    job = jobs.perform_one()
    assert shop.did == [("middleware", "who"), "in", "out"]
    assert [each and each.jid for each in current] == [jid]
    assert job.args == [[0]]  # the job's changes of its arguments are not stored
    assert current_job() is None


def test_a_scheduled_job_looks_promoted_when_it_runs(shop: Shop, jobs: Jobs) -> None:
    """SCHED-5: it has an enqueued_at, in the writer's unit."""
    seen: list[Any] = []

    @shop.app.job
    def look() -> None:
        job = current_job()
        assert job is not None
        seen.append(job["enqueued_at"])

    look.enqueue_in(90)
    assert "enqueued_at" not in jobs.enqueued()[0].fields
    jobs.drain()
    assert type(seen[0]) is int
    shop.app.generation = 7
    shop.app.close()
    look.enqueue_in(90)
    jobs.drain()
    assert type(seen[1]) is float


def test_context_does_not_leak_but_what_is_propagated_arrives(shop: Shop, jobs: Jobs) -> None:
    tenant: ContextVar[str] = ContextVar("tenant")
    left: ContextVar[str] = ContextVar("left", default="nothing")
    shop.app.propagate(tenant=tenant)
    seen = []

    @shop.app.job
    def look() -> None:
        seen.append(tenant.get())
        left.set("something")

    token = tenant.set("a")
    look.enqueue()
    tenant.set("b")
    jobs.drain()
    assert (seen, tenant.get(), left.get()) == (["a"], "b", "nothing")
    tenant.reset(token)


def test_every_kind_of_job_runs(shop: Shop, jobs: Jobs) -> None:
    @shop.app.iterable()
    def items(cursor: Cursor, count: int) -> Iterator[int]:
        for number in range(count):
            yield number
            shop.did.append(number)

    @shop.app.iterable()
    async def aitems(cursor: Cursor, count: int) -> Any:
        for number in range(count):
            yield number
            shop.did.append(-number)

    @shop.app.job(isolated=True)
    def isolated() -> None:
        shop.did.append("isolated")

    @shop.app.job(timeout=0.01)
    async def slow() -> None:
        await asyncio.sleep(10)

    items.enqueue(3)
    aitems.enqueue(3)
    isolated.enqueue()
    assert jobs.drain() == 3
    assert shop.did == [0, 1, 2, 0, -1, -2, "isolated"]
    slow.enqueue()
    with pytest.raises(JobTimeout, match=r"0\.01 s"):
        jobs.drain()


_blocks = pytest.mark.filterwarnings("ignore:.*blocks its event loop")


@_blocks
@pytest.mark.parametrize("middleware", ["none", "sync", "async"])
def test_async_jobs_run_in_a_sync_test(shop: Shop, jobs: Jobs, middleware: str) -> None:
    _add_middleware(shop, middleware)
    shop.later.enqueue("a")
    shop.hard.enqueue(1)
    shop.aparent.enqueue(1)
    shop.blocking.enqueue(1)
    assert jobs.drain() == 6
    assert [each[0] for each in shop.did if isinstance(each, tuple)] == ["a", 1]
    assert shop.threads == [threading.current_thread()]


@_blocks
@pytest.mark.parametrize("middleware", ["none", "sync", "async"])
def test_async_tests_run_async_jobs_in_their_own_loop(
    shop: Shop, jobs: Jobs, middleware: str
) -> None:
    _add_middleware(shop, middleware)

    async def main() -> None:
        await shop.later.aenqueue("a")
        await shop.hard.aenqueue(1)
        await shop.aparent.aenqueue(1)
        assert (await jobs.aperform_one("later")).args == ["a"]
        assert shop.did == [("a", asyncio.get_running_loop())]
        assert await jobs.adrain() == 3
        assert shop.did[1:] == [(1, "x"), 1, 0]
        shop.broken.enqueue()
        with pytest.raises(KeyError):
            await jobs.adrain()
        with pytest.raises(LookupError):
            await jobs.aperform_one()
        shop.later.enqueue("b")
        assert jobs.drain() == 1  # blocks the loop, so the job runs in another

    asyncio.run(main())
    assert shop.threads != [threading.current_thread()]


def _add_middleware(shop: Shop, kind: str) -> None:
    def sync(job: Job, call_next: Callable[[], Any]) -> Any:
        return call_next()

    async def later(job: Job, call_next: Callable[[], Awaitable[Any]]) -> Any:
        return await call_next()

    if kind != "none":
        shop.app.server_middleware.add(sync if kind == "sync" else later)


# -- inline


def test_inline_runs_at_once_whenever_it_is_scheduled(shop: Shop) -> None:
    shop.app.strict_args = "off"
    with testing.inline(shop.app) as jobs:
        assert shop.hard.enqueue((1, 2))  # a list by then
        shop.hard.enqueue_in(90, 3)
        shop.hard.enqueue_bulk([[4], [5]])
        shop.app.client.push("Ruby::Job")
        shop.parent.enqueue(1)
    assert shop.did == [([1, 2], "x"), (3, "x"), (4, "x"), (5, "x"), 1, 0]
    assert [job.class_name for job in jobs] == ["Ruby::Job"]
    assert [job.args[0] for job in jobs.performed("HardJob")] == [[1, 2], 3, 4, 5]


def test_inline_errors_come_out_of_enqueue(shop: Shop) -> None:
    @shop.app.job
    def picky(number: int) -> None:
        shop.did.append(10 // number)

    with testing.inline(shop.app) as jobs:
        with pytest.raises(KeyError, match="broken"):
            shop.broken.enqueue()
        with pytest.raises(ZeroDivisionError):
            picky.enqueue_bulk([[1], [0], [2]])
        assert (shop.did, [job.args for job in jobs]) == ([10], [[2]])
        assert jobs.drain() == 1


@_blocks
@pytest.mark.parametrize("middleware", ["none", "sync", "async"])
def test_inline_runs_async_jobs_from_anywhere(shop: Shop, middleware: str) -> None:
    """It also works if a job blocks the loop in which it enqueues another."""
    _add_middleware(shop, middleware)

    async def main() -> asyncio.AbstractEventLoop:
        await shop.later.aenqueue("here")
        await shop.aparent.aenqueue(2)
        await shop.parent.aenqueue(2)
        await shop.later.aenqueue_bulk([["1"], ["2"]])
        await shop.blocking.aenqueue(2)
        shop.blocking.enqueue(2)
        with pytest.raises(KeyError):
            await shop.broken.aenqueue()
        return asyncio.get_running_loop()

    with testing.inline(shop.app):
        shop.blocking.enqueue(3)
        shop.aparent.enqueue(2)
        assert shop.did == [3, 2, 1, 0, 2, 1, 0]
        shop.did.clear()
        loop = asyncio.run(main())
    assert [shop.did[0], *shop.did[7:9]] == [("here", loop), ("1", loop), ("2", loop)]
    assert shop.did[1:7] == shop.did[9:] == [2, 1, 0, 2, 1, 0]


# -- async client middleware


async def mark(item: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:
    await asyncio.sleep(0)
    item["marks"] = [*item.get("marks", []), "async"]
    return await call_next()


def pass_on(item: Any, call_next: Callable[[], Any]) -> Any:
    item["marks"] = [*item.get("marks", []), "sync"]
    return call_next()


class Mark:
    async def __call__(self, item: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:
        return await mark(item, call_next)


class Pass:
    def __call__(self, item: Any, call_next: Callable[[], Any]) -> Any:
        return pass_on(item, call_next)


def test_async_client_middleware_is_awaited(shop: Shop, jobs: Jobs) -> None:
    """PUSH-7: in any order with sync middleware, for one job and for many."""

    async def main() -> None:
        chains: list[list[Any]] = [[mark], [mark, pass_on], [pass_on, mark]]
        for chain in [*chains, [mark, pass_on, Mark, Pass]]:
            shop.app.client_middleware.clear()
            shop.app.client_middleware += chain
            assert await shop.hard.aenqueue(1)
            assert None not in await shop.hard.aenqueue_bulk([[1], [2]])

    asyncio.run(main())
    marks = [",".join(word[0] for word in job["marks"]) for job in jobs]
    assert marks == [each for each in ("a", "a,s", "s,a", "a,s,a,s") for _ in range(3)]


def test_async_client_middleware_stops_jobs_and_raises(shop: Shop, jobs: Jobs) -> None:
    class Stop:
        async def __call__(self, item: Any, call_next: Any) -> Any:
            if item["args"] == [0]:
                raise KeyError("no")
            return None

    shop.app.client_middleware += [pass_on, Stop]

    async def main() -> None:
        assert await shop.hard.aenqueue(1) is None
        assert await shop.hard.aenqueue_bulk([[1], [2]]) == [None, None]
        with pytest.raises(KeyError):
            await shop.hard.aenqueue(0)

    asyncio.run(main())
    assert jobs.enqueued() == []


def test_a_sync_client_refuses_async_middleware(shop: Shop, jobs: Jobs) -> None:
    """PUSH-7: the first push raises, with any other middleware around it."""
    for chain in ([mark], [pass_on, mark], [mark, pass_on]):
        shop.app.client_middleware.clear()
        shop.app.client_middleware += chain
        with pytest.raises(
            ConfigError, match=r"mark at .* is async, so it works only with asyncio"
        ):
            shop.hard.enqueue(1)
        with pytest.raises(ConfigError, match="is async"):
            shop.hard.enqueue_bulk([[1]])
    assert jobs.enqueued() == []


def test_sync_middleware_has_to_return_the_promise_of_an_async_one(shop: Shop, jobs: Jobs) -> None:
    """PUSH-7: otherwise a job that middleware stopped would be written."""

    def looks(item: Any, call_next: Callable[[], Any]) -> Any:
        call_next()
        return item

    def fails(item: Any, call_next: Callable[[], Any]) -> Any:
        return call_next()["jid"]

    async def main() -> None:
        shop.app.client_middleware += [looks, mark]
        with pytest.raises(ConfigError, match=r"looks at .* must return call_next\(\) unchanged"):
            await shop.hard.aenqueue(1)
        shop.app.client_middleware.clear()
        shop.app.client_middleware += [fails, mark]
        with pytest.raises(TypeError):
            await shop.hard.aenqueue(1)
        shop.app.client_middleware.clear()
        shop.app.client_middleware += [mark, looks]
        assert await shop.hard.aenqueue(1)

    asyncio.run(main())
    assert len(jobs) == 1


def test_middleware_that_is_added_later_counts_from_the_next_push(shop: Shop, jobs: Jobs) -> None:
    """PUSH-7: also for a client that has pushed and cached a template."""
    client = shop.app.client
    for _ in range(2):
        client.push("A")
    shop.app.client_middleware.add(pass_on)
    client.push("A")
    shop.app.client_middleware.remove(pass_on)
    client.push("A")
    assert [job.get("marks") for job in jobs] == [None, None, ["sync"], None]


class Album:
    """An application with a batch, whose members can fail."""

    def __init__(self) -> None:
        self.app = App()
        self.error: BaseException | None = None
        self.batch: Batch | None = None

        @self.app.job(name="Work")
        def work(number: int) -> None:
            if number == 0:
                self.batch = self.app.current_batch()
                assert self.batch is not None
                self.batch.add(self.work.s(7))
            if self.error is not None:
                raise self.error

        @self.app.job(name="Follow")
        async def follow(event: str) -> None: ...

        self.work, self.follow = work, follow

    def open(self) -> NewBatch:
        names = ("on_success", "on_complete", "on_death")
        events: Any = {name: self.follow.s(name) for name in names}
        return self.app.batch(**events, description="album")


def events(jobs: testing.Jobs) -> list[str]:
    return [job.args[0] for job in (*jobs.performed("Follow"), *jobs.enqueued("Follow"))]


def test_a_batch_in_memory_succeeds() -> None:
    """X-BATCH-2 to X-BATCH-5: members from inside count, callbacks follow the last member."""
    album = Album()
    with testing.fake(album.app) as jobs:
        with album.open() as batch:
            batch.add(album.work.s(1), album.work.s(0))
            assert jobs.drain() == 3
            assert events(jobs) == []
            status = batch.status()
            assert status is not None
            assert (status.state, status.total, status.open, status.done) == ("open", 3, 0, 3)
        assert events(jobs) == ["on_complete", "on_success"]
        for callback in jobs.enqueued("Follow"):
            assert abs(callback["enqueued_at"] / 1000 - time.time()) < 60
        assert jobs.drain() == 2
        assert album.batch is not None
        assert album.batch.id == batch.id
        with pytest.raises(BatchEnded, match="complete"):
            batch.add(album.work.s(1))
        found = album.app.find_batch(batch.id)
        assert found is not None
        jobs.clear()
        assert album.app.find_batch(batch.id) is None
        assert not batch.cancel()
        with pytest.raises(BatchEnded):
            batch.add(album.work.s(1))


def test_a_member_in_memory_dies_waits_again_or_is_dropped() -> None:
    """X-BATCH-5, X-BATCH-7: an error is a death; a snooze is not an end."""
    album = Album()
    with testing.fake(album.app) as jobs:
        with album.open() as batch:
            batch.add(*map(album.work.s, range(1, 5)))
        for error in (Snooze(5), ValueError("no"), Cancelled(), KeyError("again")):
            album.error = error
            with pytest.raises(type(error)):
                jobs.perform_one("Work")
        status = batch.status()
        assert status is not None
        assert (status.state, status.open, status.failed) == ("closed", 1, 3)
        assert events(jobs) == ["on_death"]
    with testing.fake(album.app) as jobs:
        album.error = None
        with album.open() as batch:
            batch.add(album.work.s(1), album.work.s(2))
        jobs.perform_one("Work")
        assert batch.cancel()
        jobs.drain()
        assert len(jobs.performed("Work")) == 1
        assert events(jobs) == []
        status = batch.status()
        assert status is not None
        assert (status.state, status.open, status.failed) == ("cancelled", 0, 1)


def test_batches_run_inline() -> None:
    """X-BATCH-4: members when they are added, callbacks at the end of the block, and in asyncio."""
    album = Album()
    with testing.inline(album.app) as jobs:
        with album.open() as batch:
            batch.add(album.work.s(0), album.work.s(1))
            assert [job.args for job in jobs.performed("Work")] == [[0], [7], [1]]
            assert events(jobs) == []
        assert events(jobs) == ["on_complete", "on_success"]
        assert not jobs

        async def main() -> None:
            async with album.open() as batch:
                await batch.aadd(album.work.s(2))
                status = await batch.astatus()
                assert status is not None
                assert status.done == 1
            with pytest.raises(RuntimeError):
                async with album.open() as batch:
                    raise RuntimeError
            status = await batch.astatus()
            assert status is not None
            assert status.state == "cancelled"

        jobs.clear()
        asyncio.run(main())
        assert events(jobs) == ["on_complete", "on_success"]
    with testing.strict(album.app), pytest.raises(AssertionError, match="used a batch in Redis"):
        album.open().__enter__()


BERLIN = ZoneInfo("Europe/Berlin")
YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def make() -> App:
    app = App()

    @app.periodic("0 3 * * *", tz="Europe/Berlin", args=["all"])
    @app.periodic("0 0 1 * *", name="monthly", args=["one"], date_as_argument=False)
    @app.job(name="Nightly")
    def nightly(region: str) -> None: ...

    @app.periodic("0 * * * *", enabled=False)
    @app.job(name="Off")
    def off() -> None: ...

    return app


def test_a_year_of_ticks() -> None:
    """X-CRON-10: in the order of time; the disabled entry has none."""
    ticks = list(testing.periodic_ticks(make(), YEAR, timedelta(days=365)))
    assert len(ticks) == 365 + 12
    assert [tick.at for tick in ticks] == sorted(tick.at for tick in ticks)
    assert {tick.name for tick in ticks} == {"Nightly", "monthly"}
    local = [tick.at.astimezone(BERLIN).hour for tick in ticks if tick.args == ["all"]]
    assert set(local) == {3}


def test_one_entry_between_two_times() -> None:
    """Its start counts, its end does not."""
    end = YEAR.replace(month=3)
    ticks = testing.periodic_ticks(make(), YEAR, end, name="monthly")
    assert [(tick.at, tick.job, tick.args) for tick in ticks] == [
        (YEAR, "Nightly", ["one"]),
        (YEAR.replace(month=2), "Nightly", ["one"]),
    ]


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="no periodic job 'nigthly'"):
        list(testing.periodic_ticks(make(), YEAR, timedelta(1), name="nigthly"))
    with pytest.raises(ConfigError, match="no time zone"):
        list(testing.periodic_ticks(make(), datetime(2026, 1, 1), timedelta(1)))


def test_definitions_are_checked_where_they_stand() -> None:
    """X-CRON-43: the line, the zone and the arguments."""
    app = App()

    @app.job(name="A")
    def job(number: int) -> None: ...

    with pytest.raises(ConfigError, match="is not supported"):
        app.periodic("daily?", args=[1])(job)
    with pytest.raises(ConfigError, match="time zone 'Nowhere'"):
        app.periodic("@daily", tz="Nowhere", args=[1])(job)
    with pytest.raises(TypeError, match="number"):
        app.periodic("@daily")(job)
    with pytest.raises(ConfigError, match=r"put it above @app.job"):
        app.periodic("@daily")(print)  # type: ignore[type-var]
    assert app.periodic_entries == []
