"""A worker in trouble: a server that goes and returns, a lease that is lost."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from hashlib import sha1
from typing import Any, cast

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.connection.resources import script
from jobwire.connection.sync import SyncRedis
from jobwire.errors import NoReply
from jobwire.protocol.wire import Arg, Message
from jobwire.worker.base.timings import Timings
from tests.server_fixtures import ServerFactory
from tests.workers import Gate, brisk, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


def push(server: Server, *args: object) -> None:
    texts = [json.dumps({"class": "Take", "args": [arg], "retry": True}) for arg in args]
    server.client().lpush("queue:default", *texts)


def lines(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if words in r.getMessage()]


@FETCH
def test_a_restart_of_redis_costs_no_job_and_two_lines(
    server_factory: ServerFactory, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-1, REL-2, LUA-3, ENV-5: one line when the server goes, one when it is back."""
    caplog.set_level(logging.INFO)
    server = server_factory("--appendonly", "yes")
    gate = Gate()
    with running(gate.app, server, concurrency=2, fetch=fetch) as worker:
        push(server, "done", "fails", "next")
        wait_until(lambda: len(gate.entered) == 2)
        server.stop()
        gate.open.set()
        wait_until(lambda: lines(caplog, "fetching failed"))
        server.start()
        wait_until(lambda: "next" in gate.entered)
        wait_until(lambda: server.client().zcard("retry") == 1)
        wait_until(lambda: lines(caplog, "fetching again"))
        push(server, "after")
        wait_until(lambda: "after" in gate.entered)
        wait_until(lambda: not server.client().exists(f"jobwire:private:{worker.identity}"))
    assert sorted(gate.entered) == ["after", "done", "fails", "next"]
    assert len(lines(caplog, "fetching failed")) == 1
    assert len(lines(caplog, "fetching again")) == 1
    assert len(lines(caplog, "not stored yet")) <= 1
    if fetch == "reliable":
        assert server.client().get("stat:processed") == b"4"


@pytest.mark.process
@FETCH
def test_an_idle_worker_states_how_long_an_outage_lasted(
    server_factory: ServerFactory, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """ENV-6: also if no job comes after it, and the worker waits for one."""
    caplog.set_level(logging.INFO)
    server = server_factory("--appendonly", "yes")  # keeps the lease
    # The wait for a job takes longer than the test.
    timings = Timings(reclaim_interval=600.0, fetch_safety_interval=600.0)
    with running(App(), server, fetch=fetch, timings=timings):
        began = time.monotonic()
        server.stop()
        wait_until(lambda: lines(caplog, "fetching failed"))
        server.start()
        wait_until(lambda: lines(caplog, "fetching again"))
        lasted = time.monotonic() - began
    (line,) = lines(caplog, "fetching again")
    assert float(line.split()[-2]) <= lasted + 0.1  # it is rounded


def test_a_flush_of_the_scripts_is_not_even_noticed(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """LUA-3: load and repeat, for fetches and for outcomes."""
    caplog.set_level(logging.WARNING)
    app = App()
    got: list[Any] = []
    app.job(name="Take")(got.append)
    client = server.client()
    with running(app, server):
        for number in range(5):
            client.script_flush()
            push(server, number)
            wait_until(lambda number=number: got == list(range(number + 1)))  # type: ignore[misc]
        wait_until(lambda: client.get("stat:processed") == b"5")
    assert caplog.records == []


@pytest.mark.process
@FETCH
def test_a_server_that_stops_answering_is_waited_for(
    server: Server, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """ENV-3, ENV-5, REL-1: no reply to a fetch that the server nevertheless carries out."""
    caplog.set_level(logging.INFO)
    app = App()
    got: list[Any] = []
    app.job(name="Take")(got.append)

    def pushed_again() -> bool:
        push(server, "after")
        return True

    # A short timeout of replies, because five seconds are long for a test.
    timings = brisk(redis_timeout=0.3)
    with running(app, server, concurrency=2, fetch=fetch, timings=timings) as worker:
        push(server, *range(500))
        wait_until(lambda: len(got) > 20)
        server.pause()
        wait_until(lambda: lines(caplog, "fetching failed"))
        server.resume()
        wait_until(lambda: lines(caplog, "fetching again"))
        if fetch == "reliable":
            push(server, "after")
            wait_until(lambda: {*range(500), "after"} <= set(got))
            client = server.client()
            wait_until(lambda: not client.exists(f"jobwire:private:{worker.identity}"))
        else:  # the jobs of a lost answer are lost, and on a busy machine one more answer may be
            wait_until(lambda: pushed_again() and "after" in got)


def test_jobs_of_a_fetch_whose_answer_was_lost_are_run(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-8: a process holds them without knowing of them."""
    app = App()
    got: list[Any] = []
    app.job(name="Take")(got.append)
    answer = SyncRedis._answer
    lost: list[Any] = []

    def lose_the_first_jobs(shell: SyncRedis, message: Message) -> list[Any]:
        replies = answer(shell, message)  # the server has carried it out
        words, reply = message.commands[-1], replies[-1]
        fetched = words[:2] == ("EVALSHA", script("fetch").sha)
        if fetched and not lost and isinstance(reply, list) and reply[0]:
            lost.append(reply)
            raise NoReply("the reply was lost")
        return replies

    monkeypatch.setattr(SyncRedis, "_answer", lose_the_first_jobs)
    push(server, 1, 2)
    with running(app, server, concurrency=1) as worker:
        client: Any = server.client()
        wait_until(lambda: sorted(got) == [1, 2])
        wait_until(lambda: not client.exists(f"jobwire:private:{worker.identity}"))
    assert lost
    assert client.get("stat:processed") == b"2"


@FETCH
@pytest.mark.parametrize("carried_out", [True, False])
def test_an_outcome_whose_answer_was_lost_is_sent_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, fetch: FetchMode, carried_out: bool
) -> None:
    """RETRY-23: the job is in `retry` once, whether the server had stored it or not."""
    app = App()
    runs: list[Any] = []

    @app.job(name="Take")
    def fail(arg: Any) -> None:
        runs.append(arg)
        raise ValueError(arg)

    answer = SyncRedis._answer
    lost: list[Message] = []

    def lose_the_first_outcome(shell: SyncRedis, message: Message) -> list[Any]:
        stores = any(
            words[:2] in (("ZADD", "retry"), ("EVALSHA", script("finish").sha))
            for words in message.commands
        )
        if not stores or lost:
            return answer(shell, message)
        lost.append(message)
        if carried_out:
            answer(shell, message)
        raise NoReply("the reply was lost")

    monkeypatch.setattr(SyncRedis, "_answer", lose_the_first_outcome)
    push(server, 1)
    client: Any = server.client()
    with running(app, server, fetch=fetch, concurrency=1) as worker:
        wait_until(lambda: client.zcard("retry") == 1)
        wait_until(lambda: not client.exists(f"jobwire:private:{worker.identity}"))
    assert lost
    assert runs == [1]
    assert client.zcard("retry") == 1


def test_a_put_back_whose_answer_was_lost_is_sent_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-23: the repeated call finds what the first one did, which is not a lost job."""
    app = App()
    runs: list[int] = []

    @app.job(name="Take")
    async def cancelled_at_first(number: int) -> None:
        runs.append(number)
        if len(runs) == 1:
            task = cast("asyncio.Task[None]", asyncio.current_task())
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.sleep(60)

    answer = SyncRedis._answer
    put_back = script("put_back")
    repeated: list[Arg] = []

    def lose_the_first_put_back(shell: SyncRedis, message: Message) -> list[Any]:
        replies = answer(shell, message)
        calls = [words for words in message.commands if words[:2] == ("EVALSHA", put_back.sha)]
        repeated.extend(words[-3] for words in calls)
        if calls and len(repeated) == 1:
            raise NoReply("the reply was lost")
        return replies

    client: Any = server.client()
    client.script_load(put_back.source)
    with running(app, server, concurrency=1):
        monkeypatch.setattr(SyncRedis, "_answer", lose_the_first_put_back)
        push(server, 1)
        wait_until(lambda: len(repeated) == 2)
        wait_until(lambda: client.get("stat:processed") == b"1")
    assert runs == [1, 1]
    assert repeated == [0, 1]
    assert not client.exists("jobwire:stat:lost")


@FETCH
def test_a_lost_lease_is_renewed_and_the_worker_goes_on(
    server: Server, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-16: a fetch without a lease takes nothing."""
    caplog.set_level(logging.WARNING)
    app = App()
    got: list[Any] = []
    app.job(name="Take")(got.append)
    client = server.client()
    with running(app, server, fetch=fetch) as worker:
        client.delete(worker.identity)
        push(server, 1)
        wait_until(lambda: got == [1])
        if fetch == "reliable":
            assert client.exists(worker.identity)
            assert lines(caplog, "lease lost")


@pytest.mark.parametrize("arg", ["done", "fails"])
def test_the_outcome_of_a_job_that_others_have_recovered_is_dropped(
    server: Server, caplog: pytest.LogCaptureFixture, arg: str
) -> None:
    """REL-4, REL-15, REL-23: the job ran twice, but it is stored and counted once."""
    first, second = Gate(), Gate()
    second.open.set()
    client = server.client()
    with running(first.app, server, concurrency=1) as sleeper:
        push(server, arg)
        wait_until(lambda: first.entered)
        client.delete(sleeper.identity)  # as if it had been paused for a minute
        with running(second.app, server, concurrency=1):
            wait_until(lambda: second.entered == [arg])
            wait_until(lambda: client.get("stat:processed") == b"1")
            first.open.set()
            wait_until(lambda: lines(caplog, "dropped"))
    assert client.get("stat:processed") == b"1"
    assert int(client.get("stat:failed") or 0) == (arg == "fails")
    assert client.zcard("retry") == (arg == "fails")
    assert not client.exists("queue:default")
    assert client.keys("jobwire:private:*") == []


def test_orphans_of_any_kind_of_queue_are_recovered(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-4, REL-7, REL-13, REL-17: at the start and with every beat; order and bytes are kept."""
    client = server.client()

    def die(identity: str, entries: dict[str, str]) -> None:
        client.hset(f"jobwire:private:{identity}", mapping=entries)
        client.sadd("jobwire:owners", identity)

    odd = "a:b queue:ü"
    die("h:1:x", {f"{n}:{odd}": f"{{ {n}" for n in (10, 9, 2)})
    with running(App(), server, timings=brisk(heartbeat_interval=0.05)):
        wait_until(lambda: client.llen(f"queue:{odd}") == 3)
        assert client.lrange(f"queue:{odd}", 0, -1) == [b"{ 10", b"{ 9", b"{ 2"]
        die("h:2:y", {"1:z": "late", "garbage": "x"})
        client.hset(b"jobwire:private:h:2:y", b"\xff", b"z")
        client.sadd("jobwire:owners", b"\xffnobody")
        wait_until(lambda: client.llen("queue:z") == 1)
    counted: Any = client.hgetall("jobwire:returned")
    texts = ("{ 10", "{ 9", "{ 2", "late")
    digests = [sha1(text.encode()).hexdigest() for text in texts]
    assert counted == {
        name.encode(): b"1" for each in digests for name in (each, f"{each}:recovered")
    }
    assert client.hlen("jobwire:private:h:2:y") == 2  # fields that are not entries stay
    assert b"h:1:x" not in client.smembers("jobwire:owners")
    assert len(lines(caplog, "of dead process")) == 2
    assert lines(caplog, "bug") == []


def test_jobs_of_a_living_process_are_let_alone(server: Server) -> None:
    """REL-11: the lease protects them, however long they run."""
    timings = brisk(heartbeat_interval=0.02)
    gate = Gate()
    client = server.client()
    with running(gate.app, server, concurrency=1, timings=timings) as busy:
        push(server, 1)
        wait_until(lambda: gate.entered)
        with running(App(), server, timings=timings) as other:
            beat = client.hget(other.identity, "beat")
            wait_until(lambda: client.hget(other.identity, "beat") != beat)
        assert client.hlen(f"jobwire:private:{busy.identity}") == 1
        gate.open.set()
    assert gate.entered == [1]


def test_a_second_run_of_an_unfinished_job_shows_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-24: the count is forgotten when a run ends."""
    caplog.set_level(logging.INFO)
    gate = Gate()
    client = server.client()
    for run in range(3):
        with running(gate.app, server, concurrency=1, timeout=0.0) as worker:
            if run == 0:
                push(server, 1)
            if run == 2:
                gate.open.set()
            wait_until(lambda run=run: len(gate.entered) == run + 1)  # type: ignore[misc]
            if run == 2:
                wait_until(lambda: client.get("stat:processed") == b"1")
            else:
                worker.stop()
    starts = [
        getattr(r, "returned", None) for r in caplog.records if r.getMessage().split()[0] == "start"
    ]
    assert starts == [None, 1, 2]
    assert not client.exists("jobwire:returned")


def test_stopping_without_redis_ends_in_time(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-1, SIG-5: jobs that could not be put back are held, and recovered later."""
    gate = Gate()
    with running(gate.app, server, concurrency=1, timeout=0.1) as worker:
        push(server, 1)
        wait_until(lambda: gate.entered)
        server.kill()
        began = time.monotonic()
        threading.Timer(0.5, gate.open.set).start()
        worker.stop()
        assert time.monotonic() - began < 60
    assert lines(caplog, "were not put back")


@pytest.mark.process
def test_stopping_while_the_server_refuses_outcomes_ends_in_time(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-12: the outcome is tried for a few seconds more, then the job stays held."""
    gate = Gate()
    with server.client() as client, running(gate.app, server, concurrency=1, timeout=1) as worker:
        push(server, 1)
        wait_until(lambda: gate.entered)
        client.config_set("min-replicas-to-write", 1)
        gate.open.set()
        began = time.monotonic()
        worker.stop()
        assert time.monotonic() - began < 60
        client.config_set("min-replicas-to-write", 0)
        assert sum(client.hlen(key) for key in client.keys("jobwire:private:*")) == 1
    assert lines(caplog, "could not be stored")
