"""Cost of jobs in round trips, commands, bytes and memory: growth, never seconds.

These tests find figures that grow with the number of jobs, or of members. `benchmarks/` and
`jobwire bench` measure speed.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.servers import Server, wait_until
from jobwire import App, Client
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.heartbeat import BEAT_INTERVAL_S
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import DONE, Outcome
from jobwire.protocol.promotion import BATCH, POLL_INTERVAL_S
from jobwire.protocol.reliable import fetch, read_fetched, script_fetch
from jobwire.protocol.wire import command, once
from jobwire.worker.background.canceller import SAFETY_INTERVAL_S
from jobwire.worker.background.poller import Poller
from jobwire.worker.base.timings import DEFAULT_TIMINGS, periodic_look
from jobwire.worker.fetch.leader import Leader
from jobwire.worker.outcome.outbox import Entry, Outbox
from tests.workers import brisk, running

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "sidekiq"
KEYS = Keys()


class Counts(dict[str, int]):
    """Calls by command; the server also counts commands that a script calls.

    Attributes:
        messages: Number of writes of clients.
    """

    messages = 0

    @property
    def sent(self) -> int:
        """Upper limit of the number of commands sent."""
        return sum(self.values())


@contextmanager
def counted(server: Server) -> Iterator[Counts]:
    """Count the commands of all connections, without those of this function."""
    client = server.client()
    client.config_resetstat()
    counts = Counts()
    before = client.info("stats")["total_reads_processed"]
    yield counts
    counts.messages = client.info("stats")["total_reads_processed"] - before - 1
    stats: dict[str, Any] = client.info("commandstats")
    counts.update({name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()})
    counts.pop("config|resetstat", None)
    counts.pop("info", None)


def wait_for_rest(server: Server) -> None:
    """Wait until the threads of a worker that has just started have made their connections."""
    client = server.client()
    seen = [0]

    def rests() -> bool:
        stats: dict[str, Any] = client.info("commandstats")
        seen.append(sum(each["calls"] for name, each in stats.items() if name != "cmdstat_info"))
        time.sleep(0.2)  # no command came in this time
        return seen[-1] == seen[-2]

    wait_until(rests)


def push(server: Server, class_name: str, jobs: int, **options: Any) -> None:
    with Client(server.url) as client:
        client.push_bulk(class_name, [[number] for number in range(jobs)], **options)


def test_quick_jobs_share_their_round_trips(server: Server) -> None:
    """REL-1, REL-2: at most one call of a script for twenty jobs."""
    jobs = 5_000
    push(server, "Nothing", jobs)
    app = App()
    app.job(name="Nothing")(lambda number: None)
    client = server.client()
    with counted(server) as counts, running(app, server, concurrency=10):
        wait_for_all(lambda: int(client.get("stat:processed") or 0) == jobs)
    assert counts["evalsha"] <= 0.05 * jobs


@pytest.mark.process
@pytest.mark.parametrize(
    "near", [DEFAULT_TIMINGS.near_reply, pytest.param(0.0, marks=pytest.mark.full)]
)
def test_a_thread_that_runs_quick_jobs_keeps_the_lead(
    server: Server, monkeypatch: pytest.MonkeyPatch, near: float
) -> None:
    """REL-1: waking another thread costs more than a quick job; also if the thread has to wait for
    each answer because the server is far away.
    """
    jobs = 30_000
    resigned: list[int | None] = []
    resign = Leader.resign

    def count(leader: Leader) -> None:
        resigned.append(leader.thread)
        resign(leader)

    monkeypatch.setattr(Leader, "resign", count)
    push(server, "Nothing", jobs)
    app = App()
    app.job(name="Nothing")(lambda number: None)
    client = server.client()
    with running(app, server, concurrency=10, timings=brisk(near_reply=near)):
        wait_for_all(lambda: int(client.get("stat:processed") or 0) == jobs)
    assert len(resigned) <= 0.05 * jobs


def wait_for_all(done: Callable[[], bool]) -> None:
    """Wait with slow polling: sharing the interpreter with a thread that polls makes jobs look
    slow, and slow jobs are not fetched many at a time.
    """

    def look() -> bool:
        time.sleep(0.1)
        return done()

    wait_until(look, timeout=60, what="the jobs to be run")


@pytest.mark.parametrize(("version", "generation"), [("7.3.2", 7), ("8.1.7", 8)])
@pytest.mark.parametrize("scenario", ["push-plain", "push-no-args"])
def test_a_queued_job_takes_the_bytes_that_it_takes_sidekiq(
    server: Server, version: str, generation: Any, scenario: str
) -> None:
    """PAY-2, PAY-11: but for the digits of its times, whose number varies in generation 7."""
    entries = json.loads((FIXTURES / version / "payloads.json").read_text("utf-8"))
    name = f"{scenario}/queue:default/0"
    theirs = next(each["payload"] for each in entries if each["name"] == name).encode()
    job = json.loads(theirs)
    with Client(server.url, generation=generation) as client:
        client.push(job["class"], job["args"])
    ours = server.client().lindex("queue:default", 0)
    assert bytes_without_times(ours) == bytes_without_times(theirs)
    if generation == 8:
        assert len(ours) == len(theirs)


def bytes_without_times(text: bytes) -> int:
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return len(text) - sum(len(fields[name]) for name in ("created_at", "enqueued_at"))


OUTCOMES = [("done", DONE), ("retry", Outcome("retry", b"{}", 1e9, "failed"))]


@pytest.mark.parametrize(("name", "outcome"), OUTCOMES, ids=[name for name, _ in OUTCOMES])
def test_a_hundred_outcomes_are_one_call(server: Server, name: str, outcome: Outcome) -> None:
    """REL-2, RETRY-9: in the same message as the next fetch."""
    push(server, "Nothing", 200)
    redis = SyncRedis(server.url)
    redis.run(once(command("HSET", KEYS.process("me"), "info", "{}")))
    outbox = Outbox(
        *(redis, KEYS, "me"),
        dead_limits=lambda: DeadSetLimits(time.time()),
        flush_log=lambda: None,
        retry_interval=1.0,
        on_failure=lambda: None,
    )
    held = redis.run(fetch(KEYS, "me", ["default"], count=100, sequence=1)).jobs
    outbox.send_with(script_fetch(KEYS, "me", ["none"], count=1, sequence=500))()
    for number in (1, 2):
        for each in held:
            text = json.dumps({"class": "Nothing", "jid": each.field}).encode()
            again = msgspec.structs.replace(outcome, text=text) if outcome.place else outcome
            outbox.add(Entry(each, again))
        following = script_fetch(KEYS, "me", ["default"], count=100, sequence=1000 * number)
        with counted(server) as counts:
            held = read_fetched(outbox.send_with(following)()).jobs
        # The outcomes and the fetch; at first the server does not know the script.
        assert counts["evalsha"] == (3 if number == 1 else 2)
    client = server.client()
    assert client.get("stat:processed") == b"200"
    assert client.zcard("retry") == (200 if name == "retry" else 0)
    redis.close()


def test_failing_jobs_share_their_round_trips(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """RETRY-9: storing the failures of a thousand jobs takes far fewer round trips than jobs."""
    jobs = 1_000
    push(server, "Failing", jobs)
    app = App()

    @app.job(name="Failing")
    def failing(number: int) -> None:
        raise ValueError(number)

    caplog.set_level("CRITICAL", logger="jobwire")  # otherwise writing the log is most of the work
    client = server.client()
    with counted(server) as counts, running(app, server, concurrency=10):
        wait_for_all(lambda: client.zcard("retry") == jobs)
    assert counts["evalsha"] <= 0.2 * jobs
    # In the scripts, one for each job; and one without effect, which the start tries.
    assert counts["zadd"] == jobs + 1


def test_promoting_takes_two_round_trips_a_batch(server: Server) -> None:
    """SCHED-5: one question and one call for a whole batch of members."""
    batches = 4
    push(server, "Nothing", batches * BATCH, at=time.time() - 5)
    redis = SyncRedis(server.url)
    poller = make_poller(redis)
    with counted(server) as counts:
        poller._look(KEYS.schedule)
    assert server.client().llen("queue:default") == batches * BATCH
    assert counts["zrange"] <= batches + 2
    assert counts["evalsha"] <= batches + 1  # one more to load the script
    redis.close()


def make_poller(redis: SyncRedis) -> Poller:
    return Poller(
        redis,
        KEYS,
        interval=None,
        generation=lambda: 8,
        dead_limits=lambda: DeadSetLimits(time.time()),
    )


@pytest.mark.process
def test_memory_does_not_grow_with_the_scheduled_set(server: Server) -> None:
    """SCHED-5: due jobs are read in batches, and jobs that are not due are not read."""
    redis = SyncRedis(server.url)
    poller = make_poller(redis)
    poller._look(KEYS.schedule)
    peaks = []
    for members in (1_000, 20_000):
        push(server, "Nothing", members, at=time.time() + 3600)
        push(server, "Nothing", members, at=time.time() - 5)
        tracemalloc.start()
        try:
            poller._look(KEYS.schedule)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert server.client().llen("queue:default") == 21_000
    assert server.client().zcard("schedule") == 21_000
    assert peaks[1] < 1.5 * peaks[0], peaks
    redis.close()


IDLE_SECONDS = 5.0
IDLE_A_MINUTE = 300  # commands, including those that scripts call
WAITING = 2  # connections that wait for notices: of pushes, and of due and cancelled jobs
# The pool has a connection for each thread that communicates at the same instant, and a slow reply
# makes more of them meet. They are the leader, ticker, heartbeat, poller and that of periodic jobs.
COMMUNICATING = 5
IDLE_CONNECTIONS = WAITING + COMMUNICATING


@pytest.mark.process
def test_an_idle_worker_is_hardly_seen(server: Server) -> None:
    """BEAT-1, SCHED-8, REL-1, FETCH-10: the worker waits for notices, over few connections."""
    app = App()
    app.job(name="Nothing")(lambda number: None)
    client = server.client()
    push(server, "Nothing", 100)
    with running(app, server, concurrency=10):
        wait_until(lambda: client.get("stat:processed") == b"100")
        began = time.monotonic()
        with counted(server) as counts:
            time.sleep(IDLE_SECONDS)  # the worker must send few commands in this time
        idle = time.monotonic() - began
        names = [each["name"] for each in client.client_list()]
    # The share of a minute, and two more beats, because beats are not evenly spaced.
    assert counts.sent <= IDLE_A_MINUTE * (idle + 2 * BEAT_INTERVAL_S) / 60, counts
    assert "brpop" not in counts
    ours = [name for name in names if name.startswith("jobwire-")]
    assert 0 < len(ours) <= IDLE_CONNECTIONS, names


def test_beats_and_looks_come_to_a_bounded_number_a_minute(server: Server) -> None:
    """BEAT-1, SCHED-8, X-CANCEL-3: events that the span of the test above may have missed."""
    with running(App(), server) as launcher:
        wait_for_rest(server)
        beat, look, periodic = launcher._heartbeat, launcher._poller, launcher._periodic
        assert periodic is not None
        with counted(server) as beats:
            beat._round()
        # List 15-1: lease, lock of the pruner, parked jobs and recovery, without a reply between.
        assert beats.messages == 1
        with counted(server) as looks:
            for zset in (KEYS.retry, KEYS.schedule):
                look._look(zset)
            look._next_wait()
        with counted(server) as entries:
            periodic._look()
    each_minute = 60 / BEAT_INTERVAL_S * beats.sent + 60 / POLL_INTERVAL_S * looks.sent
    each_minute += 60 / periodic_look(jitter=0) * entries.sent
    fetches = (
        60 / DEFAULT_TIMINGS.fetch_safety_interval * 10
    )  # and the commands of a script that finds nothing
    marks = 60 / SAFETY_INTERVAL_S
    total = each_minute + fetches + marks
    assert 0 < total <= IDLE_A_MINUTE, (beats, looks, entries)
