"""The JSON Schemas of `schema/`, and functions that validate against them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

ROOT = Path(__file__).resolve().parents[2]
GENERATIONS = {"6.4.1": "6.4", "7.3.2": "7.3", "8.1.7": "8.1"}

ABSENT = object()
"""In place of a value: the field is absent."""


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = load(ROOT / "schema" / f"{name}.json")
    return loaded


@cache
def validator(name: str, part: str | None = None) -> Draft202012Validator:
    """Return the validator of a schema, or of one part of it."""
    whole = schema(name)
    if part is None:
        return Draft202012Validator(whole)
    assert part in whole["$defs"]
    bare = {k: v for k, v in whole.items() if k in ("$schema", "$id", "$defs")}
    return Draft202012Validator({**bare, "$ref": f"#/$defs/{part}"})


def problems(name: str, part: str | None, value: object) -> list[str]:
    return [f"{e.json_path}: {e.message}" for e in validator(name, part).iter_errors(value)]


def blames(name: str, part: str | None, value: object) -> list[str]:
    """Return the annotations of the innermost constraints that reject a value."""
    requirements: list[str] = []

    def note(error: ValidationError) -> None:
        if error.context:
            for inner in error.context:
                note(inner)
        elif isinstance(error.schema, Mapping):
            requirements.append(str(error.schema.get("$comment", "")))

    for error in validator(name, part).iter_errors(value):
        note(error)
    return requirements


def mutant(original: Mapping[str, Any], field: str, value: object) -> dict[str, Any]:
    """Return a copy with one field changed, added or removed."""
    changed = {**original, field: value}
    if value is ABSENT:
        del changed[field]
    return changed
