"""The rules that a payload breaks and keeps, and what jobwire's own worker makes of it.

The judge is the conformance suite's, so a rule about payloads is written once. This module adds
the rules that are kept, and one note: the worker may be unable to hold what the rules allow.
"""

from __future__ import annotations

from typing import NamedTuple

from jobwire.errors import MalformedPayload
from jobwire.protocol.payload import decode
from jobwire_conformance.judge import payloads
from jobwire_conformance.judge.payloads import Part

__all__ = ["PayloadVerdict", "judge"]


class PayloadVerdict(NamedTuple):
    """What one rule says about a payload.

    Attributes:
        rule: Id of the requirement.
        path: Place in the JSON, `$` for the whole.
        problem: What breaks the rule; `""` if nothing does.
        is_note: The rule is kept, but there is something worth knowing.
    """

    rule: str
    path: str = "$"
    problem: str = ""
    is_note: bool = False

    @property
    def broken(self) -> bool:
        return bool(self.problem) and not self.is_note


def judge(text: bytes, part: Part) -> list[PayloadVerdict]:
    """Return what every rule says about a payload, broken ones first.

    Args:
        text: The exact bytes.
        part: For whom it has to be right: any reader, or a check of what a generation writes.
    """
    verdicts = [
        PayloadVerdict(rule, breach.path, f"{breach.seen}; expected {breach.expected}")
        for breach in payloads.breaches(text, part)
        for rule in (breach.rule, *breach.also)
    ]
    broken = {verdict.rule for verdict in verdicts}
    if broken & {"PAY-1", "PAY-3"}:
        return verdicts  # there is no value to judge by the other rules
    try:
        decode(text, "")
    except MalformedPayload as error:
        problem = f"lawful, but jobwire's worker cannot hold it and kills it: {error.problem}"
        verdicts.append(PayloadVerdict("EXEC-3", "$", problem, is_note=True))
    return verdicts + [PayloadVerdict(rule) for rule in payloads.rules(part) if rule not in broken]
