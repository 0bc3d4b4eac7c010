"""What a payload breaks, rule by rule: the schema, and what no schema can say."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple

from jobwire.connection import data as _data
from jobwire.errors import MalformedPayload
from jobwire.protocol.payload import decode

__all__ = ["PARTS", "Part", "Verdict", "can_judge", "generation_of", "judge", "rules"]

Part = Literal["reader", "generation-7", "generation-8"]
PARTS: tuple[Part, ...] = ("reader", "generation-7", "generation-8")
_TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
_RULE = re.compile(r"\[([A-Z]+-\d+)\]")
# Beyond the schema. A reader accepts what breaks the others.
_OF_TEXT = ("PAY-1", "PAY-3", "PAY-4")
_OF_WRITERS = ("PAY-2", "PAY-6", "PAY-8")
_TOKEN = re.compile(
    rb'(?P<string>"(?:[^"\\]|\\.)*+")|(?P<space>[ \t\r\n]+)|(?P<number>-?\d[\d.eE+-]*)', re.DOTALL
)
_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NEEDED_ESCAPE = re.compile(rb'\\(?:["\\bfnrt]|u00[01].|u0022|u005[cC])')


class Verdict(NamedTuple):
    """What one rule says.

    Attributes:
        rule: Id of the requirement.
        path: Place in the JSON, `$` for the whole.
        problem: What breaks it; `""` if nothing does.
        is_note: Nothing is broken, but something is worth knowing.
    """

    rule: str
    path: str = "$"
    problem: str = ""
    is_note: bool = False

    @property
    def broken(self) -> bool:
        return bool(self.problem) and not self.is_note


class _Object(dict[str, Any]):
    """A decoded object that remembers which names it had more than once."""

    doubled: tuple[str, ...] = ()


def can_judge() -> bool:
    """Return whether the extra `spec` is installed."""
    return importlib.util.find_spec("jsonschema") is not None


def judge(text: bytes, part: Part) -> list[Verdict]:
    """Return what every rule says about a payload, broken ones first.

    Args:
        text: The exact bytes.
        part: Who has to be content: any reader, or whoever checks what a generation writes.
    """
    found = [*_broken(text, part)]
    names = {verdict.rule for verdict in found}
    if "PAY-1" in names or "PAY-3" in names:
        return found
    try:
        decode(text, "")
    except MalformedPayload as error:
        problem = f"lawful, but jobwire's worker cannot hold it and buries it: {error.problem}"
        found.append(Verdict("EXEC-3", "$", problem, is_note=True))
    return found + [Verdict(rule) for rule in rules(part) if rule not in names]


def generation_of(text: bytes) -> Part:
    """Return the generation that a payload's times are closest to; 8 if it has none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "generation-8"
    times = [value.get(field) for field in _TIMES] if isinstance(value, dict) else []
    numbers = [time for time in times if isinstance(time, int | float)]
    return "generation-7" if numbers and all(time < 10**11 for time in numbers) else "generation-8"


@cache
def rules(part: Part) -> tuple[str, ...]:
    """Return the ids of all rules that a payload can be checked for."""
    found = dict.fromkeys(_OF_TEXT if part == "reader" else _OF_TEXT + _OF_WRITERS)
    schema = _schema()
    for name in (part,) if part == "reader" else (part, "writer"):
        found |= dict.fromkeys(_RULE.findall(json.dumps(schema["$defs"][name])))
    return tuple(sorted(found, key=_order))


def _broken(text: bytes, part: Part) -> Iterator[Verdict]:
    try:
        decode(text, "")
    except MalformedPayload as error:
        if error.rule == "PAY-3":  # deeper texts must not reach a parser that recurses
            yield Verdict("PAY-3", "$", "nests deeper than 100 levels")
            return
    constants: list[str] = []
    value, problem = _parse(text, constants)
    if constants:
        yield Verdict("PAY-4", "$", f"{constants[0]} is no number of JSON")
        problem = f"not JSON: {constants[0]}"
    if problem:
        yield Verdict("PAY-1", "$", problem)
        return
    for path, inner in _walk(value):
        yield from _inner(path, inner, part)
    if part != "reader":
        yield from _spelling(text)
        yield from _units(value, part)
    yield from _by_schema(value, part)


def _parse(text: bytes, constants: list[str]) -> tuple[Any, str]:
    """Return the value, or None and why there is none."""
    if text.startswith(b"\xef\xbb\xbf"):
        return None, "begins with a byte order mark"
    try:
        value = json.loads(
            text.decode(),
            object_pairs_hook=_object,
            parse_constant=constants.append,
            parse_int=_integer,
        )
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return None, f"not JSON: {error}"
    if not isinstance(value, dict):
        return None, f"{_kind(value)}, not an object"
    return value, ""


def _integer(digits: str) -> int:
    """Read an integer; beyond what Python reads at once, one that is as huge will do."""
    return int(digits[:4000])


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        made.doubled = tuple(name for name in made if names.count(name) > 1)
    return made


def _walk(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            plain = name.isidentifier() and name.isascii()
            yield from _walk(inner, f"{path}.{name}" if plain else f"{path}[{json.dumps(name)}]")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, f"{path}[{index}]")


def _inner(path: str, value: Any, part: Part) -> Iterator[Verdict]:
    if isinstance(value, _Object) and part != "reader":
        for name in value.doubled:
            yield Verdict("PAY-8", path, f"name {json.dumps(name)} more than once")


def _spelling(text: bytes) -> Iterator[Verdict]:
    """Find white space, needless escapes, and floats that are longer than they need to be."""
    for token in _TOKEN.finditer(text):
        at = f"byte {token.start()}"
        if token["space"]:
            yield Verdict("PAY-2", "$", f"white space between tokens, at {at}")
            return
        for escape in _ESCAPE.findall(token["string"] or b""):
            if _NEEDED_ESCAPE.fullmatch(escape) is None:
                yield Verdict("PAY-2", "$", f"{escape.decode()} needs no escape, at {at}")
                return
    for token in _TOKEN.finditer(text):
        if token["number"] and (problem := _number(token["number"].decode())):
            yield Verdict("PAY-6", "$", f"{problem}, at byte {token.start()}")
            return


def _number(spelled: str) -> str:
    if spelled == "-0":
        return "minus zero is written -0.0"
    if spelled.lstrip("-").isdigit():
        return ""
    double = float(spelled)
    fraction = re.split("[eE]", spelled)[0].partition(".")[2]
    is_padded = len(fraction) > 1 and fraction.endswith("0")
    if not math.isfinite(double) or (not is_padded and Decimal(spelled) == Decimal(repr(double))):
        return ""
    return f"{spelled} is not the shortest text of its double, {double!r}"


def _units(value: dict[str, Any], part: Part) -> Iterator[Verdict]:
    """Check the form of times: to a schema, 1.0 is an integer and 1 a number."""
    for field in _TIMES:
        time = value.get(field)
        if part == "generation-7" and type(time) is int:
            yield Verdict("GEN-1", f"$.{field}", f"{time} has no decimal point")
        elif part == "generation-8" and type(time) is float and time.is_integer():
            yield Verdict("GEN-2", f"$.{field}", f"{time!r} has a decimal point")


def _by_schema(value: Any, part: Part) -> Iterator[Verdict]:
    seen = set()
    for error in _validator(part).iter_errors(value):
        for rule in _rules_of(error):
            verdict = Verdict(rule, error.json_path, _short(error.message))
            if verdict not in seen:
                seen.add(verdict)
                yield verdict


def _rules_of(error: Any) -> list[str]:
    """Return the ids in the comment that is next to what failed, or next above it."""
    schema: Any = error.schema
    while not (isinstance(schema, dict) and _RULE.search(schema.get("$comment", ""))):
        error = error.parent
        if error is None:
            return ["PAY-1"]
        schema = error.schema
    return _RULE.findall(schema["$comment"])


@cache
def _validator(part: Part) -> Any:
    from jsonschema import Draft202012Validator  # an extra

    return Draft202012Validator({**_schema(), "$ref": f"#/$defs/{part}"})


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(_data.path("schema/payload.json").read_text("utf-8"))
    return schema


def _kind(value: Any) -> str:
    kinds = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _short(text: str) -> str:
    return text if len(text) <= 160 else text[:157] + "..."


def _order(rule: str) -> tuple[str, int]:
    area, _, number = rule.partition("-")
    return area, int(number)
