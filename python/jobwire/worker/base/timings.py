"""The timings of a worker: constants of a running process, parameters for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from jobwire.protocol.heartbeat import BEAT_INTERVAL_S, LEASE_S
from jobwire.protocol.limits import SLOT_LEASE_S
from jobwire.protocol.promotion import first_wait, next_wait

__all__ = ["DEFAULT_TIMINGS", "Timings"]


class FirstWait(Protocol):
    """`jobwire.protocol.promotion.first_wait`, or the replacement of a test."""

    def __call__(self, interval: float | None, /, *, jitter: float) -> float: ...


class NextWait(Protocol):
    """`jobwire.protocol.promotion.next_wait`, or the replacement of a test."""

    def __call__(self, interval: float | None, /, *, processes: int, jitter: float) -> float: ...


class PeriodicLook(Protocol):
    """`periodic_look`, or the replacement of a test."""

    def __call__(self, *, jitter: float) -> float: ...


def periodic_look(*, jitter: float) -> float:
    """Return how long to wait before the next look for changed periodic entries.

    It is less than the grace period, in which a tick of a new entry is still taken. The jitter
    spreads the processes.

    Args:
        jitter: Uniform draw in [0, 1).
    """
    return 24.0 + 24.0 * jitter


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Waiting times of the parts of a worker. Every field is, or returns, seconds.

    They are not settings: the defaults depend on each other, and only a test has a reason to
    pass others.
    """

    # Fetching
    fetch_safety_interval: float = 15.0
    """The longest wait of an idle worker that gets no notice of a push, and no ring."""
    buffer_lifetime: float = 5.0
    """After which other processes may have recovered the jobs in the buffer."""
    reclaim_interval: float = 1.0
    """Between two checks for the jobs of a fetch whose reply was lost."""
    reclaim_for: float = LEASE_S
    """How long these checks go on, because the server may carry out the fetch late."""
    quick_job: float = 0.0005
    """A job that is expected to take less is not worth waking another thread."""
    prefetch_horizon: float = 0.005
    """How long a job may be expected to wait in the buffer."""
    near_reply: float = 0.01
    """The server is near if a reply comes within this time: jobs may be asked for ahead."""
    prefetch_stale: float = 0.05
    """After which a job that waits in the buffer goes back to its queue."""
    tick: float = 0.005
    """Between two periodic checks while there is something to check; also the time for which an
    outcome waits for a fetch."""
    stop_check_interval: float = 0.25
    """Between two checks of the stop flag during the wait for a push."""
    untracked_poll_interval: float = 0.1
    """Between two fetches if the server does not support key tracking."""
    longest_outage_pause: float = 2.0
    """Between two tries of a fetch or a promotion while Redis cannot be used."""

    # Basic fetch
    brpop_timeout: float = 2
    """Of one BRPOP; less than `redis_timeout`. [ENV-3]"""
    unusable_queues_pause: float = 1.0
    """Between two checks of queues that are paused or broken."""
    put_back_timeout: float = 5.0
    """How long a stop tries to put jobs back."""

    # Outcomes
    outcome_retry_interval: float = 1.0
    """Before outcomes that Redis did not store are sent again."""
    outcome_close_timeout: float = 5.0
    """How long a stop waits for the last outcomes to be stored."""

    # Background
    heartbeat_interval: float = BEAT_INTERVAL_S
    """Between two heartbeats. [BEAT-2]"""
    stuck_after: float = 4 * BEAT_INTERVAL_S
    """After which a part of the process without progress hangs."""
    slot_lease: float = SLOT_LEASE_S
    """Of the slot of a limit, which each heartbeat renews. [X-LIMIT-4]"""
    early_beat: float = 1.0
    """After which a job that the last heartbeat does not show is worth another heartbeat."""
    heartbeat_stop_timeout: float = 1.0
    """How long a stop waits for the heartbeat thread."""
    first_poll_wait: FirstWait = first_wait
    """Returns how long the poller waits before its first check for due jobs."""
    next_poll_wait: NextWait = next_wait
    """Returns how long the poller waits before each later check."""
    poll_safety_interval: float = 30.0
    """Between two checks of a precise poller that gets no notice of a new member."""
    poll_outage_pause: float = 1.0
    """Between its checks while the server cannot be reached."""
    poll_min_gap: float = 0.01
    """Minimum between the checks of all precise pollers, on average, so that a busy set does not
    keep server and pollers busy."""

    periodic_look: PeriodicLook = periodic_look
    """Returns how long to wait before the next look for changed periodic entries."""

    # Redis
    redis_timeout: float = 5.0
    """Of a connection, and of a reply. [ENV-3]"""


DEFAULT_TIMINGS = Timings()
