"""The numbers of several Redis, read at the same time, and their sum."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

from jobwire.errors import RedisTrouble
from jobwire.inspect.fleet import Fleet
from jobwire.inspect.summary import QueueSummary

__all__ = ["AskAll", "total"]

PATIENCE_S = 1.0  # for the answer of one of several servers, from the question on
MAX_SERVERS = 1_000  # each has at most one thread, and only while it is asked

T = TypeVar("T")


class AskAll(Generic[T]):
    """Asks several servers at the same time, so that a slow one holds up no other.

    A server that has not answered yet is not asked again. Threads may share it.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_SERVERS, "jobwire-ask")
        self._lock = threading.Lock()
        self._asked: dict[str, tuple[Future[T], float]] = {}  # and the monotonic time

    def answers(self, questions: Mapping[str, Callable[[], T]]) -> dict[str, T | RedisTrouble]:
        """Return the answer of each server, or its trouble; a lone one has all the time it needs.

        Args:
            questions: Name of each server to the call that asks it.
        """
        if len(questions) == 1:
            ((name, question),) = questions.items()
            return {name: _answer(question)}
        found: dict[str, T | RedisTrouble] = {}
        for name, (future, began) in self._ask(questions).items():
            wait([future], max(began + PATIENCE_S - time.monotonic(), 0.0))
            found[name] = (
                _answer(future.result)
                if future.done()
                else RedisTrouble(f"no reply within {PATIENCE_S:g} s")
            )
        return found

    def close(self) -> None:
        """Wait for the answers that are under way, at most for the timeout of their servers."""
        self._threads.shutdown()

    def _ask(self, questions: Mapping[str, Callable[[], T]]) -> dict[str, tuple[Future[T], float]]:
        with self._lock:
            for name, question in questions.items():
                last = self._asked.get(name)
                if last is None or last[0].done():
                    self._asked[name] = self._threads.submit(question), time.monotonic()
            return {name: self._asked[name] for name in questions}


def _answer(ask: Callable[[], T]) -> T | RedisTrouble:
    try:
        return ask()
    except RedisTrouble as error:
        return error


def total(fleets: Sequence[Fleet]) -> Fleet:
    """Return the sum of several Redis: sizes and counts are added up, times are the longest.

    A queue is paused if it is on one of them.
    """
    queues: dict[str, QueueSummary] = {}
    for queue in (queue for fleet in fleets for queue in fleet.queues):
        other = queues.get(queue.name)
        queues[queue.name] = (
            queue
            if other is None
            else QueueSummary(
                queue.name,
                other.size + queue.size,
                max(other.latency, queue.latency),
                other.paused or queue.paused,
                other.problem or queue.problem,
                other.workers + queue.workers,
            )
        )
    sets = dict.fromkeys((name for fleet in fleets for name in fleet.sets), 0)
    overdue = dict.fromkeys((name for fleet in fleets for name in fleet.overdue), 0.0)
    return Fleet(
        processed=sum(fleet.processed for fleet in fleets),
        failed=sum(fleet.failed for fleet in fleets),
        recovered=sum(fleet.recovered for fleet in fleets),
        late=sum(fleet.late for fleet in fleets),
        handed_over=sum(fleet.handed_over for fleet in fleets),
        sets={name: sum(fleet.sets[name] for fleet in fleets) for name in sets},
        overdue={name: max(fleet.overdue[name] for fleet in fleets) for name in overdue},
        parked_for=max((fleet.parked_for for fleet in fleets), default=0.0),
        queues=[queues[name] for name in sorted(queues)],
        processes=[process for fleet in fleets for process in fleet.processes],
        problems=[problem for fleet in fleets for problem in fleet.problems],
    )
