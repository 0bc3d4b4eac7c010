"""Matchers: the patterns of a case that a value must match."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobwire_conformance.cases.samples import is_random
from jobwire_conformance.cases.values import ABSENT, Absent, Spelt, equal, members, plain

__all__ = ["TIMES", "Difference", "Scope", "difference", "matches", "moment", "written_time"]

TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
_NOW = re.compile(r"now(?:([+-])([0-9.]+))?")
_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9]+")


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


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which a value does not match.

    Attributes:
        path: Place in the value, like `[2].quiet`; empty for the value itself.
        matcher: The matcher or literal of this place.
        seen: The value at this place.
        name: Name of the field that holds it: some fields have their own unit.
    """

    path: str
    matcher: Any
    seen: Spelt | Absent
    name: str = ""


def difference(
    matcher: Any, seen: Spelt | Absent, scope: Scope, name: str = "", path: str = ""
) -> Difference | None:
    """Return the first difference between a matcher and a value; None if the value matches.

    Args:
        matcher: A matcher or a literal, from the case.
        seen: The value to judge.
        scope: The scope of this run of the case.
        name: Name of the field that holds the value: some fields have their own unit.
        path: Place of the value in a larger one.
    """
    here = Difference(path, matcher, seen, name)
    if isinstance(seen, Absent):
        return None if _is_matcher(matcher) and matcher["$"] == "absent" else here
    parts = _parts(matcher, seen.value)
    if parts is None:
        return None if _fits(matcher, seen, scope, name) else here
    for place, part, value, field_name in parts:
        if found := difference(part, value, scope, field_name, path + place):
            return found
    return None


def _is_matcher(value: object) -> bool:
    return isinstance(value, Mapping) and "$" in value


def _parts(matcher: Any, value: Any) -> list[tuple[str, Any, Spelt | Absent, str]] | None:
    """Return path, matcher, value and field name of each part; None if they have no parts."""
    if not isinstance(matcher, Mapping):
        if isinstance(matcher, list) and isinstance(value, list) and len(matcher) == len(value):
            pairs = zip(matcher, value, strict=True)
            return [(f"[{at}]", part, plain(item), "") for at, (part, item) in enumerate(pairs)]
        return None
    kind = matcher.get("$")
    if kind == "json":
        fields = _json_object(value)
        if fields is None:
            return None
        return [(f".{n}", part, fields.get(n, ABSENT), n) for n, part in matcher["is"].items()]
    if kind not in (None, "has") or not isinstance(value, Mapping):
        return None
    expected = matcher["is"] if kind == "has" else matcher
    parts = [(f".{name}", part, _member(value, name), "") for name, part in expected.items()]
    if kind is None:
        surplus = [name for name in value if name not in matcher]
        parts += [(f".{name}", {"$": "absent"}, plain(value[name]), "") for name in surplus]
    return parts


def _fits(matcher: Any, seen: Spelt, scope: Scope, name: str) -> bool:
    """Return whether a value without parts, or with the wrong parts, matches."""
    if not _is_matcher(matcher):
        return equal(matcher, seen.value)
    match matcher["$"]:
        case "any":
            return True
        case "absent" | "has" | "json":
            return False
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
        case "lines":
            return _has_lines(matcher, seen.value, scope)
        case "bind":
            scope.bound[matcher["name"]] = seen.value
            return True
        case "same":
            return matcher["name"] in scope.bound and _is_same(
                scope.bound[matcher["name"]], seen.value, ordered=matcher.get("order", True)
            )
    raise ValueError(f"no matcher {matcher['$']!r}")  # the schema allows no other


def matches(matcher: Any, seen: Spelt | Absent, scope: Scope, name: str = "") -> bool:
    """Return whether a value matches."""
    return difference(matcher, seen, scope, name) is None


def _member(value: Mapping[str, Any], name: str) -> Spelt | Absent:
    return plain(value[name]) if name in value else ABSENT


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
    elif seen.raw == value:  # a field of a hash, which holds texts only
        try:
            value = float(value)
        except ValueError:
            return False
    expected = matcher.get("of", "now")
    within = matcher["within"]
    since = scope.now if matcher.get("fresh") else scope.began
    return (
        _is_number(value)
        and moment(expected, since) - within <= value <= moment(expected, scope.now) + within
    )


def _is_same(bound: Any, value: Any, *, ordered: bool) -> bool:
    if not ordered and isinstance(bound, list) and isinstance(value, list):
        bound, value = sorted(bound, key=json.dumps), sorted(value, key=json.dumps)
    return equal(bound, value)


def _is_distinct(matcher: Mapping[str, Any], value: object) -> bool:
    if not isinstance(value, list) or len(value) != matcher.get("len", len(value)):
        return False
    return len({json.dumps(item) for item in value}) == len(value)


def _is_random(matcher: Mapping[str, Any], value: object) -> bool:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        return False
    ends = [text[-matcher.get("last", 0) :] for text in value]
    return len(ends) == matcher.get("len", len(ends)) and is_random(ends)


def _has_lines(matcher: Mapping[str, Any], text: object, scope: Scope) -> bool:
    """Return whether a text is a stored backtrace with the right lines. [RETRY-22]"""
    lines = _lines(text)
    if lines is None:
        return False
    if "of" not in matcher:
        return True
    whole = _lines(scope.bound.get(matcher["of"]))
    return whole is not None and _alike(lines) == _alike(whole[: matcher["n"]])


def _alike(lines: Sequence[str]) -> list[str]:
    """Return lines without their numbers: threads and addresses differ from job to job."""
    return [_NUMBER.sub("0", line) for line in lines]


def _lines(text: object) -> list[str] | None:
    """Return the lines of a stored backtrace; None if it is none."""
    try:
        lines = json.loads(zlib.decompress(base64.b64decode(text))) if isinstance(text, str) else 0
    except (ValueError, zlib.error):
        return None
    return lines if isinstance(lines, list) and all(isinstance(x, str) for x in lines) else None


def _json_object(text: object) -> dict[str, Spelt] | None:
    """Return the members of a text that is a JSON object; None for anything else."""
    try:
        return members(text) if isinstance(text, str) else None
    except ValueError:
        return None


def spelt_text(text: str) -> Spelt:
    """Return a value that is its own spelling, like a field of a hash."""
    return Spelt(text, text)


def number(value: float | int) -> Spelt:
    """Return a number that the server holds, like a score."""
    return plain(value)
