"""Selections: the entries of one place that a filter, or a group of failures, selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import cast

from jobwire.console.ops.signature import signature
from jobwire.errors import ConfigError
from jobwire.inspect.entry import QUEUE, Entry, SetName
from jobwire.inspect.filters import Filter
from jobwire.inspect.reading import ask, raw, whole
from jobwire.inspect.sets import set_key
from jobwire.inspect.walking import ListWalk, SetWalk, Walk
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Arg, Op, command

__all__ = ["Preview", "Selection", "check_place", "place_key", "place_size", "preview"]

SETS: tuple[SetName, ...] = ("schedule", "retry", "dead", "unreadable")
BATCH_SIZE = 500  # entries of one round trip
SAMPLE = 10
FIRST_BATCH_SIZE = 10  # entries of the first round trip, if the time is limited


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Entries of one place.

    Attributes:
        place: `schedule`, `retry`, `dead`, `unreadable` or `queue:<name>`.
        only: Conditions for an entry; all entries by default.
        group: Key of a `FailureGroup`, to select its entries only.
        limit: Maximum number of entries: of a set, those with the lowest scores; of a queue, those
            that were pushed last. All by default.
    """

    place: str
    only: Filter = field(default_factory=Filter)
    group: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        check_place(self.place)
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit: {self.limit} is less than 1")

    @property
    def everything(self) -> bool:
        """True if it selects all entries of the place."""
        return not self.only and self.group is None and self.limit is None

    @property
    def unfiltered(self) -> bool:
        """True if no condition spares an entry by its form, as class `*` and age 0 do not.

        Such a selection may be of everything, so it needs the role for everything.
        """
        only, own = self.only, self.place.removeprefix(QUEUE)
        return not (
            (only.class_name or "").strip("*")
            or (only.queue not in (None, own) and (only.queue or "").strip("*"))
            or (only.error or "").strip(" :")
            or (only.text or "").strip(' {}":,')
            or (only.older_than or 0) > 0
            or any(value is not None for value in (only.jid, only.tag, self.group))
        )

    def matches(self, one: Entry, *, now: float) -> bool:
        """Return True if an entry is selected, at epoch second `now`."""
        if not self.only.matches(one, now=now):
            return False
        return self.group is None or signature(one).key == self.group

    def describe(self) -> str:
        """Return the place and the conditions for the journal.

        The text of a payload that the filter looks for is left out, because it may be an argument.
        """
        parts = [self.place]
        for condition in fields(self.only):
            value = getattr(self.only, condition.name)
            if value is not None:
                parts.append(f"{condition.name}={'…' if condition.name == 'text' else value}")
        if self.group is not None:
            parts.append(f"group={self.group}")
        if self.limit is not None:
            parts.append(f"limit={self.limit}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a dry run, which changes nothing.

    Attributes:
        total: Number of entries in the place.
        seen: Number of entries that were examined.
        matched: Number of these that the selection matches.
        sample: The first of the matching entries, up to ten.
        limited: True if the limit of the selection is reached.
    """

    total: int
    seen: int
    matched: int
    sample: Sequence[Entry]
    limited: bool = False

    @property
    def complete(self) -> bool:
        """True if the number is that of the change: no further entry has to be examined."""
        return self.limited or self.seen >= self.total


def check_place(place: str) -> str:
    """Return the name of a place, after a check.

    Raises:
        ConfigError: It is neither a set nor a queue.
    """
    if place in SETS or (place.startswith(QUEUE) and place != QUEUE):
        return place
    raise ConfigError(f"place: {place!r} is not one of {', '.join(SETS)} or queue:NAME")


def place_key(keys: Keys, place: str) -> Arg:
    """Return the key of a place."""
    if place.startswith(QUEUE):
        return raw(keys.queue(place.removeprefix(QUEUE)))
    return set_key(keys, cast("SetName", place))


def place_size(keys: Keys, place: str) -> Op[int]:
    """Return the number of entries of a place; 0 if its key is of another type."""
    length = "LLEN" if place.startswith(QUEUE) else "ZCARD"
    (size,) = yield from ask([command(length, place_key(keys, place))])
    return whole(size)


def preview(
    keys: Keys,
    selection: Selection,
    *,
    now: float,
    examine: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    enough: Callable[[], bool] | None = None,
) -> Op[Preview]:
    """Count the entries of a selection, and return a sample.

    A selection of everything needs one page. Otherwise each entry is read, page by page.

    Args:
        keys: Key names.
        selection: The selection.
        now: Epoch seconds, for a filter by age.
        examine: Maximum number of entries to examine; all by default.
        progress: Called after each page with the numbers seen and to see.
        enough: Called after each page; True ends the dry run. The pages begin small and grow, so
            that a few large payloads do not use up the time.
    """
    total = yield from place_size(keys, selection.place)
    limit = total if examine is None else min(total, examine)
    size = FIRST_BATCH_SIZE if enough or selection.everything else BATCH_SIZE
    walk: Walk
    if selection.place.startswith(QUEUE):
        walk = ListWalk(keys, selection.place.removeprefix(QUEUE), page=size)
    else:
        place = cast("SetName", selection.place)
        walk = SetWalk(set_key(keys, place), place, rising=True, page=size)
    seen = matched = 0
    sample: list[Entry] = []
    while seen < limit and (page := (yield from walk.next())):
        page = page[: limit - seen]
        seen += len(page)
        for one in page:
            if selection.matches(one, now=now):
                matched += 1
                if len(sample) < SAMPLE:
                    sample.append(one)
                if matched == selection.limit:
                    return Preview(total, seen, matched, sample, limited=True)
        if progress:
            progress(seen, limit)
        if selection.everything:
            return Preview(total, total, total, sample)
        if enough and enough():
            break
        walk.page = min(2 * walk.page, BATCH_SIZE)
    return Preview(total, seen, matched, sample)
