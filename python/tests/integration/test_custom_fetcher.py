"""A fetcher of the application, which knows only `jobwire.worker`."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.errors import RedisTrouble
from jobwire.worker import Fetcher, FetcherSetup, TakenJob
from jobwire.worker.base.timings import Timings
from jobwire.worker.process.custom_fetch import CustomSource
from tests.workers import Gate, running


class StreamFetcher:
    """Takes jobs from a stream, which no fetch of jobwire reads."""

    def __init__(self, setup: FetcherSetup) -> None:
        self.setup = setup
        self.redis: Any = redis.Redis.from_url(setup.url)
        self.trouble: list[Exception] = []
        self.closed = False

    def take(self) -> TakenJob | None:
        if self.trouble:
            raise self.trouble.pop()
        streams = {f"{self.setup.namespace}jobs": ">"}
        found: Any = self.redis.xreadgroup("workers", "one", streams, count=1, block=100)
        for _, entries in found or ():
            for key, fields in entries:
                return TakenJob("default", fields[b"payload"], key)
        return None

    def acknowledge(self, job: TakenJob) -> None:
        with self.redis.pipeline() as steps:
            steps.xack("jobs", "workers", job.token).xdel("jobs", job.token).execute()

    def put_back(self, job: TakenJob) -> None:
        self.redis.xadd("jobs", {"payload": job.payload})
        self.acknowledge(job)

    def close(self) -> None:
        self.redis.close()
        self.closed = True


def fetching(app: App) -> list[StreamFetcher]:
    """Give an application the fetcher; return those that its workers make."""
    made: list[StreamFetcher] = []

    def make(setup: FetcherSetup) -> Fetcher:
        made.append(StreamFetcher(setup))
        return made[-1]

    app.fetcher = make
    return made


def push(server: Server, *args: object) -> None:
    for arg in args:
        text = json.dumps({"class": "Take", "args": [arg], "jid": f"{arg}", "retry": True})
        server.client().xadd("jobs", {"payload": text})


@pytest.fixture
def stream(server: Server) -> Server:
    """Return a server with an empty stream and its group of readers."""
    server.client().xgroup_create("jobs", "workers", mkstream=True)
    return server


def test_its_jobs_run_and_are_acknowledged_after_their_outcome(stream: Server) -> None:
    """FETCH-1: the retry of a failed job is stored as always."""
    gate = Gate()
    made = fetching(gate.app)
    redis = stream.client()
    push(stream, *range(20), "fails")
    with running(gate.app, stream, concurrency=3, queues={"default": 2}):
        wait_until(lambda: len(gate.entered) == 3)
        assert redis.xlen("jobs") == 21
        gate.open.set()
        wait_until(lambda: redis.xlen("jobs") == 0)
        assert redis.zcard("retry") == 1
    (fetcher,) = made
    assert (fetcher.setup.queues, fetcher.setup.concurrency) == ({"default": 2}, 3)
    assert fetcher.closed
    assert redis.get("stat:processed") == b"21"


def test_jobs_that_a_stop_interrupts_are_put_back(stream: Server) -> None:
    """FETCH-6, SIG-5."""
    gate = Gate()
    fetching(gate.app)
    push(stream, 1, 2)
    with running(gate.app, stream, timeout=0.1):
        wait_until(lambda: len(gate.entered) == 2)
    pending: Any = stream.client().xpending("jobs", "workers")
    assert (stream.client().xlen("jobs"), pending["pending"]) == (2, 0)


def test_a_job_that_must_not_run_twice_is_acknowledged_before_it_runs(stream: Server) -> None:
    gate = Gate()
    fetching(gate.app)
    gate.app.job(name="Once", retry=False, redeliver=False)(gate.entered.append)
    text = json.dumps({"class": "Once", "args": [7], "jid": "7", "retry": False})
    stream.client().xadd("jobs", {"payload": text})
    with running(gate.app, stream):
        wait_until(lambda: gate.entered == [7])
    assert stream.client().xlen("jobs") == 0


def test_its_errors_stop_no_worker(stream: Server, caplog: pytest.LogCaptureFixture) -> None:
    """ENV-11: trouble with Redis has one line at its beginning and one at its end."""
    gate = Gate()
    made = fetching(gate.app)
    gate.open.set()
    with caplog.at_level(logging.INFO), running(gate.app, stream, concurrency=1):
        made[0].trouble += [redis.ConnectionError("away"), redis.ConnectionError("away")]
        wait_until(lambda: "fetching again" in caplog.text)
        made[0].trouble.append(KeyError("its bug"))
        wait_until(lambda: "its bug" in caplog.text)
        push(stream, 1)
        wait_until(lambda: gate.entered == [1])
    assert caplog.text.count("fetching failed and is retried: away") == 1


def test_a_bug_in_its_acknowledgement_is_logged_and_occupies_no_thread(
    stream: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def acknowledge(self: object, job: TakenJob) -> None:
        raise KeyError(job.queue)

    monkeypatch.setattr(StreamFetcher, "acknowledge", acknowledge)
    gate = Gate()
    fetching(gate.app)
    gate.open.set()
    push(stream, 1, 2, 3)
    with running(gate.app, stream, concurrency=1):
        wait_until(lambda: gate.entered == [1, 2, 3])
    assert caplog.text.count("acknowledge of the fetcher failed, which is a bug") == 3


def test_a_job_that_cannot_be_put_back_keeps_no_other_from_it() -> None:
    """FETCH-6: each is tried at least once; the error comes at the end."""
    put_back = []

    class Refusing(StreamFetcher):
        def __init__(self) -> None:
            self.jobs = [TakenJob("default", payload) for payload in (b"stays", b"goes")]

        def take(self) -> TakenJob | None:
            return self.jobs.pop(0)

        def put_back(self, job: TakenJob) -> None:
            if job.payload == b"stays":
                raise redis.ConnectionError("refused")
            put_back.append(job.payload)

    source = CustomSource(Refusing(), 2, Timings(put_back_timeout=0.0))
    held = [taken for _ in range(2) if (taken := source.take(None))]
    with pytest.raises(RedisTrouble, match="refused"):
        source.put_back(held)
    assert put_back == [b"goes"]
