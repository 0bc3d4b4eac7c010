"""The table of the outbox, and its rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    func,
    select,
)
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.exc import SQLAlchemyError

from jobwire.outbox.rows import Row
from jobwire.protocol.normalize import ReadyPayload

__all__ = ["TableRows", "make_table"]


def make_table(metadata: MetaData, name: str) -> Table:
    """Add the table to a schema."""
    return Table(
        name,
        metadata,
        # SQLite counts keys up for this type alone.
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
        Column("jid", Text, nullable=False),
        Column("queue", Text, nullable=False),
        Column("at", Double),  # epoch seconds of a scheduled job
        Column("payload", LargeBinary().with_variant(LONGBLOB, "mysql", "mariadb"), nullable=False),
        Column("created_at", Double, nullable=False),  # epoch seconds
    )


class TableRows:
    """Reads and deletes committed rows; see `jobwire.outbox.rows.Rows`.

    Args:
        table: The table.
        begin: Begins a transaction on a connection.
    """

    errors = (SQLAlchemyError,)

    def __init__(
        self, table: Table, begin: Callable[[], AbstractContextManager[Connection]]
    ) -> None:
        self._table = table
        self._begin = begin
        self._connection: Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction."""
        with self._begin() as connection:
            self._connection = connection
            try:
                yield
            finally:
                self._connection = None

    def delete(self, rows: Sequence[Row]) -> int:
        """Delete rows, in the transaction."""
        assert self._connection is not None
        keys = [row.key for row in rows]
        return self._connection.execute(
            delete(self._table).where(self._table.c.id.in_(keys))
        ).rowcount

    def oldest(self, after: int, age: float, most: int) -> list[Row]:
        """Return the oldest rows after a key."""
        columns = self._table.c
        query = (
            select(columns.id, columns.jid, columns.queue, columns.at, columns.payload)
            .where(columns.id > after, columns.created_at <= time.time() - age)
            .order_by(columns.id)
            .limit(most)
        )
        with self._begin() as connection:
            return [
                Row(key, ReadyPayload(jid, queue, at, bytes(payload)))
                for key, jid, queue, at, payload in connection.execute(query)
            ]

    def count(self) -> int:
        """Return the number of rows."""
        with self._begin() as connection:
            return connection.execute(select(func.count()).select_from(self._table)).scalar_one()
