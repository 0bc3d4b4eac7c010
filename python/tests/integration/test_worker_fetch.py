"""Fetching in a running worker: queues, order, pauses [REL-9], and jobs that go back."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import threading
import time
from functools import partial
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, Client
from jobwire.application.config import CapsuleConfig, FetchMode
from jobwire.worker.base.timings import DEFAULT_TIMINGS
from jobwire.worker.execute.processor import Processor
from jobwire.worker.fetch.reliable import ReliableFetcher
from tests.integration.clients import Heard, listening
from tests.workers import Gate, brisk, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


def push(server: Server, queue: str, *args: object) -> None:
    texts = [json.dumps({"class": "Take", "args": [arg]}) for arg in args]
    server.client().lpush(f"queue:{queue}", *texts)


def taking(got: list[Any]) -> App:
    app = App()
    app.job(name="Take")(got.append)
    return app


def queue(server: Server, name: str = "default") -> list[bytes]:
    found: Any = server.client().lrange(f"queue:{name}", 0, -1)
    return list(found)


@FETCH
@pytest.mark.parametrize("quick", [0, 300])
def test_every_slot_is_used(server: Server, fetch: FetchMode, quick: int) -> None:
    """FETCH-1: also after jobs so quick that one thread ran them all."""
    gate = Gate()
    done: list[Any] = []
    gate.app.job(name="Quick")(done.append)
    texts = [json.dumps({"class": "Quick", "args": [n]}) for n in range(quick)]
    if texts:
        server.client().lpush("queue:default", *texts)
    with running(gate.app, server, concurrency=10, fetch=fetch):
        wait_until(lambda: len(done) == quick)
        push(server, "default", *range(30))
        wait_until(lambda: len(gate.entered) == 10)
        gate.open.set()
        wait_until(lambda: len(gate.entered) == 30)


def test_a_limit_of_threads_costs_no_job(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """FETCH-1: the threads that could start do all the work."""
    start = Processor.start
    started: list[Processor] = []

    def start_two(processor: Processor) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(processor)
        start(processor)

    monkeypatch.setattr(Processor, "start", start_two)
    got: list[Any] = []
    app = taking(got)
    app.job(name="Slow")(lambda: time.sleep(0.01))
    push(server, "default", *range(5))
    server.client().rpush("queue:default", *(['{"class":"Slow","args":[]}'] * 10))
    with running(app, server, concurrency=5):
        wait_until(lambda: sorted(got) == [0, 1, 2, 3, 4])
    assert "only 2 threads can be started" in caplog.text


@pytest.mark.parametrize("seed", range(3))
def test_no_job_waits_while_a_slot_is_free(server: Server, seed: int) -> None:
    """FETCH-11, FETCH-1, REL-1: with any mix of quick jobs, jobs that wait, and async jobs."""
    app = App()
    draw = random.Random(seed)
    running_now: set[int] = set()
    late: list[float] = []

    def begin(number: int, pushed: float) -> None:
        if len(running_now) < 4:
            late.append(time.time() - pushed)
        running_now.add(number)

    @app.job(name="Sync")
    def sync(number: int, pushed: float, seconds: float) -> None:
        begin(number, pushed)
        time.sleep(seconds)
        running_now.discard(number)

    @app.job(name="Async")
    async def asynchronous(number: int, pushed: float, seconds: float) -> None:
        begin(number, pushed)
        await asyncio.sleep(seconds)
        running_now.discard(number)

    client = server.client()
    with running(app, server, concurrency=8):
        number = 0
        for _ in range(40):
            for _ in range(draw.choice([1, 1, 3, 20])):
                number += 1
                kind = draw.choice(["Sync", "Async"])
                args = [number, time.time(), draw.choice([0, 0, 0, 0.001, 0.02])]
                client.lpush("queue:default", json.dumps({"class": kind, "args": args}))
            time.sleep(draw.choice([0, 0.001, 0.01]))
        wait_until(lambda: client.get("stat:processed") == str(number).encode(), timeout=60)
    assert late
    assert sorted(late)[len(late) // 2] < 2.0  # half of the slots were always free


def test_a_bad_key_behind_a_busy_queue_is_reported_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """FETCH-7: a fetch that an earlier queue satisfied does not show that the key is good."""
    caplog.set_level(logging.ERROR)
    server.client().set("queue:bad", "not a list")
    got: list[Any] = []
    with running(taking(got), server, queues={"good": 0, "bad": 0}, concurrency=1):
        for round_ in range(1, 6):
            wait_until(lambda: any("bad" in r.getMessage() for r in caplog.records))
            push(server, "good", *range(20))
            wait_until(lambda round_=round_: len(got) == 20 * round_)  # type: ignore[misc]
    about = [r.getMessage() for r in caplog.records if "bad" in r.getMessage()]
    assert len(about) == 1, about


@FETCH
def test_unfinished_jobs_go_back_to_the_tail_byte_for_byte(
    server: Server, fetch: FetchMode
) -> None:
    """FETCH-6, SIG-5, RETRY-10, RETRY-16: jobs go back before they are interrupted; none failed."""
    app = App()
    entered: list[int] = []
    seen: list[tuple[int, list[bytes]]] = []

    @app.job(name="Loop")
    def loop(number: int) -> None:
        entered.append(number)
        try:
            while True:
                time.sleep(0.001)
        finally:
            seen.append((number, queue(server)))

    texts = [b'{ "class":"Loop","args":[%d],"x":1.0e3,"retry":true}' % n for n in range(4)]
    client = server.client()
    client.lpush("queue:default", *texts)
    with running(app, server, concurrency=2, timeout=0.05, fetch=fetch) as launcher:
        wait_until(lambda: len(entered) == 2)
        assert launcher.stop() == 2
        assert sorted(number for number, _ in seen) == [0, 1]
        assert all(set(texts) <= set(there) for _, there in seen), "back before interrupted"
    left = queue(server)
    assert left[:2] == [texts[3], texts[2]]
    assert sorted(left[2:]) == [texts[0], texts[1]]
    assert client.zcard("retry") == client.zcard("dead") == 0
    assert client.get("stat:processed") is None


def test_what_was_asked_for_ahead_goes_back_too(server: Server) -> None:
    """FETCH-6, REL-1: no job waits behind a long job, whether its fetch was read or not."""
    timings = brisk(  # also on a busy machine, jobs go back only when the test says so
        quick_job=10.0, near_reply=10.0, prefetch_horizon=10.0, prefetch_stale=math.inf
    )
    gate = Gate()
    done: list[Any] = []

    @gate.app.job(name="Quick")
    def quick(number: int) -> None:
        if not done:  # the worker prefetches only while the ticker is awake
            wait_until(lambda: fetcher._ticker.awake)
        done.append(number)

    def texts(name: str, *args: object) -> list[str]:
        return [json.dumps({"class": name, "args": [arg]}) for arg in args]

    client = server.client()
    with running(gate.app, server, concurrency=1, timings=timings) as launcher:
        source = launcher._capsules[0]._source
        assert isinstance(source, ReliableFetcher)
        fetcher = source
        client.lpush("queue:default", *texts("Quick", *range(300)))
        wait_until(lambda: len(done) == 300)  # the worker fetches ahead after quick jobs
        done.clear()
        more = [*texts("Quick", *range(60)), *texts("Take", "long"), *texts("Quick", *range(400))]
        client.lpush("queue:default", *more)
        wait_until(lambda: gate.entered)
        held = client.hlen(f"jobwire:private:{launcher.identity}")
        assert fetcher._in_flight.any_pending, "nothing was asked for ahead"
        assert held > len(fetcher._buffer) + 1
        fetcher._prefetch._stale = DEFAULT_TIMINGS.prefetch_stale
        wait_until(lambda: len(queue(server)) == 400, what="all to go back")
        assert [json.loads(text)["args"] for text in queue(server)] == [
            [number] for number in reversed(range(400))
        ]
        fetcher._prefetch._stale = math.inf
        gate.open.set()
        wait_until(lambda: len(done) == 460)
    assert done == [*range(60), *range(400)]


def test_the_next_job_is_there_when_one_ends(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-1: with every slot in use, one thread more fetches ahead."""
    busy: list[int] = []
    send = ReliableFetcher._send

    def spy(fetcher: ReliableFetcher, count: int, *, ahead: bool) -> Any:
        busy.append(fetcher._slots.in_use)
        return send(fetcher, count, ahead=ahead)

    monkeypatch.setattr(ReliableFetcher, "_send", spy)
    done: list[int] = []
    app = App()

    @app.job(name="Take")
    def take(number: int) -> None:
        time.sleep(0.005)
        done.append(number)

    push(server, "default", *range(200))
    with running(app, server, concurrency=4):
        wait_until(lambda: len(done) == 200)
    assert busy.count(4) > 10
    assert max(busy) == 4


def test_a_capsule_for_one_job_at_a_time_has_one_thread(server: Server) -> None:
    """So that its jobs may keep objects that belong to a thread."""
    app = App()
    threads: list[int] = []

    @app.job(name="Take")
    def take(number: int) -> None:
        time.sleep(0.002)
        threads.append(threading.get_ident())

    push(server, "default", *range(50))
    with running(app, server, concurrency=1):
        wait_until(lambda: len(threads) == 50)
    assert len(set(threads)) == 1


def test_capsules_have_queues_and_threads_of_their_own(server: Server) -> None:
    """BEAT-4, FETCH-2: a full capsule does not hold up another."""
    gate = Gate()
    got: list[Any] = []
    gate.app.job(name="Quick")(got.append)
    capsules = {
        "default": CapsuleConfig(queues={"slow": 0}, concurrency=1),
        "fast": CapsuleConfig(queues={"quick": 2, "other": 1}, concurrency=2),
    }
    with running(gate.app, server, capsules=capsules) as launcher:
        push(server, "slow", 1, 2, 3)
        wait_until(lambda: gate.entered)
        for name in ("quick", "other"):
            server.client().lpush(f"queue:{name}", '{"class":"Quick","args":[1]}')
        wait_until(lambda: len(got) == 2)
        assert gate.entered == [1]
        info: Any = server.client().hget(launcher.identity, "info")
        shape = json.loads(info)
        assert shape["concurrency"] == 3
        assert shape["queues"] == ["slow", "quick", "other"]
        assert shape["capsules"]["fast"] == {
            "concurrency": 2,
            "mode": "weighted",
            "weights": {"quick": 2, "other": 1},
        }
        assert launcher.works().keys() == {next(iter(launcher.works()))}
        gate.open.set()
        wait_until(lambda: gate.entered == [1, 2, 3])


@FETCH
def test_a_pattern_serves_the_queues_that_exist(server: Server, fetch: FetchMode) -> None:
    """BEAT-4: at the start, by their names, which other programs see; also one that a job names."""
    got: list[Any] = []
    app = taking(got)
    app.job(name="Mail", queue="mail:own")(got.append)
    for name in ("mail:a", "mail:b", "other"):
        server.client().sadd("queues", name)
        push(server, name, name)
    queues = {"default": 0, "mail:*": 0, "none:*": 0}
    with running(app, server, queues=queues, fetch=fetch) as launcher:
        wait_until(lambda: len(got) == 2)
        push(server, "default", "default")
        push(server, "mail:own", "mail:own")
        wait_until(lambda: len(got) == 4)
        info: Any = server.client().hget(launcher.identity, "info")
        assert json.loads(info)["queues"] == ["default", "mail:a", "mail:b", "mail:own", "none:*"]
    assert sorted(got) == ["default", "mail:a", "mail:b", "mail:own"]
    assert len(queue(server, "other")) == 1


def recorder() -> tuple[App, list[str]]:
    app = App()
    got: list[str] = []

    @app.job(name="Note")
    def note(word: str) -> None:
        got.append(word)

    return app, got


def push_number(server: Server, queue: str, word: str) -> None:
    with Client(server.url) as client:
        client.push("Note", [word], queue=queue)


@pytest.mark.parametrize("fetch", ["reliable", "basic"])
def test_a_paused_queue_waits_and_goes_on(server: Server, fetch: str) -> None:
    """REL-9: other queues are served meanwhile; nothing is lost or out of order."""
    client = server.client()
    app, got = recorder()
    timings = brisk(fetch_safety_interval=600.0)  # a notice wakes the worker, not the next poll
    client.sadd("jobwire:paused", "a", "of another worker")
    for word in ("a1", "a2"):
        push_number(server, "a", word)
    settings: Any = {"concurrency": 1, "fetch": fetch, "timings": timings}
    with running(app, server, queues={"a": 0, "b": 0}, **settings):
        for word in ("b1", "b2"):
            push_number(server, "b", word)
            wait_until(partial(lambda word: got[-1:] == [word], word), 60)
        assert client.llen("queue:a") == 2
        client.srem("jobwire:paused", "a")
        wait_until(lambda: got == ["b1", "b2", "a1", "a2"], 60)
        client.sadd("jobwire:paused", "b")
        if fetch == "basic":  # one question serves many fetches
            with listening(server) as heard:
                wait_until(lambda: any(map(asks_for_pauses, heard())), what="the worker to ask")
        push_number(server, "b", "b3")
        push_number(server, "a", "a3")
        wait_until(lambda: got[4:] == ["a3"], 60)
        assert client.llen("queue:b") == 1
    assert client.llen("queue:b") == 1


@pytest.mark.process
@pytest.mark.parametrize("fetch", ["reliable", "basic"])
def test_a_worker_of_paused_queues_only_is_silent(server: Server, fetch: str) -> None:
    """REL-9: a worker does not poll because of jobs that wait in a paused queue."""
    client = server.client()
    app, got = recorder()
    client.sadd("jobwire:paused", "a")
    push_number(server, "a", "a1")
    with running(app, server, queues={"a": 0}, concurrency=3, fetch=fetch):
        wait_until(lambda: silent(server), 60, "the worker to wait")
        assert got == []
        client.srem("jobwire:paused", "a")
        wait_until(lambda: got == ["a1"], 60)


def asks_for_pauses(line: Heard) -> bool:
    return line.name == "SMEMBERS" and b"paused" in line.words[1]


def silent(server: Server) -> bool:
    """True if the server gets almost no commands for a moment."""
    with listening(server) as heard:
        time.sleep(0.5)
        return len([line for line in heard() if not line.by_script]) <= 3


@pytest.mark.process
def test_pausing_needs_no_more_than_two_commands_in_two_seconds(server: Server) -> None:
    """REL-9: a basic worker asks for all its threads at once."""
    app, _ = recorder()
    timings = DEFAULT_TIMINGS
    with (
        running(app, server, concurrency=10, fetch="basic", timings=timings),
        listening(server) as heard,
    ):
        began = time.monotonic()
        time.sleep(3.0)  # as above
        asked = [*filter(asks_for_pauses, heard())]
        assert len(asked) <= (time.monotonic() - began) / 2 + 10
