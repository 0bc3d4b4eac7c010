"""Results of the bench, and the limit that each of them hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

__all__ = ["Result", "Surroundings", "limit_of", "percentile"]

BUSY = 0.8  # share of a core above which there is hardly room for more
MOSTLY = 0.5  # share of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The server and machine of the figures.

    Attributes:
        server: Product and version of the server.
        other_clients: Connections of other clients; the server's figures include their load.
        round_trip_ms: Median duration of a PING.
        cores: Number of cores of this machine.
        load: Processes that ran or waited to run during the last minute; None if unknown.
    """

    server: str
    other_clients: int | None
    round_trip_ms: float
    cores: int
    load: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one measurement.

    Attributes:
        name: Its name, for programs.
        title: Its name, for people.
        jobs: Number of jobs.
        seconds: Time for all jobs.
        rate: Jobs per second; None if each job waits for the one before.
        round_trips_per_job: Round trips of the bench's processes for each job; None if not counted.
        client_cpu: Cores that the bench's processes used.
        server_cpu: Cores that the server used, for all its clients; None if it does not tell.
        p50_ms: Median latency.
        p99_ms: 99th percentile of the latency.
        limit: The limit that kept it from being faster.
    """

    name: str
    title: str
    jobs: int
    seconds: float
    rate: float | None
    round_trips_per_job: float | None = None
    client_cpu: float | None = None
    server_cpu: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    limit: str = ""


def limit_of(
    *,
    client_cpu: float,
    processes: int,
    server_cpu: float | None,
    waiting: float,
    cores: int,
    load: float | None = None,
) -> str:
    """Return the limit that kept a run from being faster.

    Args:
        client_cpu: Cores that the bench's processes used.
        processes: Number of these processes; one cannot use much more than one core.
        server_cpu: Cores that the server used.
        waiting: Share of the time that the round trips would take on an idle server.
        cores: Number of cores of this machine.
        load: Processes on this machine that ran or waited to run.
    """
    if server_cpu is not None and server_cpu >= BUSY:
        return "the server's core"
    if client_cpu >= BUSY * min(processes, cores):
        return "Python's core" if processes == 1 else "Python's cores"
    if waiting >= MOSTLY:
        return "round trips"
    if client_cpu + (server_cpu or 0.0) >= BUSY * cores:
        return "cores, if the server is here"
    if load is not None and load > cores:
        return "other work on this machine"
    return "Python and server, alternately"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[max(ceil(len(values) * share) - 1, 0)]
