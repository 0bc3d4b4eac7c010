"""The measurements of the bench, in order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from jobwire.application.aio import AsyncClient
from jobwire.bench.jobs import JOB_WAIT_S
from jobwire.bench.result import BUSY, Result, Surroundings, limit_of, percentile
from jobwire.bench.server import BenchServer, BenchWorker

__all__ = ["Plan", "run"]

CALLERS = 100  # tasks that enqueue at the same time
WARM_UP_JOBS = 200  # before the measured ones: a worker fetches more at once if jobs are quick
POLL_INTERVAL_S = 0.05
LONE_JOB_INTERVAL_S = 0.03  # long enough for the worker to be idle again
PINGS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of the measurements.

    Attributes:
        jobs: Number of jobs of each run.
        lone: Number of jobs that are enqueued one at a time, to an idle worker.
        waiting: Number of jobs that wait.
        concurrency: Number of jobs that a worker process runs at the same time.
        processes: Number of worker processes of the last drain.
    """

    jobs: int = 20_000
    lone: int = 200
    waiting: int = 2_000
    concurrency: int = 10
    processes: int = 1


def run(
    server: BenchServer, plan: Plan, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Surroundings | Result]:
    """Measure; yield the surroundings first, then each result.

    Args:
        server: The server and its namespace.
        plan: The sizes.
        tell: Called with the title of each measurement, before it starts.

    Raises:
        BenchFailed: A worker process failed.
        RedisTrouble: An operation on the server failed.
    """
    tell("round trips")
    surroundings = _surroundings(server)
    yield surroundings
    bench = _Bench(server, plan, surroundings)
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


def _surroundings(server: BenchServer) -> Surroundings:
    seconds = []
    for _ in range(PINGS):
        sent_at = time.perf_counter()
        server.do("PING")
        seconds.append(time.perf_counter() - sent_at)
    clients = server.info("clients").get("connected_clients")
    load = None
    with suppress(OSError, AttributeError):
        load = round(os.getloadavg()[0], 2)
    return Surroundings(
        server=f"{server.info_at_start.product} {server.info_at_start.version}",
        other_clients=None if clients is None else int(clients) - 1,
        round_trip_ms=round(percentile(seconds, 0.5) * 1e3, 3),
        cores=os.cpu_count() or 1,
        load=load,
    )


@dataclass(slots=True)
class _Bench:
    server: BenchServer
    plan: Plan
    surroundings: Surroundings

    def enqueue(self) -> Result:
        push = self.server.client.push

        def work() -> None:
            for number in range(self.plan.jobs):
                push("Nothing", [number])

        return self._enqueued("enqueue", work)

    def enqueue_async(self) -> Result:
        async def work() -> None:
            numbers = iter(range(self.plan.jobs))
            async with AsyncClient(self.server.url, namespace=self.server.namespace) as client:

                async def caller() -> None:
                    for number in numbers:
                        await client.push("Nothing", [number])

                await asyncio.gather(*(caller() for _ in range(CALLERS)))

        return self._enqueued("enqueue_async", lambda: asyncio.run(work()))

    def enqueue_bulk(self) -> Result:
        def work() -> None:
            self.server.client.push_bulk("Nothing", [[n] for n in range(self.plan.jobs)])

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
        with self.server.workers(1, concurrency=self.plan.concurrency, poll=5.0) as [worker]:
            self._warm([worker])
            for _ in range(self.plan.lone):
                time.sleep(LONE_JOB_INTERVAL_S)
                self.server.client.push("Lone", [time.time()])
                seconds.append(worker.read()["seconds"])
        return Result(
            name="lone",
            title="",
            jobs=len(seconds),
            seconds=round(sum(seconds), 6),
            rate=None,
            p50_ms=round(percentile(seconds, 0.5) * 1e3, 3),
            p99_ms=round(percentile(seconds, 0.99) * 1e3, 3),
            limit="push, notice, fetch: 3 round trips",
        )

    def _enqueued(self, name: str, work: Callable[[], None]) -> Result:
        jobs = self.plan.jobs
        server_before = self.server.server_cpu()
        cpu_before, trips_before = time.process_time(), self.server.trips[0]
        started = time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        cpu = time.process_time() - cpu_before
        trips = self.server.trips[0] - trips_before
        result = self._result(name, jobs, seconds, cpu, trips, server_before)
        self.server.do("UNLINK", self.server.keys.queue("default"))
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
        """Measure the run of jobs that all exist at the start."""
        slots = concurrency or self.plan.concurrency
        self.server.stock(class_name, jobs, due=due)
        with self.server.workers(processes, concurrency=slots, poll=POLL_INTERVAL_S) as workers:
            self._warm(workers)
            goal = self.server.processed() + jobs
            before = [worker.ask() for worker in workers]
            server_before = self.server.server_cpu()
            started = time.perf_counter()
            self.server.open()
            self.server.wait_processed(goal, workers)
            seconds = time.perf_counter() - started
            after = [worker.ask() for worker in workers]
            used = {
                figure: sum(
                    new[figure] - old[figure] for new, old in zip(after, before, strict=True)
                )
                for figure in ("cpu", "trips")
            }
            return self._result(
                name, jobs, seconds, used["cpu"], int(used["trips"]), server_before, processes
            )

    def _waited(self, name: str, class_name: str, slots: int) -> Result:
        result = self._ran(name, class_name, self.plan.waiting, concurrency=slots)
        if result.jobs / result.seconds >= BUSY * slots / JOB_WAIT_S:
            result = replace(result, limit="the jobs' own waiting")
        return result

    def _warm(self, workers: list[BenchWorker]) -> None:
        goal = self.server.processed() + WARM_UP_JOBS
        self.server.client.push_bulk("Nothing", [[number] for number in range(WARM_UP_JOBS)])
        self.server.wait_processed(goal, workers)

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
        server_after = self.server.server_cpu()
        server_cpu = None
        if server_before is not None and server_after is not None:
            server_cpu = (server_after - server_before) / seconds
        return Result(
            name=name,
            title="",
            jobs=jobs,
            seconds=round(seconds, 6),
            rate=round(jobs / seconds, 1),
            round_trips_per_job=round(trips / jobs, 4),
            client_cpu=round(cpu / seconds, 3),
            server_cpu=None if server_cpu is None else round(server_cpu, 3),
            limit=limit_of(
                client_cpu=cpu / seconds,
                processes=processes,
                server_cpu=server_cpu,
                waiting=trips / processes * self.surroundings.round_trip_ms / 1e3 / seconds,
                cores=self.surroundings.cores,
                load=self.surroundings.load,
            ),
        )
