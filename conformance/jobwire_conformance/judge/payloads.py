"""The judge of payloads: their text, their schemas, and their changes between two places.

`breaches` judges a payload alone, for `jobwire validate` and the examples of SPEC.md. A run of the
suite also knows the author and the place of a payload, and therefore calls the parts one by one.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import json
import math
import re
import zlib
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple

from jobwire_conformance.data import schema

__all__ = [
    "MILLISECONDS",
    "PARTS",
    "TIMES",
    "Breach",
    "Float",
    "Part",
    "backtrace_problem",
    "breaches",
    "can_judge",
    "changed",
    "generation",
    "parse",
    "rules",
    "schema_breaches",
    "spelling",
    "time_breach",
]

Part = Literal["reader", "generation-7", "generation-8"]
"""The rules for a payload: those of any reader, or those of a writer of one generation."""

PARTS: tuple[Part, ...] = ("reader", "generation-7", "generation-8")
TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
MILLISECONDS = 10**11  # the smallest time in milliseconds [GEN-3]
# Requirements that a schema cannot express. A reader accepts breaches of a writer's rules.
_OF_TEXT = ("PAY-1", "PAY-3", "PAY-4")
_OF_WRITERS = ("PAY-2", "PAY-6", "PAY-8")
_RULE = re.compile(r"\[([A-Z]+-\d+)\]")
_TOKEN = re.compile(
    rb'(?P<string>"(?:[^"\\]|\\.)*+")|(?P<space>[ \t\r\n]+)|(?P<number>-?\d[\d.eE+-]*)', re.DOTALL
)
_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NEEDED = re.compile(rb'\\(?:["\\bfnrt]|u00[01].|u0022|u005[cC])')
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_DEEPEST = 100
_JID = re.compile(r"^[0-9a-f]{24}$")
_SHAPES = 10_000
_lawful: set[int] = set()


class Breach(NamedTuple):
    """One fault of a payload.

    Attributes:
        rule: Id of the requirement that it breaks.
        expected: The form that the requirement asks for.
        seen: The value in the payload.
        path: Place in the JSON, `$` for the whole.
        also: Other requirements that the same fault breaks.
    """

    rule: str
    expected: str
    seen: str
    path: str = "$"
    also: tuple[str, ...] = ()

    @property
    def located(self) -> str:
        """The fault with its place in the JSON."""
        return self.seen if self.path == "$" else f"{self.path}: {self.seen}"


class Float(float):
    """A number written as a float, so that `1.0` differs from `1`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Float) and float(self) == float(other)

    __hash__ = float.__hash__


def can_judge() -> bool:
    """Return whether jsonschema is installed, which checks by a schema need."""
    return importlib.util.find_spec("jsonschema") is not None


def breaches(text: bytes, part: Part) -> list[Breach]:
    """Return all breaches of a payload, by the rules of readers or of a writer."""
    job, faults = parse(text)
    if part == "reader":
        faults = [fault for fault in faults if fault.rule in _OF_TEXT]
    if job is None:
        return faults
    if part != "reader":
        faults += spelling(text)
        faults += (
            fault
            for field in TIMES
            if f"generation-{generation(job.get(field))}" == part
            and (fault := time_breach(field, job[field])) is not None
        )
    return [*faults, *schema_breaches(job, "payload", part)]


@cache
def rules(part: Part) -> tuple[str, ...]:
    """Return the ids of all rules that `breaches` checks, sorted."""
    checked = {*_OF_TEXT} if part == "reader" else {*_OF_TEXT, *_OF_WRITERS}
    for name in (part,) if part == "reader" else (part, "writer"):
        checked.update(_RULE.findall(json.dumps(schema("payload")["$defs"][name])))
    return tuple(sorted(checked, key=_order))


def _order(rule: str) -> tuple[str, int]:
    area, _, number = rule.partition("-")
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
        return None, [Breach("PAY-1", "an object", f"{_type(value)}: {text[:40]!r}")]
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


def spelling(text: bytes) -> Iterator[Breach]:
    """Yield the first white space or needless escape, and the first float with needless digits."""
    odd: Breach | None = None
    number: Breach | None = None
    for token in _TOKEN.finditer(text):
        at = f"at byte {token.start()}"
        if token["number"]:
            if number is None and (problem := _number(token["number"].decode())):
                number = Breach("PAY-6", problem[0], f"{problem[1]} {at}")
        elif odd is None and token["space"]:
            odd = Breach("PAY-2", "no white space between tokens", f"white space {at}")
        elif odd is None and b"\\" in token["string"]:
            for escape in _ESCAPE.findall(token["string"]):
                if _NEEDED.fullmatch(escape) is None:
                    seen = f"the escape {escape.decode()} {at}"
                    odd = Breach("PAY-2", "the character itself", seen)
                    break
    yield from (breach for breach in (odd, number) if breach is not None)


def generation(time: object) -> int | None:
    """Return the generation of a time, by its size. [GEN-3]"""
    if isinstance(time, bool) or not isinstance(time, int | float):
        return None
    return 7 if time < MILLISECONDS else 8


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
    """Yield the breaches of a part of a schema, with the ids that its comments name."""
    shape = None
    if file == "payload" and isinstance(job, dict):
        shape = hash((part, *_shape(job)))
    if shape is not None and shape in _lawful:
        return
    seen = set()
    for error in _validator(file, part).iter_errors(job):
        rule, *also = _rules_of(error)
        message = error.message if len(error.message) <= 160 else error.message[:157] + "..."
        expected = f"a value that schema/{file}.json allows"
        breach = Breach(rule, expected, message, error.json_path, tuple(also))
        if breach not in seen:
            seen.add(breach)
            yield breach
    if shape is not None and not seen and len(_lawful) < _SHAPES:
        _lawful.add(shape)


def _shape(job: dict[str, Any]) -> tuple[object, ...]:
    """Return all properties that the schema examines, so that similar jobs are validated once."""
    return tuple((name, _kind(name, value)) for name, value in job.items())


def _kind(name: str, value: Any) -> object:
    if name in TIMES and isinstance(value, int | float) and not isinstance(value, bool):
        return generation(value), value < 0, isinstance(value, int) or value.is_integer()
    if name == "jid" and isinstance(value, str):
        return _JID.search(value) is not None
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
    if isinstance(asked, int) and not isinstance(asked, bool) and len(lines) > asked > 0:
        return Breach("RETRY-8", f"the first {asked} lines", f"{len(lines)} lines")
    return None


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


def _number(spelled: str) -> tuple[str, str] | None:
    if spelled == "-0":
        return "-0.0", "-0"
    if spelled.lstrip("-").isdigit():
        return None
    try:
        double = float(spelled)
    except ValueError:
        return None
    fraction = re.split("[eE]", spelled)[0].partition(".")[2]
    padded = len(fraction) > 1 and fraction.endswith("0")
    if not math.isfinite(double) or (not padded and Decimal(spelled) == Decimal(repr(double))):
        return None
    return repr(double), spelled


def _rules_of(error: Any) -> list[str]:
    """Return the ids in the comment at the failed part of the schema, or at the nearest above."""
    part: Any = error.schema
    while not (isinstance(part, dict) and _RULE.search(part.get("$comment", ""))):
        error = error.parent
        if error is None:
            return ["PAY-1"]
        part = error.schema
    return _RULE.findall(part["$comment"])


@cache
def _validator(file: str, part: str) -> Any:
    from jsonschema import Draft202012Validator  # an optional dependency

    whole = schema(file)
    bare = {name: whole[name] for name in ("$schema", "$id", "$defs")}
    return Draft202012Validator({**bare, "$ref": f"#/$defs/{part}"})
