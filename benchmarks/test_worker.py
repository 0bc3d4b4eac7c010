"""A thread of the worker, without Redis: the cost of a job besides its own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jobwire import App, Job
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import Metrics
from jobwire.protocol.outcome import DONE, Outcome
from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.execute.compiled_job import CancelledIds, JobTable
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.hand_over import HandOver
from jobwire.worker.execute.iterating import Iterations
from jobwire.worker.execute.outcome_policy import OutcomePolicy
from jobwire.worker.execute.processor import Processor

JOBS = 1_000  # of one round: a figure is for this number of jobs


class Memory:
    """A `JobSource` of jobs in memory, and the `OutcomeSink` for them."""

    max_threads = 1
    lead = None
    fetches = 0

    def __init__(self, jobs: Sequence[InFlightJob]) -> None:
        self._jobs = iter(jobs)
        self.recorded = 0

    def step(self) -> object:
        return None

    def take(self, ran: float | None) -> InFlightJob | None:
        return next(self._jobs, None)

    def record(self, held: InFlightJob, outcome: Outcome) -> None:
        self.recorded += 1

    def store(self, held: InFlightJob, outcome: Outcome) -> bool:
        self.recorded += 1
        return True

    def acknowledge(self, held: InFlightJob) -> bool:
        return True

    def ran(self, *, failed: bool, rest: Outcome = DONE) -> None:
        self.recorded += 1

    def flush_soon(self) -> None:
        pass

    def put_back(self, jobs: Sequence[InFlightJob]) -> int:
        return 0

    def close(self) -> None:
        pass


def plain(app: App) -> None:
    pass


def with_middleware(app: App) -> None:
    app.server_middleware.add(lambda job, call_next: call_next())


def with_async_middleware(app: App) -> None:
    async def around(job: Job, call_next: Callable[[], Any]) -> Any:
        return await call_next()

    app.server_middleware.add(around)


@pytest.mark.parametrize("class_name", ["Nothing", "Failing"])
@pytest.mark.parametrize("furnish", [plain, with_middleware, with_async_middleware])
def test_a_thousand_jobs_of_one_processor(
    benchmark: Any,
    caplog: pytest.LogCaptureFixture,
    class_name: str,
    furnish: Callable[[App], None],
) -> None:
    caplog.set_level("CRITICAL", logger="jobwire")
    app = App()

    @app.job(name="Nothing")
    def nothing(number: int) -> None:
        pass

    @app.job(name="Failing")
    def failing(number: int) -> None:
        raise ValueError(number)

    furnish(app)
    text = b'{"retry":true,"queue":"default","class":"%b","args":[1],"jid":"1"}'
    held = InFlightJob("1:default", "default", text % class_name.encode())
    redis = SyncRedis("redis://localhost:1/0")  # not used, and so not connected
    iterations = Iterations(redis, Keys(), stopping=lambda: False)
    job_table = JobTable(app, AsyncLoop(), None, iterations)
    metrics = Metrics()

    def prepare() -> tuple[tuple[Memory], dict[str, Any]]:
        return (Memory([held] * JOBS),), {}

    def drain(memory: Memory) -> int:
        processor = Processor(
            *("t1", "bench", memory),
            tasks=None,
            job_table=job_table,
            outcome_policy=OutcomePolicy(
                *(app, Keys(), memory, lambda: 8, 25, 3, True, HandOver(redis, Keys(), "bench"))
            ),
            counters=metrics.for_thread(),
            watch=lambda: None,
            cancelled_ids=CancelledIds(),
        )
        processor.start()
        assert processor.join(60)
        return memory.recorded

    assert benchmark.pedantic(drain, setup=prepare, rounds=20, warmup_rounds=2) == JOBS
