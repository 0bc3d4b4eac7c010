"""The answers of a driver, checked against schema/driver.json, with messages in plain words."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match

from jobwire_conformance import data

__all__ = ["Malformed", "checked", "request_problem"]

_RESULTS = {
    "hello": "greeting",
    "push": "pushed",
    "push_bulk": "pushed_bulk",
    "act": "nothing",
    "bye": "nothing",
    **dict.fromkeys(["inspect queue", "inspect set", "inspect find"], "members"),
    **{f"inspect {name}": name for name in ("queues", "stats", "processes", "work", "metrics")},
    "periodic": "nothing",
    "inspect periodic": "periodic_entries",
}
"""The definition of the member `ok` in the schema, by operation or subject."""

_KINDS = ("ok", "error", "unsupported")
_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


class Malformed(Exception):
    """An answer does not have the form that the contract of drivers asks for.

    Attributes:
        advice: The remedy.
    """

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem)
        self.advice = advice


@cache
def _validator(definition: str) -> Draft202012Validator:
    whole = data.schema("driver")
    return Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": whole["$defs"]})


def request_problem(request: Mapping[str, Any]) -> str | None:
    """Return the difference between a request of the suite and the schema; None if it fits."""
    problem = best_match(_validator("request").iter_errors(request))
    return None if problem is None else str(problem.message)


def checked(request: Mapping[str, Any], answer: Any) -> Mapping[str, Any]:
    """Return an answer if it has the right form and answers the request.

    Raises:
        Malformed: It does not.
    """
    number = request["id"]
    if not isinstance(answer, dict):
        raise Malformed(
            f"an answer is {_shown(answer)}; expected a JSON object",
            f'answer with one object, like {{"id":{number},"ok":{{}}}}',
        )
    if type(answer.get("id")) is not int:
        seen = f"{_shown(answer['id'])} as its id" if "id" in answer else "no id"
        raise Malformed(
            f"an answer has {seen}; expected the number {number}",
            "repeat the id of the request as it is: a number without quotes",
        )
    kinds = [kind for kind in _KINDS if kind in answer]
    if len(kinds) != 1:
        wrong = f"both {_named(kinds, 'and')}; expected one of them"
        raise Malformed(
            f"an answer has {wrong if kinds else _without(_KINDS, [*answer])}",
            'answer with "ok" and the result, with "error", or with "unsupported":true',
        )
    kind = kinds[0]
    if kind == "ok":
        subject = f"{request['op']} {request.get('what', '')}".rstrip()
        _check(_RESULTS[subject], answer["ok"], "ok")
    _check(kind, answer, "")
    if answer["id"] != number:
        raise Malformed(
            f"the answer to request {number} has the id {answer['id']}",
            "repeat the id of the request, and answer in order",
        )
    return answer


def _check(definition: str, value: Any, place: str) -> None:
    for problem in _validator(definition).iter_errors(value):
        raise Malformed(
            f"{_problem(problem, place)} (schema/driver.json, #/$defs/{definition})",
            "correct this member; docs/how-to/conformance.md shows an example of each answer",
        )


def _problem(problem: ValidationError, place: str) -> str:
    """Return the problem in plain words."""
    for part in problem.absolute_path:
        place += f"[{part}]" if isinstance(part, int) else f"{'.' if place else ''}{part}"
    place = place or "an answer"
    value: Any = problem.instance
    rule: Any = problem.validator_value
    schema: Any = problem.schema
    known = [*schema.get("properties", {})]
    match problem.validator:
        case "type":
            types = [_TYPES[name] for name in ([rule] if isinstance(rule, str) else rule)]
            return f"{place} is {_shown(value)}; expected {' or '.join(types)}"
        case "required":
            missing = [name for name in rule if name not in value]
            return f"{place} has {_without(missing[:1], [n for n in value if n not in known])}"
        case "additionalProperties":
            surplus = [name for name in value if name not in known]
            return f"{place} has an unknown member {_hinted(surplus[0], known)}"
        case "enum" | "const":
            values = rule if isinstance(rule, list) else [rule]
            texts = [json.dumps(each) for each in values]
            return f"{place} is {_shown(value)}; expected {' or '.join(texts)}"
    return f"{place}: {problem.message[:300]}"


def _without(missing: Sequence[str], others: Sequence[str]) -> str:
    """Return the missing names, and a name in their place that may be a typo."""
    for name in others:
        for near in difflib.get_close_matches(name.lower(), missing, 1):
            return f"no {_named([near], 'or')}; did you write {json.dumps(name)} instead?"
    return f"no {_named(missing, 'or')}"


def _hinted(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, 1)
    hint = f"did you mean {json.dumps(near[0])}?" if near else f"known: {_named(known, 'and')}"
    return f"{json.dumps(name)}; {hint}"


def _named(names: Iterable[str], word: str) -> str:
    return f" {word} ".join(json.dumps(name) for name in names)


def _shown(value: object) -> str:
    """Return a value of an answer with the name of its type."""
    text = json.dumps(value, ensure_ascii=False)
    text = text if len(text) <= 100 else f"{text[:100]}..."
    return f"the text {text}" if isinstance(value, str) else text
