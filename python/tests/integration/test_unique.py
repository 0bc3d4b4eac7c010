"""Unique jobs: one lock for a key, taken with the push, released with the end. [X-UNIQ-1]"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import (
    App,
    DuplicateJob,
    Filter,
    Inspector,
    InvalidJob,
    PushBuffer,
    Unique,
    testing,
)
from jobwire.application.config import FetchMode
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError, MaybeWritten, NoReply, RedisRefused
from jobwire.inspect import AsyncInspector
from jobwire.inspect.sets import sweep_queue
from jobwire.ops import Operations
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.pushing import push, replace
from jobwire.protocol.removal import removing
from jobwire.protocol.unique import Lock, Scope, digest, held_by, lock_in
from jobwire.protocol.wire import Batch, Confirm, Op, Script, command
from tests.integration.clients import push_job
from tests.workers import Workers, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
LOCKS = "jobwire:unique:*"


def locks(server: Server) -> dict[str, str]:
    """Return the locks: digest to job id."""
    client: Any = server.client()
    return {
        key.decode().rpartition(":")[2]: holder.decode()
        for key in client.keys(LOCKS)
        if (holder := client.get(key)) is not None  # released meanwhile
    }


def app_with(server: Server, unique: Unique | float = 60, **options: Any) -> tuple[App, Any]:
    """Return an application with the job `Work(number)`, which returns it."""
    app = App()
    job = app.job(name="Work", unique=unique, **options)(lambda number: number)
    app.connect(server.url)
    return app, job


def test_a_duplicate_is_refused_with_the_id_of_the_first(server: Server) -> None:
    """X-UNIQ-2, X-UNIQ-3, X-UNIQ-4: one lock for class, queue and arguments, with its bound."""
    app, job = app_with(server, 60.5)
    client: Any = server.client()
    first = job.enqueue(1)
    with pytest.raises(DuplicateJob, match=f"Work: job {first} has the same unique key") as caught:
        job.enqueue(1)
    assert (caught.value.jid, caught.value.job_class) == (first, "Work")
    key = digest("Work", "default", [1])
    payload = json.loads(client.lindex("queue:default", 0))
    assert payload["jw_unique"] == {"digest": key, "scope": "until_done", "seconds": 60.5}
    assert locks(server) == {key: first}
    assert 0 < client.pttl(f"jobwire:unique:{key}") <= 60_500
    job.enqueue(2)
    job.options(queue="low").enqueue(1)
    assert (client.llen("queue:default"), client.llen("queue:low")) == (2, 1)
    assert client.smembers("queues") == {b"default", b"low"}
    app.close()


def test_a_dropped_duplicate_is_none_and_a_bulk_push_says_which(server: Server) -> None:
    """X-UNIQ-4: also for two jobs of one bulk push."""
    app, job = app_with(server, Unique(60, duplicate="drop"))
    client: Any = server.client()
    assert job.enqueue(1)
    assert job.enqueue(1) is None
    jids = job.enqueue_bulk([[1], [2], [2], [3]])
    assert [jid is None for jid in jids] == [True, False, True, False]
    assert client.llen("queue:default") == 3
    app.close()


def test_the_key_is_of_the_chosen_arguments(server: Server) -> None:
    """X-UNIQ-1: names, positions and a function; also for one push."""
    app = App()

    @app.job(name="Sync", unique=Unique(60, by=["user"]))
    def sync(why: str, user: int = 0) -> None:
        raise NotImplementedError

    app.connect(server.url)
    sync.enqueue("a", 7)
    with pytest.raises(DuplicateJob):
        sync.enqueue("b", user=7)
    sync.enqueue("b", 8)
    assert digest("Sync", "default", [7]) in locks(server)
    by_function = sync.options(unique=Unique(60, by=lambda why, user: {"b": user, "a": why[0]}))
    by_function.enqueue("xy", 1)
    assert digest("Sync", "default", {"a": "x", "b": 1}) in locks(server)
    app.client.push("Sync", ["z", 9], unique=Unique(60, by=[-1]))
    assert digest("Sync", "default", [9]) in locks(server)
    sync.options(unique=Unique(60, by=["user"])).enqueue("left out")
    assert digest("Sync", "default", [None]) in locks(server)
    with pytest.raises(ConfigError, match="'other' is not a parameter"):
        sync.options(unique=Unique(60, by=["other"]))
    with pytest.raises(InvalidJob, match="only a job type knows names"):
        app.client.push("Sync", ["z", 9], unique=Unique(60, by=["user"]))
    with pytest.raises(InvalidJob, match="which JSON cannot write"):
        app.client.push("Sync", ["z"], unique=Unique(60, by=lambda why: object()))
    app.close()


def test_an_active_job_is_known_by_its_own_class_and_arguments(server: Server) -> None:
    """X-UNIQ-1: each payload has another id inside."""
    app = App()
    app.connect(server.url)
    app.client.push_active_job("WelcomeJob", [1], unique=60)
    with pytest.raises(DuplicateJob):
        app.client.push_active_job("WelcomeJob", [1], unique=60)
    assert list(locks(server)) == [digest("WelcomeJob", "default", [1])]
    app.close()


def test_a_refused_push_takes_no_lock(server: Server) -> None:
    """X-UNIQ-3: a key of another type refuses the whole call."""
    app, job = app_with(server)
    client: Any = server.client()
    client.set("queue:default", "x")
    with pytest.raises(RedisRefused, match="WRONGTYPE queue:default is not a list"):
        job.enqueue(1)
    assert not client.keys(LOCKS)
    client.delete("queue:default")
    client.rpush(f"jobwire:unique:{digest('Work', 'default', [1])}", "x")
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        job.enqueue(1)
    assert not client.exists("queue:default")
    app.close()


@pytest.mark.parametrize("place", ["queue", "schedule", "retry"])
def test_a_waiting_job_is_replaced(server: Server, place: str) -> None:
    """X-UNIQ-10: the first goes and the second comes, with the lock."""
    app, job = app_with(server, Unique(60, duplicate="replace"))
    client: Any = server.client()
    first = job.enqueue_in(3600, 1) if place == "schedule" else job.enqueue(1)
    if place == "retry":
        client.zadd("retry", {client.lpop("queue:default"): 5})
    second = job.enqueue(1)
    assert second != first
    assert locks(server) == {digest("Work", "default", [1]): second}
    assert [json.loads(text)["jid"] for text in client.lrange("queue:default", 0, -1)] == [second]
    assert not client.exists("schedule", "retry")
    assert job.enqueue_bulk([[1], [2]])[0]
    assert client.llen("queue:default") == 2
    app.close()


@pytest.mark.parametrize("buffer", [False, True])
def test_a_running_job_is_not_replaced(server: Server, buffer: bool) -> None:
    """X-UNIQ-10: the caller learns its id."""
    app = App(buffer=PushBuffer() if buffer else None)
    begun, goes_on = threading.Event(), threading.Event()

    @app.job(name="Work", unique=Unique(60, duplicate="replace"))
    def work(number: int) -> None:
        begun.set()
        assert goes_on.wait(60)

    with running(app, server):
        jid = work.enqueue(1)
        assert begun.wait(60)
        with pytest.raises(DuplicateJob, match=str(jid)):
            work.enqueue(1)
        goes_on.set()
        wait_until(lambda: not locks(server), what="the end")


@FETCH
def test_a_job_that_is_put_back_keeps_the_lock(server: Server, fetch: FetchMode) -> None:
    """X-UNIQ-6: at the stop of a worker."""
    app = App()
    begun, goes_on = threading.Event(), threading.Event()

    @app.job(name="Work", unique=3600)
    def work(number: int) -> None:
        begun.set()
        while not goes_on.is_set():
            time.sleep(0.01)  # not in `threading`, where a stop does not interrupt a job

    client: Any = server.client()
    with running(app, server, fetch=fetch, timeout=0.1):
        work.enqueue(1)
        assert begun.wait(60)
    assert client.llen("queue:default") == 1
    assert locks(server)
    goes_on.set()
    with running(app, server, fetch=fetch):
        wait_until(lambda: not locks(server), what="the end")


@FETCH
@pytest.mark.parametrize("scope", ["until_start", "for_time"])
def test_other_scopes_of_a_push(server: Server, fetch: FetchMode, scope: Scope) -> None:
    """X-UNIQ-6: until the first start, or for the whole time."""
    app = App()
    seen: list[bool] = []

    @app.job(name="Work", unique=Unique(3600, scope=scope))
    def work(number: int) -> None:
        seen.append(bool(locks(server)))

    client: Any = server.client()
    app.connect(server.url)
    work.enqueue(1)
    with pytest.raises(DuplicateJob):
        work.enqueue(1)
    with running(app, server, fetch=fetch):
        wait_until(lambda: client.get("stat:processed") or seen, what="the job")
    assert seen == [scope == "for_time"]
    assert bool(locks(server)) is (scope == "for_time")


def test_jobs_with_one_key_run_one_after_the_other(server: Server) -> None:
    """X-UNIQ-9: the second is put off, uncounted, and runs after the first."""
    app = App()
    begun: list[int] = []
    goes_on = threading.Event()

    @app.job(name="Work", unique=Unique(3600, by=[], scope="while_running"))
    def work(number: int) -> None:
        begun.append(number)
        assert goes_on.wait(60)

    client: Any = server.client()
    with running(app, server, poll_interval=0.1):
        work.enqueue(1)
        wait_until(lambda: begun, what="the first")
        second = work.enqueue(2)
        wait_until(lambda: client.zcard("schedule"), what="the second to be put off")
        (member,) = client.zrange("schedule", 0, -1)
        assert json.loads(member)["jid"] == second
        assert len(locks(server)) == 1
        assert begun == [1]
        goes_on.set()
        wait_until(lambda: not locks(server), what="the end of the first")
        client.zadd("schedule", {member: 5})
        wait_until(lambda: begun == [1, 2] and not locks(server), what="the second")
    assert client.get("stat:processed") == b"2"


def test_a_lock_that_is_broken_stops_no_job(server: Server) -> None:
    """X-UNIQ-7: a key of another type; and values of the field that have no sense."""
    app = App()
    ran: list[int] = []
    app.job(name="Work")(ran.append)
    client: Any = server.client()
    with running(app, server):
        for number, value in enumerate([
            {"digest": "a" * 64, "scope": "until_done", "seconds": 60},
            {"digest": "a" * 64, "scope": "until_start", "seconds": 60},
            {"digest": "A" * 64, "scope": "until_done", "seconds": 60},
            {"digest": "a" * 64, "scope": "until_done", "seconds": 0},
            {"digest": "a" * 64, "scope": "until_done", "seconds": True},
            {"digest": "a" * 64, "scope": ["x"], "seconds": 60},
            "a" * 64,
            None,
        ]):  # fmt: skip
            client.rpush("jobwire:unique:" + "a" * 64, "x")
            push_job(server, "Work", number, jw_unique=value)
        wait_until(lambda: len(ran) == 8, what="the jobs")


@pytest.mark.process
def test_a_recovered_job_has_the_lock_of_the_killed_process(
    server: Server, workers: Workers, tmp_path: Path
) -> None:
    """X-UNIQ-6: kill -9 neither frees nor doubles; another process runs the job and releases."""
    (tmp_path / "jobs.py").write_text(
        "import time\nimport jobwire\n"
        f"app = jobwire.App({server.url!r})\n"
        "@app.job(name='Work', unique=3600)\n"
        "def work(number):\n"
        "    while not app.client.redis.run(asked()):\n"
        "        time.sleep(0.02)\n"
        "def asked():\n"
        "    from jobwire.protocol.wire import command\n"
        "    return (yield command('EXISTS', 'go'))\n"
    )
    app, job = app_with(server)
    client: Any = server.client()
    jid = job.enqueue(1)
    first = workers.start("jobs:app")
    identity = first.identity(client)
    wait_until(lambda: client.hlen(f"jobwire:private:{identity}"), what="the job to be taken")
    first.kill()
    client.delete(identity)  # its lease is over
    assert list(locks(server).values()) == [jid]
    second = workers.start("jobs:app")
    wait_until(
        lambda: client.hlen(f"jobwire:private:{second.identity(client)}"), what="the recovery"
    )
    with pytest.raises(DuplicateJob, match=str(jid)):
        job.enqueue(1)
    client.set("go", "1")
    wait_until(lambda: not locks(server), what="the end")
    assert job.enqueue(1) != jid
    app.close()


def test_asyncio(server: Server) -> None:
    """X-UNIQ-4: the twins of the asyncio client."""
    app, job = app_with(server, Unique(60, duplicate="replace"))

    async def main() -> None:
        first = await job.aenqueue(1)
        second = await job.aenqueue(1)
        assert second not in (first, None)
        drop = job.options(unique=Unique(60, duplicate="drop"))
        assert await drop.aenqueue(1) is None
        assert await drop.aenqueue_bulk([[1]]) == [None]
        with pytest.raises(DuplicateJob, match=str(second)):
            await job.options(unique=60).aenqueue(1)
        await app.aclose()

    asyncio.run(main())


def test_a_job_that_was_kept_is_left_out_later(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """X-UNIQ-4: a push that a caller no longer waits for says so in the log."""
    app, job = app_with(server)
    with testing.fake(app) as jobs:
        job.enqueue(1)
    (waiting,) = jobs
    first = job.enqueue(1)
    kept = ReadyPayload(waiting.jid or "", "default", None, waiting.text, lock_in(waiting.text))
    with caplog.at_level("INFO", "jobwire.client"):
        app.client.write([kept, ReadyPayload("f" * 24, "default", None, b"without a lock")])
    assert f"job {waiting.jid} is left out: job {first} has the same unique key" in caplog.text
    client: Any = server.client()
    assert client.llen("queue:default") == 2
    app.close()


def test_a_namespace(server: Server) -> None:
    """X-UNIQ-3: the lock is in it as well."""
    app = App(namespace="shop:")
    app.connect(server.url)
    app.client.push("Work", [1], unique=60)
    client: Any = server.client()
    assert client.exists(Keys("shop:").unique(digest("Work", "default", [1])))
    app.close()


@pytest.mark.parametrize("scope", ["until_done", "until_start", "for_time", "while_running"])
def test_jobs_in_memory(scope: Scope) -> None:
    """X-UNIQ-4: the same answers without a server."""
    app = App()
    inside: list[object] = []

    @app.job(name="Work", unique=Unique(60, scope=scope, duplicate="drop"))
    def work(number: int) -> None:
        inside.append(work.enqueue(number) if len(inside) < 1 else None)
        if number == 13:
            raise ValueError("unlucky")

    with testing.fake(app) as jobs:
        assert work.enqueue(1)
        assert (work.enqueue(1) is None) is (scope != "while_running")
        jobs.perform_one()
        assert (inside == [None]) is (scope in ("until_done", "for_time"))
        jobs.clear()
        work.enqueue(13)
        with pytest.raises(ValueError, match="unlucky"):
            jobs.perform_one()
        assert (work.enqueue(13) is None) is (scope == "for_time")
        jobs.clear()
        asyncio.run(in_loop(work, jobs))
        jobs.clear()
        first = work.enqueue(1)
        replacing = work.options(unique=Unique(60, scope=scope, duplicate="replace"))
        second = replacing.enqueue(1)
        left = [job.jid for job in jobs]
        assert left == ([first, second] if scope == "while_running" else [second])
    with testing.inline(app):
        assert work.enqueue(2)
        assert (work.enqueue(2) is None) is (scope == "for_time")


async def in_loop(work: Any, jobs: testing.Jobs) -> None:
    """Run a job from asyncio."""
    await work.aenqueue(3)
    await jobs.aperform_one()
    held = await work.aenqueue(3) is None
    assert held is (work.defaults["unique"].scope == "for_time")


def test_wishes_without_sense() -> None:
    """X-UNIQ-1: each names the value, the rule and the fix."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"seconds": 0}, "seconds 0 is not a number of seconds between 0 and 1000000000"),
        ({"seconds": "5"}, "seconds '5'"),
        ({"seconds": True}, "seconds True"),
        ({"seconds": 5, "scope": "ever"}, "scope 'ever' is not one of until_done"),
        ({"seconds": 5, "duplicate": "later"}, "duplicate 'later' is not one of raise"),
        ({"seconds": 5, "by": "user"}, "by 'user' is not a function and not a list"),
        ({"seconds": 5, "by": [1.5]}, r"by \[1.5\] is not"),
    ]
    for values, problem in wrong:
        with pytest.raises(ConfigError, match=problem):
            Unique(**values)
    app = App()
    with pytest.raises(ConfigError, match="unique: 0 is not between"):
        app.job(name="Work", unique=0)(lambda: None)


@pytest.mark.parametrize("place", ["queue:default", "schedule", "retry"])
@pytest.mark.parametrize("how", ["inspector", "sweep", "ops", "kill"])
def test_a_job_that_people_delete_releases_the_lock(server: Server, place: str, how: str) -> None:
    """X-UNIQ-8: alone, among others, by the page, and by its death; locks of others stay."""
    app, job = app_with(server)
    plain = app.job(name="Plain")(lambda: None)
    client: Any = server.client()
    if place == "queue:default":
        job.enqueue(1)
        plain.enqueue()
    else:
        job.enqueue_in(3600, 1)
        plain.enqueue_in(3600)
        if place == "retry":
            client.rename("schedule", "retry")
    with Inspector(server.url) as inspector, Operations(server.url, role="operator") as operations:
        name: Any = place
        queued = place == "queue:default"
        entries = list(inspector.jobs("default") if queued else inspector.entries(name))
        (one,) = [each for each in entries if each.display_class == "Work"]
        if how == "inspector":
            assert inspector.delete(one)
        elif how == "ops":
            assert operations.delete(one).count == 1
        elif how == "kill" and not queued:
            assert inspector.kill(one)
            assert client.zrange("dead", 0, -1) == [one.payload]
            assert not client.zscore(place, one.payload)
            assert not inspector.kill(one)
        elif queued:
            steps = sweep_queue(Keys(), "default", now=0, only=Filter())
            assert inspector.redis.run(steps).done == 2
        else:
            assert inspector.sweep(name, "delete", only=Filter()).done == 2
        assert not locks(server)
        assert job.enqueue(1)
        assert not inspector.delete(one) or how == "kill"
        assert len(locks(server)) == 1
    app.close()


def test_people_see_locks_with_their_jobs(server: Server) -> None:
    """X-UNIQ-3: by place, in the limits; odd keys are not locks."""
    app, job = app_with(server)
    client: Any = server.client()
    places = {}
    for number, place in enumerate(["queue:default", "schedule", "retry", "private", "gone"]):
        jid = job.enqueue_in(3600, number) if place == "schedule" else job.enqueue(number)
        places[jid] = place
        if place == "retry":
            client.zadd("retry", {client.lpop("queue:default"): 5})
        elif place == "private":
            client.sadd("jobwire:owners", "a")
            client.hset("jobwire:private:a", "1:default", client.lpop("queue:default"))
        elif place == "gone":
            client.lpop("queue:default")
    client.set("jobwire:unique:odd", "x")
    client.rpush(f"jobwire:unique:{'a' * 64}", "x")
    client.set(f"jobwire:unique:{'b' * 64}", "x")
    with Inspector(server.url) as inspector:
        read = inspector.locks()
        assert read.complete
        found = {lock.jid: lock.job.place if lock.job else "gone" for lock in read.locks}
        assert found == {**places, "x": "gone"}
        assert [lock.jid for lock in read.locks] == sorted(found)
        for lock in read.locks:
            assert (lock.expires_in is None) == (lock.jid == "x")
            alone = inspector.lock(lock.digest)
            assert alone is not None
            assert (alone.jid, alone.job) == (lock.jid, None)
        some = inspector.locks(limit=2)
        assert (len(some.locks), some.complete) == (2, False)
        client.mset({f"other {number}": 1 for number in range(4000)})
        assert not inspector.locks(examine=1).complete
        assert inspector.lock("c" * 64) is None
        (first, *_) = read.locks
        assert inspector.unlock(first)
        assert not inspector.unlock(first)
        assert not client.exists(f"jobwire:unique:{first.digest}")

    async def main() -> None:
        async with AsyncInspector(server.url) as inspector:
            (first, *_) = (await inspector.locks()).locks
            assert (await inspector.lock(first.digest) or read.locks[0]).jid == first.jid
            assert await inspector.unlock(first)

    asyncio.run(main())
    app.close()


def test_the_lock_of_a_job_is_explained(server: Server) -> None:
    """X-UNIQ-9: the job that has it, the job that waits for it, and neither."""
    app, job = app_with(server)
    client: Any = server.client()
    first = str(job.enqueue(1))
    running = job.options(unique=Unique(60, scope="while_running"))
    waiting = [str(running.enqueue(2)), str(running.enqueue_in(60, 2))]
    with Operations(server.url) as operations:

        def lock_reasons(jid: str) -> list[str]:
            reasons = operations.explain(jid).reasons
            sentences = [one.sentence for one in reasons if "lock" in one.code]
            return [re.sub(r"for \d+ s more", "for a while", each) for each in sentences]

        assert lock_reasons(waiting[0]) == []
        client.set(f"jobwire:unique:{digest('Work', 'default', [2])}", waiting[0])
        assert lock_reasons(first) == [
            "It has the lock of its unique key for a while, so duplicates are refused."
        ]
        assert lock_reasons(waiting[0]) == [
            "It has the lock of its unique key, so no other job with this key runs."
        ]
        assert lock_reasons(waiting[1]) == [
            f"It waits for the lock of job {waiting[0]}, which has the same unique key and runs."
        ]
        client.set(f"jobwire:unique:{digest('Work', 'default', [1])}", "another")
        assert lock_reasons(first) == []
    app.close()


def test_a_kill_that_comes_too_late_releases_nothing(server: Server) -> None:
    """X-UNIQ-8: the job may run by now; of many jobs those that were there die."""
    app, job = app_with(server)
    client: Any = server.client()
    jids = [str(job.enqueue_in(3600, number)) for number in range(3)]
    client.zadd("schedule", {b'{"class":"Plain","jid":"p","args":[],"queue":"default"}': 1})
    with Inspector(server.url) as inspector:
        gone = inspector.find("schedule", jids[0])
        assert gone is not None
        client.zrem("schedule", gone.payload)
        assert not inspector.kill(gone)
        assert jids[0] in locks(server).values()
        client.set("dead", "x")
        with pytest.raises(RedisRefused, match="dead is not a sorted set"):
            inspector.sweep("schedule", "kill", only=Filter(class_name="Work"))
        assert client.zcard("schedule") == 3
        client.delete("dead")
        assert inspector.sweep("schedule", "kill", only=Filter()).done == 3
    assert set(locks(server).values()) == {jids[0]}
    assert (client.zcard("schedule"), client.zcard("dead")) == (0, 3)
    app.close()


def test_texts_without_a_lock() -> None:
    """X-UNIQ-8: removed as any other payload."""
    texts = [b'{"jw_unique":1', b'{"jw_unique":1}', b'["jw_unique"]', b"\xff"]
    keys = Keys()
    assert removing(keys, "retry", texts, now=0) == [command("ZREM", "retry", *texts)]
    assert len(removing(keys, b"queue:a", texts, now=0, of_list=True)) == 4
    for scope in ("until_done", "until_start", "while_running", "for_time"):
        text = unique_job("1").text.replace(b"until_done", scope.encode())
        assert held_by(text) == (None if scope == "for_time" else ("a" * 64, "1"))


def unique_job(jid: str, *, replaces: bool = False) -> ReadyPayload:
    """Return a job with the key `a...a`."""
    wish = {"digest": "a" * 64, "scope": "until_done", "seconds": 60}
    fields = {"class": "Work", "args": [], "jid": jid, "queue": "q", "jw_unique": wish}
    lock = Lock("a" * 64, "until_done", 60, replaces=replaces)
    return ReadyPayload(jid, "q", None, json.dumps(fields).encode(), lock)


def test_a_push_without_a_reply_is_unsure() -> None:
    """X-UNIQ-5: alone, and in place of another job; replicas may have to confirm both."""
    steps = push(Keys(), [unique_job("1")])
    next(steps)
    with pytest.raises(MaybeWritten) as caught:
        steps.throw(NoReply("gone"))
    assert caught.value.unsure == ("1",)
    steps = push(Keys(), [unique_job("1")], Confirm(1, 2.0))
    sent = next(steps)
    assert isinstance(sent, Batch)
    assert sent.confirm == Confirm(1, 2.0)
    with pytest.raises(StopIteration) as done:
        steps.send([[b"another"]])
    assert done.value.value == {"1": "another"}
    replacing = replace(Keys(), unique_job("1"), "another", now=5)
    next(replacing)
    with pytest.raises(MaybeWritten):
        replacing.throw(NoReply("gone"))


def test_a_lock_that_changes_hands_is_followed(server: Server) -> None:
    """X-UNIQ-10: the job that has it now is replaced; at last the caller learns its id."""
    redis = SyncRedis(server.url)
    keys = Keys()
    redis.run(push(keys, [unique_job("2")]))
    assert redis.run(replace(keys, unique_job("3"), "1", now=5)) == ""
    assert locks(server) == {"a" * 64: "3"}
    client: Any = server.client()
    assert client.lrange("queue:q", 0, -1) == [unique_job("3").text]
    redis.close()
    steps = replace(keys, unique_job("9"), "0", now=5)
    assert followed(steps) == ("10", 10)


def followed(steps: Op[str]) -> tuple[str, int]:
    """Answer an operation as if the lock always had another holder; return the last one."""
    step, holders = next(steps), 0
    try:
        while True:
            reply: Any = [[b"0", []]] if isinstance(step, Batch) else []
            if isinstance(step, Script):
                holders += 1
                reply = [b"%d" % holders]
            step = steps.send(reply)
    except StopIteration as done:
        return done.value, holders
