"""The judge of payloads: their text, their schemas, and their changes between two places.

`breaches` judges a payload alone, for `jobwire validate` and the examples of SPEC.md. A run of the
suite also knows the author and the place of a payload, and therefore calls the parts one by one.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from jobwire_conformance.data import DEFAULT_GENERATION, requirements
from jobwire_conformance.judge import schemas
from jobwire_conformance.judge.schemas import Breach

__all__ = [
    "MILLISECONDS",
    "PLACES",
    "ROLES",
    "SPELLING",
    "TIMES",
    "Breach",
    "Float",
    "Place",
    "Role",
    "View",
    "backtrace_problem",
    "breaches",
    "changed",
    "generation",
    "is_generated",
    "notes",
    "of_generation",
    "order",
    "parse",
    "rules",
    "schema_breaches",
    "spelling",
    "time_breach",
    "whole",
]

Role = Literal["reader", "writer"]
Place = Literal["queue", "schedule", "retry", "dead"]
ROLES: tuple[Role, ...] = ("reader", "writer")
PLACES: tuple[Place, ...] = ("queue", "schedule", "retry", "dead")


class View(NamedTuple):
    """The rules for a payload: those for its readers or writers, in one place or in any.

    Attributes:
        role: The program that the rules bind.
        place: Where the payload lies; None means in any place.
        generation: The generation of the protocol that a writer writes. A reader accepts all.
    """

    role: Role = "reader"
    place: Place | None = None
    generation: str = DEFAULT_GENERATION

    @property
    def part(self) -> str:
        """The part of schema/payload.json."""
        if self.role == "reader":
            return f"reader-{self.place}" if self.place else "reader"
        return f"{self.place or 'writer'}-{self.generation}"


TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
MILLISECONDS = 10**11  # the smallest time in milliseconds [GEN-3]
SPELLING = ("PAY-2", "PAY-6", "PAY-20", "PAY-21", "PAY-22", "PAY-26", "PAY-33")
"""The rules that `spelling` checks."""

# Requirements that a schema cannot express. A reader accepts breaches of a writer's rules.
_OF_TEXT = ("PAY-1", "PAY-3", "PAY-4")
_OF_WRITERS = ("PAY-8", *SPELLING)
_TOKEN = re.compile(
    rb'(?P<string>"(?:[^"\\]|\\.)*+")|(?P<space>[ \t\r\n]+)|(?P<number>-?\d[\d.eE+-]*)', re.DOTALL
)
_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
# The short escapes, and the lower-case ones of the other control characters. [PAY-20] [PAY-21]
_NEEDED = re.compile(rb'\\(?:["\\bfnrt]|u00(?:0[0-7bef]|1[0-9a-f]))')
_MINUS_ZERO = re.compile(r"-0(?:\.0+)?(?:[eE][+-]?\d+)?")
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_DEEPEST = 100
_JID = re.compile(r"[0-9a-f]{24}")
_AN_OBJECT = "an object"
_RUBY_DIGITS = (16, 17)  # of a float that Ruby's json 3.1 writes longer than necessary
_SHAPES = 10_000
_lawful: set[int] = set()


class Float(float):
    """A number written as a float, so that `1.0` differs from `1`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Float) and float(self) == float(other)

    __hash__ = float.__hash__


def breaches(text: bytes, view: View) -> list[Breach]:
    """Return all breaches of a payload."""
    job, faults = parse(text)
    if view.role == "reader":
        faults = [fault for fault in faults if fault.rule in _OF_TEXT]
    if job is None:
        return _unreadable(text, faults) if view.place == "dead" else faults
    if view.role == "writer":
        faults += spelling(text, is_ruby=view.generation == "8.1")
        faults += (
            fault
            for field in TIMES
            if generation(job.get(field)) == _times_of(view.generation)
            and (fault := time_breach(field, job[field])) is not None
        )
    faults += schema_breaches(job, "payload", view.part)
    if view.role == "reader":
        return faults
    packed = backtrace_problem(job)
    if packed is not None and not any(fault.rule == packed.rule for fault in faults):
        faults.append(packed._replace(path="$.error_backtrace"))
    return [*of_generation(faults, view.generation)]


def notes(text: bytes) -> list[Breach]:
    """Return what some parsers cannot read, although the protocol allows it for a reader."""
    job, _ = parse(text)
    return [] if job is None else [*_beyond(text)]


def of_generation(faults: Iterable[Breach], name: str) -> Iterator[Breach]:
    """Yield the faults that break a requirement of a generation, without the other ids."""
    known = requirements()
    for fault in faults:
        rules = [
            rule
            for rule in (fault.rule, *fault.also)
            if rule not in known or name in known[rule].generations
        ]
        if rules:
            yield fault._replace(rule=rules[0], also=tuple(rules[1:]))


def rules(view: View) -> tuple[str, ...]:
    """Return the ids of all rules that `breaches` checks, sorted."""
    checked = set(_OF_TEXT)
    if view.role == "writer":
        checked.update(_OF_WRITERS)
    checked |= schemas.rules_of_part("payload", view.part)
    if view.role == "writer":
        known = requirements()
        checked = {
            rule for rule in checked if rule in known and view.generation in known[rule].generations
        }
    return tuple(sorted(checked, key=order))


def _times_of(name: str) -> int:
    return 8 if name == "8.1" else 7


def _unreadable(text: bytes, faults: list[Breach]) -> list[Breach]:
    """Return the faults of a member of `dead` that is not a payload. [KEY-3] [EXEC-3] [EXEC-4]

    A text that cannot be parsed belongs there. JSON that is not an object does not.
    """
    if any(fault.expected == _AN_OBJECT for fault in faults):
        return [fault._replace(rule="EXEC-4") for fault in faults]
    return []


def order(rule: str) -> tuple[str, int]:
    """Return the key that sorts ids of requirements."""
    area, _, number = rule.rpartition("-")
    return area, int(number)


def parse(text: bytes) -> tuple[dict[str, Any] | None, list[Breach]]:
    """Return the job, or None, and the breaches of the text itself."""
    if text.startswith(b"\xef\xbb\xbf"):
        return None, [Breach("PAY-1", "no byte order mark", "a byte order mark")]
    if (depth := _depth(text)) > _DEEPEST:
        return None, [Breach("PAY-3", "at most 100 levels", f"{depth} levels")]
    constants: list[str] = []
    doubled: list[tuple[dict[str, Any], str]] = []

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            names = [name for name, _ in pairs]
            doubled.extend((fields, name) for name in fields if names.count(name) > 1)
        return fields

    try:
        value = json.loads(
            text.decode(),
            object_pairs_hook=made,
            parse_constant=constants.append,
            parse_int=lambda digits: int(digits[:4000]),
            parse_float=Float,
        )
    except UnicodeDecodeError as error:
        return None, [Breach("PAY-1", "UTF-8", f"bytes that are not UTF-8, at byte {error.start}")]
    except (ValueError, RecursionError) as error:
        return None, [Breach("PAY-1", "JSON", f"text that is not JSON: {error}")]
    if constants:
        nan = Breach("PAY-4", "no NaN and no infinities", constants[0], also=("PAY-1",))
        return None, [nan]
    if not isinstance(value, dict):
        return None, [Breach("PAY-1", _AN_OBJECT, f"{_type(value)}: {text[:40]!r}")]
    return value, [
        Breach("PAY-8", "each name once", f"{json.dumps(name)} more than once", path)
        for path, fields in (_walk(value) if doubled else ())
        for owner, name in doubled
        if owner is fields
    ]


def _type(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _walk(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """Yield a value and all values inside it, each with its path."""
    yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            plain = name.isidentifier() and name.isascii()
            yield from _walk(inner, f"{path}.{name}" if plain else f"{path}[{json.dumps(name)}]")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, f"{path}[{index}]")


def _beyond(text: bytes) -> Iterator[Breach]:
    """Yield the first number that no double holds, and the first half of a surrogate pair."""
    number = half = False
    for token in _TOKEN.finditer(text):
        at = f"at byte {token.start()}"
        if token["number"] and not number and _is_huge(token["number"].decode()):
            number = True
            yield Breach("PAY-6", "a number that a double holds", f"{_short(token[0])} {at}")
        elif token["string"] and not half and _has_half_pair(token["string"]):
            half = True
            yield Breach("PAY-22", "whole characters", f"half a surrogate pair {at}")


def _has_half_pair(string: bytes) -> bool:
    """Return whether the escapes of a string hold one half of a surrogate pair alone."""
    end = -1  # of the escape before, if it is the first half
    for escape in _ESCAPE.finditer(string):
        unit, follows = _unit(escape[0]), end == escape.start()
        if (0xDC00 <= unit < 0xE000) != follows or (end >= 0 and not follows):
            return True
        end = escape.end() if 0xD800 <= unit < 0xDC00 else -1
    return end >= 0


def _unit(escape: bytes) -> int:
    return int(escape[2:], 16) if escape[1:2] == b"u" else 0


def _is_huge(spelled: str) -> bool:
    return not spelled.lstrip("-").isdigit() and not math.isfinite(float(spelled))


def _short(text: bytes) -> str:
    return text.decode() if len(text) <= 40 else f"{text[:37].decode()}..."


def spelling(text: bytes, *, is_ruby: bool = False) -> Iterator[Breach]:
    """Yield the first fault of each rule about the spelling of a text.

    Args:
        text: The payload.
        is_ruby: Accept the floats of Ruby's json 3.1, which does not always find the shortest
            text. [PAY-33]
    """
    found: dict[str, Breach] = {}
    for token in _TOKEN.finditer(text):
        at = f"at byte {token.start()}"
        if token["number"]:
            if fault := _number(token["number"].decode(), is_ruby=is_ruby):
                rule, expected, seen = fault
                found.setdefault(rule, Breach(rule, expected, f"{seen} {at}"))
        elif token["space"]:
            found.setdefault(
                "PAY-2", Breach("PAY-2", "no white space between tokens", f"white space {at}")
            )
        elif b"\\" in token["string"]:
            for escape in _ESCAPE.findall(token["string"]):
                if _NEEDED.fullmatch(escape) is None:
                    rule, expected = _unescaped(escape, token["string"])
                    seen = f"the escape {escape.decode()} {at}"
                    found.setdefault(rule, Breach(rule, expected, seen))
    yield from found.values()


def _unescaped(escape: bytes, string: bytes) -> tuple[str, str]:
    """Return the rule that an escape in a string breaks, and the spelling that a writer uses."""
    if 0xD800 <= _unit(escape) < 0xE000:
        return ("PAY-22" if _has_half_pair(string) else "PAY-21"), "the whole character itself"
    character = json.loads(b'"' + escape + b'"')
    if character in '"\\' or character < " ":
        return "PAY-20", f"the escape {json.dumps(character)[1:-1]}"
    return "PAY-21", "the character itself"


def generation(time: object) -> int | None:
    """Return the generation of a time, by its size. [GEN-3]"""
    if isinstance(time, bool) or not isinstance(time, int | float):
        return None
    return 7 if time < MILLISECONDS else 8


def is_generated(jid: str) -> bool:
    """Return whether a jid has the form of those that clients make. [PAY-9]"""
    return _JID.fullmatch(jid) is not None


def time_breach(field: str, time: object) -> Breach | None:
    """Check the form of a time that the application has just written. [GEN-1] [GEN-2]"""
    if generation(time) is None:
        return Breach("GEN-2", f"a number in {field}", repr(time), f"$.{field}")
    if generation(time) == 7 and isinstance(time, int):
        return Breach("GEN-1", f"float seconds in {field}", f"{time}: an integer", f"$.{field}")
    if generation(time) == 8 and isinstance(time, float):
        return Breach(
            "GEN-2", f"integer milliseconds in {field}", f"{time!r}: a float", f"$.{field}"
        )
    return None


def schema_breaches(job: Any, file: str, part: str) -> Iterator[Breach]:
    """Yield the breaches of a part of a schema. Payloads of the same shape are judged once."""
    if file != "payload" or not isinstance(job, dict):
        yield from schemas.schema_breaches(job, file, part)
        return
    shape = hash((part, *_shape(job)))
    if shape in _lawful:
        return
    found = [*schemas.schema_breaches(job, file, part)]
    yield from found
    if not found and len(_lawful) < _SHAPES:
        _lawful.add(shape)


def _shape(job: dict[str, Any]) -> tuple[object, ...]:
    """Return all properties that the schema examines, so that similar jobs are validated once."""
    return tuple((name, _kind(name, value)) for name, value in job.items())


def _kind(name: str, value: Any) -> object:
    if name in TIMES and isinstance(value, int | float) and not isinstance(value, bool):
        return generation(value), value < 0, isinstance(value, int) or value.is_integer()
    if name == "jid" and isinstance(value, str):
        return bool(value), is_generated(value)
    if name in ("args", "cattr"):
        return type(value)
    if name == "error_message" and isinstance(value, str):
        return len(value) <= 10_000
    return type(value), repr(value)


def backtrace_problem(job: dict[str, Any]) -> Breach | None:
    """Check `error_backtrace` against `backtrace`. [RETRY-8]"""
    asked, text = job.get("backtrace"), job.get("error_backtrace")
    if text is None:
        return None
    if not isinstance(text, str):
        return Breach("RETRY-8", "a string of base64", type(text).__name__)
    if "\n" in text:
        return Breach("RETRY-8", "base64 without line breaks", "line breaks")
    try:
        lines = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
    except (ValueError, zlib.error, binascii.Error) as error:
        return Breach("RETRY-8", "base64 of a zlib stream of a JSON array", f"{error}")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return Breach("RETRY-8", "a JSON array of strings", repr(lines)[:60])
    most = whole(asked)
    if most is not None and len(lines) > most >= 0:
        return Breach("RETRY-22", f"the first {most} lines", f"{len(lines)} lines")
    return None


def whole(value: object) -> int | None:
    """Return a number of a bookkeeping field as an integer; None for other values. [RETRY-19]"""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def changed(before: dict[str, Any], after: dict[str, Any], owned: frozenset[str]) -> list[str]:
    """Return the fields that differ, apart from those in `owned`."""
    names = [*before, *(name for name in after if name not in before)]
    missing = object()
    return [
        name
        for name in names
        if name not in owned and before.get(name, missing) != after.get(name, missing)
    ]


def _depth(text: bytes) -> int:
    if text.count(b"[") + text.count(b"{") <= _DEEPEST:
        return 0
    depth = deepest = 0
    for token in _BRACKET.findall(text):
        if token in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in b"]}":
            depth -= 1
    return deepest


def _number(spelled: str, *, is_ruby: bool) -> tuple[str, str, str] | None:
    """Return the rule that a number breaks, the form that it asks for, and the number."""
    if spelled != "-0.0" and _MINUS_ZERO.fullmatch(spelled) is not None:
        return "PAY-26", "-0.0", spelled
    if spelled.lstrip("-").isdigit():
        return None
    try:
        double = float(spelled)
    except ValueError:
        return None
    digits = re.split("[eE]", spelled)[0]
    fraction = digits.partition(".")[2]
    padded = len(fraction) > 1 and fraction.endswith("0")
    if not math.isfinite(double):
        return "PAY-6", "a number that a double holds", spelled
    if not padded and Decimal(spelled) == Decimal(repr(double)):
        return None
    if is_ruby and not padded and len(digits.replace(".", "").strip("-0")) in _RUBY_DIGITS:
        return None
    if double == 0:  # it is smaller than every double
        return "PAY-6", "a number that a double holds", spelled
    return "PAY-33", repr(double), spelled
