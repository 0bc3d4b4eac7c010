"""Cron lines: their notation and their ticks. [X-CRON-10] [X-CRON-11]

`cronsim` finds the dates and times of a line. It follows Debian's cron: it refuses `22-2`, `24` as
hour and `mon#-1`, reads `*/2` as a star when it combines both kinds of days, and has rules of its
own for the changes of a clock. So a line is written out for it value by value, and it sees neither
zones nor offsets: it works on the local time of a span without such a change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING

from jobwire.errors import ConfigError
from jobwire.periodic.phrases import translate
from jobwire.periodic.zones import local_zone, offset_at, zone

if TYPE_CHECKING:
    from cronsim import CronSim

__all__ = ["CronLine", "available", "parse"]

_EPOCH = datetime(1970, 1, 1)
_DAY_S = 86_400
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its lowest and highest value, the highest that may be written, its names."""

    name: str
    lowest: int
    highest: int
    writable: int
    names: tuple[str, ...] = ()

    def number(self, word: str) -> int:
        if word.lower() in self.names:
            return self.names.index(word.lower()) + self.lowest
        if word.isascii() and word.isdigit() and self.lowest <= int(word) <= self.writable:
            return int(word)
        hint = f", or a name like {self.names[0]}" if self.names else ""
        raise ValueError(
            f"{word!r} is not a value of the field {self.name}: "
            f"{self.lowest} to {self.writable}{hint}"
        )

    def fold(self, value: int) -> int:
        """Return the value as the field counts: 24 as hour and 7 as weekday are 0."""
        return value if value <= self.highest else self.lowest


_FIELDS = (
    _Field("second", 0, 59, 59),
    _Field("minute", 0, 59, 59),
    _Field("hour", 0, 23, 24),
    _Field("day", 1, 31, 31),
    _Field("month", 1, 12, 12, _MONTHS),
    _Field("weekday", 0, 6, 7, _WEEKDAYS),
)
_STAR = re.compile(r"\*(/0*1)?")
_NTH = re.compile(r"(\w+)#(-1|[1-5])")


@dataclass(frozen=True, slots=True)
class CronLine:
    """A cron line that was understood.

    Attributes:
        text: The line as it was given.
        zone_name: The zone at its end; None if it has none.
    """

    text: str
    zone_name: str | None
    _fields: str
    _tz: tzinfo

    def after(self, instant: float) -> int | None:
        """Return the first tick after an epoch second; None if there is none in 50 years."""
        return next(self.ticks(instant), None)

    def before(self, instant: float) -> int | None:
        """Return the latest tick before an epoch second; None if there is none in 50 years."""
        end = -int(-instant // 1)  # ticks are whole seconds, so 10.5 stands for 11
        while True:
            offset = offset_at(end - 1, self._tz)
            found = next(self._search(end + offset, backwards=True), None)
            if found is None:
                return None
            tick = found - offset
            begin = self._change_before(end - 1, tick, offset)
            if begin is None:
                return tick
            end = begin

    def ticks(self, after: float) -> Iterator[int]:
        """Yield the ticks after an epoch second, in their order.

        They are the whole seconds whose local date and time match the fields. A local time that a
        change of the clock leaves out has no tick, one that comes twice has two. [X-CRON-10]
        """
        start = int(after // 1)
        while True:
            offset = offset_at(start + 1, self._tz)
            change, known = None, start + 1  # no change of the offset in between
            for found in self._search(start + offset):
                tick = found - offset
                if tick > known and change is None:
                    change = self._change_after(known, tick + _DAY_S, offset)
                    known = tick + _DAY_S
                if change is not None and tick >= change:
                    break
                yield tick
            else:
                return
            start = change - 1

    def _search(self, local: int, *, backwards: bool = False) -> Iterator[int]:
        """Yield the matches after, or before, a local time as seconds since 1970."""
        sim = _cronsim(self._fields, _EPOCH + timedelta(seconds=local), backwards)
        for match in sim:
            since = match - _EPOCH
            yield since.days * _DAY_S + since.seconds

    def _change_after(self, start: int, end: int, offset: int) -> int | None:
        """Return the first second in (start, end] with another offset."""
        low = start
        while low < end:
            high = min(low + _DAY_S, end)
            if offset_at(high, self._tz) != offset:
                return self._bisect(low, high, offset)
            low = high
        return None

    def _change_before(self, start: int, end: int, offset: int) -> int | None:
        """Return the first second of the span of `offset` that ends at `start`, if after `end`."""
        high = start
        while high > end:
            low = max(high - _DAY_S, end)
            if (other := offset_at(low, self._tz)) != offset:
                return self._bisect(low, high, other, until=offset)
            high = low
        return None

    def _bisect(self, low: int, high: int, offset: int, until: int | None = None) -> int:
        """Return the first second in (low, high] whose offset is another one, or is `until`."""
        while high - low > 1:
            middle = (low + high) // 2
            here = offset_at(middle, self._tz)
            if here == offset or (until is not None and here != until):
                low = middle
            else:
                high = middle
        return high


def available() -> bool:
    """True if this installation can read cron lines: `pip install 'jobwire[periodic]'`."""
    try:
        import cronsim  # noqa: F401
    except ImportError:
        return False
    return True


def parse(text: str, *, tz: str = "", default: tzinfo | None = None) -> CronLine:
    """Read a cron line.

    Args:
        text: The line: five fields, or six with the seconds first, and perhaps a zone at the end;
            a nickname like `@daily`, or one of a few phrases.
        tz: The zone if the line has none; the field `jw_tz` of an entry. [X-CRON-12]
        default: The zone if neither names one; None for the local zone of the process.

    Raises:
        ConfigError: The line is not understood; the text names the part and the rule.
    """
    line = _parse(text)
    if line.zone_name is not None:
        return line
    if tz:
        return CronLine(line.text, None, line._fields, zone(tz))
    return CronLine(line.text, None, line._fields, local_zone() if default is None else default)


@lru_cache(maxsize=4096)
def _parse(text: str) -> CronLine:
    words = text.split()
    try:
        fields, zone_name = _split(words)
        written = " ".join(
            _written(field, word) for field, word in zip(_FIELDS, fields, strict=True)
        )
        tz = zone("UTC") if zone_name is None else zone(zone_name)
        next(_cronsim(written, datetime(2024, 1, 1), False))
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"cron line {text!r}: {error}") from None
    except StopIteration:
        raise ConfigError(f"cron line {text!r}: no date of the next 50 years matches") from None
    return CronLine(text, zone_name, written, tz)


def _split(words: list[str]) -> tuple[list[str], str | None]:
    """Return the six fields of a line and its zone."""
    if not words:
        raise ValueError("it is empty; write five fields, like '0 3 * * *'")
    if words[0].startswith("@"):
        fields = _NICKNAMES.get(words[0].lower())
        if fields is None:
            raise ValueError(f"{words[0]} is not one of {', '.join(_NICKNAMES)}")
        words = [*fields.split(), *words[1:]]
    elif words[0][0].isalpha() and words[0].lower() not in (*_MONTHS, *_WEEKDAYS, "l"):
        words = translate(words)
    zone_name = None
    if len(words) in (6, 7) and not _is_field(words[-1]):
        *words, zone_name = words
    if len(words) == 5:
        words = ["0", *words]
    if len(words) != 6:
        raise ValueError(
            f"it has {len(words)} fields; write five (minute, hour, day, month, weekday), or six "
            "with the seconds first, and perhaps a time zone at the end"
        )
    return words, zone_name


def _is_field(word: str) -> bool:
    """True if the last word of a line is its weekdays, and not a zone."""
    return bool(re.match(r"[\d*]|(?:{})\b".format("|".join(_WEEKDAYS)), word.lower()))


def _written(field: _Field, text: str) -> str:
    """Return a field in cronsim's notation: a star, or a list of values."""
    terms = text.split(",")
    if field.name == "day" and any(_STAR.fullmatch(term) for term in terms):
        return "*"
    if field.name == "weekday":  # a star in a list has no effect
        terms = [term for term in terms if term != "*"]
    if terms in ([], ["*"]):
        return "*"
    parts: dict[str, None] = {}
    for term in terms:
        for part in _term(field, term):
            parts[part] = None
    return ",".join(parts)


def _term(field: _Field, term: str) -> list[str]:
    if "%" in term:
        raise ValueError(f"{term!r} (every so many weeks) is not supported; enqueue it weekly")
    if field.name == "day" and term.upper() == "L":
        return ["L"]
    if field.name == "weekday" and "#" in term:
        match = _NTH.fullmatch(term)
        if match is None:
            raise ValueError(f"{term!r} is not of the form mon#2, with 1 to 5, or -1 for the last")
        day = field.fold(field.number(match[1]))
        return [f"{day}L" if match[2] == "-1" else f"{day}#{match[2]}"]
    span, slash, step_text = term.partition("/")
    step = 1
    if slash:
        if not (step_text.isascii() and step_text.isdigit() and int(step_text)):
            raise ValueError(f"step {step_text!r} of {term!r} is not a whole number of 1 or more")
        step = int(step_text)
    first, dash, last = span.partition("-")
    if span == "*":
        values = range(field.lowest, field.highest + 1)
        return [str(value) for value in values[::step]]
    low = field.number(first)
    if dash:
        high = field.number(last)
    else:  # a step begins at one value, unless it is 1; a weekday has none
        high = field.highest if step > 1 and field.name != "weekday" else low
    if low <= high:
        numbers = list(range(low, high + 1))
    else:  # over the highest value to the lowest
        numbers = [*range(low, field.highest + 1), *range(field.lowest, high + 1)]
    return [str(field.fold(value)) for value in numbers[::step]]


def _cronsim(fields: str, start: datetime, backwards: bool) -> CronSim:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise ConfigError(
            "periodic jobs need the package cronsim: pip install 'jobwire[periodic]'"
        ) from None
    try:
        return CronSim(fields, start, reverse=backwards)
    except CronSimError:
        raise ValueError("no date matches its day and month") from None
