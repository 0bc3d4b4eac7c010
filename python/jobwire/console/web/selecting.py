"""Filters in addresses and forms."""

from __future__ import annotations

from collections.abc import Mapping

from jobwire.console.ops.selection import Selection
from jobwire.console.web.context import RequestContext
from jobwire.errors import ConfigError
from jobwire.inspect.filters import Filter
from jobwire.inspect.formats import seconds

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
MAX_DIGITS = 12  # of a limit
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


def selection_of(context: RequestContext, values: Mapping[str, str], place: str) -> Selection:
    """Return the selection of a place that the parameters of an address describe; see `filter_of`.

    Raises:
        ConfigError: A value is not possible, there is no such place, or the name of a group is not
            one of this page.
    """
    only = filter_of(values, redacted=context.site.redact is not None)
    group = None
    if signed := values.get("group"):
        group = context.site.guard.group(signed)
        if group is None:
            raise ConfigError(
                "group: not a name that this page gave; open the group from the page Failures"
                " (processes that serve the same page need the same secret)"
            )
    limit = values.get("limit", "").strip()
    if limit and not (limit.isascii() and limit.isdigit() and 0 < len(limit) < MAX_DIGITS):
        raise ConfigError(f"limit: {limit!r} is not a number of jobs")
    return Selection(place=place, only=only, group=group, limit=int(limit) if limit else None)


def parameters(values: Mapping[str, str]) -> dict[str, str]:
    """Return those of the values that select entries, for the next address."""
    names = (*CONDITIONS, "group", "limit")
    return {name: value for name in names if (value := values.get(name, "").strip())}
