"""The crash matrix: cut a process off at each of its effects, and see what became of the job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobwire_conformance.cases import Case
from jobwire_conformance.faults import Kill, Rule, Side
from jobwire_conformance.lane import Lane
from jobwire_conformance.play import WRITES, Finding, Play
from jobwire_conformance.proxy import Call
from jobwire_conformance.resp import decode

__all__ = ["Loss", "run"]

_EFFECTS = WRITES | {b"EXEC"}


@dataclass(frozen=True, slots=True)
class Loss:
    """What became of a job when a process was cut off at one point."""

    case: str
    point: str
    side: Side
    outcome: str


def run(
    lane: Lane,
    case: Case,
    *,
    patience: float,
    waits: Callable[[str], None],
) -> tuple[list[Finding], list[Loss]]:
    """Run a case once in lockstep, and again for each point and side.

    Returns:
        One finding for each requirement, and the map.
    """
    crash = case.crash
    assert crash is not None
    name = crash["process"]
    play = Play(lane, case, patience=patience, waits=waits, cuts={name: []})
    play.run()
    points = crash["points"]
    if points == "effects":
        points = list(_points(lane.workers[name].proxy.snapshot(), _jids(case)))
    findings: dict[str, Finding] = {}
    losses = []
    for point in points:
        label, _, nth = point.partition("#")
        for side in crash["side"]:
            lane.reset()
            waits(f"{name} to be cut off {side} {point}")
            rule = Rule(Kill(side, lambda: lane.workers[name].end()), label, nth=int(nth))
            play = Play(lane, case, patience=patience, waits=waits, cuts={name: [rule]})
            play.run(crash.get("then", ()))
            for requirement, predicate in crash["check"].items():
                finding = play.predicate(requirement, predicate, f"{name} cut off {side} {point}")
                if requirement not in findings or not finding.ok:
                    findings[requirement] = finding
                if jid := re.search(r"performed\(([^)]*)\)", predicate):
                    losses.append(Loss(case.name, point, side, play.fate(jid[1])))
    lane.reset()
    return list(findings.values()), losses


def _jids(case: Case) -> list[bytes]:
    """Return the ids of the jobs that the case is about."""
    assert case.crash is not None
    predicates = " ".join(case.crash["check"].values())
    return [jid.encode() for jid in re.findall(r"\(([^)]*)\)", predicates)]


def _points(calls: Sequence[Call], jids: Sequence[bytes]) -> Iterator[str]:
    """Yield the labels of the commands that changed something, from the first with the job on."""
    seen: Counter[str] = Counter()
    met = False
    for call in calls:
        seen[call.label] += 1
        texts = [*call.words, call.reply or b""]
        met = met or any(jid in text for jid in jids for text in texts)
        effect = met and call.name in _EFFECTS and not call.transaction and call.reply is not None
        if effect and decode(call.reply or b"_\r\n") not in (None, 0, []):
            yield f"{call.label}#{seen[call.label]}"
