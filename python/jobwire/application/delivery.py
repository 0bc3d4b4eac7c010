"""Where the clients of an application deliver: to Redis, or to a test in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from jobwire.protocol.normalize import Sealed
from jobwire.protocol.wire import Local, Op

__all__ = ["Delivery", "Outlet", "hand_over"]


class Delivery(Protocol):
    """Takes in place of Redis what is ready to be written."""

    def deliver(self, jobs: Sequence[Sealed]) -> None:
        """Take jobs that were pushed together."""

    async def adeliver(self, jobs: Sequence[Sealed]) -> None:
        """The same from asyncio."""

    def cancel(self, jid: str) -> None:
        """Take the wish that an iterable job ends. [ITER-7]"""


class Outlet:
    """What stands in the place of Redis, if anything.

    Attributes:
        diverted: What was put there; the one that came last takes the jobs.
    """

    __slots__ = ("diverted",)

    def __init__(self) -> None:
        self.diverted: list[Delivery] = []

    @contextmanager
    def divert(self, delivery: Delivery) -> Iterator[None]:
        """Put something in the place of Redis, for all threads and event loops."""
        self.diverted.append(delivery)
        try:
            yield
        finally:
            self.diverted.remove(delivery)


def hand_over(outlet: Outlet, jobs: Sequence[Sealed]) -> Op[None]:
    """Deliver jobs to what stands in the place of Redis."""
    delivery = outlet.diverted[-1]
    yield Local(partial(delivery.deliver, jobs), partial(delivery.adeliver, jobs))
