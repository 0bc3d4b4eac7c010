"""Matchers: the patterns of a case that a value must match."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobwire_conformance.cases.samples import is_random
from jobwire_conformance.cases.values import ABSENT, Absent, Spelt, equal, members, plain

__all__ = ["Scope", "matches", "moment", "show", "written_time"]

TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
_NOW = re.compile(r"now(?:([+-])([0-9.]+))?")


@dataclass(slots=True)
class Scope:
    """Values that the matchers of one run of a case share.

    Attributes:
        generation: Generation of the payloads that the implementation writes.
        began: Start of the case, in epoch seconds.
        now: Time at which the value was read, in epoch seconds.
        bound: Bound names and their values.
    """

    generation: int
    began: float
    now: float = 0.0
    bound: dict[str, Any] = field(default_factory=dict)


def matches(matcher: Any, seen: Spelt | Absent, scope: Scope, name: str = "") -> bool:
    """Return whether a value matches.

    Args:
        matcher: A matcher or a literal, from the case.
        seen: The value to judge.
        scope: The scope of this run of the case.
        name: Name of the field that holds the value: some fields have their own unit.
    """
    if not (isinstance(matcher, Mapping) and "$" in matcher):
        return isinstance(seen, Spelt) and _literally(matcher, seen.value, scope)
    kind = matcher["$"]
    if kind == "absent":
        return isinstance(seen, Absent)
    if isinstance(seen, Absent):
        return False
    match kind:
        case "any":
            return True
        case "type":
            return bool(seen.kind == matcher["is"])
        case "range":
            least, most = matcher.get("min", -float("inf")), matcher.get("max", float("inf"))
            return _is_number(seen.value) and least <= seen.value <= most
        case "time":
            return _is_time(matcher, seen, scope, name)
        case "raw":
            return bool(seen.raw == matcher["is"])
        case "pattern":
            return isinstance(seen.value, str) and bool(re.search(matcher["is"], seen.value))
        case "distinct":
            return _is_distinct(matcher, seen.value)
        case "random":
            return _is_random(matcher, seen.value)
        case "has":
            return isinstance(seen.value, Mapping) and all(
                matches(part, _member(seen.value, key), scope)
                for key, part in matcher["is"].items()
            )
        case "lines":
            return _has_lines(matcher, seen.value)
        case "json":
            return _is_json(matcher["is"], seen.value, scope)
        case "bind":
            scope.bound[matcher["name"]] = seen.value
            return True
        case "same":
            return matcher["name"] in scope.bound and equal(
                scope.bound[matcher["name"]], seen.value
            )
    raise ValueError(f"no matcher {kind!r}")  # the schema allows no other


def _literally(matcher: Any, value: Any, scope: Scope) -> bool:
    """Return whether a value equals a literal. The parts of the literal may be matchers."""
    if isinstance(matcher, Mapping) and isinstance(value, Mapping):
        return matcher.keys() == value.keys() and all(
            matches(part_matcher, plain(value[key]), scope) for key, part_matcher in matcher.items()
        )
    if isinstance(matcher, list) and isinstance(value, list):
        return len(matcher) == len(value) and all(
            matches(part_matcher, plain(part), scope)
            for part_matcher, part in zip(matcher, value, strict=True)
        )
    return equal(matcher, value)


def _member(value: Mapping[str, Any], name: str) -> Spelt | Absent:
    return plain(value[name]) if name in value else ABSENT


def show(value: object) -> str:
    """Return a matcher or a value as text for people."""
    if isinstance(value, Spelt):
        return value.raw if len(value.raw) <= 300 else f"{value.raw[:300]}..."
    if isinstance(value, Absent):
        return "nothing"
    if isinstance(value, Mapping) and "$" in value:
        options = [f"{key}={show(part)}" for key, part in value.items() if key != "$"]
        return " ".join([str(value["$"]), *options])
    return json.dumps(value, ensure_ascii=False)


def moment(spec: float | str, now: float) -> float:
    """Return the epoch seconds of a moment such as `now-5`."""
    if isinstance(spec, int | float):
        return float(spec)
    parsed = _NOW.fullmatch(spec)
    assert parsed is not None, spec  # by the schema
    sign, seconds = parsed.groups()
    return now if sign is None else now + float(sign + seconds)


def written_time(seconds: float, generation: int) -> int | float:
    """Return a time as payloads of this generation hold it. [GEN-1] [GEN-2]"""
    return int(seconds * 1000) if generation == 8 else seconds


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_time(matcher: Mapping[str, Any], seen: Spelt, scope: Scope, name: str) -> bool:
    value = seen.value
    if matcher.get("either") and seen.kind == "integer":
        value = value / 1000
    elif name in TIMES and not matcher.get("either"):
        if seen.kind != ("integer" if scope.generation == 8 else "float"):
            return False
        value = value / 1000 if scope.generation == 8 else value
    elif isinstance(value, str):  # a hash holds texts only
        try:
            value = float(value)
        except ValueError:
            return False
    expected = matcher.get("of", "now")
    within = matcher["within"]
    return (
        _is_number(value)
        and moment(expected, scope.began) - within <= value <= moment(expected, scope.now) + within
    )


def _is_distinct(matcher: Mapping[str, Any], value: object) -> bool:
    if not isinstance(value, list) or len(value) != matcher.get("len", len(value)):
        return False
    return len({json.dumps(item) for item in value}) == len(value)


def _is_random(matcher: Mapping[str, Any], value: object) -> bool:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        return False
    ends = [text[-matcher.get("last", 0) :] for text in value]
    return len(ends) == matcher.get("len", len(ends)) and is_random(ends)


def _has_lines(matcher: Mapping[str, Any], text: object) -> bool:
    """Return whether a text is a stored backtrace with the right number of lines."""
    try:
        lines = json.loads(zlib.decompress(base64.b64decode(text))) if isinstance(text, str) else 0
    except (ValueError, zlib.error):
        return False
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return False
    return bool(matcher.get("min", 0) <= len(lines) <= matcher.get("max", len(lines)))


def _is_json(fields: Mapping[str, Any], text: object, scope: Scope) -> bool:
    try:
        parsed = members(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return parsed is not None and all(
        matches(part, parsed.get(name, ABSENT), scope, name) for name, part in fields.items()
    )


def spelt_text(text: str) -> Spelt:
    """Return a value that is its own spelling, like a field of a hash."""
    return Spelt(text, text)


def number(value: float | int) -> Spelt:
    """Return a number that the server holds, like a score."""
    return plain(value)
