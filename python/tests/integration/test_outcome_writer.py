"""The outcome writer and its outbox: outcomes are stored in batches, without delay."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.foreign import park
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import DONE, NextJob, Outcome
from jobwire.protocol.reliable import InFlightJob, read_fetched, script_fetch
from jobwire.protocol.wire import Batch, Script, command
from jobwire.worker.base.ticker import Ticker
from jobwire.worker.base.timings import DEFAULT_TIMINGS
from jobwire.worker.outcome.immediate_sink import ExecutionCounts, ImmediateSink
from jobwire.worker.outcome.outbox import Entry, Outbox
from jobwire.worker.outcome.writer import OutcomeWriter

KEYS = Keys("app:")
ME = "host:1:abc"
BURIED = Outcome("dead", b"buried", counted="failed")


@pytest.fixture
def redis(server: Server) -> Iterator[SyncRedis]:
    shell = SyncRedis(server.url)
    yield shell
    shell.close()


class Writing:
    """An outcome writer with its outbox and its ticker."""

    def __init__(self, redis: SyncRedis) -> None:
        self.ticker = Ticker(tick=DEFAULT_TIMINGS.tick)
        self.outbox = Outbox(
            *(redis, KEYS, ME),
            dead_limits=lambda: DeadSetLimits(time.time()),
            flush_log=lambda: None,
            retry_interval=DEFAULT_TIMINGS.outcome_retry_interval,
            on_failure=self.ticker.wake,
        )
        writer = OutcomeWriter(self.outbox, self.ticker, DEFAULT_TIMINGS)
        self.record, self.store, self.flush_soon = writer.record, writer.store, writer.flush_soon
        self.ran = writer.ran
        self._writer = writer
        self.ticker.start()

    def close(self, timeout: float) -> int:
        left = self._writer.close(timeout)
        self.ticker.close()
        return left


@pytest.fixture
def writer(redis: SyncRedis) -> Iterator[Writing]:
    writing = Writing(redis)
    yield writing
    writing.close(0)


def hold(server: Server, *numbers: int) -> list[InFlightJob]:
    """Put jobs into the private hash, as a fetch does."""
    held = [InFlightJob(f"{n}:q", "q", b'{"n":%d}' % n) for n in numbers]
    entries: Any = {each.field: each.text for each in held}
    server.client().hset(KEYS.private(ME), mapping=entries)
    return held


def left(server: Server) -> int:
    return int(server.client().hlen(KEYS.private(ME)))


def count(server: Server, kind: str, of: str = "") -> int:
    return int(server.client().get(f"app:{of}stat:{kind}") or 0)


def test_the_next_job_is_pushed_by_every_kind_of_end(
    server: Server, redis: SyncRedis, writer: Writing
) -> None:
    """REL-2, KEY-1: of a held job, of one that was acknowledged before, and with basic fetch."""
    basic = ImmediateSink(
        *(redis, KEYS),
        counts=ExecutionCounts(),
        dead_limits=lambda: DeadSetLimits(time.time()),
        flush_log=lambda: None,
    )
    [held] = hold(server, 1)
    writer.record(held, Outcome(next=NextJob("held", b"1")))
    writer.ran(failed=False, rest=Outcome(next=NextJob("acknowledged", b"2")))
    basic.record(InFlightJob("", "q", b"{}"), Outcome(next=NextJob("basic", b"3")))
    assert writer.close(60) == 0
    client = server.client()
    queues = {name: client.lrange(KEYS.queue(name), 0, -1) for name in ("held", "acknowledged")}
    assert queues == {"held": [b"1"], "acknowledged": [b"2"]}
    assert client.lrange(KEYS.queue("basic"), 0, -1) == [b"3"]
    assert client.smembers(KEYS.queues) == {b"held", b"acknowledged", b"basic"}
    assert left(server) == 0


def test_many_go_in_one_round_trip(server: Server, writer: Writing) -> None:
    """REL-2, STAT-1: each job is in one batch."""
    held = hold(server, *range(2000))
    client = server.client()
    client.config_resetstat()
    for each in held:
        writer.record(each, DONE)
    assert writer.close(60) == 0
    assert left(server) == 0
    assert count(server, "processed") == 2000
    calls: Any = client.info("commandstats")
    assert calls["cmdstat_evalsha"]["calls"] < 200


def test_outcomes_of_a_message_that_could_not_be_sent_are_sent_later(
    server: Server, redis: SyncRedis
) -> None:
    """REL-2: also if the reason is in this process, like a log that cannot be written."""
    troubles = [OSError("no space left")]

    def flush_log() -> None:
        if troubles:
            raise troubles.pop()

    outbox = Outbox(
        *(redis, KEYS, ME),
        dead_limits=lambda: DeadSetLimits(time.time()),
        flush_log=flush_log,
        retry_interval=0,
        on_failure=lambda: None,
    )
    (held,) = hold(server, 1)
    outbox.add(Entry(held, DONE))
    with pytest.raises(OSError, match="no space left"):
        outbox.send_overdue(0)
    assert outbox.fields() == [held.field]
    assert outbox.unstored == 1
    assert outbox.send_failed() is None
    assert outbox.fields() == []
    assert outbox.unstored == left(server) == 0
    assert count(server, "processed") == 1


def test_an_outcome_that_is_refused_holds_up_no_other(
    server: Server, writer: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-2, RETRY-9: the job stays held, is tried again, and is reported once."""
    caplog.set_level(logging.INFO)
    client = server.client()
    client.set(KEYS.retry, "not a sorted set")
    refused, *others = hold(server, *range(20))
    writer.record(refused, Outcome("retry", b"again", 5.5, "failed"))
    writer.flush_soon()
    wait_until(lambda: "WRONGTYPE" in caplog.text)
    for each in others:
        writer.record(each, DONE)
    writer.flush_soon()
    wait_until(lambda: left(server) == 1, what="the others")
    wait_until(
        lambda: client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] >= 4,
        what="more tries",
    )
    assert client.hexists(KEYS.private(ME), refused.field)
    client.delete(KEYS.retry)
    wait_until(lambda: client.zcard(KEYS.retry))
    wait_until(lambda: "stored again" in caplog.text)
    assert left(server) == 0
    assert count(server, "processed") == 20
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


@pytest.mark.parametrize("refused", [False, True])
def test_what_follows_an_outcome_waits_until_it_is_stored(
    server: Server, writer: Writing, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    """REL-2, X-STEP-6: also if the server has forgotten the script, or refuses it at first.

    Else a crash in between leaves the job without the steps that it has finished.
    """
    client = server.client()
    held, other = hold(server, 1, 2)
    copy = command("COPY", KEYS.private(ME), "app:too early")  # nothing to copy after the step
    buried = Outcome("dead", b"buried", counted="failed", after=[copy])
    client.script_flush()
    if refused:
        client.set(KEYS.dead, "not a sorted set")
    assert writer.store(other, DONE)
    writer.record(held, buried)
    writer.flush_soon()
    if refused:
        wait_until(lambda: "WRONGTYPE" in caplog.text)
        client.delete(KEYS.dead)
    assert writer.close(60) == 0
    assert left(server) == 0
    assert client.zcard(KEYS.dead) == 1
    assert client.info("commandstats")["cmdstat_copy"]["calls"] == 1
    assert not client.exists("app:too early")


def test_what_stands_beside_an_outcome_goes_in_its_message(server: Server, writer: Writing) -> None:
    """X-PARK-4, X-ADDON-6: no crash of the process comes between, which would leave it out."""
    (held,) = hold(server, 1)
    parked = Entry(held, park(KEYS, held.text, "bid", 1.0))
    fetch = script_fetch(KEYS, ME, queues=["q"], count=1, sequence=9)
    message = next(writer.outbox._exchange([[parked]], fetch))
    assert isinstance(message, Batch)
    assert [*map(_name, message.steps)] == ["finish", "HSET", "fetch"]
    writer.record(held, parked.outcome)
    assert writer.outbox.send_with(fetch)() is None  # the process has no lease
    assert server.client().hvals(KEYS.parked_why) == [b"bid"]


def _name(step: Any) -> Any:
    return step.name if isinstance(step, Script) else step.args[0]


def test_what_follows_an_outcome_is_not_for_a_job_that_was_put_back(
    server: Server, writer: Writing
) -> None:
    """REL-2, X-STEP-6, X-LIMIT-5: it runs again, with its data; its old execution has no slot."""
    client = server.client()
    held, gone = hold(server, 1, 2)
    client.hdel(KEYS.private(ME), gone.field)
    client.hset(KEYS.iteration("gone"), "c", "1")
    for each in (held, gone):
        after, frees = (command("SADD", f"app:{name}", each.field) for name in ("after", "frees"))
        cancelled = "gone" if each is gone else ""
        writer.record(each, Outcome(cancelled=cancelled, after=[after], frees=[frees]))
    assert writer.close(60) == 0
    assert client.smembers("app:after") == {held.field.encode()}
    assert client.scard("app:frees") == 2
    assert client.exists(KEYS.iteration("gone"))
    assert count(server, "lost", of="jobwire:") == 1


def test_an_outcome_that_was_refused_is_lost_like_any_other(
    server: Server, writer: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-23: a call that was refused stored nothing, so the next one is not a repetition."""
    client = server.client()
    client.set(KEYS.dead, "not a sorted set")
    (refused,) = hold(server, 1)
    writer.record(refused, BURIED)
    writer.flush_soon()
    wait_until(lambda: "WRONGTYPE" in caplog.text)
    client.delete(KEYS.private(ME), KEYS.dead)
    assert writer.close(60) == 0
    assert client.keys("app:*") == [b"app:jobwire:stat:lost"]
    assert count(server, "lost", of="jobwire:") == 1


def test_periodic_checks_are_called_while_they_ask_for_it(writer: Writing) -> None:
    """FETCH-6: such a check finds jobs that wait behind long ones."""
    times: list[float] = []

    def check() -> float | None:
        times.append(time.monotonic())
        return 0.001 if len(times) < 4 else None

    writer.ticker.add_periodic_check(check)
    assert times == []
    writer.flush_soon()
    wait_until(lambda: len(times) >= 4)
    assert times[3] - times[0] < 30


def test_an_outcome_goes_along_with_a_fetch(server: Server, writer: Writing) -> None:
    """REL-2: one round trip for both, and no thread is woken for it."""
    client = server.client()
    client.hset(KEYS.process(ME), "beat", 1)
    client.lpush(KEYS.queue("q"), "next")
    for each in hold(server, 1, 2, 3):
        writer.record(each, DONE)
    reply = writer.outbox.send_with(script_fetch(KEYS, ME, ["q"], count=1, sequence=9))()
    assert [job.field for job in read_fetched(reply).jobs] == ["9:q"]
    assert not writer.outbox.pending
    assert left(server) == 1


def test_who_stores_hears_whether_the_job_was_held(server: Server, writer: Writing) -> None:
    """RETRY-13: death handlers are called for jobs killed here, and for no other jobs."""
    (held,) = hold(server, 1)
    assert writer.store(held, BURIED)
    assert not writer.store(held, BURIED)
    assert server.client().zcard(KEYS.dead) == 1
