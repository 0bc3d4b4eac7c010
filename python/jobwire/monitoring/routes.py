"""The answers of the ports: metrics, queues for autoscalers, health."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec

from jobwire.errors import RedisTrouble
from jobwire.inspect.fleet import Fleet
from jobwire.inspect.reading import text
from jobwire.inspect.shards import AskAll, total
from jobwire.inspect.sync import Inspector
from jobwire.monitoring.exposition import shards_exposition, worker_exposition
from jobwire.monitoring.figures import Figures
from jobwire.monitoring.metrics import MAX_QUEUES
from jobwire.monitoring.server import Reply, Route, json_reply, text_reply

__all__ = [
    "FleetReader",
    "FleetReaders",
    "Readings",
    "fleet_metrics",
    "probe",
    "queues",
    "worker_metrics",
]

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


Readings: TypeAlias = Mapping[str, "tuple[Fleet, float] | RedisTrouble"]
"""Name of each shard to the answer of its `FleetReader.read`. A lone Redis is named ""."""


class FleetReaders:
    """Reads the numbers of each shard at the same time. Threads may share it.

    Args:
        places: Returns the URL and namespace by the name of the shard; None if they are not known
            yet. A lone Redis is named "".
    """

    def __init__(self, places: Callable[[], Mapping[str, tuple[str, str] | None]]) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._readers: dict[str, FleetReader] = {}
        self._all: AskAll[tuple[Fleet, float]] = AskAll()

    def read(self) -> Readings:
        """Return the numbers of each shard, or its trouble."""
        with self._lock:
            places = self._places()
            for name, place in places.items():
                if place is not None and name not in self._readers:
                    self._readers[name] = FleetReader(*place)
            calls = {
                name: self._readers[name].read if name in self._readers else _not_connected
                for name in places
            }
        return self._all.answers(calls)

    def close(self) -> None:
        """Close the connections."""
        self._all.close()
        for reader in self._readers.values():
            reader.close()


def _not_connected() -> tuple[Fleet, float]:
    raise RedisTrouble("the worker has not connected to Redis yet")


def fleet_metrics(read: Callable[[], Readings], *, most_queues: int = MAX_QUEUES) -> Route:
    """Return the route of the numbers of a Redis, or of each shard."""

    def answer(rest: str, accept: str) -> Reply | None:
        if rest:
            return None
        began = time.perf_counter()
        readings = read()
        took = time.perf_counter() - began
        known = {
            name: (None, took) if isinstance(reading, RedisTrouble) else reading
            for name, reading in readings.items()
        }
        return Reply(*shards_exposition(known, accept=accept, most_queues=most_queues))

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


def queues(read: Callable[[], Readings]) -> Route:
    """Return the route of sizes and latencies by queue, as JSON for autoscalers.

    A queue that does not exist is empty: queues exist only after the first push. The numbers of
    shards are added up, except for those that `unreachable` names.
    """

    def answer(rest: str, accept: str) -> Reply | None:
        readings = read()
        troubles = {
            name: trouble for name, trouble in readings.items() if isinstance(trouble, RedisTrouble)
        }
        if len(troubles) == len(readings):
            error = "; ".join(
                f"shard {name}: {trouble}" if name else str(trouble)
                for name, trouble in troubles.items()
            )
            return _json({"error": error}, HTTPStatus.SERVICE_UNAVAILABLE)
        numbers = total(
            [each[0] for each in readings.values() if not isinstance(each, RedisTrouble)]
        )
        more = {} if "" in readings else {"unreachable": sorted(troubles)}
        shown = {
            text(queue.name): {
                "size": queue.size,
                "latency": round(queue.latency, 3),
                "paused": queue.paused,
                "processes": queue.workers,
            }
            for queue in numbers.queues
        }
        if rest:
            empty = {"size": 0, "latency": 0.0, "paused": False, "processes": 0}
            return _json({**shown.get(text(rest), empty), **more})
        return _json({"enqueued": numbers.enqueued, "queues": shown, **more})

    return answer


def _json(value: Any, status: int = HTTPStatus.OK) -> Reply:
    return json_reply(msgspec.json.encode(value), status)
