"""A capsule: some queues, and threads of their own that serve them."""

from __future__ import annotations

import time

from jobwire.beat import CapsuleShape, Work
from jobwire.ordering import QueueOrder
from jobwire.worker.fetcher import Fetcher
from jobwire.worker.processor import Processor, Workshop

__all__ = ["Capsule"]


class Capsule:
    """Owns the processors of one capsule.

    Args:
        name: Shown to others.
        order: Its queues.
        concurrency: How many threads.
        fetcher: Where the jobs come from.
        workshop: What the processors share.
    """

    def __init__(
        self,
        name: str,
        order: QueueOrder,
        concurrency: int,
        fetcher: Fetcher,
        workshop: Workshop,
    ) -> None:
        self.shape = CapsuleShape(name, concurrency, order)
        self._fetcher = fetcher
        self._processors = [
            Processor(number, name, fetcher, workshop) for number in range(concurrency)
        ]

    def start(self) -> None:
        """Start all threads."""
        for processor in self._processors:
            processor.start()

    @property
    def alive(self) -> bool:
        """Whether any thread runs."""
        return any(processor.alive for processor in self._processors)

    def works(self) -> dict[str, Work]:
        """Return what runs, by thread id. [BEAT-5]"""
        works = ((processor.tid, processor.work) for processor in self._processors)
        return {tid: work for tid, work in works if work is not None}

    def quiet(self) -> None:
        """Start no more jobs. [SIG-2] [FETCH-5]"""
        self._fetcher.close()

    def wait(self, deadline: float) -> bool:
        """Wait for the running jobs until a monotonic time; return whether all ended."""
        ended = [processor.join(deadline - time.monotonic()) for processor in self._processors]
        return all(ended)

    def put_back(self) -> int:
        """Return the jobs in progress to their queues; say how many. They still run. [SIG-5]"""
        held = [each for each in (processor.held for processor in self._processors) if each]
        return self._fetcher.put_back(held) if held else 0

    def interrupt(self) -> None:
        """Raise `Shutdown` in the jobs in progress."""
        for processor in self._processors:
            processor.interrupt()
