"""Checks of fixture files: a payload must break exactly the rules that its entry names."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from jobwire_conformance import data
from jobwire_conformance.judge.payloads import PLACES, Place, View
from jobwire_conformance.spec.verdicts import Verdict, judge

__all__ = ["Judged", "entries", "judge_entry", "place_of", "shape_problems"]


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
    verdicts: list[Verdict]
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


def judge_entry(entry: dict[str, Any], view: View | None) -> Judged | None:
    """Judge the payload of an entry; None if it has none.

    Args:
        entry: One element of a fixture file.
        view: The rules to check. None: the rules that the entry means. These are the rules for
            writers of generations 7.3 and 8.1 if the entry names broken rules, otherwise those for
            readers in the place that the entry names.
    """
    if "payload_base64" in entry:
        text = base64.b64decode(entry["payload_base64"])
    elif isinstance(entry.get("payload"), str):
        text = entry["payload"].encode("utf-8", "surrogatepass")
    else:
        return None
    name = str(entry.get("name", "?"))
    says = list(entry.get("breaks", []))
    if view is not None:
        verdicts = judge(text, view)
    elif says:
        writers = (View("writer", generation=generation) for generation in ("7.3", "8.1"))
        verdicts = list(dict.fromkeys(verdict for view in writers for verdict in judge(text, view)))
    else:
        verdicts = judge(text, View("reader", place_of(entry)))
    broken = list(dict.fromkeys(verdict.rule for verdict in verdicts if verdict.broken))
    if view is not None and broken and not says:
        return Judged(name, says, verdicts, f"breaks {', '.join(broken)}")
    if missing := [rule for rule in says if rule not in broken]:
        return Judged(name, says, verdicts, f"says to break {', '.join(missing)}, and does not")
    is_run = entry.get("expect", {}).get("outcome", "" if says else "run") == "run"
    if view is None and is_run:
        judged = judge(text, View("reader", place_of(entry))) if says else verdicts
        if refused := dict.fromkeys(verdict.rule for verdict in judged if verdict.broken):
            problem = f"has to run in a reader, and breaks {', '.join(refused)}"
            return Judged(name, says, verdicts, problem)
    return Judged(name, says, verdicts, "")


def place_of(entry: dict[str, Any]) -> Place | None:
    """Return the place of the payload of an entry; None if it is in no place of its own."""
    name = str(entry.get("place", "")).partition(":")[0]
    return next((place for place in PLACES if place == name), None)


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator  # an extra

    return Draft202012Validator(data.schema("fixture"))
