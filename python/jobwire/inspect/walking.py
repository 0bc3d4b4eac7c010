"""Iteration over a long list or set, page by page, while other processes change it.

The pages include every entry that stays in its place. An entry that moves, or that is pushed in the
meantime, may appear twice or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobwire.inspect.entry import QUEUE, Entry, entry
from jobwire.inspect.reading import ask, items, raw, required, score, whole
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

__all__ = ["BATCH_SIZE", "ListWalk", "Scan", "SetWalk", "Walk"]

BATCH_SIZE = 100  # entries


class Walk:
    """A walk through a list or set: `next` returns a page, and an empty one at the end.

    Attributes:
        page: Number of entries of a page; it may change between two pages.
    """

    page: int

    def next(self) -> Op[list[Entry]]:
        """Return the next page."""
        raise NotImplementedError


class SetWalk(Walk):
    """A walk through a sorted set in the order of its scores.

    Its position is a member that it has seen, not a number. If people remove the entries that they
    see, the ranks of all later entries change.

    Args:
        key: Key of the set.
        place: Name of the set, for its entries.
        rising: True to start with the lowest score, False to start with the highest.
        page: Number of entries of a page.
        start: Score of the first entry; by default the walk begins at the end of the set.
    """

    def __init__(
        self,
        key: str,
        place: str,
        *,
        rising: bool = False,
        page: int = BATCH_SIZE,
        start: float | None = None,
    ) -> None:
        self._key = key
        self._place = place
        self._rising = rising
        self.page = page
        self._first = start
        self._behind: list[Entry] = []  # the last page, and one entry before it

    def next(self) -> Op[list[Entry]]:
        """Return the next page."""
        start = yield from self._start()
        order = () if self._rising else ("REV",)
        step = command("ZRANGE", self._key, start, start + self.page - 1, *order, "WITHSCORES")
        (reply,) = yield from ask([step])
        flat = items(reply)
        page = [
            entry(member, self._place, score(at))
            for member, at in zip(flat[::2], flat[1::2], strict=True)
        ]
        self._behind += page
        return page

    def _start(self) -> Op[int]:
        """Return the rank at which the next page begins."""
        if not self._behind:
            first, self._first = self._first, None
            return 0 if first is None else (yield from self._count_before(first))
        last = self._behind[-1]
        (scores,) = yield from ask(
            [command("ZMSCORE", self._key, *(seen.payload for seen in self._behind))]
        )
        unmoved = [
            seen
            for seen, at in zip(self._behind, items(required(scores)), strict=False)
            if at is not None and score(at) == seen.score
        ]
        if unmoved:
            self._behind = [unmoved[-1]]
            rank_command = "ZRANK" if self._rising else "ZREVRANK"
            (rank,) = yield from ask([command(rank_command, self._key, unmoved[-1].payload)])
            if isinstance(required(rank), int):
                return int(rank) + 1
        self._behind = []
        return (yield from self._count_before(last.score))

    def _count_before(self, first: float | None) -> Op[int]:
        """Return the rank of the first entry that has this score, or comes after it."""
        bound = f"({first!r}"
        step = (
            command("ZCOUNT", self._key, "-inf", bound)
            if self._rising
            else command("ZCOUNT", self._key, bound, "+inf")
        )
        (count,) = yield from ask([step])
        return whole(required(count))


class ListWalk(Walk):
    """A walk through a queue, newest first, which follows the changes of its length."""

    def __init__(self, keys: Keys, queue: str, *, page: int = BATCH_SIZE) -> None:
        self._key = raw(keys.queue(queue))
        self.page = page
        self._place = QUEUE + queue
        self._start = 0
        self._size: int | None = None

    def next(self) -> Op[list[Entry]]:
        """Return the next page."""
        (length,) = yield from ask([command("LLEN", self._key)])
        size = whole(length)
        if self._size is not None:
            self._start = max(0, self._start + size - self._size)
        self._size = size
        stop = self._start + self.page - 1
        (reply,) = yield from ask([command("LRANGE", self._key, self._start, stop)])
        page = [entry(payload, self._place) for payload in items(reply)]
        self._start += len(page)
        return page


class Scan(Walk):
    """A walk through the members of a set whose text matches a pattern, in no order.

    Args:
        key: Key of the set.
        place: Name of the set, for its entries.
        pattern: A pattern of the server, with `*`, `?`, `[...]` and backslash.
        page: Number of members that the server looks at in one step.
    """

    def __init__(self, key: str, place: str, pattern: str, *, page: int = BATCH_SIZE) -> None:
        self._key = key
        self._place = place
        self._pattern = pattern
        self.page = page
        self._cursor: Any = b"0"

    def next(self) -> Op[list[Entry]]:
        """Return the next page that is not empty."""
        while self._cursor is not None:
            step = command(
                "ZSCAN", self._key, self._cursor, "MATCH", self._pattern, "COUNT", self.page
            )
            (reply,) = yield from ask([step])
            cursor, flat = items(reply) or (b"0", [])
            self._cursor = cursor if whole(cursor) else None
            pairs: Sequence[tuple[bytes, bytes]] = list(zip(flat[::2], flat[1::2], strict=True))
            if pairs:
                return [entry(member, self._place, score(at)) for member, at in pairs]
        return []
