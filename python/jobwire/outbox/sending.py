"""The way of the rows to Redis.

Each step is: delete the row, write the job, commit. The process that deletes the row writes the
job, and a failure of any kind brings the row back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from jobwire.application.app import App
from jobwire.errors import ConfigError, RedisRefused, RedisTrouble
from jobwire.outbox.rows import Row, Rows
from jobwire.protocol.normalize import ReadyPayload

__all__ = ["GRACE_S", "Write", "send", "send_all", "send_now", "write_by"]

ROWS_AT_ONCE = 100
GRACE_S = 5.0  # for the process that has committed a row

_log = logging.getLogger("jobwire.outbox")

Write = Callable[[str, Sequence[ReadyPayload]], None]
"""Writes jobs to the Redis of a name, without a buffer, or raises `RedisTrouble`, or `ConfigError`
for a name that the application does not have."""


def write_by(app: App) -> Write:
    """Return the function that writes jobs with the blocking clients of an application."""
    return lambda redis, jobs: app.client_of(redis).write(jobs, buffered=False)


class _Taken(Exception):
    """Another process has deleted some of the rows."""


def send(rows: Rows, write: Write, chosen: Sequence[Row]) -> bool:
    """Write the jobs of committed rows, all of one Redis, and delete the rows.

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
            write(chosen[0].redis, [row.job for row in chosen])
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
    for group in _by_redis(chosen):
        try:
            send(rows, write, group)
        except Exception as error:  # noqa: BLE001 - also of a database: the commit has succeeded
            ids = ", ".join(row.job.jid for row in group[:5])
            _log.warning("jobs stay in the outbox (%s): %s", ids, error)


def send_all(rows: Rows, write: Write, *, grace: float = GRACE_S) -> int:
    """Write the jobs of all rows that are `grace` seconds old, in order; return their number.

    A job that Redis refuses keeps its row, is logged, and holds up no other. A Redis that is away,
    or has no name in the application, holds up only its own jobs.

    Raises:
        RedisTrouble: A Redis is away; its jobs that are left stay.
    """
    sent = last = 0
    away: list[RedisTrouble] = []
    unusable: set[str] = set()
    while chosen := rows.oldest(last, grace, ROWS_AT_ONCE, unusable):
        for group in _by_redis(chosen):
            try:
                sent += _send_group(rows, write, group)
            except RedisTrouble as error:
                away.append(error)
                unusable.add(group[0].redis)
            except ConfigError as error:
                _log.error("jobs stay in the outbox: %s", error)
                unusable.add(group[0].redis)
        last = chosen[-1].key
    if away:
        raise away[0]
    return sent


def _by_redis(rows: Sequence[Row]) -> Iterable[list[Row]]:
    """Return the rows of each Redis, in order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.redis, []).append(row)
    return groups.values()


def _send_group(rows: Rows, write: Write, group: Sequence[Row]) -> int:
    try:
        if send(rows, write, group):
            return len(group)
    except RedisRefused as error:
        return len(error.written) + sum(_send_one(rows, write, row) for row in group)
    _log.debug("another process writes the same jobs")  # the next pass finds the rest
    return 0


def _send_one(rows: Rows, write: Write, row: Row) -> bool:
    try:
        return send(rows, write, [row])
    except RedisRefused as error:
        _log.error("job %s stays in the outbox: %s", row.job.jid, error)
        return False
