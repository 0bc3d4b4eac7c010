"""The poller of a running worker: each due job goes to its queue exactly once."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.protocol.promotion import first_wait, next_wait
from tests.workers import brisk, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


LOOK_AT_ONCE = brisk(first_poll_wait=lambda _, jitter: 0.0)


def due(server: Server, zset: str, *members: str | bytes, at: float | None = None) -> None:
    when = time.time() - 1 if at is None else at
    scores: Any = dict.fromkeys(members, when)
    server.client().zadd(zset, scores)


@FETCH
def test_due_jobs_run_and_others_wait(server: Server, fetch: FetchMode) -> None:
    """SCHED-5, SCHED-6, SCHED-20, RETRY-9: jobs of both sets, in a worker that also runs them."""
    app = App()
    got: list[Any] = []
    app.job(name="Take")(got.append)
    due(server, "schedule", '{"class":"Take","args":["scheduled"],"queue":"default"}')
    due(server, "retry", '{"class":"Take","args":["retried"],"queue":"default","retry_count":3}')
    later = '{"class":"Take","args":["later"],"queue":"default"}'
    due(server, "schedule", later, at=time.time() + 3600)
    client = server.client()
    with running(app, server, fetch=fetch, poll_interval=0.05, timings=LOOK_AT_ONCE):
        wait_until(lambda: len(got) == 2)
    assert set(got) == {"scheduled", "retried"}
    assert client.zrange("schedule", 0, -1) == [later.encode()]
    assert client.zcard("retry") == 0
    assert client.smembers("queues") == {b"default"}


def test_a_look_empties_retry_first(server: Server) -> None:
    """SCHED-21: also if the members of `schedule` are due for longer."""
    for number in range(3):
        due(server, "schedule", f'{{"jid":"s{number}","queue":"else"}}', at=1.0 + number)
        due(server, "retry", f'{{"jid":"r{number}","queue":"else"}}', at=5.0 + number)
    client = server.client()
    with running(App(), server, timings=LOOK_AT_ONCE):
        wait_until(lambda: client.llen("queue:else") == 6)
    texts: Any = client.lrange("queue:else", 0, -1)
    assert [json.loads(text)["jid"] for text in texts] == ["s2", "s1", "s0", "r2", "r1", "r0"]


@pytest.mark.parametrize("generation", [7, 8])
def test_a_promoted_payload_says_when_and_is_otherwise_as_it_was(
    server: Server, generation: Any
) -> None:
    """SCHED-6, SCHED-7, PAY-7: at the head of its queue; this worker does not serve that queue."""
    text = (
        b'{"x": 1.50,"class":"R","args":[%d,"\\u00e4"],"jid":"j","at":5.0,"queue":"else"}' % 2**80
    )
    due(server, "schedule", text)
    client = server.client()
    client.lpush("queue:else", "already there")
    before = time.time() - 0.001
    with running(App(generation=generation), server, poll_interval=0.05, timings=LOOK_AT_ONCE):
        wait_until(lambda: client.llen("queue:else") == 2)
    found: Any = client.lindex("queue:else", 0)
    assert b'"x":1.50' in found
    assert '"ä"'.encode() in found  # the spelling of Sidekiq, which finds members by it
    job = json.loads(found)
    for field in ("enqueued_at", "created_at"):
        stamp = job.pop(field)
        assert type(stamp) is (float if generation == 7 else int)
        assert before <= stamp / (1 if generation == 7 else 1000) <= time.time()
    args = [2**80, "ä"]
    assert job == {"retry": True, "x": 1.5, "class": "R", "args": args, "jid": "j", "queue": "else"}
    assert client.sismember("queues", "else")


def test_what_is_no_job_is_buried_and_blocks_nobody(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """SCHED-9, DEAD-1: 150 of them first, kept byte for byte; the log names each."""
    bad = [b"\xff%d" % n for n in range(120)] + [b"[%d]" % n for n in range(20)]
    bad += [b'{"class":"Take","queue":%d}' % n for n in range(5)]
    bad += [b'{"class":"Take","queue":""}', b'{"class":"Take","queue":null}', b"{", b"5", b'""']
    due(server, "schedule", *bad, at=5.0)
    due(server, "schedule", '{"class":"Take","args":["behind"]}')
    app = App()
    got: list[Any] = []
    app.job(name="Take")(got.append)
    client = server.client()
    caplog.set_level(logging.ERROR)
    with running(app, server, poll_interval=0.05, timings=LOOK_AT_ONCE):
        wait_until(lambda: got == ["behind"])
    found: Any = client.zrange("dead", 0, -1, withscores=True)
    found += client.zrange("jobwire:unreadable", 0, -1, withscores=True)
    assert sorted(text for text, _ in found) == sorted(bad)
    assert all(time.time() - 60 < score <= time.time() for _, score in found)
    assert client.zcard("schedule") == 0
    assert len([r for r in caplog.records if "moved to the dead set" in r.getMessage()]) == len(bad)


def test_many_pollers_promote_each_job_once(server: Server) -> None:
    """SCHED-16: only the poller that removes the member pushes the job."""
    texts = [json.dumps({"class": "R", "args": [n], "queue": "else"}) for n in range(2000)]
    client = server.client()
    with (
        running(App(), server, poll_interval=0.01, timings=LOOK_AT_ONCE),
        running(App(), server, poll_interval=0.01, timings=LOOK_AT_ONCE),
    ):
        for start in range(0, 2000, 250):
            due(server, "schedule", *texts[start : start + 250])
        wait_until(lambda: client.zcard("schedule") == 0)
        wait_until(lambda: client.llen("queue:else") >= 2000)
    found: Any = client.lrange("queue:else", 0, -1)
    assert sorted(json.loads(text)["args"][0] for text in found) == list(range(2000))


def test_a_quiet_worker_promotes_nothing(server: Server) -> None:
    """SIG-2: other workers do."""
    client = server.client()
    with running(App(), server, poll_interval=0.01, timings=LOOK_AT_ONCE) as quiet:
        due(server, "schedule", '{"class":"R","queue":"before"}')
        wait_until(lambda: client.exists("queue:before"))
        quiet.quiet()
        wait_until(
            lambda: "jobwire-poller" not in {thread.name for thread in threading.enumerate()}
        )
        due(server, "schedule", '{"class":"R","queue":"after"}')
    assert client.zcard("schedule") == 1


def test_a_stop_is_heeded_between_batches(server: Server) -> None:
    """SCHED-10: a long backlog does not delay the end of the process."""
    client = server.client()
    total = 30_000
    for start in range(0, total, 5000):
        due(
            server,
            "schedule",
            *(f'{{"class":"R","queue":"q","n":{start + n}}}' for n in range(5000)),
        )
    with running(App(), server, poll_interval=0.01, timings=LOOK_AT_ONCE) as launcher:
        wait_until(lambda: client.llen("queue:q") > 100)
        launcher.stop()
    rest: Any = client.zcard("schedule")
    assert 0 < rest < total
    assert client.llen("queue:q") + rest == total


def test_looks_are_as_far_apart_as_the_fleet_is_large(server: Server) -> None:
    """SCHED-8, SCHED-23: 10 s + 5 s*u first, then by the number of registered processes."""
    asked: list[tuple[Any, ...]] = []

    def first(interval: float | None, /, *, jitter: float) -> float:
        asked.append((interval, first_wait(interval, jitter=jitter)))
        return 0.0

    def after(interval: float | None, /, *, processes: int, jitter: float) -> float:
        asked.append((interval, processes, next_wait(interval, processes=processes, jitter=jitter)))
        return 0.01

    timings = brisk(first_poll_wait=first, next_poll_wait=after)
    client = server.client()
    client.sadd("processes", *(f"h:{n}:x" for n in range(11)))
    for n in range(11):
        client.hset(f"h:{n}:x", "info", "{}")
    with running(App(), server, precise=False, timings=timings):
        wait_until(lambda: len(asked) > 3)
    assert asked[0][0] is None
    assert 10 <= asked[0][1] < 15
    assert {each[1] for each in asked[1:]} == {12}
    assert all(0 <= each[2] < 120 for each in asked[1:])


@pytest.mark.parametrize("fetch", ["reliable", "basic"])
def test_a_job_runs_at_its_time_by_default(server: Server, fetch: FetchMode) -> None:
    """SCHED-11: without a setting, and without a look at an interval."""
    timings = brisk(
        first_poll_wait=lambda _, jitter: 3600.0,
        next_poll_wait=lambda _, processes, jitter: 3600.0,
        poll_safety_interval=3600.0,
    )
    app = App()
    early: dict[int, float] = {}  # seconds that a job ran before its time
    due: dict[int, float] = {}
    sample = app.job(name="Sample")(lambda n: early.update({n: due[n] - time.time()}))
    with running(app, server, fetch=fetch, timings=timings):
        due |= {1: time.time() + 0.1, 2: time.time() + 0.3}
        sample.enqueue_at(due[2], 2)
        sample.enqueue_at(due[1], 1)  # may come late, so that the order says nothing
        wait_until(lambda: len(early) == 2, 60)
    assert max(early.values()) <= 0
