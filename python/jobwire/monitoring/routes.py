"""The answers of the ports: metrics, queues for autoscalers, health."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from jobwire.errors import RedisTrouble
from jobwire.inspect.fleet import Fleet
from jobwire.inspect.reading import text
from jobwire.inspect.sync import Inspector
from jobwire.monitoring.exposition import fleet_exposition, worker_exposition
from jobwire.monitoring.figures import Figures
from jobwire.monitoring.metrics import MAX_QUEUES
from jobwire.monitoring.server import Reply, Route, json_reply, text_reply

__all__ = ["FleetReader", "fleet_metrics", "probe", "queues", "worker_metrics"]

REDIS_TIMEOUT_S = 2.0  # less than the usual timeout of a scrape
FRESH_S = 1.0  # for which numbers are not read again, however many clients ask


class FleetReader:
    """Reads the numbers of a Redis, at most once a second. Threads may share it.

    Args:
        url: Where Redis is.
        namespace: Prefix of every key.
        fresh: Seconds for which numbers are not read again.
    """

    def __init__(self, url: str, namespace: str = "", *, fresh: float = FRESH_S) -> None:
        self._inspector = Inspector(url, namespace=namespace, timeout=REDIS_TIMEOUT_S)
        self._fresh = fresh
        self._lock = threading.Lock()  # Guards the others, and lets one thread ask for all.
        self._read_at = -float("inf")  # monotonic
        self._answer: tuple[Fleet, float] | str  # the numbers, or the problem

    def read(self) -> tuple[Fleet, float]:
        """Return the numbers, and the seconds that reading them took.

        Raises:
            RedisTrouble: Redis cannot be used.
        """
        with self._lock:
            if time.monotonic() - self._read_at >= self._fresh:
                began = time.perf_counter()
                try:
                    numbers = self._inspector.fleet()
                    self._answer = numbers, time.perf_counter() - began
                except RedisTrouble as error:
                    self._answer = str(error)
                self._read_at = time.monotonic()
            if isinstance(self._answer, str):
                raise RedisTrouble(self._answer)
            return self._answer

    def close(self) -> None:
        """Close the connections."""
        self._inspector.close()


_Reader = Callable[[], FleetReader | None]
"""Returns the reader; None if the Redis is not known yet. Raises `RedisTrouble` for several."""


def fleet_metrics(reader: _Reader, *, most_queues: int = MAX_QUEUES) -> Route:
    """Return the route of the numbers of a Redis."""

    def answer(rest: str, accept: str) -> Reply | None:
        if rest:
            return None
        began = time.perf_counter()
        try:
            if (known := reader()) is None:
                raise RedisTrouble("not connected yet")
            numbers, seconds = known.read()
        except RedisTrouble:
            text = fleet_exposition(None, seconds=time.perf_counter() - began, accept=accept)
        else:
            text = fleet_exposition(
                numbers, seconds=seconds, accept=accept, most_queues=most_queues
            )
        return Reply(*text)

    return answer


def worker_metrics(figures: Callable[[], Figures]) -> Route:
    """Return the route of the numbers of a worker."""

    def answer(rest: str, accept: str) -> Reply | None:
        return None if rest else Reply(*worker_exposition(figures(), accept=accept))

    return answer


def probe(problem: Callable[[], str]) -> Route:
    """Return the route of a probe, which fails if there is a problem."""

    def answer(rest: str, accept: str) -> Reply | None:
        if rest:
            return None
        found = problem()
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return text_reply(found or "ok", status)

    return answer


def queues(reader: _Reader) -> Route:
    """Return the route of sizes and latencies by queue, as JSON for autoscalers.

    A queue that does not exist is empty: queues exist only after the first push.
    """

    def answer(rest: str, accept: str) -> Reply | None:
        try:
            if (known := reader()) is None:
                raise RedisTrouble("the worker has not connected to Redis yet")
            numbers, _ = known.read()
        except RedisTrouble as error:
            return _json({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)
        by_name = {queue.name: queue for queue in numbers.queues}
        shown = {
            text(name): {
                "size": queue.size,
                "latency": round(queue.latency, 3),
                "paused": queue.paused,
                "processes": queue.workers,
            }
            for name, queue in by_name.items()
        }
        if rest:
            empty = {"size": 0, "latency": 0.0, "paused": False, "processes": 0}
            return _json(shown.get(text(rest), empty))
        return _json({"enqueued": numbers.enqueued, "queues": shown})

    return answer


def _json(value: Any, status: int = HTTPStatus.OK) -> Reply:
    return json_reply(msgspec.json.encode(value), status)
