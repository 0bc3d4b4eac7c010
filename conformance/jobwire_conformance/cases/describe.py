"""Expected and seen values in plain words, for the messages of checks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from jobwire_conformance.cases.match import TIMES, Scope, moment, written_time
from jobwire_conformance.cases.values import Absent, Spelt, plain

__all__ = ["as_data", "describe", "in_words", "pattern_text", "show"]

_MAX_CHARACTERS = 300  # characters of one value
_TYPES = {
    "null": "null",
    "boolean": "true or false",
    "integer": "an integer",
    "float": "a float",
    "string": "a text",
    "array": "an array",
    "object": "an object",
}
_CHOICE = re.compile(r"\^\(?([\w-]+(?:\|[\w-]+)*)\)?\$")


def show(value: object) -> str:
    """Return an expected or a seen value as text. A `str` is already plain words."""
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, Spelt):
        return _short(value.raw)
    return "nothing" if isinstance(value, Absent) else _short(describe(value))


def as_data(value: object) -> object:
    """Return an expected or a seen value for results.json."""
    if isinstance(value, Spelt):
        return value.value
    return None if isinstance(value, Absent) else value


def in_words(matcher: Any, scope: Scope, name: str) -> Spelt | str:
    """Return a literal as it is, and any other matcher in plain words."""
    if isinstance(matcher, Mapping | list):
        return describe(matcher, scope, name)
    return plain(matcher)


def describe(matcher: Any, scope: Scope | None = None, name: str = "") -> str:
    """Return a matcher or a literal in plain words; literals and their parts as JSON.

    Args:
        matcher: The matcher.
        scope: The scope of the run, for the values of bound names and the form of times.
        name: Name of the field that holds the value: some fields have their own unit.
    """
    if isinstance(matcher, list):
        return f"[{', '.join(describe(part, scope) for part in matcher)}]"
    if not isinstance(matcher, Mapping):
        return plain(matcher).raw
    match matcher.get("$"):
        case None:
            return f"{{{_members(matcher, scope)}}}"
        case "absent":
            return "nothing"
        case "any" | "bind":
            return "any value"
        case "type":
            return _TYPES[matcher["is"]]
        case "range":
            return _range(matcher)
        case "time":
            return _time(matcher, scope, name)
        case "raw":
            return f"exactly {matcher['is']}"
        case "pattern" if "words" in matcher:
            return str(matcher["words"])
        case "pattern":
            choice = _CHOICE.fullmatch(matcher["is"])
            if choice is None:
                return f"a text that matches {matcher['is']}"
            return " or ".join(json.dumps(word) for word in choice[1].split("|"))
        case "distinct":
            count = f"{matcher['len']} " if "len" in matcher else ""
            return f"an array of {count}different values"
        case "random":
            count = f"{matcher['len']} " if "len" in matcher else ""
            return f"an array of {count}texts of random digits"
        case "has":
            return f"an object with {{{_members(matcher['is'], scope)}}}"
        case "json":
            return f"the text of a JSON object with {{{_members(matcher['is'], scope)}}}"
        case "lines":
            if "of" not in matcher:
                return "a stored backtrace"
            n, whole = matcher["n"], f"the stored backtrace {matcher['of']}"
            return f"all but the last {-n} lines of {whole}" if n < 0 else f"{n} lines of {whole}"
        case "same":
            bound = {} if scope is None else scope.bound
            known = matcher["name"] in bound
            return plain(bound[matcher["name"]]).raw if known else f"the value {matcher['name']}"
    return json.dumps(matcher, ensure_ascii=False)


def pattern_text(pattern: Sequence[Any]) -> str:
    """Return a pattern for the first words of a command, like `LPUSH queue:default <any value>`."""
    parts = [part if isinstance(part, str) else f"<{describe(part)}>" for part in pattern]
    groups = ((part, len([*same])) for part, same in groupby(parts))
    return " ".join(
        f"{part} {number} times" if number > 3 else " ".join([part] * number)
        for part, number in groups
    )


def _members(members: Mapping[str, Any], scope: Scope | None) -> str:
    return ", ".join(f'"{name}": {describe(part, scope, name)}' for name, part in members.items())


def _range(matcher: Mapping[str, Any]) -> str:
    least, most = matcher.get("min"), matcher.get("max")
    if least is None or most is None:
        return f"at most {most}" if least is None else f"at least {least}"
    return f"{least}" if least == most else f"{least} to {most}"


def _time(matcher: Mapping[str, Any], scope: Scope | None, name: str) -> str:
    of = matcher.get("of", "now")
    words = f"a time within {matcher['within']:g} s of {of}"
    if scope is None:
        return words
    seconds = moment(of, scope.now)
    in_unit = name in TIMES and not matcher.get("either")
    example = written_time(seconds, scope.generation) if in_unit else seconds
    return f"{words}, like {plain(example).raw}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."
