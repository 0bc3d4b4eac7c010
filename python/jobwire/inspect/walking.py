"""Going through a long list or set page by page, while others change it.

Nothing that stays where it was is left out. What moves, or is pushed meanwhile, may be seen twice
or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobwire.inspect.entry import QUEUE, Entry, entry
from jobwire.inspect.reading import ask, items, raw, score, whole
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

__all__ = ["PAGE", "ListWalk", "Scan", "SetWalk", "Walk"]

PAGE = 100  # entries at a time


class Walk:
    """A place to go through: `next` returns a page, and an empty one at the end."""

    def next(self) -> Op[list[Entry]]:
        """Return the next page."""
        raise NotImplementedError


class SetWalk(Walk):
    """Goes through a sorted set in the order of its scores.

    Where it stands is told by a member that it has seen, not by a number: people remove what
    they are shown, and everything behind would move up.

    Args:
        key: Key of the set.
        place: What to call it.
        rising: From the lowest score up, and not from the highest down.
    """

    def __init__(self, key: str, place: str, *, rising: bool = False) -> None:
        self._key = key
        self._place = place
        self._rising = rising
        self._behind: list[Entry] = []  # the last page, and before it one entry that was left

    def next(self) -> Op[list[Entry]]:
        """Return the next page."""
        start = yield from self._start()
        order = () if self._rising else ("REV",)
        step = command("ZRANGE", self._key, start, start + PAGE - 1, *order, "WITHSCORES")
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
            return 0
        last = self._behind[-1]
        (scores,) = yield from ask(
            [command("ZMSCORE", self._key, *(each.payload for each in self._behind))]
        )
        here = [
            each
            for each, at in zip(self._behind, items(scores), strict=False)
            if at is not None and score(at) == each.score
        ]
        if here:
            self._behind = [here[-1]]
            rank = "ZRANK" if self._rising else "ZREVRANK"
            (found,) = yield from ask([command(rank, self._key, here[-1].payload)])
            if type(found) is int:
                return found + 1
        bound = f"({last.score!r}"
        step = (
            command("ZCOUNT", self._key, "-inf", bound)
            if self._rising
            else command("ZCOUNT", self._key, bound, "+inf")
        )
        self._behind = []
        (count,) = yield from ask([step])
        return whole(count)


class ListWalk(Walk):
    """Goes through a queue, newest first. As its length changes, so does the window."""

    def __init__(self, keys: Keys, queue: str) -> None:
        self._key = raw(keys.queue(queue))
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
        stop = self._start + PAGE - 1
        (reply,) = yield from ask([command("LRANGE", self._key, self._start, stop)])
        page = [entry(each, self._place) for each in items(reply)]
        self._start += len(page)
        return page


class Scan(Walk):
    """Goes through the members of a set whose text matches a pattern, in no order.

    Args:
        key: Key of the set.
        place: What to call it.
        pattern: As the server understands it, with `*`, `?`, `[...]` and backslash.
    """

    def __init__(self, key: str, place: str, pattern: str) -> None:
        self._key = key
        self._place = place
        self._pattern = pattern
        self._cursor: Any = b"0"

    def next(self) -> Op[list[Entry]]:
        """Return the next page that is not empty."""
        while self._cursor is not None:
            step = command("ZSCAN", self._key, self._cursor, "MATCH", self._pattern, "COUNT", PAGE)
            (reply,) = yield from ask([step])
            cursor, found = items(reply) or (b"0", [])
            self._cursor = cursor if whole(cursor) else None
            pairs: Sequence[tuple[bytes, bytes]] = list(zip(found[::2], found[1::2], strict=True))
            if pairs:
                return [entry(member, self._place, score(at)) for member, at in pairs]
        return []
