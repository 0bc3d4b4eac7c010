"""The way of the rows to Redis.

Each step is: delete the row, write the job, commit. The process that deletes the row writes the
job, and a failure of any kind brings the row back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.outbox.rows import Row, Rows
from jobwire.protocol.normalize import ReadyPayload

__all__ = ["GRACE_S", "Write", "send", "send_all", "send_now"]

ROWS_AT_ONCE = 100
GRACE_S = 5.0  # for the process that has committed a row

_log = logging.getLogger("jobwire.outbox")

Write = Callable[[Sequence[ReadyPayload]], None]
"""Writes jobs to Redis, without a buffer, or raises `RedisTrouble`."""


class _Taken(Exception):
    """Another process has deleted some of the rows."""


def send(rows: Rows, write: Write, chosen: Sequence[Row]) -> bool:
    """Write the jobs of committed rows and delete the rows.

    Returns:
        False, and nothing is done, if another process is writing some of the jobs.

    Raises:
        RedisTrouble: The rows stay, except those of jobs in `written` of the error. The jobs are
            written again later with the same ids, also those that may have been written now.
            [PUSH-9]
    """
    try:
        with rows.transaction():
            if rows.delete(chosen) != len(chosen):
                raise _Taken
            write([row.job for row in chosen])
    except _Taken:
        return False
    except RedisTrouble as error:
        written = set(error.written)
        if gone := [row for row in chosen if row.job.jid in written]:
            with rows.transaction():
                rows.delete(gone)
        raise
    return True


def send_now(rows: Rows, write: Write, chosen: Sequence[Row]) -> None:
    """Write the jobs of rows that this process has just committed; or leave them to a relay."""
    try:
        send(rows, write, chosen)
    except RedisTrouble as error:
        ids = ", ".join(row.job.jid for row in chosen[:5])
        _log.warning("jobs stay in the outbox (%s): %s", ids, error)


def send_all(rows: Rows, write: Write, *, grace: float = GRACE_S) -> int:
    """Write the jobs of all rows that are `grace` seconds old, in order; return their number.

    A job that Redis refuses keeps its row, is logged, and holds up no other.

    Raises:
        RedisTrouble: Redis is away; the jobs that are left stay.
    """
    sent = last = 0
    while chosen := rows.oldest(last, grace, ROWS_AT_ONCE):
        try:
            is_sent = send(rows, write, chosen)
        except RedisRefused as error:
            sent += len(error.written)
            sent += sum(_send_one(rows, write, row) for row in chosen)
        else:
            if is_sent:
                sent += len(chosen)
            else:  # another relay; the next pass finds the rest
                _log.debug("another process writes the same jobs")
        last = chosen[-1].key
    return sent


def _send_one(rows: Rows, write: Write, row: Row) -> bool:
    try:
        return send(rows, write, [row])
    except RedisRefused as error:
        _log.error("job %s stays in the outbox: %s", row.job.jid, error)
        return False
