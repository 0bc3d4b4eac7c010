"""The interface for a fetcher of your own, in place of those of jobwire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

__all__ = ["Fetcher", "FetcherFactory", "FetcherSetup", "TakenJob"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSetup:
    """Settings of a capsule, for which a fetcher is made.

    Attributes:
        url: The server, with its password.
        namespace: Prefix of every key.
        queues: Name to weight, as `-q` gives them.
        concurrency: Number of threads that call `take`.
    """

    url: str
    namespace: str
    queues: Mapping[str, int]
    concurrency: int


class TakenJob(msgspec.Struct, frozen=True):
    """A job that a fetcher has taken.

    Attributes:
        queue: Name of the queue to which the job belongs, without a prefix.
        payload: The JSON text, byte by byte as it was in Redis.
        token: Anything by which the fetcher knows the job again.
    """

    queue: str
    payload: bytes
    token: object = None


class Fetcher(Protocol):
    """Takes jobs for one capsule. Each method may be called by several threads at a time.

    An error of redis-py or of a socket counts as an outage of Redis: it has one line of the log,
    and the call is repeated until Redis is back. Any other exception has its traceback in the log;
    `take` is called again after a second, and the other methods are not.
    """

    def take(self) -> TakenJob | None:
        """Wait up to two seconds for a job; return None if none has come. [FETCH-1]"""

    def acknowledge(self, job: TakenJob) -> None:
        """Forget a job, because its outcome is stored, or because it must not run twice.

        A call that seems to have failed is repeated.
        """

    def put_back(self, job: TakenJob) -> None:
        """Return a job that has not ended to its queue, where it is the next to run. [FETCH-6]"""

    def close(self) -> None:
        """Free connections. Nothing is called afterwards."""


FetcherFactory: TypeAlias = Callable[[FetcherSetup], Fetcher]
