"""kill -9: another worker runs every job that a worker held, none is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Reaper, Server, wait_until
from jobwire import Client
from jobwire.protocol.keys import Keys
from jobwire.worker.fetch.doorbell import PLACES, group_of
from tests.apps import recording
from tests.workers import WorkerProcess, Workers

APP = "tests.apps.recording:app"
FETCHED_WITHIN = 16 + 15  # seconds: the safety net of 15 s, and a busy machine


def traces(server: Server, key: str) -> list[Any]:
    found: Any = server.client().lrange(key, 0, -1)
    return [json.loads(text) for text in found]


def kill_with_prefetched_jobs(server: Server, worker: WorkerProcess, jobs: int) -> tuple[str, int]:
    """Kill a worker of ten threads that runs ten `Hold` jobs and holds more.

    Returns:
        Its identity, and the number of jobs that it held.
    """
    client = server.client()
    identity = worker.identity(client)
    held = f"jobwire:private:{identity}"

    def fetched_ahead() -> bool:
        return int(client.hlen(held)) > 10

    with Client(server.url) as enqueuer:
        # After many quick jobs it fetches ahead. Prefetched jobs soon go back if
        # they have to wait, so this is a race, but one that can be repeated.
        for _ in range(10):
            enqueuer.push_bulk("Note", [[n] for n in range(500)], retry=False)
            wait_until(lambda: not client.exists("queue:default") and not client.exists(held))
            enqueuer.push_bulk("Hold", [[n] for n in range(jobs)])
            wait_until(lambda: len(traces(server, recording.STARTED)) >= 10 or fetched_ahead())
            os.kill(worker.process.pid, signal.SIGSTOP)
            if fetched_ahead():
                break
            os.kill(worker.process.pid, signal.SIGCONT)
            client.set(recording.RELEASE, 1)
            wait_until(lambda: not client.exists("queue:default") and not client.exists(held))
            client.delete(recording.RELEASE, recording.STARTED, recording.RAN)
    assert fetched_ahead(), "never saw it with jobs fetched ahead"
    worker.kill()
    client.delete(recording.STARTED, recording.RAN)
    return identity, int(client.hlen(held))


def all_run_by(
    server: Server, worker: WorkerProcess, jobs: int, *, held: int, timeout: float
) -> None:
    client = server.client()
    client.set(recording.RELEASE, 1)
    wait_until(lambda: len(traces(server, recording.RAN)) >= jobs, timeout, "all jobs")
    wait_until(lambda: not client.exists(f"jobwire:private:{worker.identity(client)}"))
    runs = Counter(args[0] for name, args in traces(server, recording.RAN) if name == "Hold")
    assert runs == dict.fromkeys(range(jobs), 1)
    assert not client.exists("queue:default", "retry", "dead", "jobwire:returned")
    starts = [line["ctx"] for line in worker.logged("start") if line["msg"] == "start"]
    again = [ctx["returned"] for ctx in starts if "returned" in ctx and ctx["class"] == "Hold"]
    assert again == [1] * held


def test_jobs_of_a_killed_worker_are_run_again(server: Server, workers: Workers) -> None:
    """REL-1, REL-3, REL-4, REL-7: the test ends the lease itself, to save a minute."""
    first = workers.start(APP, "--redis", server.url, "-c", "10")
    identity, held = kill_with_prefetched_jobs(server, first, jobs=30)
    client = server.client()
    assert held + client.llen("queue:default") == 30
    client.delete(identity)
    second = workers.start(APP, "--redis", server.url, "-c", "10")
    all_run_by(server, second, 30, held=held, timeout=60)
    assert second.logged(f"jobs of dead process {identity}")
    assert client.smembers("jobwire:owners") <= {second.identity(client).encode()}


def test_nobody_waits_for_a_process_of_the_same_machine(server: Server, workers: Workers) -> None:
    """REL-11: its lease has a minute left, and its jobs run at once. A paused process keeps
    its jobs.
    """
    client = server.client()
    sleeping, dying = (workers.start(APP, "--redis", server.url, "-c", "1") for _ in range(2))
    identities = [worker.identity(client) for worker in (sleeping, dying)]
    with Client(server.url) as enqueuer:
        enqueuer.push_bulk("Hold", [[1], [2]])
    wait_until(lambda: len(traces(server, recording.STARTED)) == 2, 60)
    sleeping.send(signal.SIGSTOP)
    dying.kill()
    assert all(client.ttl(identity) > 20 for identity in identities)
    workers.start(APP, "--redis", server.url, "-c", "2")
    wait_until(lambda: len(traces(server, recording.STARTED)) == 3, 60, "the job to run again")
    assert client.hlen(f"jobwire:private:{identities[0]}") == 1
    assert client.exists(*identities) == 1
    assert client.get("jobwire:stat:recovered") == b"1"
    client.set(recording.RELEASE, 1)
    sleeping.send(signal.SIGCONT)
    wait_until(lambda: len(traces(server, recording.RAN)) == 2, 60)


@pytest.mark.timing
def test_jobs_are_back_within_75_seconds(
    server: Server, workers: Workers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """REL-5, BEAT-8: without help, with the real lease and a second worker that always runs."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # as on a machine that is not the workers'
    first = workers.start(APP, "--redis", server.url, "-c", "10")
    _, held = kill_with_prefetched_jobs(server, first, jobs=30)
    killed = time.monotonic()
    monkeypatch.delenv("TMPDIR")
    second = workers.start(APP, "--redis", server.url, "-c", "10")
    all_run_by(server, second, 30, held=held, timeout=75)
    assert time.monotonic() - killed < 75


def test_a_worker_that_only_slept_does_not_overrule_its_heir(
    server: Server, workers: Workers
) -> None:
    """REL-2, REL-3: paused for longer than its lease, like a suspended laptop."""
    client = server.client()
    first = workers.start(APP, "--redis", server.url, "-c", "1")
    identity = first.identity(client)
    with Client(server.url) as enqueuer:
        enqueuer.push("Hold", [1])
    wait_until(lambda: traces(server, recording.STARTED))
    first.send(signal.SIGSTOP)
    client.delete(identity)
    second = workers.start(APP, "--redis", server.url, "-c", "1")
    wait_until(lambda: len(traces(server, recording.STARTED)) == 2)
    client.set(recording.RELEASE, 1)
    wait_until(lambda: client.get("stat:processed") == b"1")
    first.send(signal.SIGCONT)
    wait_until(lambda: first.logged("dropped"))
    assert client.get("stat:processed") == b"1"
    for worker in (first, second):
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0


def test_a_job_that_may_not_be_redelivered_is_lost_with_its_process(
    server: Server, workers: Workers
) -> None:
    """REL-2: beside a job that runs again."""
    first = workers.start(APP, "--redis", server.url)
    with Client(server.url) as enqueuer:
        enqueuer.push("Once", [0])
        enqueuer.push("Hold", [1])
    wait_until(lambda: traces(server, recording.ONCE) and traces(server, recording.STARTED))
    first.kill()
    second = workers.start(APP, "--redis", server.url)
    wait_until(lambda: traces(server, recording.STARTED) == [1, 1], 90)
    server.client().set(recording.RELEASE, 1)
    wait_until(lambda: traces(server, recording.RAN))
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    assert traces(server, recording.ONCE) == [0]
    assert not server.client().exists("queue:default")


def test_such_jobs_run_at_most_once_wherever_their_process_is_killed(
    server: Server, workers: Workers
) -> None:
    """REL-2: each kill strikes at another instant of fetch, acknowledgement and run."""
    client: Any = server.client()
    jobs, kills, threads = 3000, 4, 5
    with Client(server.url) as enqueuer:
        enqueuer.push_bulk("Once", [[number] for number in range(1, jobs + 1)])
    for kill in range(1, kills + 1):
        enough = client.llen(recording.ONCE) + 300 + kill
        worker = workers.start(APP, "--redis", server.url, "-c", str(threads))
        wait_until(partial(_has, client, enough))
        worker.kill()
    last = workers.start(APP, "--redis", server.url, "-c", str(threads))
    held = "jobwire:private:*"
    wait_until(lambda: not client.exists("queue:default") and not client.keys(held), 90)
    last.send(signal.SIGTERM)
    assert last.wait() == 0
    ran = Counter(traces(server, recording.ONCE))
    assert max(ran.values()) == 1
    assert jobs - kills * (threads + 1) <= len(ran) <= jobs


def _has(client: Any, runs: int) -> bool:
    return bool(client.llen(recording.ONCE) >= runs)


VERSION = """
import os, jobwire, redis
app = jobwire.App({url!r})
ledger = redis.Redis.from_url({url!r})
def run(number):
    job = jobwire.current_job()
    words = job.class_name, number, "{version}", job.get("retry_count")
    ledger.rpush("test:ledger", " ".join(map(str, words)))
for name in {names!r}:
    app.job(name=name)(run)
"""


def test_a_rolling_deploy_with_kills_loses_no_job(
    server: Server, workers: Workers, tmp_path: Path
) -> None:
    """X-CLASS-3, X-CLASS-6: no retry, nothing dead or parked at the end, New by new code only."""
    for version, names in (("old", ["Old"]), ("new", ["Old", "New"])):
        code = VERSION.format(url=server.url, version=version, names=names)
        (tmp_path / f"{version}.py").write_text(code)
    client: Any = server.client()
    wanted = {f"{kind} {n}" for kind in ("Old", "New") for n in range(400)}

    def enqueue(numbers: range) -> None:
        client.lpush(
            "queue:default",
            *(
                json.dumps({"class": k, "queue": "default", "args": [n], "jid": f"{k}{n}"})
                for n in numbers
                for k in ("Old", "New")
            ),
        )

    def start(version: str) -> WorkerProcess:
        one = workers.start(f"{version}:app", "--unknown-jobs", "park", "-q", "default")
        one.identity(client)
        return one

    def done() -> set[str]:
        lines = [line.decode().split() for line in client.lrange("test:ledger", 0, -1)]
        assert all(line[3] == "None" for line in lines)
        assert all(line[2] == "new" for line in lines if line[0] == "New")
        return {" ".join(line[:2]) for line in lines}

    olds = [start("old"), start("old")]
    enqueue(range(100))
    wait_until(lambda: client.zcard("jobwire:parked") == 100)
    news = [start("new")]
    enqueue(range(100, 200))
    olds[0].kill()
    news += [start("new")]
    enqueue(range(200, 300))
    news[0].kill()
    enqueue(range(300, 400))
    olds[1].send(signal.SIGTERM)
    assert olds[1].wait() == 0
    wait_until(lambda: done() == wanted, timeout=120)
    wait_until(lambda: not client.keys("queue:*") and not client.keys("jobwire:private:*"))
    assert not client.exists("jobwire:parked", "jobwire:parked:why", "retry", "dead")


def test_after_the_death_of_both_guards_a_job_is_taken(workers: Workers, server: Server) -> None:
    """REL-30: by a process that waits at the doorbell, at its next look."""
    client = server.client()
    started = [workers.start(APP, "--redis", server.url) for _ in range(3)]
    by_name = {worker.identity(client).encode(): worker for worker in started}
    group = group_of(["default"])
    places = [Keys().idle(group, place) for place in PLACES]
    wait_until(lambda: all(client.mget(places)))
    wait_until(lambda: client.info("clients")["blocked_clients"])
    for guard in client.mget(places):
        by_name[guard].kill()
    began = time.monotonic()
    with Client(server.url) as enqueuer:
        enqueuer.push("Note", [1])
    wait_until(lambda: traces(server, recording.RAN))
    assert time.monotonic() - began < FETCHED_WITHIN


KILLING_APP = "tests.apps.ending:app"


def test_a_job_that_kills_its_workers_is_put_aside(server: Server, workers: Workers) -> None:
    """REL-10, REL-11: after four dead workers the fifth kills the job and runs the others."""
    client = server.client()
    with Client(server.url) as enqueuer:
        jid = enqueuer.push("Kill", [], retry=False)
        enqueuer.push("Note", [])
    for _ in range(4):
        killed = workers.start(KILLING_APP, "--redis", server.url, "-c", "1")
        assert killed.wait(60) == -9, killed.log.read_text()
    last = workers.start(KILLING_APP, "--redis", server.url, "-c", "1")
    wait_until(lambda: client.zcard("dead") == 1, 60, "the burial")
    wait_until(lambda: client.get("stat:processed") == b"1", 60, "the other job")
    [text] = client.zrange("dead", 0, -1)
    dead_limits = json.loads(text)
    assert (dead_limits["jid"], dead_limits["error_class"]) == (jid, "jobwire.PoisonPill")
    assert "retry_count" not in dead_limits
    assert not client.exists("queue:default", "stat:failed", "jobwire:returned")
    assert last.process.poll() is None


# -- An iterable job whose worker is killed or stopped: another process continues it

JOBS = """
import time
import redis
from jobwire import App
from jobwire.iterables import over_sequence
from jobwire.protocol import iteration

iteration.SAVE_INTERVAL_S = 0.2  # seconds, to save some
app = App()

@app.iterable(name="Walk")
def walk(cursor, count):
    with redis.Redis.from_url(app.url) as client:
        for item, at in over_sequence(cursor, range(count)):
            yield at
            client.rpush("app:items", item)
            if not client.exists("app:hurry"):
                time.sleep(0.01)
"""
COUNT = 2000  # 20 s without app:hurry


@pytest.fixture
def workers(_reaper: Reaper, tmp_path: Path) -> Iterator[Workers]:
    (tmp_path / "walking.py").write_text(JOBS)
    with Workers(_reaper, tmp_path) as running:
        yield running


def items(server: Server) -> list[int]:
    return [int(item) for item in server.client().lrange("app:items", 0, -1)]


def further(server: Server) -> None:
    """Wait until some more items have begun."""
    before = len(items(server))
    wait_until(lambda: len(items(server)) > before + 5, 60, "some items")


@pytest.mark.parametrize("fetch", ["reliable", pytest.param("basic", marks=pytest.mark.full)])
def test_a_deployment(server: Server, workers: Workers, fetch: str) -> None:
    """ITER-3, ITER-4, ITER-5: TERM ends the process soon; no item is left out or repeated."""
    client = server.client()
    with Client(server.url) as enqueuer:
        jid = enqueuer.push("Walk", [COUNT])
    command = ("walking:app", "--redis", server.url, "--fetch", fetch)
    for _ in range(2):
        worker = workers.start(*command)
        further(server)
        worker.send(signal.SIGTERM)
        assert worker.wait(60) == 0
        assert client.llen("queue:default") == 1
        assert client.hget(f"it-{jid}", "c") == str(len(items(server))).encode()
    client.set("app:hurry", 1)
    workers.start(*command)
    wait_until(lambda: items(server)[-1] == COUNT - 1, 60, "the last item")
    wait_until(lambda: not client.exists(f"it-{jid}"), 60, "the end of its state")
    assert items(server) == list(range(COUNT))


def test_a_crash(server: Server, workers: Workers) -> None:
    """ITER-3, ITER-5, REL-4: after kill -9, from the last saved cursor."""
    client = server.client()
    with Client(server.url) as enqueuer:
        jid = enqueuer.push("Walk", [COUNT])
    worker = workers.start("walking:app", "--redis", server.url)
    wait_until(lambda: client.exists(f"it-{jid}"), 60, "a save")
    worker.kill()
    begun = items(server)
    saved = int(client.hget(f"it-{jid}", "c"))
    assert begun == list(range(len(begun)))
    assert 0 < saved <= len(begun)
    client.set("app:hurry", 1)
    workers.start("walking:app", "--redis", server.url)
    wait_until(lambda: items(server)[-1] == COUNT - 1, 60, "the last item")
    wait_until(lambda: not client.exists(f"it-{jid}"), 60, "the end of its state")
    assert items(server)[len(begun) :] == list(range(saved, COUNT))
