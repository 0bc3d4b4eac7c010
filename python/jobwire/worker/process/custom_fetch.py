"""A fetcher of the application: `App(fetcher=...)`."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobwire.application.fetcher import Fetcher, TakenJob
from jobwire.connection.connection import LOST
from jobwire.errors import RedisTrouble
from jobwire.protocol.outcome import Outcome
from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.base.outage import Outage
from jobwire.worker.base.timings import Timings
from jobwire.worker.outcome.immediate_sink import ImmediateSink, until_done

__all__ = ["AcknowledgingSink", "CustomSource"]

_log = logging.getLogger("jobwire.worker")
_QUICK_S = 0.01  # a fetcher that answers None so soon does not wait
_PAUSE_S = 0.1


class _CustomJob(InFlightJob, frozen=True):
    """A job in the hands of a fetcher, which knows how to end it."""

    taken: TakenJob = TakenJob("", b"")
    fetcher: Any = None


@contextlib.contextmanager
def _troubles() -> Iterator[None]:
    """Raise what a client of Redis raises as an error of this package."""
    try:
        yield
    except _lost() as error:
        raise RedisTrouble(str(error)) from error


def _lost() -> tuple[type[Exception], ...]:
    """Return the errors of sockets, and those of redis-py if the application has loaded it."""
    redis_py = sys.modules.get("redis")
    return LOST if redis_py is None else (*LOST, redis_py.RedisError)


def _until_done(
    call: Callable[[TakenJob], None],
    job: TakenJob,
    complaint: str,
    deadline: float = math.inf,
    given_up: threading.Event | None = None,
) -> None:
    """Call the fetcher until it reaches Redis. Its bugs are logged, because no caller can help."""

    def attempt() -> None:
        try:
            with _troubles():
                call(job)
        except RedisTrouble:
            raise
        except Exception:  # noqa: BLE001 - the code of a user
            _log.exception(
                "%s of the fetcher failed, which is a bug", getattr(call, "__name__", call)
            )

    until_done(attempt, complaint, deadline, given_up)


class CustomSource:
    """The `JobSource` of one capsule. Each thread waits in the fetcher.

    Args:
        fetcher: Takes the jobs.
        slots: Number of jobs that may run at a time.
        timings: The lengths of the waits.
    """

    lead = None  # each slot is a thread

    def __init__(self, fetcher: Fetcher, slots: int, timings: Timings) -> None:
        self.max_threads = slots
        self._fetcher = fetcher
        self._put_back_timeout = timings.put_back_timeout
        self._closed = threading.Event()
        self._outage = Outage("fetching", self._closed, pause=timings.longest_outage_pause)
        self._counting = threading.Lock()  # Guards writes of `fetches`.
        self.fetches = 0

    def step(self) -> None:
        """Return None: each thread waits for itself, and has no job meanwhile."""

    def take(self, ran: float | None) -> InFlightJob | None:
        """Return the next job, waiting for one; None once closed. [FETCH-5]"""
        while not self._closed.is_set():
            with self._outage:
                with self._counting:
                    self.fetches += 1
                began = time.monotonic()
                with _troubles():
                    taken = self._fetcher.take()
                if taken is None:
                    if time.monotonic() - began < _QUICK_S:
                        self._closed.wait(_PAUSE_S)
                    continue
                held = _CustomJob(
                    "", taken.queue, taken.payload, taken=taken, fetcher=self._fetcher
                )
                if not self._closed.is_set():
                    return held
                self.put_back([held])
        return None

    def acknowledge(self, held: InFlightJob) -> bool:
        """End a job before it runs."""
        assert isinstance(held, _CustomJob)
        with _troubles():
            held.fetcher.acknowledge(held.taken)
        return True

    def put_back(self, jobs: Sequence[InFlightJob]) -> int:
        """Return unfinished jobs to their queues, to run next; retry for a while. [FETCH-6]

        Raises:
            RedisTrouble: At least one was not put back in time; each was tried.
        """
        deadline = time.monotonic() + self._put_back_timeout
        trouble: RedisTrouble | None = None
        for held in jobs:
            assert isinstance(held, _CustomJob)
            try:
                _until_done(held.fetcher.put_back, held.taken, "job not put back yet", deadline)
            except RedisTrouble as error:
                trouble = error
        if trouble is not None:
            raise trouble
        return len(jobs)

    def close(self) -> None:
        """Take no more jobs. Threads notice when `take` of the fetcher returns. [FETCH-14]"""
        self._closed.set()


class AcknowledgingSink(ImmediateSink):
    """Stores each outcome, and then lets the fetcher forget the job."""

    def record(self, held: InFlightJob, outcome: Outcome) -> None:
        """Store the outcome of a job; a crash before the fetcher forgets it runs it twice."""
        super().record(held, outcome)
        assert isinstance(held, _CustomJob)
        complaint = "job not acknowledged yet"
        _until_done(held.fetcher.acknowledge, held.taken, complaint, given_up=self._given_up)
