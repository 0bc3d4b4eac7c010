"""The audit: puts back jobs that this process holds in Redis without knowing them. [REL-8]

Such jobs exist after an outcome that Redis acknowledged and then forgot, a fetch that the server
carried out late, or a mistake of this process. No recovery touches them, because the process lives.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from jobwire.connection.sync import SyncRedis
from jobwire.protocol.keys import Keys
from jobwire.protocol.reliable import held_fields, put_back, sequence_number
from jobwire.text import counted
from jobwire.worker.fetch.reliable import ReliableFetcher
from jobwire.worker.outcome.outbox import Outbox

__all__ = ["Audit", "Known", "Suspects", "gather"]

SHOWN = 5  # fields in a log line

_log = logging.getLogger("jobwire.worker")


class Known(NamedTuple):
    """The private entries of the jobs that a process may still run, or may still store as ended.

    Attributes:
        numbers: Sequence numbers under which fetches may still bring jobs.
        fields: Fields of jobs that were brought.
    """

    numbers: Sequence[range]
    fields: Collection[str]

    def __contains__(self, field: object) -> bool:
        if field in self.fields:
            return True
        return any(sequence_number(str(field)) in span for span in self.numbers)


def gather(
    fetchers: Sequence[ReliableFetcher], taken: Callable[[], Sequence[str]], outbox: Outbox
) -> Known:
    """Return what a process knows.

    A job moves forward: fetch, buffer, thread or task, outbox. Each place lets go of it after the
    next place has it, so reading the places in this order finds it. A job that goes back to the
    buffer meanwhile can be missed once, so `Suspects` needs two readings in a row.
    Jobs of a fetch that got no reply count as unknown: this process never runs them.

    Args:
        fetchers: The job sources.
        taken: Returns the fields of all jobs that threads and tasks have taken.
        outbox: The outcomes.
    """
    numbers = [span for fetcher in fetchers for span in fetcher.open_numbers()]
    fields = {field for fetcher in fetchers for field in fetcher.waiting()}
    fields.update(taken())
    fields.update(outbox.fields())
    return Known(numbers, fields)


class Suspects:
    """Fields that were unknown in the last look."""

    def __init__(self) -> None:
        self._unknown: frozenset[str] = frozenset()

    def look(self, held: Collection[str], known: Known) -> list[str]:
        """Return the fields that are held, and were unknown in this check and the one before.

        A job that ends between the reply about `held` and the gathering of `known` is unknown in
        one look, and gone in the next one.
        """
        unknown = frozenset(field for field in held if field not in known)
        stuck = unknown & self._unknown
        self._unknown = unknown
        return sorted(stuck, key=sequence_number)


class Audit:
    """Looks at the private hash of a process, with every heartbeat.

    Args:
        redis: The Redis to use.
        keys: Key names.
        identity: Identity of this process.
        known: Returns what the process knows at this moment.
    """

    def __init__(
        self, redis: SyncRedis, keys: Keys, identity: str, known: Callable[[], Known]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self._known = known
        self._suspects = Suspects()
        self._reported: list[str] = []

    def look(self, size: int) -> None:
        """Put back what nothing here knows.

        Args:
            size: Number of private entries. With none, nothing is asked.
        """
        # Redis first: a job that this process takes meanwhile is not in the reply.
        held = self._redis.run(held_fields(self._keys, self._identity)) if size else []
        stuck = self._suspects.look(held, self._known())
        if not stuck:
            return
        count = self._redis.run(
            put_back(self._keys, self._identity, stuck, started=True, now=time.time())
        )
        if count or stuck != self._reported:
            shown = ", ".join(stuck[:SHOWN]) + (", ..." if len(stuck) > SHOWN else "")
            _log.warning(
                "put back %d of %s that were in flight here and unknown to every thread: %s",
                *(count, counted(len(stuck), "job"), shown),
            )
        self._reported = stuck
