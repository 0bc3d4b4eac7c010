"""The table of an outbox, as the rest of the room sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from jobwire.errors import ConfigError
from jobwire.protocol.normalize import ReadyPayload

__all__ = ["Row", "Rows", "check_redis"]


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

    def count(self) -> int:
        """Return the number of all rows."""

    def release(self) -> None:
        """Close the connections of this thread."""


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
