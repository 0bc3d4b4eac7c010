"""The metrics of Prometheus: names, labels and meanings, and their samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from jobwire.monitoring.figures import BUCKETS_S, OTHER, ClassFigures, Figures, label

if TYPE_CHECKING:
    from jobwire.inspect.fleet import Fleet

__all__ = [
    "FLEET",
    "MAX_QUEUES",
    "WORKER",
    "Histogram",
    "Metric",
    "Sample",
    "fleet_samples",
    "worker_samples",
]

MAX_QUEUES = 200  # with names of their own

Sample = tuple[str, Sequence[str], "float | Histogram"]
"""Name of the metric, values of its labels, value."""


class Metric(NamedTuple):
    """One metric: everything but its values."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: Sequence[str]
    help: str


class Histogram(NamedTuple):
    """The value of a histogram: a cumulative count for each bound, and the sum."""

    buckets: Sequence[tuple[str, int]]
    sum: float


FLEET = (
    Metric("jobwire_redis_up", "gauge", (), "1 if Redis answered this scrape, otherwise 0."),
    Metric(
        "jobwire_scrape_duration_seconds", "gauge", (), "Time that reading the numbers has taken."
    ),
    Metric(
        "jobwire_jobs_processed_total",
        "counter",
        (),
        "Executions since counting began, including failed ones.",
    ),
    Metric("jobwire_jobs_failed_total", "counter", (), "Executions that failed."),
    Metric(
        "jobwire_jobs_recovered_total",
        "counter",
        (),
        "Jobs that went back to their queues because their process had died.",
    ),
    Metric(
        "jobwire_outcomes_late_total",
        "counter",
        (),
        "Outcomes that came after the job had been recovered, so that it ran twice.",
    ),
    Metric(
        "jobwire_jobs_handed_over_total",
        "counter",
        (),
        "Times that a worker left a job to the workers of its class.",
    ),
    Metric("jobwire_queues", "gauge", (), "Registered queues."),
    Metric("jobwire_queues_paused", "gauge", (), "Registered queues that are paused."),
    Metric("jobwire_jobs_enqueued", "gauge", (), "Jobs in all queues."),
    Metric("jobwire_queue_jobs", "gauge", ("queue",), "Jobs in the queue."),
    Metric(
        "jobwire_queue_latency_seconds",
        "gauge",
        ("queue",),
        "Time that the next job of the queue has waited; 0 if the queue is empty.",
    ),
    Metric(
        "jobwire_queue_processes",
        "gauge",
        ("queue",),
        "Living processes that serve the queue and are not quiet.",
    ),
    Metric("jobwire_queue_paused", "gauge", ("queue",), "1 if the queue is paused, otherwise 0."),
    Metric(
        "jobwire_set_jobs",
        "gauge",
        ("set",),
        "Jobs in the set: scheduled, retry, dead, unreadable, parked.",
    ),
    Metric(
        "jobwire_set_overdue_seconds",
        "gauge",
        ("set",),
        "Time for which the first job of the set (scheduled, retry) has been due; 0 if none is.",
    ),
    Metric(
        "jobwire_parked_seconds",
        "gauge",
        (),
        "Time for which the first parked job has been parked; 0 if there is none.",
    ),
    Metric(
        "jobwire_processes",
        "gauge",
        ("state",),
        "Living processes, Sidekiq's included, by state: fetching, quiet.",
    ),
    Metric("jobwire_concurrency", "gauge", (), "Jobs that all processes can run at a time."),
    Metric("jobwire_jobs_busy", "gauge", (), "Jobs in execution, as of the last heartbeats."),
    Metric(
        "jobwire_processes_memory_bytes",
        "gauge",
        (),
        "Resident memory of all processes, as of the last heartbeats.",
    ),
)

WORKER = (
    Metric(
        "jobwire_worker_executions_total",
        "counter",
        ("class",),
        "Executions that have ended, including failed ones.",
    ),
    Metric("jobwire_worker_failures_total", "counter", ("class",), "Executions that failed."),
    Metric(
        "jobwire_worker_execution_seconds",
        "histogram",
        ("class",),
        "Duration of the executions that did not fail.",
    ),
    Metric("jobwire_worker_executing", "gauge", (), "Jobs in execution."),
    Metric("jobwire_worker_concurrency", "gauge", (), "Jobs that can run at a time."),
    Metric(
        "jobwire_worker_unstored_outcomes",
        "gauge",
        (),
        "Ended jobs without an outcome in Redis yet.",
    ),
    Metric(
        "jobwire_worker_fetches_total", "counter", (), "Requests for jobs that were sent to Redis."
    ),
    Metric(
        "jobwire_worker_ticks_total",
        "counter",
        ("entry",),
        "Ticks of periodic jobs that were taken, including those that were skipped.",
    ),
    Metric(
        "jobwire_worker_ticks_skipped_total",
        "counter",
        ("entry",),
        "Ticks without a job, because the job before was not finished.",
    ),
    Metric(
        "jobwire_worker_tick_lateness_seconds",
        "histogram",
        ("entry",),
        "Time between a tick and the push of its job.",
    ),
    Metric("jobwire_worker_processes", "gauge", (), "Processes that have reported their numbers."),
    Metric("jobwire_worker_memory_bytes", "gauge", (), "Resident memory of these processes."),
)


def fleet_samples(
    fleet: Fleet | None, *, seconds: float, most_queues: int = MAX_QUEUES
) -> Iterator[Sample]:
    """Yield the samples of `FLEET`.

    Args:
        fleet: The numbers; None if Redis cannot be used.
        seconds: Time that reading them has taken.
        most_queues: Queues with samples of their own, the first ones by name. The others are one
            queue named `OTHER`, with the sum of their jobs and the longest latency.
    """
    yield "jobwire_redis_up", (), float(fleet is not None)
    yield "jobwire_scrape_duration_seconds", (), seconds
    if fleet is None:
        return
    yield "jobwire_jobs_processed_total", (), fleet.processed
    yield "jobwire_jobs_failed_total", (), fleet.failed
    yield "jobwire_jobs_recovered_total", (), fleet.recovered
    yield "jobwire_outcomes_late_total", (), fleet.late
    yield "jobwire_jobs_handed_over_total", (), fleet.handed_over
    yield "jobwire_queues", (), len(fleet.queues)
    yield "jobwire_queues_paused", (), sum(queue.paused for queue in fleet.queues)
    yield "jobwire_jobs_enqueued", (), fleet.enqueued
    yield from _queue_samples(fleet, most_queues)
    for name, size in fleet.sets.items():
        yield "jobwire_set_jobs", (name,), size
    for name, overdue in fleet.overdue.items():
        yield "jobwire_set_overdue_seconds", (name,), overdue
    yield "jobwire_parked_seconds", (), fleet.parked_for
    quiet = sum(process.quiet for process in fleet.processes)
    yield "jobwire_processes", ("fetching",), len(fleet.processes) - quiet
    yield "jobwire_processes", ("quiet",), quiet
    yield "jobwire_concurrency", (), sum(process.concurrency for process in fleet.processes)
    yield "jobwire_jobs_busy", (), sum(process.busy for process in fleet.processes)
    memory = sum(process.rss for process in fleet.processes) * 1024
    yield "jobwire_processes_memory_bytes", (), memory


def _queue_samples(fleet: Fleet, most: int) -> Iterator[Sample]:
    jobs: dict[str, int] = {}
    latency: dict[str, float] = {}
    processes: dict[str, int] = {}
    paused: dict[str, bool] = {}
    for queue in fleet.queues:
        name = label(queue.name)
        if name not in jobs and len(jobs) - (OTHER in jobs) >= most:
            name = OTHER
        # Two names may have the same label: bytes that are not UTF-8, or a very long name.
        jobs[name] = jobs.get(name, 0) + queue.size
        latency[name] = max(latency.get(name, 0.0), queue.latency)
        processes[name] = max(processes.get(name, 0), queue.workers)
        paused[name] = paused.get(name, False) or queue.paused
    by_metric: Iterable[tuple[str, Mapping[str, float]]] = (
        ("jobwire_queue_jobs", jobs),
        ("jobwire_queue_latency_seconds", latency),
        ("jobwire_queue_processes", processes),
        ("jobwire_queue_paused", paused),
    )
    for metric, values in by_metric:
        for name, value in values.items():
            if name != OTHER or metric in ("jobwire_queue_jobs", "jobwire_queue_latency_seconds"):
                yield metric, (name,), float(value)


def worker_samples(figures: Figures) -> Iterator[Sample]:
    """Yield the samples of `WORKER`."""
    for name, each in figures.classes.items():
        yield "jobwire_worker_executions_total", (name,), each.count
        yield "jobwire_worker_failures_total", (name,), each.failed
        yield "jobwire_worker_execution_seconds", (name,), _histogram(each)
    for name, each in figures.ticks.items():
        yield "jobwire_worker_ticks_total", (name,), each.count
        yield "jobwire_worker_ticks_skipped_total", (name,), each.failed
        yield "jobwire_worker_tick_lateness_seconds", (name,), _histogram(each)
    yield "jobwire_worker_executing", (), figures.executing
    yield "jobwire_worker_concurrency", (), figures.concurrency
    yield "jobwire_worker_unstored_outcomes", (), figures.unstored
    yield "jobwire_worker_fetches_total", (), figures.fetches
    yield "jobwire_worker_processes", (), figures.processes
    yield "jobwire_worker_memory_bytes", (), figures.memory


def _histogram(figures: ClassFigures) -> Histogram:
    total = 0
    buckets = []
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), figures.buckets, strict=True):
        total += count
        buckets.append((bound, total))
    return Histogram(buckets, figures.seconds)
