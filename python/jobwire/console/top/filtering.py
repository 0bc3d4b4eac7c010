"""Filters in one line, such as `class:Invoice* older:2h timeout`."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

from jobwire.errors import ConfigError
from jobwire.inspect.filters import Filter
from jobwire.inspect.formats import seconds

__all__ = ["HELP", "parse", "written"]

CONDITIONS = {
    "class": "class_name",
    "queue": "queue",
    "jid": "jid",
    "error": "error",
    "tag": "tag",
    "text": "text",
    "older": "older_than",
}
HELP = "class:Invoice*  error:timeout  queue:mails  tag:x  jid:…  older:2h  or any text"


def parse(line: str) -> Filter:
    """Return the filter of a line.

    Words like `class:NAME` are conditions. The other words, together, are a part of the payload.

    Raises:
        ConfigError: A quote is not closed, a condition has no value or appears twice, or an age is
            not a time span.
    """
    try:
        words = shlex.split(line, posix=True)
    except ValueError as error:
        raise ConfigError(f"filter: {error}") from None
    given: dict[str, Any] = {}
    rest: list[str] = []
    for word in words:
        name, colon, value = word.partition(":")
        if not colon or name not in CONDITIONS:
            rest.append(word)
            continue
        if not value:
            raise ConfigError(f"filter: {name}: has no value; write {name}:VALUE")
        if CONDITIONS[name] in given:
            raise ConfigError(f"filter: {name}: appears twice")
        given[CONDITIONS[name]] = seconds(value) if name == "older" else value
    if rest:
        if "text" in given:
            raise ConfigError("filter: text: and other words cannot be combined")
        given["text"] = " ".join(rest)
    return Filter(**given)


def written(only: Filter) -> str:
    """Return a filter as a line that `parse` reads."""
    words = []
    names = {condition: name for name, condition in CONDITIONS.items()}
    for condition in fields(only):
        value = getattr(only, condition.name)
        if value is not None:
            text = f"{value:g}" if condition.name == "older_than" else value
            words.append(shlex.quote(f"{names[condition.name]}:{text}"))
    return " ".join(words)
