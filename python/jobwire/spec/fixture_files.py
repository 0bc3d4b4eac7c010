"""Checks of fixture files: a payload must break exactly the rules that its entry names."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from jobwire.connection import data
from jobwire.spec.verdicts import PayloadVerdict, judge
from jobwire_conformance.judge.payloads import Part

__all__ = ["Judged", "entries", "judge_entry", "shape_problems"]


class Judged(NamedTuple):
    """The judgement of one entry.

    Attributes:
        name: Name of the entry.
        says: The rules that the entry names as broken; empty for a lawful payload.
        verdicts: The verdicts of the rules.
        problem: The difference between the two; `""` if they agree.
    """

    name: str
    says: list[str]
    verdicts: list[PayloadVerdict]
    problem: str


def entries(text: bytes) -> list[dict[str, Any]] | None:
    """Return the entries of a fixture file; None if the text is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        return value
    return None


def shape_problems(value: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the errors of a file against schema/fixture.json."""
    validator = _validator()
    if not validator.is_valid(value):
        # The error "not any of the kinds" is vague. The errors of the closest kind are precise.
        kinds = ({*error.context} for error in validator.iter_errors(value) if error.context)
        for errors in kinds:
            deepest = max(errors, key=lambda error: len(error.absolute_path))
            yield f"{deepest.json_path}: {deepest.message[:200]}"


def judge_entry(entry: dict[str, Any], part: Part | None) -> Judged | None:
    """Judge the payload of an entry; None if it has none.

    Args:
        entry: One element of a fixture file.
        part: The rules to check. None: the rules that the entry means. These are the rules for
            writers of both generations if the entry names broken rules, otherwise those for
            readers.
    """
    if "payload_base64" in entry:
        text = base64.b64decode(entry["payload_base64"])
    elif isinstance(entry.get("payload"), str):
        text = entry["payload"].encode("utf-8", "surrogatepass")
    else:
        return None
    name = str(entry.get("name", "?"))
    says = list(entry.get("breaks", []))
    if part is not None:
        verdicts = judge(text, part)
    elif says:
        verdicts = list(dict.fromkeys([*judge(text, "generation-7"), *judge(text, "generation-8")]))
    else:
        verdicts = judge(text, "reader")
    broken = list(dict.fromkeys(verdict.rule for verdict in verdicts if verdict.broken))
    if part is not None and broken and not says:
        return Judged(name, says, verdicts, f"breaks {', '.join(broken)}")
    if missing := [rule for rule in says if rule not in broken]:
        return Judged(name, says, verdicts, f"says to break {', '.join(missing)}, and does not")
    is_lawful = not says and entry.get("expect", {}).get("outcome", "run") == "run"
    if is_lawful and broken:
        return Judged(name, says, verdicts, f"is said to be lawful, and breaks {', '.join(broken)}")
    return Judged(name, says, verdicts, "")


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator  # an extra

    schema = json.loads(data.path("schema/fixture.json").read_text("utf-8"))
    return Draft202012Validator(schema)
