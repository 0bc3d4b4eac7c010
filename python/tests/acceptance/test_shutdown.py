"""Signals to a worker process: stop, quiet, dump; running jobs end or are put back."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import Client
from tests.apps import recording
from tests.workers import Workers

APP = "tests.apps.recording:app"


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def traces(server: Server, key: str) -> list[Any]:
    found: Any = server.client().lrange(key, 0, -1)
    return [json.loads(text) for text in found]


def queue(server: Server) -> list[bytes]:
    found: Any = server.client().lrange("queue:default", 0, -1)
    return list(found)


def test_term_at_the_deadline_puts_unfinished_jobs_back(
    server: Server, workers: Workers, client: Client
) -> None:
    """Exact bytes; the second run shows in the log.

    SIG-1, SIG-5, SIG-7, FETCH-6, RETRY-10, REL-7.
    """
    redis = server.client()
    names = [b"Hold", b"AsyncHold", b"Deaf"]
    texts = [
        b'{ "class":"%s","args":[%d],"retry":true,"x":1.50}' % (name, number)
        for number, name in enumerate(names)
    ]
    redis.lpush("queue:default", *texts)
    arguments = ("--redis", server.url, "-c", str(len(names)))
    first = workers.start(APP, *arguments, "-t", "1")
    wait_until(lambda: len(traces(server, recording.STARTED)) == len(names))
    redis.lpush("queue:default", "waits")
    began = time.monotonic()
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    assert 0.9 < time.monotonic() - began < 50
    left = queue(server)
    assert left[0] == b"waits"
    assert sorted(left[1:]) == sorted(texts)
    assert sorted(traces(server, recording.CLEANED)) == [0, 1]  # Deaf cannot be interrupted
    assert not redis.exists("retry", "dead", "stat:processed", "jobwire:owners")
    assert first.logged(f"put back {len(names)} unfinished job")

    redis.lrem("queue:default", 0, "waits")
    redis.lrem("queue:default", 0, texts[2])
    redis.set(recording.RELEASE, 1)
    second = workers.start(APP, *arguments)
    wait_until(lambda: len(traces(server, recording.RAN)) == 2)
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    starts = [line["ctx"].get("returned") for line in second.lines() if line["msg"] == "start"]
    assert starts == [1, 1]
    assert redis.hlen("jobwire:returned") == 1  # Deaf has not run again


def test_ttin_dumps_all_stacks_and_nothing_ends(
    server: Server, workers: Workers, client: Client
) -> None:
    """SIG-3: also the stack of a stuck job."""
    worker = workers.start(APP, "--redis", server.url)
    worker.identity(server.client())
    client.push("Deaf", [1])
    client.push("AsyncHold", [2])
    wait_until(lambda: len(traces(server, recording.STARTED)) == 2)
    worker.send(signal.SIGTTIN)

    def stacks(of: str) -> str:
        return "".join(line.get("exc", "") for line in worker.logged(of))

    # Tasks come last. The stack of the loop's thread may have the same words.
    wait_until(lambda: "in async_hold" in stacks("task "), what="the stack of the task")
    assert "in deaf" in stacks("thread ")
    names = {line["msg"].removeprefix("thread ") for line in worker.logged("thread ")}
    assert names >= {"MainThread", "jobwire-heartbeat", "jobwire-poller", "jobwire-ticker"}
    # One runs the job and one waits for more; there is a third if that was slow to begin.
    assert sum(name.startswith("jobwire-default-") for name in names) in (2, 3)
    client.push("Note", ["after"])
    wait_until(lambda: traces(server, recording.RAN) == [["Note", ["after"]]])


def test_a_second_term_forces(server: Server, workers: Workers, client: Client) -> None:
    """SIG-1, REL-4: exit status 1 at once; the job is still held, for recovery by others."""
    worker = workers.start(APP, "--redis", server.url, "-t", "60")
    redis = server.client()
    identity = worker.identity(redis)
    client.push("Hold", [1])
    wait_until(lambda: traces(server, recording.STARTED))
    worker.send(signal.SIGTERM)
    wait_until(lambda: worker.logged("quiet"))
    began = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait() == 1
    assert time.monotonic() - began < 50  # not the 60 s that jobs have
    assert redis.hlen(f"jobwire:private:{identity}") == 1
    assert redis.sismember("jobwire:owners", identity)


def test_a_signal_while_redis_is_away_ends_it_as_well(server: Server, workers: Workers) -> None:
    """SIG-1: exit status 0."""
    worker = workers.start(APP, "--redis", server.url, "-t", "1")
    wait_until(lambda: worker.logged("jobwire "))
    server.kill()
    wait_until(lambda: worker.logged("fetching failed"))
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_job_that_will_not_end_cannot_keep_the_process(server: Server, workers: Workers) -> None:
    """SIG-5, SIG-1: the job logs without end, is put back, and the exit status is still 0."""
    worker = workers.start("tests.apps.ending:app", "--redis", server.url, "-t", "0.2")
    redis = server.client()
    redis.lpush("queue:default", *['{"class":"Babble"}'] * 5)
    wait_until(lambda: worker.logged("still here"))
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert "Fatal" not in worker.log.read_text()
    assert len(queue(server)) == 5


def test_an_idle_worker_is_silent_and_wide_awake(any_server: Server, workers: Workers) -> None:
    """REL-1, BEAT-2: few commands between two beats, and a lone push is noticed at once."""
    redis = any_server.client()
    worker = workers.start(APP, "--redis", any_server.url, "-c", "10")
    worker.identity(redis)
    assert wait_until(lambda: worker.logged("jobwire "))

    def calls() -> int:
        stats: Any = redis.info("commandstats")
        mine = ("ping", "info", "client|", "config|", "hello", "auth", "select")
        return sum(
            each["calls"]
            for name, each in stats.items()
            if not name.removeprefix("cmdstat_").startswith(mine)
        )

    def times() -> int:
        stats: Any = redis.info("commandstats")
        return int(stats.get("cmdstat_time", {"calls": 0})["calls"])

    def clock() -> float:
        seconds, micros = redis.time()
        return float(seconds + micros / 1e6)

    def in_two_seconds() -> int:
        before, began, asked = calls(), clock(), times()
        wait_until(lambda: clock() - began >= 2)
        return calls() - before - (times() - asked)

    # A beat may fall into one of these spans, not into two in a row.
    assert min(in_two_seconds(), in_two_seconds()) <= 3
    with Client(any_server.url) as client:
        client.push("Note", ["warm"])
        wait_until(lambda: redis.llen(recording.RAN) == 1)
        took = []
        for number in range(5):
            wait_until(lambda: not redis.keys("jobwire:private:*"))
            began = time.monotonic()
            client.push("Note", [number])
            wait_until(lambda number=number: redis.llen(recording.RAN) == number + 2)  # type: ignore[misc]
            took.append(time.monotonic() - began)
        assert min(took) < 0.25, took  # the fastest one, because a busy machine delays some
