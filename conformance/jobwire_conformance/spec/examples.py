"""Checks of the examples in SPEC.md: JSON must be valid, and payloads must keep the rules."""

from __future__ import annotations

import json
from collections.abc import Iterator

from jobwire_conformance.judge.payloads import View
from jobwire_conformance.judge.schemas import can_judge
from jobwire_conformance.spec import verdicts
from jobwire_conformance.spec.document import Document

__all__ = ["problems"]


def problems(document: Document) -> Iterator[tuple[int, str]]:
    """Yield line and problem of every invalid example.

    An example in `json` is one value, or one value a line. Objects that have a class are
    payloads; those are judged as their generation writes them, if jsonschema is there.
    """
    for fence in document.fences:
        if not fence.language:
            yield fence.line - 1, "the example does not say its language"
        if fence.language != "json":
            continue
        if _is_json(fence.text):
            texts = [(fence.line, fence.text)]
        else:
            texts = [*enumerate(fence.text.splitlines(), fence.line)]
        for line, text in texts:
            if text.strip():
                yield from ((line, problem) for problem in _json(text))


def _json(text: str) -> Iterator[str]:
    try:
        value = json.loads(text)
    except ValueError as error:
        yield f"the example is not JSON: {error}"
        return
    if not isinstance(value, dict) or "class" not in value:
        return
    if not can_judge():
        return
    generation = "8.1" if type(value.get("created_at")) is int else "7.3"
    for verdict in verdicts.judge(text.strip().encode(), View("writer", generation=generation)):
        if verdict.broken:
            yield f"the example breaks {verdict.rule} at {verdict.path}: {verdict.problem}"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
