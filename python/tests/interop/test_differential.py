"""Generated jobs through real Sidekiq and through jobwire: the same fates, to the field.

The scenarios are in scenarios.py, the comparison in fates.py, and the differences with their
reasons in known_differences.py. JOBWIRE_SEED makes other scenarios, JOBWIRE_SCENARIOS more of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.servers import Server
from tests.interop.fates import Round, Side
from tests.interop.known_differences import unexplained
from tests.interop.python_worker import worker_process
from tests.interop.scenarios import SERVED, Scenario, scenarios
from tests.interop.shapes import SEED
from tests.interop.sidekiq import RealSidekiq
from tests.server_fixtures import ServerFactory

pytestmark = pytest.mark.interop

COUNT = int(os.environ.get("JOBWIRE_SCENARIOS", "650"))
PART = 100  # at a time, so that a round ends long before a first retry is due
ROUNDS = 4
POLL = 0.05  # seconds


def play(
    client: Any,
    table: Sequence[Scenario],
    running: Callable[[], bool],
    stop: Callable[[], Any],
) -> list[Round]:
    """Return the fates of the scenarios, round by round; check the worker's counters."""
    side = Side(client, table, running)
    rounds: list[dict[int, Any]] = [{} for _ in range(ROUNDS)]
    for start in range(0, len(table), PART):
        for whole, part in zip(rounds, side.play(table[start : start + PART], ROUNDS), strict=True):
            whole.update(part)
    stop()  # which writes the counters
    counted = [int(client.get(f"stat:{name}")) for name in ("processed", "failed")]
    assert counted == [side.executions, side.failures]
    return list(rounds)


def test_same_fate(sidekiq: RealSidekiq, server: Server, server_factory: ServerFactory) -> None:
    """RETRY-1 to RETRY-13, DEAD-1, DEAD-4, SCHED-6, SCHED-7, EXEC-1 to EXEC-3, EXEC-5,
    EXEC-6, EXEC-8, PAY-1, PAY-5, PAY-7, PAY-10, PAY-13, PAY-34, GEN-1, GEN-2, STAT-1: all
    fields in Redis, their order, and the calls of hooks and handlers, through failures and
    promotions, with the clock warped."""
    table = scenarios(COUNT)
    second = server_factory()

    def ruby() -> list[Round]:
        with sidekiq.worker(
            queues=SERVED, concurrency=1, poll=POLL, options=["-r", "./differential.rb"]
        ) as worker:
            return play(server.client(), table, lambda: worker.running, worker.stop)

    def python() -> list[Round]:
        with worker_process(
            second.url,
            *("--concurrency", "1", "--fetch", "basic", "--poll-interval", str(POLL)),
            *(word for queue in SERVED for word in ("--queue", queue)),
            app="tests.interop.differential_app:app",
            env={"WRITE": "8" if sidekiq.generation == 8 else "7"},
        ) as worker:
            return play(second.client(), table, lambda: worker.running, worker.stop)

    with ThreadPoolExecutor() as pool:
        theirs, ours = pool.submit(ruby), pool.submit(python)
        lines = unexplained(sidekiq.generation, table, theirs.result(), ours.result())
    assert not lines, f"seed {SEED}, {len(lines)} differences:\n" + "\n".join(lines[:20])
