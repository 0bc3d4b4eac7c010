"""A time limit, or a stop, harms nothing but the job that it interrupts. [RETRY-10]"""

from __future__ import annotations

import random
import signal
import time
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import Client
from jobwire.worker.process.process import STOP_GRACE_S
from tests.acceptance.test_ports import get
from tests.apps import limited
from tests.workers import WorkerProcess, Workers, free_port

APP = "tests.apps.limited:app"
JOBS = {1: 40, 5: 660, 20: 1800, 50: 2500}  # by concurrency: 5,000 together
STOP_S = 15  # the timeout of one second, and the few seconds that a stop adds, on a busy machine


def counter(server: Server, name: str) -> int:
    value: Any = server.client().get(f"stat:{name}")
    return int(value or 0)


def fails_well(worker: WorkerProcess, server: Server, jobs: int, *, concurrency: int) -> None:
    """Wait for as many jobs to fail; see that all locks are free, and that the worker stops."""
    redis = server.client()
    what = f"{jobs} jobs; {worker.log}"
    wait_until(lambda: counter(server, "failed") >= jobs, 600, what=what)
    with Client(server.url) as client:
        client.push_bulk("Probe", [[]] * concurrency)
    wait_until(lambda: redis.llen(limited.PROBED) >= concurrency, 120, what=what)
    assert set(redis.lrange(limited.PROBED, 0, -1)) == {b""}
    stops_well(worker)
    assert counter(server, "failed") == jobs
    assert not list(redis.scan_iter("jobwire:private:*"))


def stops_well(worker: WorkerProcess) -> None:
    began = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait(STOP_S) == 0, time.monotonic() - began


@pytest.mark.process
def test_jobs_over_their_limit_fail_and_the_worker_goes_on(
    server: Server, workers: Workers
) -> None:
    """A limit strikes 200 jobs that write to the log; no lock of the log is lost."""
    with Client(server.url) as client:
        client.push_bulk("Rows", [[]] * 200, retry=False)
    worker = workers.start(APP, "--redis", server.url, "-c", "20", "-t", "1")
    fails_well(worker, server, 200, concurrency=20)
    assert len(worker.logged("JobTimeout: ran longer than its time limit of 0.2 s")) == 200


@pytest.mark.process
def test_a_stop_interrupts_a_job_that_writes_to_the_log(server: Server, workers: Workers) -> None:
    """SIG-5: the job is put back, and the process ends within its promise."""
    with Client(server.url) as client:
        client.push("Babbles", [])
    worker = workers.start(APP, "--redis", server.url, "-c", "1", "-t", "1")
    wait_until(lambda: worker.logged("row"))
    stops_well(worker)
    assert server.client().llen("queue:default") == 1
    assert worker.lines()[-1]["msg"] == "stopped"


@pytest.mark.process
def test_a_stop_puts_back_jobs_in_a_deadlock(server: Server, workers: Workers) -> None:
    """SIG-5: no error reaches a thread that waits for a lock."""
    with Client(server.url) as client:
        client.push_bulk("Deadlocks", [[0], [1]])
    worker = workers.start(APP, "--redis", server.url, "-c", "2", "-t", "1")
    wait_until(lambda: len(worker.logged("has one lock")) == 2)
    stops_well(worker)
    assert server.client().llen("queue:default") == 2


@pytest.mark.real_time
@pytest.mark.process
@pytest.mark.parametrize(
    ("processes", "signals", "limit"),
    [(2, 1, 1 + STOP_GRACE_S), (1, 1, 1 + STOP_GRACE_S), (1, 2, 0.0)],
    ids=["supervisor", "one signal", "two signals"],
)
def test_a_process_that_hears_no_signal_is_killed(
    server: Server, workers: Workers, processes: int, signals: int, limit: float
) -> None:
    """SIG-5, REL-3: code in C keeps the lock of the interpreter; the job is not lost."""
    with Client(server.url) as client:
        client.push("Freezes", [])
    arguments = ("-c", "1", "-t", "1", "--processes", str(processes))
    worker = workers.start(APP, "--redis", server.url, *arguments)
    wait_until(lambda: worker.logged("freezes"))
    began = time.monotonic()
    for _ in range(signals):
        worker.send(signal.SIGTERM)
        time.sleep(0.1)  # signals that come together are one
    assert worker.wait(limit + 30) == (1 if processes > 1 else -signal.SIGKILL)
    assert time.monotonic() - began > limit
    redis = server.client()
    held = [redis.hvals(key) for key in redis.scan_iter("jobwire:private:*")]
    assert sum(map(len, held)) + redis.llen("queue:default") == 1


@pytest.mark.real_time
@pytest.mark.process
@pytest.mark.parametrize("cause", ["Seizes", "LosesNames"])
def test_a_worker_whose_threads_hang_is_not_alive(
    server: Server, workers: Workers, cause: str
) -> None:
    """SIG-5, REL-3: no thread can write to the log, or connect, because no name server answers."""
    redis, port = server.client(), free_port()
    arguments = ("-c", "2", "-t", "1", "--health-port", str(port))
    worker = workers.start(APP, "--redis", server.url, *arguments)
    identity = worker.identity(redis)
    assert get(port, "/live")[0] == 200
    with Client(server.url) as client:
        client.push(cause, [])
        if cause == "LosesNames":
            wait_until(lambda: worker.logged("no name server answers"))
            redis.client_kill_filter(_type="normal", skipme=True)
    with Client(server.url) as client:
        jids = client.push_bulk("Rows", [[]] * 5)
    wait_until(lambda: get(port, "/live")[0] == 503, 240)
    assert "stuck for" in get(port, "/live")[1]
    wait_until(lambda: not redis.exists(identity), 240, "the lease to end")
    began = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait(1 + STOP_GRACE_S + 30) == 1
    assert time.monotonic() - began < 1 + STOP_GRACE_S + 30
    kept = redis.lrange("queue:default", 0, -1) + redis.zrange("retry", 0, -1)
    for key in redis.scan_iter("jobwire:private:*"):  # a job that hangs is recovered from there
        kept += redis.hvals(key)
    assert {jid for jid in jids if any(str(jid).encode() in text for text in kept)} == {*jids}
    assert redis.llen("queue:default") >= 2  # those that did not begin


@pytest.mark.full
@pytest.mark.parametrize("concurrency", JOBS)
def test_the_storm(server: Server, workers: Workers, concurrency: int) -> None:
    """Jobs log, import, lock, push, read and compute, with limits of 1 ms to 1 s."""
    jobs = random.Random(concurrency)
    names = [f"Limited{limit}" for limit in limited.LIMITS]
    with Client(server.url) as client:
        for _ in range(JOBS[concurrency]):
            client.push(jobs.choice(names), [jobs.choice([*limited.WORK])], retry=False)
    worker = workers.start(APP, "--redis", server.url, "-c", str(concurrency), "-t", "1")
    fails_well(worker, server, JOBS[concurrency], concurrency=concurrency)


@pytest.mark.full
def test_stops_in_the_storm(server: Server, workers: Workers) -> None:
    """Each of ten stops ends in time, and loses no job."""
    names = [f"Limited{limit}" for limit in limited.LIMITS]
    with Client(server.url) as client:
        for _ in range(10):
            failed = counter(server, "failed")
            for number in range(100):
                kind = [*limited.WORK][number % len(limited.WORK)]
                client.push(names[number % len(names)], [kind], retry=False)
            worker = workers.start(APP, "--redis", server.url, "-c", "20", "-t", "1")
            wait_until(lambda at=failed + 30: counter(server, "failed") >= at)  # type: ignore[misc]
            stops_well(worker)
            assert not list(server.client().scan_iter("jobwire:private:*"))
