"""The traffic of all cases, judged as `watch` judges it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.config import Config
from jobwire_conformance.judge import IN_EVERY_CASE, TRAFFIC, Judge, Record, decoded
from jobwire_conformance.judge.ledger import Finding
from jobwire_conformance.run.checks import CheckResult, ProcessCall
from jobwire_conformance.run.verdicts import CaseVerdict, Deviation, judge
from jobwire_conformance.wire.call import Call

__all__ = ["NAME", "REQUIREMENTS", "Traffic"]

NAME = TRAFFIC
REQUIREMENTS = IN_EVERY_CASE

_DRIVER = ("client", "inspector")
_WORKER = ("worker", "scheduler")
_AROUND = 6  # commands that are shown with a finding


@dataclass(slots=True)
class _TrafficCount:
    seen: int = 0
    failure: CheckResult | None = None  # the first one


class Traffic:
    """Judges the traffic of a run, case by case.

    Each process has a judge of its own, because its commands depend on the jobs that it has read.
    Its name tells its roles, and therefore the claims that a failure concerns.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._counts: dict[tuple[tuple[str, ...], str], _TrafficCount] = {}

    def look(
        self, case: Case, lines: Sequence[ProcessCall], results: Sequence[CheckResult]
    ) -> list[CheckResult]:
        """Judge the commands of a case; return the new failures.

        An implementation that is interop and not robust is free to write anything where only a
        robust one knows what to do, for example if it accepts a push that a robust one refuses.
        A case whose checks are all robust, and did not all pass, does not test interop.
        """
        is_interop = any(_is_interop(result.requirement) for result in results)
        is_evidence = is_interop or all(result.ok for result in results)
        fresh: list[CheckResult] = []
        for process in dict.fromkeys(name for name, _ in lines):
            calls = [call for name, call in lines if name == process]
            fresh += self._process(case, process, calls, is_evidence)
        return fresh

    def case(self) -> Case:
        """Return the case that these checks belong to."""
        return _case((*_DRIVER, *_WORKER))

    def verdicts(self, deviations: Sequence[Deviation]) -> list[CaseVerdict]:
        """Return a verdict for each claim and each requirement that the traffic could break."""
        verdicts = []
        for roles in (_DRIVER, _WORKER):
            results = [
                count.failure or CheckResult(rule, True)
                for (counted_roles, rule), count in sorted(self._counts.items())
                if counted_roles == roles and count.seen
            ]
            verdicts += judge(
                _case(roles), results, self._config.claims, self._config.generation, deviations
            )
        return verdicts

    def _process(
        self, case: Case, process: str, calls: Sequence[Call], is_evidence: bool
    ) -> list[CheckResult]:
        roles = _DRIVER if process == "driver" else _WORKER
        traffic_judge = Judge(
            ("faults", "reliable"),
            case.namespace or self._config.prefix,
            alone=True,
            generated=not _gives_jids(case),
        )
        # In the order of the replies. A command without a reply may never have arrived.
        answered = sorted(
            (call for call in calls if call.reply is not None),
            key=lambda call: call.answered or call.at,
        )
        offset = time.time() - time.monotonic()
        for number, call in enumerate(answered):
            ended = call.answered or call.at
            reply = decoded(call.reply)
            begin = (number, call.connection, call.words, offset + ended, reply, ended - call.at)
            traffic_judge.feed(Record(*begin, received=not call.given_up))
        if answered:
            traffic_judge.end(offset + (answered[-1].answered or answered[-1].at))
        fresh = []
        for rule, tally in traffic_judge.ledger.tallies.items():
            if rule not in REQUIREMENTS or (_is_interop(rule) and not is_evidence):
                continue
            count = self._counts.setdefault((roles, rule), _TrafficCount())
            count.seen += tally.seen
            finding = next((f for f in tally.findings if not f.doubtful), None)
            if finding is not None:
                count.seen += 1
                if count.failure is None:
                    count.failure = _failure(case.name, process, finding, answered)
                    fresh.append(count.failure)
        return fresh


def _is_interop(requirement: str) -> bool:
    return data.requirements()[requirement].level == "interop"


def _gives_jids(case: Case) -> bool:
    """Return whether a request of the case gives a job its jid. [PUSH-19]"""
    return any("jid" in step.get(kind, ()) for step in case.steps for kind in ("push", "push_bulk"))


def _failure(case: str, process: str, finding: Finding, calls: Sequence[Call]) -> CheckResult:
    last = finding.record.sequence + 1
    return CheckResult(
        finding.rule,
        False,
        f"in case {case}: expected {finding.expected}, seen {finding.seen}",
        finding.expected,
        finding.seen,
        [(process, call) for call in calls[max(0, last - _AROUND) : last]],
        again=case,
    )


def _case(roles: Sequence[str]) -> Case:
    """Return the case that these checks belong to."""
    profiles = [claim.removesuffix(data.ROBUST) for claim in data.CLAIMS]
    of_roles = dict.fromkeys(name for name in profiles if name.partition("/")[0] in roles)
    title = "The traffic of all cases breaks no requirement"
    return Case(NAME, title, tuple(of_roles), None, data.GENERATIONS, (), (), (), None)
