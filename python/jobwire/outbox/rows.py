"""The table of an outbox, as the rest of the room sees it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from jobwire.protocol.normalize import ReadyPayload

__all__ = ["Row", "Rows"]


class Row(NamedTuple):
    """A committed row."""

    key: int
    """The key, which grows with the order of the insertions."""
    job: ReadyPayload


class Rows(Protocol):
    """Reads and deletes committed rows. Any error of the database may be raised."""

    def transaction(self) -> AbstractContextManager[object]:
        """Begin a transaction; an exception rolls it back."""

    def delete(self, rows: Sequence[Row]) -> int:
        """Delete rows, in the transaction; return the number of those that were there.

        It waits for another process that deletes them, and then finds none.
        """

    def oldest(self, after: int, age: float, most: int) -> list[Row]:
        """Return rows with keys above `after` that are `age` seconds old, in order of keys."""

    def count(self) -> int:
        """Return the number of all rows."""

    def release(self) -> None:
        """Close the connections of this thread."""
