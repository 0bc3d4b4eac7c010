"""The schemas of SPEC.md as a judge: each fault names the rule, the value and the fix."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from jobwire_conformance.data import schema

__all__ = ["Breach", "can_judge", "rules_of_part", "schema_breaches"]

_RULE = re.compile(r"\[((?:X-)?[A-Z]+-\d+)\]")
_QUOTED = re.compile(r"^'([^']+)' is a (?:required property|dependency of '([^']+)')$")
_TYPES = {
    "array": "an array",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_LIMITS = {
    "exclusiveMaximum": "a number below {}",
    "maxLength": "at most {:,} characters",
    "maximum": "a number not above {}",
    "minItems": "at least {} elements",
    "minLength": "at least {} character",
    "minimum": "a number not below {}",
    "uniqueItems": "no element twice",
}
_MAX_CHARACTERS = 60  # characters of a value in a message


class Breach(NamedTuple):
    """One fault of an object on the wire.

    Attributes:
        rule: Id of the requirement that it breaks.
        expected: The form that the requirement asks for.
        seen: The value in the object.
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


def can_judge() -> bool:
    """Return whether jsonschema is installed, which checks by a schema need."""
    return importlib.util.find_spec("jsonschema") is not None


def schema_breaches(value: Any, file: str, part: str) -> Iterator[Breach]:
    """Yield the breaches of a part of a schema, with the ids that its comments name.

    Args:
        value: The object.
        file: Name of the schema, like `payload`.
        part: Name of the part below `$defs`.
    """
    seen = set()
    for error in _validator(file, part).iter_errors(value):
        rule, *also = _rules_of(error)
        breach = Breach(rule, _expected(error), _seen(error), error.json_path, tuple(also))
        if breach not in seen:
            seen.add(breach)
            yield breach


@cache
def rules_of_part(file: str, part: str) -> frozenset[str]:
    """Return the ids of all rules that a part of a schema checks, with the parts that it names."""
    parts: Mapping[str, Any] = schema(file)["$defs"]
    found: set[str] = set()
    named = {part}
    waiting = [part]
    while waiting:
        text = json.dumps(parts[waiting.pop()])
        found.update(_RULE.findall(text))
        new = set(re.findall(r'"#/\$defs/([^"]+)"', text)) - named
        named |= new
        waiting += new
    return frozenset(found)


def _seen(error: Any) -> str:
    missing = _QUOTED.match(error.message)
    if missing is not None:
        return f"{missing[2]} without {missing[1]}" if missing[2] else f"no field {missing[1]}"
    text = json.dumps(error.instance, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."


def _expected(error: Any) -> str:
    """Return the form that the failed keyword asks for, with the description of the field."""
    description = str(error.schema.get("description", "")) if isinstance(error.schema, dict) else ""
    keyword, value = error.validator, error.validator_value
    missing = _QUOTED.match(error.message)
    if missing is not None:
        return f"the field {missing[1]}"
    if keyword == "type":
        types = [value] if isinstance(value, str) else value
        form = " or ".join(_TYPES[kind] for kind in types)
    elif keyword in ("enum", "const"):
        values = value if keyword == "enum" else [value]
        form = "one of " + ", ".join(json.dumps(one) for one in values)
    elif keyword == "not" and not value:
        form = "no such field"
    elif keyword == "not":
        form = f"none of {', '.join(json.dumps(one) for one in value.get('enum', []))}"
    elif keyword == "pattern":
        form = f"text that matches {value}"
    elif keyword in _LIMITS:
        form = _LIMITS[keyword].format(value)
    else:
        form = f"a value that the keyword {keyword} allows"
    return f"{form} ({description.rstrip('.')})" if description else form


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
