"""What is measured, one after the other."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from jobwire.application.aio import AsyncClient
from jobwire.bench.jobs import WAIT
from jobwire.bench.result import BUSY, Result, Surroundings, limit_of, percentile
from jobwire.bench.stage import BenchStage, BenchWorker

__all__ = ["Plan", "run"]

CALLERS = 100  # tasks that enqueue at a time
WARM = 200  # jobs before those that count: a worker fetches more at once when jobs prove quick
POLL = 0.05  # seconds between looks for due jobs
PAUSE = 0.03  # seconds between two lone jobs, for the worker to be idle again
PINGS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything.

    Attributes:
        jobs: Of each run.
        lone: Jobs that are enqueued one at a time, to an idle worker.
        waiting: Jobs that wait.
        concurrency: Jobs at a time, of a worker process.
        processes: Worker processes of the last drain.
    """

    jobs: int = 20_000
    lone: int = 200
    waiting: int = 2_000
    concurrency: int = 10
    processes: int = 1


def run(
    stage: BenchStage, plan: Plan, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Surroundings | Result]:
    """Measure; yields the surroundings first, then each result.

    Args:
        stage: Where.
        plan: How much.
        tell: Called with what comes next.

    Raises:
        BenchFailed: A worker did not do what it should.
        RedisTrouble: The server could not be used.
    """
    tell("round trips")
    around = _surroundings(stage)
    yield around
    bench = _Bench(stage, plan, around)
    for title, measure in (
        ("enqueue, one by one", bench.enqueue),
        (f"enqueue, asyncio, {CALLERS} callers", bench.enqueue_async),
        ("enqueue, bulk", bench.enqueue_bulk),
        ("drain, 1 process", bench.drain),
        (f"drain, {plan.processes} processes", bench.drain_by_several),
        ("from enqueue to start, idle worker", bench.lone),
        ("due scheduled jobs, promoted and run", bench.scheduled),
        ("failing jobs, stored for retry", bench.failing),
        (f"jobs that wait 10 ms, {plan.concurrency} threads", bench.waiting),
        (f"jobs that wait 10 ms, {10 * plan.concurrency} on asyncio", bench.waiting_async),
    ):
        if measure == bench.drain_by_several and plan.processes == 1:
            continue
        tell(title)
        yield replace(measure(), title=title)


def _surroundings(stage: BenchStage) -> Surroundings:
    seconds = []
    for _ in range(PINGS):
        asked = time.perf_counter()
        stage.do("PING")
        seconds.append(time.perf_counter() - asked)
    clients = stage.info("clients").get("connected_clients")
    load = None
    with suppress(OSError, AttributeError):
        load = round(os.getloadavg()[0], 2)
    return Surroundings(
        server=f"{stage.server.product} {stage.server.version}",
        other_clients=None if clients is None else int(clients) - 1,
        round_trip_ms=round(percentile(seconds, 0.5) * 1e3, 3),
        cores=os.cpu_count() or 1,
        load=load,
    )


@dataclass(slots=True)
class _Bench:
    stage: BenchStage
    plan: Plan
    around: Surroundings

    def enqueue(self) -> Result:
        push = self.stage.client.push

        def work() -> None:
            for number in range(self.plan.jobs):
                push("Nothing", [number])

        return self._enqueued("enqueue", work)

    def enqueue_async(self) -> Result:
        async def work() -> None:
            numbers = iter(range(self.plan.jobs))
            async with AsyncClient(self.stage.url, namespace=self.stage.namespace) as client:

                async def caller() -> None:
                    for number in numbers:
                        await client.push("Nothing", [number])

                await asyncio.gather(*(caller() for _ in range(CALLERS)))

        return self._enqueued("enqueue_async", lambda: asyncio.run(work()))

    def enqueue_bulk(self) -> Result:
        def work() -> None:
            self.stage.client.push_bulk("Nothing", [[n] for n in range(self.plan.jobs)])

        return self._enqueued("enqueue_bulk", work)

    def drain(self) -> Result:
        return self._ran("drain", "Nothing", self.plan.jobs)

    def drain_by_several(self) -> Result:
        return self._ran("drain_processes", "Nothing", self.plan.jobs, self.plan.processes)

    def scheduled(self) -> Result:
        return self._ran("scheduled", "Nothing", self.plan.jobs, due=True)

    def failing(self) -> Result:
        return self._ran("failing", "Failing", self.plan.jobs)

    def waiting(self) -> Result:
        slots = self.plan.concurrency
        return self._waited("waiting", "Waiting", slots)

    def waiting_async(self) -> Result:
        slots = 10 * self.plan.concurrency
        return self._waited("waiting_async", "AsyncWaiting", slots)

    def lone(self) -> Result:
        seconds = []
        with self.stage.workers(1, concurrency=self.plan.concurrency, poll=5.0) as [worker]:
            self._warm([worker])
            for _ in range(self.plan.lone):
                time.sleep(PAUSE)
                self.stage.client.push("Lone", [time.time()])
                seconds.append(worker.hear()["seconds"])
        return Result(
            name="lone",
            title="",
            jobs=len(seconds),
            seconds=round(sum(seconds), 6),
            rate=None,
            p50_ms=round(percentile(seconds, 0.5) * 1e3, 3),
            p99_ms=round(percentile(seconds, 0.99) * 1e3, 3),
            limit="push, notice, fetch: 3 trips",
        )

    def _enqueued(self, name: str, work: Callable[[], None]) -> Result:
        jobs, trips = self.plan.jobs, self.stage.trips
        server = self.stage.server_cpu()
        cpu, made, started = time.process_time(), trips[0], time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        cpu, made = time.process_time() - cpu, trips[0] - made
        result = self._result(name, jobs, seconds, cpu, made, server)
        self.stage.do("UNLINK", self.stage.keys.queue("default"))
        return result

    def _ran(
        self,
        name: str,
        class_name: str,
        jobs: int,
        processes: int = 1,
        *,
        concurrency: int | None = None,
        due: bool = False,
    ) -> Result:
        """Run jobs that are all there at the start."""
        slots = concurrency or self.plan.concurrency
        self.stage.stock(class_name, jobs, due=due)
        with self.stage.workers(processes, concurrency=slots, poll=POLL) as workers:
            self._warm(workers)
            goal = self.stage.processed() + jobs
            before = [worker.ask() for worker in workers]
            server = self.stage.server_cpu()
            started = time.perf_counter()
            self.stage.open()
            self.stage.wait_processed(goal, workers)
            seconds = time.perf_counter() - started
            after = [worker.ask() for worker in workers]
            used = {
                what: sum(new[what] - old[what] for new, old in zip(after, before, strict=True))
                for what in ("cpu", "trips")
            }
            return self._result(
                name, jobs, seconds, used["cpu"], int(used["trips"]), server, processes
            )

    def _waited(self, name: str, class_name: str, slots: int) -> Result:
        result = self._ran(name, class_name, self.plan.waiting, concurrency=slots)
        if result.jobs / result.seconds >= BUSY * slots / WAIT:
            result = replace(result, limit="the jobs' own waiting")
        return result

    def _warm(self, workers: list[BenchWorker]) -> None:
        goal = self.stage.processed() + WARM
        self.stage.client.push_bulk("Nothing", [[number] for number in range(WARM)])
        self.stage.wait_processed(goal, workers)

    def _result(
        self,
        name: str,
        jobs: int,
        seconds: float,
        cpu: float,
        trips: int,
        server_before: float | None,
        processes: int = 1,
    ) -> Result:
        after = self.stage.server_cpu()
        server = None
        if server_before is not None and after is not None:
            server = (after - server_before) / seconds
        return Result(
            name=name,
            title="",
            jobs=jobs,
            seconds=round(seconds, 6),
            rate=round(jobs / seconds, 1),
            round_trips_per_job=round(trips / jobs, 4),
            client_cpu=round(cpu / seconds, 3),
            server_cpu=None if server is None else round(server, 3),
            limit=limit_of(
                client_cpu=cpu / seconds,
                processes=processes,
                server_cpu=server,
                waiting=trips / processes * self.around.round_trip_ms / 1e3 / seconds,
                cores=self.around.cores,
                load=self.around.load,
            ),
        )
