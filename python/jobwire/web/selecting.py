"""Filters in addresses and forms."""

from __future__ import annotations

from collections.abc import Mapping

from jobwire.errors import ConfigError
from jobwire.inspect.filters import Filter
from jobwire.inspect.formats import seconds
from jobwire.ops import Selection

__all__ = ["CONDITIONS", "filter_of", "parameters", "selection_of"]

# Parameter of the address to the condition of `Filter`.
CONDITIONS = {
    "class": "class_name",
    "queue": "queue",
    "error": "error",
    "jid": "jid",
    "tag": "tag",
    "text": "text",
    "older": "older_than",
}
# Conditions on parts that a redaction may hide.
HIDEABLE = ("text", "error")


def filter_of(values: Mapping[str, str], *, redacted: bool) -> Filter:
    """Return the filter that the parameters of an address, or the values of a form, describe.

    Args:
        values: Names and values; others than those of `CONDITIONS` do not count.
        redacted: True if the visitor may not see all of a payload, so a search in its text or error
            is refused: the number of hits would tell what is hidden.

    Raises:
        ConfigError: A value is not possible.
    """
    given = {
        condition: value
        for name, condition in CONDITIONS.items()
        if (value := values.get(name, "").strip())
    }
    for name in HIDEABLE if redacted else ():
        if name in given:
            raise ConfigError(f"{name}: not searched here, because parts of the jobs are hidden")
    age = given.pop("older_than", None)
    return Filter(**given, older_than=None if age is None else seconds(age))


def selection_of(values: Mapping[str, str], place: str, *, redacted: bool) -> Selection:
    """Return the selection of a place that the parameters of an address describe; see `filter_of`.

    Raises:
        ConfigError: A value is not possible, or there is no such place.
    """
    only = filter_of(values, redacted=redacted)
    return Selection(place=place, only=only, group=values.get("group") or None)


def parameters(values: Mapping[str, str]) -> dict[str, str]:
    """Return those of the values that select entries, for the next address."""
    names = (*CONDITIONS, "group")
    return {name: value for name in names if (value := values.get(name, "").strip())}
