"""Mistakes of mutants that a change of the traffic cannot make, for the reference implementation.

The variable JOBWIRE_MUTATE names one of the functions.
"""

from __future__ import annotations

from jobwire.connection.connection import Connection
from jobwire.connection.pool import ConnectionPool
from jobwire.protocol import pushing


def keep_connection() -> None:
    """Use a connection again before its reply has come. [ENV-5]"""
    Connection.quiet = lambda _: True  # type: ignore[method-assign]
    ConnectionPool.discard = ConnectionPool.release  # type: ignore[method-assign]


def one_slice() -> None:
    """Push all jobs of a bulk in one round trip. [BULK-1]"""
    pushing.JOBS_PER_SLICE = pushing.SCHEDULED_JOBS_PER_SLICE = 1 << 30


def make(name: str) -> None:
    """Make the mistake with this name."""
    {mistake.__name__: mistake for mistake in (keep_connection, one_slice)}[name]()
