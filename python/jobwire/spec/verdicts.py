"""Verdicts on a payload: the rules that it breaks and keeps.

The judge is the conformance suite's, so each rule about payloads is written once. This module adds
the rules that are kept, and one note: jobwire's worker cannot hold every lawful payload.
"""

from __future__ import annotations

from typing import NamedTuple

from jobwire.errors import MalformedPayload
from jobwire.protocol.payload import decode
from jobwire_conformance.judge import payloads
from jobwire_conformance.judge.payloads import Part

__all__ = ["PayloadVerdict", "judge"]


class PayloadVerdict(NamedTuple):
    """The verdict of one rule on a payload.

    Attributes:
        rule: Id of the requirement.
        path: Place in the JSON; `$` for the whole payload.
        problem: The reason that the rule is broken; `""` if it is kept.
        is_note: True if the rule is kept and `problem` is only a note.
    """

    rule: str
    path: str = "$"
    problem: str = ""
    is_note: bool = False

    @property
    def broken(self) -> bool:
        return bool(self.problem) and not self.is_note


def judge(text: bytes, part: Part) -> list[PayloadVerdict]:
    """Return the verdicts of all rules on a payload, broken rules first.

    Args:
        text: The exact bytes.
        part: The rules to check: those for readers, or those for writers of a generation.
    """
    verdicts = [
        PayloadVerdict(rule, breach.path, f"{breach.seen}; expected {breach.expected}")
        for breach in payloads.breaches(text, part)
        for rule in (breach.rule, *breach.also)
    ]
    broken = {verdict.rule for verdict in verdicts}
    if broken & {"PAY-1", "PAY-3"}:
        return verdicts  # without a value, the other rules cannot be checked
    try:
        decode(text, "")
    except MalformedPayload as error:
        problem = f"lawful, but jobwire's worker cannot hold it and kills it: {error.problem}"
        verdicts.append(PayloadVerdict("EXEC-3", "$", problem, is_note=True))
    return verdicts + [PayloadVerdict(rule) for rule in payloads.rules(part) if rule not in broken]
