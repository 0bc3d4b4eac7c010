"""What passes on the wire in all cases, judged as `watch` judges it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.config import Config
from jobwire_conformance.judge import VISIBLE, Judge, Record, decoded
from jobwire_conformance.judge.ledger import Finding as Breach
from jobwire_conformance.run.checks import Finding, Line
from jobwire_conformance.run.verdicts import CaseVerdict, Deviation, judge
from jobwire_conformance.wire.call import Call

__all__ = ["NAME", "REQUIREMENTS", "Traffic"]

NAME = "traffic"
"""Of the case that these checks are said to be of."""

# What needs patience, or a look at how a run ended, is left to cases of its own.
_NOT_HERE = frozenset(["BEAT-2", "BEAT-7", "ENV-3", "RETRY-4"])
REQUIREMENTS = tuple(rule for rule in VISIBLE if rule not in _NOT_HERE)
"""Those that may get a verdict. They do if something passed that could have broken them."""

_DRIVER = ("client", "inspector")
_WORKER = ("worker", "scheduler")
_AROUND = 6  # commands that are shown with a finding


@dataclass(slots=True)
class _Tally:
    seen: int = 0
    finding: Finding | None = None  # the first one


class Traffic:
    """Judges the traffic of a run, case by case.

    A process is judged by itself: what it does with a job depends on what it has read. Its name
    tells its roles, and so the claims that a finding is about.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tallies: dict[tuple[tuple[str, ...], str], _Tally] = {}

    def look(self, case: Case, lines: Sequence[Line]) -> list[Finding]:
        """Judge what passed in a case; return the findings that are new."""
        fresh: list[Finding] = []
        for process in dict.fromkeys(name for name, _ in lines):
            calls = [call for name, call in lines if name == process]
            fresh += self._process(case.name, process, calls)
        return fresh

    def case(self) -> Case:
        """Return the case that these checks are said to be of."""
        return _case((*_DRIVER, *_WORKER))

    def verdicts(self, deviations: Sequence[Deviation]) -> list[CaseVerdict]:
        """Return a verdict for each requirement that could have been broken, and claim."""
        found = []
        for roles in (_DRIVER, _WORKER):
            findings = [
                tally.finding or Finding(rule, True)
                for (whose, rule), tally in sorted(self._tallies.items())
                if whose == roles and tally.seen
            ]
            found += judge(_case(roles), findings, self._config.claims, deviations)
        return found

    def _process(self, case: str, process: str, calls: Sequence[Call]) -> list[Finding]:
        roles = _DRIVER if process == "driver" else _WORKER
        court = Judge(("faults", "reliable"), self._config.prefix, alone=True)
        # In the order in which they were answered. What was not may be under way for ever.
        over = sorted((c for c in calls if c.reply is not None), key=lambda c: c.answered or c.at)
        offset = time.time() - time.monotonic()
        for number, call in enumerate(over):
            ended = call.answered or call.at
            reply = decoded(call.reply)
            court.feed(
                Record(number, call.connection, call.words, offset + ended, reply, ended - call.at)
            )
        if over:
            court.end(offset + (over[-1].answered or over[-1].at))
        fresh = []
        for rule, counted in court.ledger.tallies.items():
            if rule not in REQUIREMENTS:
                continue
            tally = self._tallies.setdefault((roles, rule), _Tally())
            tally.seen += counted.seen
            breach = next((each for each in counted.findings if not each.doubtful), None)
            if breach is not None:
                tally.seen += 1
                if tally.finding is None:
                    tally.finding = _finding(case, process, breach, over)
                    fresh.append(tally.finding)
        return fresh


def _finding(case: str, process: str, breach: Breach, calls: Sequence[Call]) -> Finding:
    last = breach.record.sequence + 1
    return Finding(
        breach.rule,
        False,
        f"in case {case}: expected {breach.expected}, seen {breach.seen}",
        breach.expected,
        breach.seen,
        [(process, call) for call in calls[max(0, last - _AROUND) : last]],
        again=case,
    )


def _case(roles: Sequence[str]) -> Case:
    """Return the case that these checks are said to be of."""
    claims = tuple(each for each in data.CLAIMS if each.partition("/")[0] in roles)
    title = "What passes in all cases is as it must be"
    return Case(NAME, title, claims, None, None, (), (), (), None)
