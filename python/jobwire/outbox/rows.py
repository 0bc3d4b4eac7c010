"""The table of an outbox, as the rest of the room sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from jobwire.errors import ConfigError
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.unique import lock_in

__all__ = ["Row", "Rows", "check_redis", "stored"]


class Row(NamedTuple):
    """A committed row."""

    key: int
    """The key, which grows with the order of the insertions."""
    job: ReadyPayload
    redis: str = ""
    """The name of its Redis; "": the default of the application."""


class Rows(Protocol):
    """Reads and deletes committed rows. Any error of the database may be raised."""

    def transaction(self) -> AbstractContextManager[object]:
        """Begin a transaction; an exception rolls it back."""

    def delete(self, rows: Sequence[Row]) -> int:
        """Delete rows, in the transaction; return the number of those that were there.

        It waits for another process that deletes them, and then finds none.
        """

    def oldest(self, after: int, age: float, most: int, without: Collection[str]) -> list[Row]:
        """Return rows with keys above `after` that are `age` seconds old, in order of keys.

        Rows of a Redis that `without` names are left out.
        """


def stored(record: Any) -> Row:
    """Return the row of a record, whose attributes are columns; its key is `id`."""
    text = bytes(record.payload)
    job = ReadyPayload(record.jid, record.queue, record.at, text, lock_in(text))
    return Row(record.id, job, record.redis)


def check_redis(redis: str) -> None:
    """Refuse a Redis that a row cannot name.

    Raises:
        ConfigError: It is a URL, which may hold a password.
    """
    if "://" in redis:
        raise ConfigError(
            "a job in an outbox needs a Redis with a name, because its row does not hold the URL "
            "given to via(); write App(redis={'NAME': URL}) and via('NAME')"
        )
