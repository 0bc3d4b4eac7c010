"""Matchers: what a case says that a value must be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobwire_conformance.cases.values import ABSENT, Absent, Spelt, equal, members, plain

__all__ = ["Scope", "matches", "moment", "show", "written_time"]

TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
_NOW = re.compile(r"now(?:([+-])([0-9.]+))?")


@dataclass(slots=True)
class Scope:
    """What the matchers of one run of a case share.

    Attributes:
        generation: That the implementation writes.
        began: Epoch seconds, before the case did anything.
        now: Epoch seconds, when the value was read.
        bound: Names and their values.
    """

    generation: int
    began: float
    now: float = 0.0
    bound: dict[str, Any] = field(default_factory=dict)


def matches(matcher: Any, seen: Spelt | Absent, scope: Scope, name: str = "") -> bool:
    """Return whether a value is what it must be.

    Args:
        matcher: From the case.
        seen: The value.
        scope: Of this run of the case.
        name: Of the field that it is the value of: some have units of their own.
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
        case "has":
            return isinstance(seen.value, Mapping) and all(
                matches(each, _member(seen.value, key), scope)
                for key, each in matcher["is"].items()
            )
        case "json":
            return _is_json(matcher["is"], seen.value, scope)
        case "bind":
            scope.bound[matcher["name"]] = seen.value
            return True
        case "same":
            return matcher["name"] in scope.bound and equal(
                scope.bound[matcher["name"]], seen.value
            )
    raise ValueError(f"no matcher {kind!r}")  # the schema knows no other


def _literally(matcher: Any, value: Any, scope: Scope) -> bool:
    """Return whether a value is a literal, in whose parts there may be matchers."""
    if isinstance(matcher, Mapping) and isinstance(value, Mapping):
        return matcher.keys() == value.keys() and all(
            matches(each, plain(value[key]), scope) for key, each in matcher.items()
        )
    if isinstance(matcher, list) and isinstance(value, list):
        return len(matcher) == len(value) and all(
            matches(each, plain(part), scope) for each, part in zip(matcher, value, strict=True)
        )
    return equal(matcher, value)


def _member(value: Mapping[str, Any], name: str) -> Spelt | Absent:
    return plain(value[name]) if name in value else ABSENT


def show(value: object) -> str:
    """Return a matcher or a value for people."""
    if isinstance(value, Spelt):
        return value.raw if len(value.raw) <= 300 else f"{value.raw[:300]}..."
    if isinstance(value, Absent):
        return "nothing"
    if isinstance(value, Mapping) and "$" in value:
        rest = {key: part for key, part in value.items() if key != "$"}
        return " ".join([str(value["$"]), *(f"{key}={show(part)}" for key, part in rest.items())])
    return json.dumps(value, ensure_ascii=False)


def moment(spec: float | str, now: float) -> float:
    """Return the epoch seconds of a moment such as `now-5`."""
    if isinstance(spec, int | float):
        return float(spec)
    found = _NOW.fullmatch(spec)
    assert found is not None, spec  # by the schema
    sign, seconds = found.groups()
    return now if sign is None else now + float(sign + seconds)


def written_time(seconds: float, generation: int) -> int | float:
    """Return a time as a payload of this generation has it. [GEN-1] [GEN-2]"""
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
    elif isinstance(value, str):  # in a hash everything is text
        try:
            value = float(value)
        except ValueError:
            return False
    of = matcher.get("of", "now")
    within = matcher["within"]
    return (
        _is_number(value)
        and moment(of, scope.began) - within <= value <= moment(of, scope.now) + within
    )


def _is_distinct(matcher: Mapping[str, Any], value: object) -> bool:
    if not isinstance(value, list) or len(value) != matcher.get("len", len(value)):
        return False
    return len({json.dumps(each) for each in value}) == len(value)


def _is_json(fields: Mapping[str, Any], text: object, scope: Scope) -> bool:
    try:
        found = members(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return found is not None and all(
        matches(each, found.get(name, ABSENT), scope, name) for name, each in fields.items()
    )


def spelt_text(text: str) -> Spelt:
    """Return a text that is the whole value, like a field of a hash."""
    return Spelt(text, text)


def number(value: float | int) -> Spelt:
    """Return a number that the server keeps."""
    return plain(value)
