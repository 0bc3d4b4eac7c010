"""Add-ons of Sidekiq that Ruby programs use next to a worker of jobwire. [X-ADDON-1]"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from harness.servers import Server, wait_until
from jobwire import (
    App,
    Cancelled,
    ConfigError,
    DuplicateJob,
    Filter,
    Inspector,
    current_job,
    report_progress,
)
from jobwire.application.config import FetchMode
from jobwire.inspect.sets import sweep_queue
from jobwire.protocol.gitlab import forget_status
from jobwire.protocol.keys import Keys
from jobwire.protocol.ruby_locks import RubyLock, ruby_lock_of
from tests.integration.clients import push_job
from tests.integration.inspector.entries import snapshot
from tests.workers import Workers, brisk, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
DIGEST = "uniquejobs:2965e7d924fa43c49237b8baebee8a66"
DIGESTS = "uniquejobs:digests"
ME, OTHER = "ab" * 12, "cd" * 12
KINDS = (
    *("until_executing", "until_executed", "until_expired", "while_executing"),
    "until_and_while_executing",
)


def holders(server: Server) -> dict[str, list[str]]:
    """Return who has which lock: `push` or `run` to job ids."""
    client: Any = server.client()
    found = {"push": client.hkeys(f"{DIGEST}:LOCKED"), "run": client.hkeys(f"{DIGEST}:RUN:LOCKED")}
    return {name: sorted(jid.decode() for jid in jids) for name, jids in found.items() if jids}


def lock_as_ruby(server: Server, kind: str, jid: str = ME, *, name: str = DIGEST) -> None:
    """Take a lock as the gem does when it pushes a job."""
    client: Any = server.client()
    if not kind.startswith("while_"):
        client.hset(f"{name}:LOCKED", jid, "1.5")
        client.set(name, jid)
        client.zadd(DIGESTS, {name: 1.5})


def push_locked(server: Server, kind: str, class_name: str = "Work", **fields: Any) -> None:
    """Push a job as the gem does, whose lock it has."""
    digest = f"{DIGEST}:RUN" if kind.startswith("while_") else DIGEST
    described = {"lock": kind, "lock_timeout": 0, "lock_ttl": None, "lock_prefix": "uniquejobs"}
    push_job(server, class_name, 1, **described, lock_args=[1], lock_digest=digest, **fields)


def warm_up(server: Server) -> None:
    """Run a job that fails, so that the server knows the scripts.

    The first time that a script is sent, it may arrive after those that follow it.
    """
    push_job(server, "Fails", 1, retry=True)
    client: Any = server.client()
    wait_until(lambda: client.zpopmin("retry"), what="its failure")


def app_of(server: Server, seen: list[dict[str, list[str]]]) -> App:
    app = App()

    @app.job(name="Work")
    def work(number: int) -> None:
        seen.append(holders(server))

    @app.job(name="Fails")
    def fails(number: int) -> None:
        seen.append(holders(server))
        raise ValueError

    return app


Holders: TypeAlias = dict[str, dict[str, list[str]]]
DURING: Holders = {
    "until_executing": {},
    "until_executed": {"push": [ME]},
    "until_expired": {"push": [ME]},
    "while_executing": {"run": [ME]},
    "until_and_while_executing": {"run": [ME]},
}
AFTER_DEATH: Holders = {kind: {} for kind in KINDS}
AFTER_SUCCESS = {**AFTER_DEATH, "until_expired": {"push": [ME]}}
AFTER_RETRY = {
    **AFTER_SUCCESS,
    "until_executed": {"push": [ME]},
    "until_executing": {"push": [ME]},  # X-ADDON-17
}


@FETCH
@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_of_ruby_is_released_when_its_kind_says(
    server: Server, kind: str, fetch: FetchMode
) -> None:
    """X-ADDON-3, X-ADDON-4, X-ADDON-6: by success, retry, death, drop, expiry; nothing is left."""
    client: Any = server.client()
    seen: list[dict[str, list[str]]] = []
    ends = (
        ("Work", {"retry": True}, lambda: len(seen) == 1, AFTER_SUCCESS),
        ("Fails", {"retry": True}, lambda: client.zcard("retry"), AFTER_RETRY),
        ("Fails", {"retry": 0}, lambda: client.zcard("dead"), AFTER_DEATH),
        ("Fails", {"retry": False}, lambda: len(seen) == 4, AFTER_DEATH),
        ("Work", {"jw_expires_at": 5}, lambda: client.get("jobwire:stat:expired"), AFTER_DEATH),
    )
    with running(app_of(server, seen), server, fetch=fetch):
        warm_up(server)
        seen.clear()
        for class_name, fields, ended, left in ends:
            lock_as_ruby(server, kind)
            push_locked(server, kind, class_name, **fields)
            wait_until(ended, what="the end")
            wait_until(lambda: holders(server) == left[kind], what="its lock")  # noqa: B023
            if not left[kind]:
                rest = (DIGESTS, DIGEST, f"{DIGEST}:RUN")
                wait_until(lambda: not client.exists(*rest), what="the rest of it")  # noqa: B023
            client.delete(f"{DIGEST}:LOCKED", DIGEST, DIGESTS)
    assert seen == [DURING[kind]] * 4


@FETCH
@pytest.mark.parametrize("kind", ["until_executed", "while_executing", "until_and_while_executing"])
def test_a_job_waits_for_the_holder_of_its_lock(
    server: Server, kind: str, fetch: FetchMode
) -> None:
    """X-ADDON-2, X-ADDON-5: it is put off without a count, and the lock of the other job stays."""
    client: Any = server.client()
    seen: list[dict[str, list[str]]] = []
    name = f"{DIGEST}:RUN" if "while" in kind else DIGEST
    client.hset(f"{name}:LOCKED", OTHER, "1.5")
    with running(app_of(server, seen), server, fetch=fetch):
        push_locked(server, kind)
        wait_until(lambda: client.zcard("schedule") == 1, what="the job")
        assert not seen
        (held,) = holders(server).values()
        assert held == [OTHER]
        client.hdel(f"{name}:LOCKED", OTHER)
        (text,) = client.zrange("schedule", 0, 0)
        assert "retry_count" not in json.loads(text)
        client.zadd("schedule", {text: 5})
        wait_until(lambda: bool(seen), what="its turn")
        wait_until(lambda: not holders(server), what="the release")


@FETCH
def test_a_lock_that_the_reaper_took_is_taken_again(server: Server, fetch: FetchMode) -> None:
    """X-ADDON-2: no record shows a job that has not begun; its duplicate then waits for it."""
    client: Any = server.client()
    held: list[Any] = []
    begun, goes_on = threading.Event(), threading.Event()
    app = App()

    @app.job(name="Work")
    def work(number: int) -> None:
        held.append(client.hkeys(f"{DIGEST}:LOCKED"))
        begun.set()
        assert goes_on.wait(60)

    described = {"lock": "until_executed", "lock_digest": DIGEST}
    with running(app, server, fetch=fetch, concurrency=2):
        push_job(server, "Work", 1, **described)  # its lock was deleted after the fetch
        assert begun.wait(60)
        push_job(server, "Work", 1, **described, jid=OTHER)
        (text,) = wait_until(lambda: client.zrange("schedule", 0, -1), what="the duplicate")
        goes_on.set()
        wait_until(lambda: not holders(server), what="the end of the first")
        client.zadd("schedule", {text: 5})
        wait_until(lambda: len(held) == 2, what="the duplicate's turn")
    assert held == [[ME.encode()], [OTHER.encode()]]


@pytest.mark.parametrize(
    "fields",
    [
        {"on_conflict": "reject"},
        {"on_conflict": {"client": "log", "server": "reject"}},
        {"lock": "while_executing_reject", "lock_digest": f"{DIGEST}:RUN"},
    ],
)
def test_a_job_that_does_not_wait_for_its_lock_dies(
    server: Server, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """X-ADDON-18: as its class asks; unchanged, uncounted, and the lock of the other job stays."""
    client: Any = server.client()
    seen: list[dict[str, list[str]]] = []
    described = {"lock": "until_executed", "lock_digest": DIGEST, **fields}
    name = described["lock_digest"]
    client.hset(f"{name}:LOCKED", OTHER, "1.5")
    with running(app_of(server, seen), server):
        push_job(server, "Work", 1, **described)
        (text,) = wait_until(lambda: client.zrange("dead", 0, -1), what="its end")
        wait_until(lambda: "on_conflict is reject" in caplog.text, what="the log")
    assert "error_class" not in json.loads(text)
    assert list(holders(server).values()) == [[OTHER]]
    assert not seen
    assert not client.exists("stat:failed")


def test_a_lock_for_several_jobs_and_with_a_bound(server: Server) -> None:
    """X-ADDON-2: `lock_limit` jobs have it at a time, each for `lock_ttl` seconds."""
    client: Any = server.client()
    entered: list[int] = []
    leaves = threading.Event()
    app = App()

    @app.job(name="Work")
    def work(number: int) -> None:
        entered.append(client.pttl(f"{DIGEST}:RUN:LOCKED"))
        assert leaves.wait(60)

    described = {"lock": "while_executing", "lock_digest": f"{DIGEST}:RUN"}
    with running(app, server, concurrency=3):
        for number in range(3):
            fields = {**described, "lock_limit": 2, "lock_ttl": 500, "jid": f"{number:024}"}
            push_job(server, "Work", number, **fields)
        wait_until(lambda: client.zcard("schedule") == 1 and len(entered) == 2, what="two")
        assert all(400_000 < bound <= 500_000 for bound in entered)
        leaves.set()
    assert not holders(server)


@FETCH
def test_a_waiting_thread_of_ruby_wakes(server: Server, fetch: FetchMode) -> None:
    """X-ADDON-6: it blocks on the list QUEUED of the lock."""
    client: Any = server.client()
    lock_as_ruby(server, "until_executed")
    client.set(f"{DIGEST}:INFO", "{}")
    client.lpush(f"{DIGEST}:PRIMED", "1")
    with running(app_of(server, []), server, fetch=fetch):
        warm_up(server)
        push_locked(server, "until_executed")
        assert client.blmove(f"{DIGEST}:QUEUED", f"{DIGEST}:PRIMED", 60, "RIGHT", "LEFT") == b"1"
        wait_until(lambda: not client.exists(DIGEST, f"{DIGEST}:INFO", DIGESTS), what="the rest")


@pytest.mark.parametrize("how", ["cancel", "delete", "kill", "sweep"])
def test_a_job_that_people_remove_releases_its_lock_of_ruby(server: Server, how: str) -> None:
    """X-ADDON-7: its own only, in the step that removes it."""
    client: Any = server.client()
    client.sadd("queues", "default")
    app = App(server.url)
    with Inspector(server.url) as inspector:
        for kind in KINDS:
            lock_as_ruby(server, kind)
            client.hset(f"{DIGEST}:LOCKED", OTHER, "1.5")
            push_locked(server, kind)
            if how == "cancel":
                assert app.client.cancel(ME).place == "queued"
            elif how == "delete":
                (entry,) = inspector.jobs("default")
                assert inspector.delete(entry)
            elif how == "kill":
                client.zadd("retry", {client.rpop("queue:default"): 4e9})
                (entry,) = inspector.entries("retry")
                assert inspector.kill(entry)
            else:
                steps = sweep_queue(Keys(), "default", now=0, only=Filter())
                assert inspector.redis.run(steps).done == 1
            assert holders(server) == {"push": [OTHER]}, kind
    app.close()


@pytest.mark.process
@pytest.mark.parametrize("kind", ["until_executed", "while_executing"])
def test_a_killed_process_leaks_no_lock_of_ruby(
    server: Server, workers: Workers, tmp_path: Path, kind: str
) -> None:
    """X-ADDON-4: the job is recovered with its lock, and its end releases it."""
    (tmp_path / "jobs.py").write_text(
        "import time\nimport jobwire\nfrom jobwire.protocol.wire import command, once\n"
        f"app = jobwire.App({server.url!r})\n"
        "@app.job(name='Work')\n"
        "def work(number):\n"
        "    while not app.client.redis.run(once(command('EXISTS', 'go'))):\n"
        "        time.sleep(0.02)\n"
    )
    client: Any = server.client()
    lock_as_ruby(server, kind)
    push_locked(server, kind)
    first = workers.start("jobs:app")
    identity = first.identity(client)
    wait_until(lambda: client.hlen(f"{identity}:work"), what="the job to run")
    first.kill()
    client.delete(identity)  # its lease is over
    assert list(holders(server).values()) == [[ME]]
    second = workers.start("jobs:app")
    wait_until(lambda: client.hlen(f"{second.identity(client)}:work"), what="the recovery")
    assert list(holders(server).values()) == [[ME]]
    client.set("go", "1")
    wait_until(lambda: not holders(server), what="the end")


def test_payloads_that_describe_no_lock_of_ruby() -> None:
    """X-ADDON-1: key names are made of the digest, so that no other text is taken for one."""
    good = {"lock": "until_executed", "lock_digest": DIGEST}
    assert ruby_lock_of(good) == RubyLock(DIGEST, "until_executed", 1, 0)
    assert ruby_lock_of({**good, "lock_limit": 2, "lock_ttl": 3}) == (
        *(DIGEST, "until_executed", 2, 3000),
    )
    bad = (
        *({"lock": "mine"}, {"lock": None}, {"lock_digest": 5}, {"lock_digest": "queue:default"}),
        *({"lock_digest": f"a:b:{'0' * 32}"}, {"lock_digest": f"{DIGEST}:LOCKED"}),
    )
    for change in bad:
        assert ruby_lock_of({**good, **change}) is None, change


@FETCH
def test_a_job_of_gitlab(
    server: Server, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """X-ADDON-11, X-ADDON-12, X-ADDON-13: its cookie, its status, its cancellation."""
    client: Any = server.client()
    key = f"resque:gitlab:duplicate:default:{'b8' * 32}"
    cookie, status = f"resque:gitlab:{key}:cookie:v2", f"gitlab-sidekiq-status:{ME}"
    fields = {"idempotency_key": key, "status_expiration": 60, "correlation_id": "01HZX0"}
    app = App()
    during: list[int] = []

    @app.job(name="Work")
    def work(fails: bool) -> None:
        during.append(client.exists(cookie, status))
        if fails:
            raise ValueError

    with running(app, server, fetch=fetch):
        for fails, left in ((True, [b"1"]), (False, [None])):
            client.mset({cookie: "x", status: "1"})
            push_job(server, "Work", fails, retry=0, **fields)
            wait_until(lambda: client.mget(status) == left and during, what="the end")  # noqa: B023
        client.set(f"sidekiq:cancel:{ME}", "1")
        client.delete("dead")
        push_job(server, "Work", False, **fields)
        wait_until(lambda: client.zcard("dead"), what="the death")
    assert during == [1, 1]
    assert "error_class" not in json.loads(client.zrange("dead", 0, 0)[0])
    assert "GitLab has cancelled it" in caplog.text


@pytest.mark.parametrize(("expiration", "ends"), [(60, 1), (0, 1), ("", 1), (None, 0), (False, 0)])
def test_a_status_of_gitlab_ends_if_ruby_takes_its_expiration_for_true(
    expiration: object, ends: int
) -> None:
    """X-ADDON-12: every value but nil and false is true in Ruby."""
    assert len(forget_status(Keys(), {"status_expiration": expiration}, ME)) == ends


@FETCH
@pytest.mark.parametrize("kind", ["sync", "async", "once"])
def test_a_waiter_of_gitlab_is_told_of_each_end(
    server: Server, fetch: FetchMode, kind: str
) -> None:
    """X-ADDON-14: also of a failure; the function does not get its key, and a retry keeps it."""
    client: Any = server.client()
    waiter = "gitlab:job_waiter:01234567-89ab-cdef-0123-456789abcdef"
    app = App()

    if kind == "async":

        @app.job(name="Work")
        async def awork(fails: bool) -> None:
            _fail_if(fails)
    else:
        app.job(name="Work", redeliver=kind != "once", retry=kind != "once")(_fail_if)

    with running(app, server, fetch=fetch):
        for fails, retry in ((False, True), (True, 0), (True, True)):
            retry = False if kind == "once" else retry
            push_job(server, "Work", fails, waiter, retry=retry, correlation_id="01HZX0")
            wait_until(lambda: client.ttl(waiter) > 21_590, what="the end, and its time to live")
            assert client.lrange(waiter, 0, -1) == [ME.encode()]
            assert client.ttl(waiter) <= 21_600
            client.delete(waiter)
        push_job(server, "Work", False, f"{waiter}0", retry=0, correlation_id="01HZX0")
        wait_until(lambda: client.zcard("dead") == (0 if kind == "once" else 2), what="a failure")
    if kind != "once":
        assert json.loads(client.zrange("retry", 0, 0)[0])["args"] == [True, waiter]
    assert not client.keys("gitlab:*")


def _fail_if(fails: bool) -> None:
    if fails:
        raise ValueError


def test_jobs_of_gitlab_pass_on_their_request(server: Server) -> None:
    """X-ADDON-15: to jobs of each kind of push; a field that the push sets itself stays."""
    app = App()
    meta = {"meta.user": "root", "meta.root_caller_id": "Web", "meta.caller_id": "Web"}
    given = {"correlation_id": "01HZX0", **meta}

    @app.job(name="Child", queue="other")
    def child(number: int) -> None: ...

    @app.job(name="Work")
    def work() -> None:
        child.enqueue(1)
        child.enqueue_bulk([[2], [3]])
        app.client.push_many([child.s(4)])
        app.client.push("Child", [5], queue="other", fields={"meta.user": "me"})

    client: Any = server.client()
    with running(app, server):
        push_job(server, "Work", retry=0, **given)
        wait_until(lambda: client.llen("queue:other") == 5, what="the jobs")
        push_job(server, "Work", retry=0, correlation_id="01HZX0")
        wait_until(lambda: client.llen("queue:other") == 10, what="the jobs")
        push_job(server, "Work", retry=0)
        wait_until(lambda: client.llen("queue:other") == 15, what="the jobs")
    jobs = [json.loads(text) for text in reversed(client.lrange("queue:other", 0, -1))]
    of = {name: [job.get(name) for job in jobs] for name in given}
    assert of["correlation_id"] == ["01HZX0"] * 10 + [None] * 5
    assert of["meta.user"] == ["root"] * 4 + ["me"] + [None] * 4 + ["me", *[None] * 4, "me"]
    assert of["meta.caller_id"] == ["Work"] * 5 + [None] * 10
    assert of["meta.root_caller_id"] == ["Web"] * 5 + [None] * 10


@pytest.fixture
def endless() -> tuple[App, threading.Event]:
    """Return an application with two jobs that run until they are cancelled."""
    app = App()
    begun = threading.Event()

    @app.job(name="Sync")
    def work() -> None:
        begun.set()
        job = current_job()
        wait_until(lambda: job is not None and job.cancelled, what="the cancellation")
        raise Cancelled

    @app.job(name="Async")
    async def awork() -> None:
        begun.set()
        await asyncio.sleep(60)

    return app, begun


@FETCH
@pytest.mark.parametrize("is_async", [False, True])
def test_gitlab_cancels_a_running_job(
    server: Server, fetch: FetchMode, is_async: bool, endless: tuple[App, threading.Event]
) -> None:
    """X-ADDON-16: with the next heartbeat; it goes to the dead set without a failure."""
    client: Any = server.client()
    app, begun = endless
    died: list[object] = []
    app.on_death(lambda job, error: died.append(job))
    with running(app, server, fetch=fetch):
        push_job(server, "Async" if is_async else "Sync", correlation_id="01HZX0", retry=True)
        assert begun.wait(60)
        client.set(f"sidekiq:cancel:{ME}", "1")
        wait_until(lambda: client.zcard("dead"), what="the death")
    (stored,) = client.zrange("dead", 0, -1)
    assert json.loads(stored)["correlation_id"] == "01HZX0"
    assert "error_class" not in json.loads(stored)
    assert not client.exists("retry", "queue:default", "stat:failed")
    assert not died


@FETCH
@pytest.mark.parametrize("is_async", [False, True])
def test_a_status_as_sidekiq_status_writes_it(
    server: Server, fetch: FetchMode, is_async: bool
) -> None:
    """X-ADDON-19: working, with the progress; complete, retrying, failed; for its classes only."""
    client: Any = server.client()
    key, hears = f"sidekiq:status:{ME}", client.pubsub()
    hears.subscribe("status_updates")
    app = App()
    begun, goes_on = threading.Event(), threading.Event()

    def run(fails: bool) -> None:
        report_progress(1, 3, "rows")
        begun.set()
        assert goes_on.wait(60)
        report_progress(2, 3)
        _fail_if(fails)

    @app.job(name="Async")
    async def awork(fails: bool) -> None:
        await asyncio.to_thread(run, fails)

    app.job(name="Sync")(run)
    app.job(name="Other")(_fail_if)
    name = "Async" if is_async else "Sync"
    app.sidekiq_status(name, keep=90)

    def status() -> dict[str, str]:
        return {name.decode(): text.decode() for name, text in client.hgetall(key).items()}

    timings = brisk(heartbeat_interval=0.2)
    with running(app, server, fetch=fetch, timings=timings):
        push_job(server, name, False, retry=True)
        assert begun.wait(60)
        wait_until(lambda: status().get("at"), what="the progress")
        working = status()
        assert 80 < client.ttl(key) <= 90
        goes_on.set()
        wait_until(lambda: status()["status"] == "complete", what="the end")
        done = status()
        client.delete(key)
        push_job(server, name, True, retry=True)
        wait_until(lambda: status().get("status") == "retrying", what="the failure")
        assert "ended_at" not in status()
        push_job(server, name, True, retry=0)
        wait_until(lambda: status()["status"] == "failed", what="the death")
        client.delete(key)
        push_job(server, "Other", False)
        wait_until(lambda: int(client.get("stat:processed") or 0) >= 4, what="the other job")
    assert not client.exists(key)
    now = time.time()
    assert all(now - 120 < int(done.pop(f"{name}_at")) <= now for name in ("ended", "updated"))
    assert done.pop("started_at") == working.pop("started_at")
    del working["updated_at"]
    described = {"jid": ME, "worker": name, "args": "[false]", "total": "3"}
    assert working == {
        **described,
        **{"status": "working", "at": "1", "pct_complete": "33", "message": "rows"},
    }
    assert done == {
        **described,
        **{"status": "complete", "at": "2", "pct_complete": "66", "message": ""},
    }
    heard: Any = next(one for one in hears.listen() if one["type"] == "message")
    assert heard["data"] == ME.encode()
    hears.close()


def test_a_status_of_a_job_whose_arguments_are_no_array(server: Server) -> None:
    """EXEC-7, X-ADDON-19: the job fails like others, and is retried."""
    client: Any = server.client()
    app = App()
    app.job(name="Work")(_fail_if)
    app.sidekiq_status()
    client.lpush("queue:default", f'{{"class":"Work","args":"x","jid":"{ME}","retry":true}}')
    with running(app, server):
        wait_until(lambda: client.hget(f"sidekiq:status:{ME}", "status") == b"retrying")
    assert client.hget(f"sidekiq:status:{ME}", "args") == b'"x"'
    assert client.zcard("retry") == 1


@pytest.mark.parametrize("push", ["one", "bulk", "schedule"])
def test_a_push_writes_that_a_job_is_queued(server: Server, push: str) -> None:
    """X-ADDON-20: before the push; not for a job that is refused, or of another class."""
    client: Any = server.client()
    app = App(server.url)
    app.sidekiq_status("Work", keep=90)
    if push == "one":
        jids = [app.client.push("Work", ["é", {"a": 1.0}])]
    elif push == "bulk":
        jids = app.client.push_bulk("Work", [["é", {"a": 1.0}]] * 1001)
    else:
        jids = [app.client.push("Work", ["é", {"a": 1.0}], at=4e9)]
    app.client.push("Other", [1])
    described = {"status": "queued", "worker": "Work", "args": '["é",{"a":1.0}]'}
    keys = [f"sidekiq:status:{jid}" for jid in jids]
    assert {key.decode() for key in client.keys("sidekiq:status:*")} == {*keys}
    for jid, key in zip(jids, keys, strict=True):
        assert 80 < client.ttl(key) <= 90
        found = {name.decode(): text.decode() for name, text in client.hgetall(key).items()}
        assert time.time() - 60 < int(found.pop("enqueued_at")) <= time.time()
        assert time.time() - 60 < int(found.pop("updated_at")) <= time.time()
        assert found == {**described, "jid": jid}
    app.close()


def test_a_push_that_is_refused_leaves_no_status(server: Server) -> None:
    """X-ADDON-20: of a unique job; and a status that Redis refuses keeps no job out."""
    client: Any = server.client()
    app = App(server.url)
    app.sidekiq_status()
    first = app.client.push("Work", unique=60)
    with pytest.raises(DuplicateJob):
        app.client.push("Work", unique=60)
    assert client.keys("sidekiq:status:*") == [f"sidekiq:status:{first}".encode()]
    assert client.hget(f"sidekiq:status:{first}", "args") == b"{}"
    client.set(f"sidekiq:status:{ME}", "of another type")
    app.client.push("Work", [1], jid=ME)
    assert client.llen("queue:default") == 2
    app.close()


@FETCH
@pytest.mark.parametrize("kind", ["Sync", "Async"])
def test_ruby_stops_a_running_job(
    server: Server, fetch: FetchMode, kind: str, endless: tuple[App, threading.Event]
) -> None:
    """X-ADDON-21: with a heartbeat; it has succeeded. Also if it was asked while it waited."""
    client: Any = server.client()
    key = f"sidekiq:status:{ME}"
    app, begun = endless
    app.sidekiq_status(kind)
    with running(app, server, fetch=fetch, timings=brisk(heartbeat_interval=0.2)):
        for early in (False, True):
            if early:
                client.hset(key, "stop", "true")
            push_job(server, kind, retry=True)
            assert begun.wait(60)
            if not early:
                client.hset(key, "stop", "yes")  # not the word
                wait_until(lambda: client.hget(key, "status") == b"working", what="its start")
                client.hset(key, "stop", "true")
            wait_until(lambda: client.hget(key, "status") == b"stopped", what="the end")
            assert client.hget(key, "ended_at")
            client.delete(key)
            begun.clear()
    assert client.mget("stat:processed", "stat:failed") in ([b"2", None], [b"2", b"0"])
    assert not client.exists("retry", "dead", "queue:default")


def test_a_time_that_sidekiq_status_cannot_keep() -> None:
    for keep in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match="sidekiq_status: keep is"):
            App().sidekiq_status(keep=keep)  # type: ignore[arg-type]


# The work of each product: members of the payload, in its own spelling, and keys.
BESIDE: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "sidekiq-batch": (
        '"bid":"Zm9vYmFyYmF6cXg"',
        [
            ("HSET", "BID-Zm9vYmFyYmF6cXg", "pending", "1", "created_at", "1.5"),
            ("SADD", "BID-Zm9vYmFyYmF6cXg-jids", ME),
        ],
    ),
    "sidekiq-scheduler": (
        '"queue_name":"x","scheduled_at":1.50',
        [
            ("HSET", "schedules", "nightly", '{"class": "Fails"}'),
            ("ZADD", "schedules_changed", "1.5", "nightly"),
            ("ZADD", "sidekiq-scheduler:pushed:nightly", "5", "5"),
        ],
    ),
    "sidekiq-limit_fetch": (
        '"limit":1e0',
        [
            ("SET", "limit_fetch:limit:default", "1"),
            ("RPUSH", "limit_fetch:probed:default", "uuid"),
            ("SADD", "limit:processes", "uuid"),
        ],
    ),
    "sidekiq-failures": (
        '"failures":"all","processor":"web:1"',
        [("ZADD", "failed", "1.5", '{"class":"Fails","jid":"x"}')],
    ),
    "sidekiq-throttled": (  # it has put the job back into its queue, as it was
        '"retry_queue":"default"',
        [
            ("ZADD", "throttled:Fails:concurrency.v2:7", "4000000000.5", "x"),
            ("HSET", "throttled:Fails:concurrency.v2:7.backlog_info", "size", "1"),
            ("LPUSH", "throttled:Fails:threshold:7", "1.5"),
        ],
    ),
    "sidekiq-status": (
        '"description":"x"',
        [("HSET", f"sidekiq:status:{ME}", "status", "queued", "stop", "true")],
    ),
    "sidekiq-encrypted_args": ('"encrypted_args":[0]', []),
    "sidekiq-debouncer": (
        '"debounce":true,"debounce_key":"debounce/v3/Fails/1"',
        [("ZADD", "debouncer", "1.5", "debounce/v3/Fails/1")],
    ),
    "activejob-uniqueness": (
        '"store":"1"',
        [("SET", f"activejob_uniqueness:fails:{'a' * 32}", "x")],
    ),
    "sidekiq-pauzer": ('"version":2', [("SADD", "sidekiq-pauzer", "low")]),
}


@pytest.mark.parametrize("product", BESIDE)
def test_what_another_product_writes_stays_as_it_is(server: Server, product: str) -> None:
    """PAY-13, KEY-6: its keys; and its fields as spelled, through failures and a promotion."""
    client: Any = server.client()
    written, keys = BESIDE[product]
    for words in keys:
        client.execute_command(*words)
    theirs = snapshot(client)
    text = f'{{"class":"Fails","args":["é"],"jid":"{ME}","retry":true,{written}}}'
    client.lpush("queue:default", text)
    seen: list[dict[str, list[str]]] = []
    app = app_of(server, seen)
    with running(app, server, foreign={"bid": "run"}):
        (first,) = wait_until(lambda: client.zrange("retry", 0, -1), what="the failure")
        assert written in first.decode()
        client.zadd("retry", {first: 5})
        wait_until(lambda: len(seen) == 2 and client.zcard("retry"), what="the second failure")
    (second,) = client.zrange("retry", 0, -1)
    assert text[1:-1] in second.decode()
    assert {key: value for key, value in snapshot(client).items() if key in theirs} == theirs


def test_a_job_of_a_batch_is_parked_byte_for_byte(server: Server) -> None:
    """X-PARK-3: unless a worker is told to run it."""
    client: Any = server.client()
    text = f'{{ "class":"Work", "args":[1.0],"jid":"{ME}","bid":"Zm9vYmFyYmF6cXg"}}'.encode()
    client.lpush("queue:default", text)
    with running(app_of(server, []), server):
        wait_until(lambda: client.zrange("jobwire:parked", 0, -1) == [text], what="the job")
