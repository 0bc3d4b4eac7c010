"""The modes of fetching: the parts of each, and their end. [FETCH-1] [REL-1]"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import msgspec

from jobwire.application.fetcher import Fetcher, FetcherFactory, FetcherSetup
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.wire import Op
from jobwire.worker.background.audit import Audit, gather
from jobwire.worker.base.ticker import Ticker
from jobwire.worker.base.timings import Timings
from jobwire.worker.execute import joblog
from jobwire.worker.fetch.basic import BasicFetcher
from jobwire.worker.fetch.inflight import SequenceNumbers
from jobwire.worker.fetch.job_source import JobSource
from jobwire.worker.fetch.other_pauses import OtherPauses
from jobwire.worker.fetch.reliable import ReliableFetcher
from jobwire.worker.outcome.immediate_sink import ExecutionCounts, ImmediateSink
from jobwire.worker.outcome.outbox import Outbox
from jobwire.worker.outcome.sink import OutcomeSink
from jobwire.worker.outcome.writer import OutcomeWriter
from jobwire.worker.process.custom_fetch import AcknowledgingSink, CustomSource

__all__ = ["BasicMode", "CustomMode", "FetchMode", "ReliableMode", "SharedParts"]

_log = logging.getLogger("jobwire.worker")


class SharedParts(msgspec.Struct, frozen=True):
    """Parts of a worker that every mode uses.

    Attributes:
        redis: Where the jobs are.
        keys: Key names.
        timings: The lengths of the waits.
        dead_limits: Returns the limits of the dead set at this moment.
        counts: The executions that are written with the heartbeat.
    """

    redis: SyncRedis
    keys: Keys
    timings: Timings
    dead_limits: Callable[[], DeadSetLimits]
    counts: ExecutionCounts


class FetchMode(ABC):
    """Makes the job source of each capsule, and stores the outcomes of all their jobs.

    Attributes:
        sink: Stores outcomes.
        audit: Puts back jobs that the process holds without knowing them; None if it holds none.
    """

    sink: OutcomeSink
    audit: Audit | None = None

    @property
    def unstored(self) -> int:
        """Number of outcomes that are not stored."""
        return 0

    @property
    def looks(self) -> Sequence[Callable[[], Op[None]]]:
        """Operations that wake a waiting source if it missed jobs; to travel with a heartbeat."""
        return ()

    @abstractmethod
    def make_source(self, order: QueueOrder, slots: int) -> JobSource:
        """Return the source of a capsule."""

    def give_up(self) -> None:
        """Store no more outcomes of jobs that run, because they were put back."""
        return

    def close(self) -> None:
        """Store the outcomes of jobs that have ended, if the server accepts them soon."""
        return


class BasicMode(FetchMode):
    """A job is in no key while it runs, and its own thread stores its outcome."""

    def __init__(self, shared: SharedParts, other_pauses: OtherPauses | None) -> None:
        self._shared = shared
        self._other_pauses = other_pauses
        self._sink = self.sink = ImmediateSink(
            shared.redis,
            shared.keys,
            counts=shared.counts,
            dead_limits=shared.dead_limits,
            flush_log=joblog.flush,
        )

    def make_source(self, order: QueueOrder, slots: int) -> JobSource:
        """Return a source whose threads block on connections of their own."""
        return BasicFetcher(
            *(self._shared.redis, self._shared.keys, order),
            slots=slots,
            other_pauses=self._other_pauses,
            timings=self._shared.timings,
        )

    def give_up(self) -> None:
        """End the attempts to store outcomes, which have no time limit."""
        self._sink.give_up()


class CustomMode(FetchMode):
    """The application takes the jobs, and ends them after their outcome is stored."""

    def __init__(self, shared: SharedParts, make_fetcher: FetcherFactory) -> None:
        self._shared = shared
        self._make_fetcher = make_fetcher
        self._fetchers: list[Fetcher] = []
        self._sink = self.sink = AcknowledgingSink(
            shared.redis,
            shared.keys,
            counts=shared.counts,
            dead_limits=shared.dead_limits,
            flush_log=joblog.flush,
        )

    def make_source(self, order: QueueOrder, slots: int) -> JobSource:
        """Return a source whose threads wait in a fetcher of their own."""
        setup = FetcherSetup(
            url=self._shared.redis.url,
            namespace=self._shared.keys.namespace,
            queues=order.weights,
            concurrency=slots,
        )
        self._fetchers.append(fetcher := self._make_fetcher(setup))
        return CustomSource(fetcher, slots, self._shared.timings)

    def give_up(self) -> None:
        """End the attempts to store outcomes, which have no time limit."""
        self._sink.give_up()

    def close(self) -> None:
        """Free the connections of the fetchers."""
        for fetcher in self._fetchers:
            fetcher.close()


class ReliableMode(FetchMode):
    """A job is in the private hash while it runs, and its outcome travels with a later fetch."""

    def __init__(
        self,
        shared: SharedParts,
        other_pauses: OtherPauses | None,
        *,
        identity: str,
        ticker: Ticker,
        renew_lease: Callable[[], None],
        taken: Callable[[], Sequence[str]],
    ) -> None:
        self._shared = shared
        self._other_pauses = other_pauses
        self._identity = identity
        self._ticker = ticker
        self._renew_lease = renew_lease
        self._numbers = SequenceNumbers()
        self._outbox = outbox = Outbox(
            shared.redis,
            shared.keys,
            identity,
            dead_limits=shared.dead_limits,
            flush_log=joblog.flush,
            retry_interval=shared.timings.outcome_retry_interval,
            on_failure=ticker.wake,
        )
        self._writer = self.sink = OutcomeWriter(outbox, ticker, shared.timings, shared.counts)
        self._fetchers: list[ReliableFetcher] = []
        known = lambda: gather(self._fetchers, taken, outbox)  # noqa: E731
        self.audit = Audit(shared.redis, shared.keys, identity, known)

    @property
    def unstored(self) -> int:
        """Number of outcomes that are not stored."""
        return self._writer.unstored

    @property
    def looks(self) -> Sequence[Callable[[], Op[None]]]:
        """One of each capsule."""
        return [fetcher.look for fetcher in self._fetchers]

    def make_source(self, order: QueueOrder, slots: int) -> JobSource:
        """Return a source whose threads share a leader."""
        fetcher = ReliableFetcher(
            *(self._shared.redis, self._shared.keys, self._identity, order),
            slots=slots,
            numbers=self._numbers,
            outbox=self._outbox,
            ticker=self._ticker,
            renew_lease=self._renew_lease,
            other_pauses=self._other_pauses,
            timings=self._shared.timings,
        )
        self._fetchers.append(fetcher)
        return fetcher

    def close(self) -> None:
        """Wait a few seconds for the outcomes that are not stored."""
        left = self._writer.close(self._shared.timings.outcome_close_timeout)
        if left:
            _log.error("outcomes of %d jobs could not be stored; they run again", left)
