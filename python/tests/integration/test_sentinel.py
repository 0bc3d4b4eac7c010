"""Sentinel: the address of the primary, and the cost of a failover."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from harness.servers import Reaper, wait_until
from jobwire import App, Client, MaybeWritten, RedisTrouble, RedisUnreachable
from tests.integration.clients import KINDS, Kind, connecting
from tests.sentinels import NAME, watched
from tests.server_fixtures import ServerFactory
from tests.workers import brisk, running

pytestmark = pytest.mark.process

# The full run uses 20,000; fewer are enough to see each kind of loss, and faster.
JOBS = int(os.environ.get("JOBWIRE_TEST_FAILOVER_JOBS", "600"))
SAFE = (
    *("--min-replicas-to-write", "1", "--min-replicas-max-lag", "5"),
    *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"),
)


@pytest.mark.real_time
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_finds_the_primary_and_the_next_one(
    _reaper: Reaper,  # noqa: PT019 - its value is needed
    server_factory: ServerFactory,
    kind: Kind,
) -> None:
    """PUSH-8, PUSH-9: each new connection asks the sentinels, also those with a password."""
    with (
        watched(_reaper, server_factory, *SAFE[4:], password="s3cret") as group,
        connecting(kind) as connect,
    ):
        url = f"valkey+sentinel://nobody,{group.hosts}/{NAME}/0?sentinel_password=s3cret"
        client = connect(url, generation=8)
        client.push("A", jid="before")
        first = group.primary()
        assert first.client().llen("queue:default") == 1
        second = group.fail_over()

        def pushed() -> str | None:
            try:
                return client.push("A", jid="after")
            except RedisTrouble:
                return None

        assert wait_until(pushed, 60, "a push to the new primary") == "after"
        assert second.client().llen("queue:default") == 2
        with pytest.raises(RedisUnreachable, match="other") as caught:
            connect(url.replace(NAME, "other"), generation=8).push("A")
        assert "s3cret" not in str(caught.value)
        with pytest.raises(RedisUnreachable) as caught:
            connect(url.replace("s3cret", "wr0ng"), generation=8).push("A")
        assert "wr0ng" not in str(caught.value)


def push_for_certain(client: Client, number: int) -> int:
    """Push a job until the push is confirmed; return the number of possible surplus copies."""
    unsure = 0
    deadline = time.monotonic() + 90
    while True:
        try:
            client.push("Count", [number])
        except MaybeWritten:
            unsure += 1
        except RedisTrouble:
            pass
        else:
            return unsure
        assert time.monotonic() < deadline, f"job {number} could not be pushed"
        time.sleep(0.05)


@pytest.mark.real_time
@pytest.mark.parametrize(("hang", "wait_replicas"), [(False, 1), (True, 2)], ids=["dies", "hangs"])
def test_a_failover_loses_no_job(
    _reaper: Reaper,  # noqa: PT019 - its value is needed
    server_factory: ServerFactory,
    caplog: pytest.LogCaptureFixture,
    hang: bool,
    wait_replicas: int,
) -> None:
    """PUSH-8, PUSH-9, REL-1, REL-8, ENV-6: the primary is replaced while jobs are pushed and run.

    Every job whose push was confirmed runs. A job that was not confirmed is pushed again, so some
    run twice, and none is lost. A primary that hangs and comes back has the other replica for a
    while, so that a confirmation of one replica proves nothing.
    """
    caplog.set_level(logging.INFO)
    app = App()
    ran: Counter[int] = Counter()
    lock = threading.Lock()

    @app.job(name="Count")
    def count(number: int) -> None:
        with lock:
            ran[number] += 1

    with watched(_reaper, server_factory, *SAFE) as group:
        place: Any = SimpleNamespace(url=group.url)
        with (
            Client(
                group.url, generation=8, wait_replicas=wait_replicas, timeout=10.0 if hang else 2.0
            ) as client,
            running(app, place, concurrency=4, timings=brisk(heartbeat_interval=0.5)) as worker,
        ):
            failing = threading.Thread(target=partial(group.fail_over, hang=hang))
            unsure = 0
            for number in range(JOBS):
                if number == JOBS // 3:
                    failing.start()
                unsure += push_for_certain(client, number)
            failing.join(90)
            assert not failing.is_alive()
            wait_until(lambda: len(ran) == JOBS, 120, "all jobs to have run")
            if not hang:  # a primary that comes back in time answers late, or READONLY
                wait_until(lambda: "again, after" in caplog.text, 60, "the line that it is over")
            private = f"jobwire:private:{worker.identity}"
            wait_until(lambda: not group.primary().client().exists(private), 60, "no job in flight")
    lost, twice = JOBS - len(ran), sum(ran.values()) - JOBS
    logging.getLogger(__name__).info(
        "pushed %d, pushed again %d, lost %d, run more than once %d", JOBS, unsure, lost, twice
    )
    assert lost == 0
    down = [r for r in caplog.records if "fetching failed" in r.getMessage()]
    assert len(down) <= 3
