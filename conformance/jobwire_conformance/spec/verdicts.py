"""Verdicts on objects of the wire: the rules that an object breaks and keeps.

The judge is the conformance suite's, so each rule is written once. This module adds the rules that
are kept, the level of each rule, and notes about parsers, which are not rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from jobwire_conformance.data import requirements
from jobwire_conformance.judge import objects, payloads
from jobwire_conformance.judge.payloads import Breach, View

__all__ = ["Level", "Verdict", "judge", "judge_object"]

Level = Literal["interop", "robust"]
"""The rules that count: those that other programs depend on, or all."""


class Verdict(NamedTuple):
    """The verdict of one rule on an object.

    Attributes:
        rule: Id of the requirement; `""` for a note that concerns no requirement.
        path: Place in the JSON; `$` for the whole object.
        seen: The value that breaks the rule, or the text of a note; `""` if the rule is kept.
        expected: The form that the rule asks for.
        kind: `broken`; `robust`: broken, but only a rule of the level robust, which is not asked
            for; `note`: no rule is broken; `kept`.
    """

    rule: str
    path: str = "$"
    seen: str = ""
    expected: str = ""
    kind: Literal["broken", "robust", "note", "kept"] = "kept"

    @property
    def broken(self) -> bool:
        """True if the object is invalid because of this verdict."""
        return self.kind == "broken"

    @property
    def problem(self) -> str:
        """The value and the fix; `""` if the rule is kept."""
        return f"{self.seen}; expected {self.expected}" if self.expected else self.seen


def judge(text: bytes, view: View, level: Level = "robust") -> list[Verdict]:
    """Return the verdicts of all rules on a payload, broken rules first.

    Args:
        text: The exact bytes.
        view: The rules to check.
        level: The rules that count.
    """
    verdicts = _broken(payloads.breaches(text, view), level)
    broken = {verdict.rule for verdict in verdicts}
    job, _ = payloads.parse(text)
    if job is None:
        if not verdicts:
            seen = "bytes that are not a payload, which this set may hold"
            verdicts.append(Verdict("KEY-3", "$", seen, kind="note"))
        return verdicts  # without a value, the other rules cannot be checked
    return [
        *verdicts,
        *_unusual(job, view),
        *_notes(text, broken),
        *(Verdict(rule) for rule in payloads.rules(view) if rule not in broken),
    ]


def judge_object(text: bytes, name: str, view: View, level: Level = "robust") -> list[Verdict]:
    """Return the verdicts of all rules on an object of the wire other than a payload.

    Args:
        text: The object as JSON; a hash is a JSON object of texts.
        name: Its name in `objects.OBJECTS`.
        view: The rules to check; the place does not matter.
        level: The rules that count.
    """
    verdicts = _broken(objects.breaches(text, name, view), level)
    broken = {verdict.rule for verdict in verdicts}
    usual = objects.OBJECTS[name].usual
    notes = []
    if usual is not None and view.role == "reader" and not verdicts:
        found = payloads.schema_breaches(json.loads(text), objects.OBJECTS[name].file, usual)
        notes = [_note(breach) for breach in found]
    return [
        *verdicts,
        *notes,
        *(Verdict(rule) for rule in objects.rules(name, view) if rule not in broken),
    ]


def _note(breach: Breach) -> Verdict:
    seen = f"{breach.seen}, which is usually {breach.expected}"
    return Verdict(breach.rule, breach.path, seen, kind="note")


def _broken(breaches: Iterable[Breach], level: Level) -> list[Verdict]:
    known = requirements()
    verdicts = []
    for breach in breaches:
        for rule in (breach.rule, *breach.also):
            is_extra = level == "interop" and rule in known and known[rule].level == "robust"
            kind: Literal["broken", "robust"] = "robust" if is_extra else "broken"
            verdicts.append(Verdict(rule, breach.path, breach.seen, breach.expected, kind))
    verdicts.sort(key=lambda verdict: verdict.kind)  # "broken" first
    return verdicts


def _unusual(job: dict[str, Any], view: View) -> Iterator[Verdict]:
    """Yield notes on fields that are allowed and unusual.

    A reader takes bookkeeping of another type for another value. A caller may give a jid of its
    own. A job that comes back to `schedule` may have been on a queue.
    """
    parts = ["usual"] if view.role == "reader" else ["new-jid"]
    if view == ("writer", "schedule", view.generation):
        parts.append("unqueued")
    for part in parts:
        for breach in payloads.schema_breaches(job, "payload", part):
            if isinstance(job.get("jid"), str) or part != "new-jid":
                yield _note(breach)


def _notes(text: bytes, broken: Iterable[str]) -> list[Verdict]:
    """Return notes on a payload that the protocol allows and some parsers cannot read."""
    return [
        Verdict("", breach.path, f"{breach.seen}: not every parser can read it", kind="note")
        for breach in payloads.notes(text)
        if breach.rule not in broken
    ]
