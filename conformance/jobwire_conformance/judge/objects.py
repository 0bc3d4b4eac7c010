"""The judge of the objects on the wire that are not payloads. It judges each one alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobwire_conformance.data import requirements
from jobwire_conformance.judge import payloads
from jobwire_conformance.judge.payloads import View, of_generation
from jobwire_conformance.judge.schemas import Breach, rules_of_part, schema_breaches

__all__ = ["OBJECTS", "WireObject", "breaches", "rules"]


@dataclass(frozen=True, slots=True)
class WireObject:
    """A kind of object on the wire.

    Attributes:
        file: Its schema.
        key: The key that holds it, with its variable parts in angle brackets.
        rule: The requirement that a text breaks that is not even JSON.
        writers: The parts of the schema that a writer obeys; `{}` stands for the generation.
        generations: The generations that have it.
        usual: The part of the schema with the forms that a reader usually meets.
    """

    file: str
    key: str
    rule: str
    writers: tuple[str, ...] = ("writer",)
    generations: tuple[str, ...] = ("6.4", "7.3", "8.1")
    usual: str | None = None

    def parts(self, view: View) -> tuple[str, ...]:
        """Return the parts of the schema that a view asks for."""
        if view.role == "reader":
            return ("reader",)
        return tuple(part.format(view.generation) for part in self.writers)


_SINCE_7 = ("7.3", "8.1")
OBJECTS: Mapping[str, WireObject] = {
    "process-info": WireObject(
        "process-info",
        "<identity>, the field info",
        "BEAT-4",
        ("writer-{}", "written"),
        usual="usual",
    ),
    "identity": WireObject("identity-hash", "<identity>", "BEAT-3", ("writer-{}", "written")),
    "work": WireObject(
        "work-record", "<identity>:work, one value", "BEAT-17", ("written",), usual="usual"
    ),
    "iteration": WireObject(
        "iteration-state", "it-<jid>", "ITER-1", ("stored",), _SINCE_7, "usual"
    ),
    "metrics": WireObject("metrics-bucket", "j|<date>|<time>", "MET-1", ("written",), _SINCE_7),
    "marks": WireObject("deploy-marks", "<date>-marks", "MET-5", generations=_SINCE_7),
    "signals": WireObject("signals", "<identity>-signals", "SIG-4"),
    "private": WireObject("private-hash", "jobwire:private:<identity>", "REL-1", usual="writer"),
    "cron": WireObject("cron-entry", "cron_job:<namespace>:<name>", "X-CRON-33"),
}
"""Every object that has a schema, apart from the payload, by the name that the user types."""


def breaches(text: bytes, name: str, view: View) -> list[Breach]:
    """Return all breaches of an object.

    Args:
        text: The object as JSON; a hash is a JSON object of texts, a list is an array of texts.
        name: Its name in `OBJECTS`.
        view: The rules to check; the place does not matter.
    """
    kind = OBJECTS[name]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [Breach(kind.rule, "JSON in UTF-8", f"text that is not JSON: {error}")]
    found = [
        breach for part in kind.parts(view) for breach in schema_breaches(value, kind.file, part)
    ]
    if view.role == "writer":
        found += _inside(value, name, view)
        found = [*of_generation(found, view.generation)]
    return list(dict.fromkeys(found))


def rules(name: str, view: View) -> tuple[str, ...]:
    """Return the ids of all rules that `breaches` checks, sorted."""
    kind, known = OBJECTS[name], requirements()
    checked = {kind.rule}.union(*(rules_of_part(kind.file, part) for part in kind.parts(view)))
    if view.role == "writer":
        checked = {rule for rule in checked if view.generation in known[rule].generations}
    return tuple(sorted(checked, key=payloads.order))


def _inside(value: Any, name: str, view: View) -> Iterator[Breach]:
    """Yield the breaches of JSON text inside a value."""
    if not isinstance(value, dict):
        return
    if name == "identity" and isinstance(info := value.get("info"), str):
        for breach in breaches(info.encode("utf-8", "surrogatepass"), "process-info", view):
            yield breach._replace(path=f"$.info{breach.path.removeprefix('$')}")
    elif name == "work" and isinstance(text := value.get("payload"), str):
        job, faults = payloads.parse(text.encode("utf-8", "surrogatepass"))
        if job is None:
            for breach in faults:
                yield breach._replace(rule="BEAT-17", path="$.payload", also=())
    elif name == "iteration" and isinstance(cursor := value.get("c"), str):
        try:
            json.loads(cursor)
        except (ValueError, RecursionError):
            yield Breach("ITER-1", "JSON text", json.dumps(cursor)[:60], "$.c")
