"""Where the clients of an application deliver: to Redis, or to a test in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.wire import Local, Op

__all__ = ["Delivery", "Transport", "deliver"]


class Delivery(Protocol):
    """Takes in place of Redis what is ready to be written."""

    def deliver(self, jobs: Sequence[ReadyPayload]) -> None:
        """Take jobs that were pushed together."""

    async def adeliver(self, jobs: Sequence[ReadyPayload]) -> None:
        """The same from asyncio."""

    def cancel(self, jid: str) -> None:
        """Take the wish that an iterable job ends. [ITER-7]"""


class Transport:
    """What stands in the place of Redis, if anything.

    Attributes:
        diverted: What was put there; the one that came last takes the jobs.
    """

    __slots__ = ("diverted",)

    def __init__(self) -> None:
        self.diverted: list[Delivery] = []

    @contextmanager
    def override(self, delivery: Delivery) -> Iterator[None]:
        """Put something in the place of Redis, for all threads and event loops."""
        self.diverted.append(delivery)
        try:
            yield
        finally:
            self.diverted.remove(delivery)


def deliver(transport: Transport, jobs: Sequence[ReadyPayload]) -> Op[None]:
    """Deliver jobs to what stands in the place of Redis."""
    delivery = transport.diverted[-1]
    yield Local(partial(delivery.deliver, jobs), partial(delivery.adeliver, jobs))
