"""The report of a worker process to its supervisor, for the ports: a line of JSON a second."""

from __future__ import annotations

import msgspec

from jobwire.monitoring.figures import Figures

__all__ = ["REPORT_INTERVAL_S", "RedisPlace", "Report"]

REPORT_INTERVAL_S = 1.0


class RedisPlace(msgspec.Struct, frozen=True):
    """The place of the queues of a worker."""

    url: str
    namespace: str


class Report(msgspec.Struct, frozen=True):
    """The state of a worker process.

    Attributes:
        figures: Its numbers.
        not_live: The reason that it must be restarted, or "".
        not_ready: The reason that it fetches no jobs, or "".
        redis: Where its queues are.
    """

    figures: Figures
    not_live: str
    not_ready: str
    redis: RedisPlace
