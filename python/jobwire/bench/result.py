"""What was measured, and what it says about the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

__all__ = ["Result", "Surroundings", "limit_of", "percentile"]

BUSY = 0.8  # of a core: what has no room for much more
MOSTLY = 0.5  # of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where the figures come from.

    Attributes:
        server: Product and version.
        other_clients: Connections of others; what they do is in the server's figures.
        round_trip_ms: Of a PING, the median.
        cores: Of this machine.
        load: Processes that ran or waited to run during the last minute; None if unknown.
    """

    server: str
    other_clients: int | None
    round_trip_ms: float
    cores: int
    load: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row.

    Attributes:
        name: For programs.
        title: For people.
        jobs: How many.
        seconds: For all of them.
        rate: Jobs a second; None where each waits for the one before.
        round_trips_per_job: How often one of our processes waited for Redis; None if not counted.
        client_cpu: Cores that our processes used.
        server_cpu: Cores that the server used, for others as well; None if it does not tell.
        p50_ms: Half of the jobs took no longer.
        p99_ms: Of a hundred jobs, 99 took no longer.
        limit: What kept it from being faster.
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
    """Return what kept a run from being faster.

    Args:
        client_cpu: Cores that our processes used.
        processes: How many of ours there were; one does not use much more than a core.
        server_cpu: Cores that the server used.
        waiting: Share of the time that round trips take on an idle server.
        cores: Of this machine.
        load: Processes of others that wanted them.
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
    """Return the smallest value that so large a share of the values does not exceed."""
    return sorted(values)[max(ceil(len(values) * share) - 1, 0)]
