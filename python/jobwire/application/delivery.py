"""The destination of the jobs that an application pushes: Redis, or a test."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from jobwire.protocol.batches import BatchStatus, Membership
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.progress import JobProgress, RubyStatus
from jobwire.protocol.unique import Refused
from jobwire.protocol.wire import Local, Op

_log = logging.getLogger("jobwire.client")

__all__ = [
    "Batches",
    "Bridge",
    "Deferral",
    "Delivery",
    "Transport",
    "defer",
    "deliver",
    "log_refused",
]


class Delivery(Protocol):
    """Receives pushed jobs instead of Redis."""

    def deliver(self, jobs: Sequence[ReadyPayload]) -> Refused:
        """Receive jobs that were pushed together; return the unique ones that it refuses."""

    async def adeliver(self, jobs: Sequence[ReadyPayload]) -> Refused:
        """Receive jobs that were pushed from asyncio."""

    def cancel(self, jid: str) -> None:
        """Receive the cancellation of an iterable job. [ITER-7]"""

    def result(self, jid: str) -> bytes | None:
        """Return the stored result of a job, if there is one. [X-RESULT-7]"""

    def progress(self, jid: str) -> JobProgress | None:
        """Return the progress that a job has reported, if there is one. [X-PROG-6]"""

    def emit(self, jid: str, items: Sequence[bytes]) -> None:
        """Receive the items that a job emits, as JSON. [X-STEP-7]"""

    def output(self, jid: str) -> list[Any]:
        """Return the output of a job, as XRANGE does. [X-STEP-12]"""

    @property
    def batches(self) -> Batches:
        """The batches of the jobs that it receives. [X-BATCH-1]"""


class Batches(Protocol):
    """Batches that are not in Redis. Their callbacks are delivered by the caller."""

    def make(
        self, member: Membership, callbacks: Mapping[str, ReadyPayload], description: str
    ) -> str:
        """Make a batch, open for members; return its state, or that of the batch it is in."""

    def add(self, member: Membership, jobs: Sequence[ReadyPayload]) -> str:
        """Enter members before they are delivered; return the state of the batch."""

    def end(
        self, member: Membership, how: Literal["closed", "cancelled"]
    ) -> Sequence[ReadyPayload] | None:
        """Close or cancel a batch; return the callbacks that are due, None if there is none."""

    def status(self, batch_id: str) -> BatchStatus | None:
        """Return a batch as it is now; None if there is none."""


class Deferral(Protocol):
    """Keeps pushed jobs until the database transaction around the push commits.

    Attributes:
        stores: True if a job that it keeps needs no Redis at the time of the push.
    """

    stores: bool

    def defer(self, jobs: Sequence[ReadyPayload], redis: str) -> bool:
        """Keep jobs for later; return False if there is no transaction to wait for.

        Args:
            jobs: The jobs.
            redis: Name or URL of their Redis; "": the default of the application.
        """

    async def adefer(self, jobs: Sequence[ReadyPayload], redis: str) -> bool:
        """Keep jobs that were pushed from asyncio; see `defer`."""

    def settle(self) -> None:
        """Write the jobs that are kept only because of the transaction around a test."""


class Bridge(NamedTuple):
    """A framework's ways between sync and async code, for tests that run jobs.

    Sync code that is called from async code runs in the thread of the outermost sync caller. In a
    test, that thread has the database transaction of the test.

    Attributes:
        to_sync: Makes a sync function of an async one.
        to_async: Makes an async function of a sync one.
        carry: Makes a function that leads to the same thread when a new thread calls it.
    """

    to_sync: Callable[[Callable[..., Awaitable[Any]]], Callable[..., Any]]
    to_async: Callable[[Callable[..., Any]], Callable[..., Coroutine[Any, Any, Any]]]
    carry: Callable[[Callable[[], Any]], Callable[[], Any]]


class Transport:
    """The destination of pushed jobs: Redis by default, or a delivery that overrides it.

    Attributes:
        overrides: Deliveries that override Redis; the last one receives the jobs.
        deferral: Keeps jobs until a transaction commits; None if nothing does.
        bridge: How tests run jobs; None: without a framework.
        ruby_status: The jobs whose status is written as they are pushed; None: none. [X-ADDON-20]
    """

    __slots__ = ("bridge", "deferral", "overrides", "ruby_status")

    def __init__(self) -> None:
        self.overrides: list[Delivery] = []
        self.deferral: Deferral | None = None
        self.bridge: Bridge | None = None
        self.ruby_status: RubyStatus | None = None

    @contextmanager
    def override(self, delivery: Delivery) -> Iterator[None]:
        """Send jobs to `delivery` instead of Redis, from all threads and event loops."""
        self.overrides.append(delivery)
        try:
            yield
        finally:
            self.overrides.remove(delivery)


def deliver(transport: Transport, jobs: Sequence[ReadyPayload]) -> Op[Refused]:
    """Give jobs to the delivery that overrides Redis; return those that it refuses."""
    delivery = transport.overrides[-1]
    refused: Refused = yield Local(
        partial(delivery.deliver, jobs), partial(delivery.adeliver, jobs)
    )
    return refused


def defer(deferral: Deferral, jobs: Sequence[ReadyPayload], redis: str) -> Op[bool]:
    """Keep jobs until a transaction commits; return False if there is none."""
    given = (jobs, redis)
    kept: bool = yield Local(partial(deferral.defer, *given), partial(deferral.adefer, *given))
    return kept


def log_refused(refused: Refused) -> None:
    """Log the unique jobs that were left out when no caller waits for the answer any more."""
    for jid, holder in refused.items():
        _log.info("job %s is left out: job %s has the same unique key", jid, holder)
