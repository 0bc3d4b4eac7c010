"""The few phrases that mean exactly one cron line. sidekiq-cron accepts more of them."""

from __future__ import annotations

import re

__all__ = ["translate"]

_HOURS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_EVERY = re.compile(r"every (\d+) (second|minute|hour)s?")
_DAYS = re.compile(rf"every (day|weekday|{'|'.join(_WEEKDAYS)}) at (.+)")
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?(am|pm)?")
_WHOLE = {"second": 60, "minute": 60, "hour": 24}
_FIELDS = {"second": "*/{} * * * * *", "minute": "*/{} * * * *", "hour": "0 */{} * * *"}
_FIXED = {
    "every minute": "* * * * *",
    "every hour": "0 * * * *",
    "every day": "0 0 * * *",
    "noon": "0 12 * * *",
    "midnight": "0 0 * * *",
}


def translate(words: list[str]) -> list[str]:
    """Return the fields, and perhaps the zone, that a phrase stands for.

    Raises:
        ValueError: The phrase is not one of those that mean one line, to all readers.
    """
    zone: list[str] = []
    if len(words) > 2 and words[-2].lower() == "on":
        words, zone = words[:-2], words[-1:]
    phrase = " ".join(words).lower()
    if fields := _FIXED.get(phrase):
        return [*fields.split(), *zone]
    if match := _EVERY.fullmatch(phrase):
        count, unit = int(match[1]), match[2]
        if count < 1 or _WHOLE[unit] % count:
            following = {"second": "minute", "minute": "hour", "hour": "day"}[unit]
            raise ValueError(
                f"{phrase!r} is not the same interval everywhere, because {count} does not divide "
                f"a {following}; write the fields, like '*/{max(count, 1)} * * * *'"
            )
        return [*_FIELDS[unit].format(count).split(), *zone]
    if match := _DAYS.fullmatch(phrase):
        hour, minute = _time(match[2], phrase)
        days = {"day": "*", "weekday": "1-5"}.get(match[1])
        weekday = str(_WEEKDAYS.index(match[1])) if days is None else days
        return [str(minute), str(hour), "*", "*", weekday, *zone]
    raise ValueError(
        f"the phrase {phrase!r} is not supported; write five fields, like '0 3 * * *', or "
        "'every 5 minutes', 'every day at 9:30', 'every monday at noon'"
    )


def _time(text: str, phrase: str) -> tuple[int, int]:
    if text in ("noon", "midnight"):
        return (12 if text == "noon" else 0), 0
    if text in _HOURS:
        return _HOURS.index(text), 0
    match = _CLOCK.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"{text!r} of {phrase!r} is not one time of day; write one, like 9:30")
    hour, minute = int(match[1]), int(match[2] or 0)
    if match[3]:
        if not 1 <= hour <= 12:
            raise ValueError(f"{text!r} of {phrase!r} is not a time of day; write 1am to 12pm")
        hour = hour % 12 + (12 if match[3] == "pm" else 0)
    if hour > 23 or minute > 59:
        raise ValueError(f"{text!r} of {phrase!r} is not a time of day; write 0:00 to 23:59")
    return hour, minute
