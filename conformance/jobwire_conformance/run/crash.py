"""The crash matrix: cut a process off at each of its effects, and see what became of the job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobwire_conformance.cases.case import Case
from jobwire_conformance.run.checks import WRITES, Finding
from jobwire_conformance.run.play import Play
from jobwire_conformance.sandbox.sandbox import Lane
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.faults import Kill, Rule, Side
from jobwire_conformance.wire.resp import decode

__all__ = ["Loss", "run"]

_EFFECTS = WRITES | {b"EXEC"}


@dataclass(frozen=True, slots=True)
class Loss:
    """What became of a job when a process was cut off at one point."""

    case: str
    point: str
    side: Side
    outcome: str
    window: str | None = None  # loss window that the points of the case go through
    trace: tuple[int, int] | None = None  # of what was not kept: first and last line


def run(
    lane: Lane,
    case: Case,
    *,
    patience: float,
    waits: Callable[[str], None],
    keep: Callable[[str, Sequence[Finding]], tuple[int, int] | None] = lambda *_: None,
) -> tuple[list[Finding], list[Loss]]:
    """Run a case once in lockstep, and again for each point and side.

    Args:
        lane: Where.
        case: What.
        patience: Seconds until something that has to happen must have.
        waits: Told what is waited for.
        keep: Called after a rerun that is worth a look, with its name and what failed in it, to
            write down what passed; returns where.

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
            where = f"{name} cut off {side} {point}"
            fates = []
            failed = []
            for requirement, predicate in crash["check"].items():
                finding = play.predicate(requirement, predicate, where)
                if requirement not in findings or not finding.ok:
                    findings[requirement] = finding
                if not finding.ok:
                    failed.append(finding)
                if jid := re.search(r"performed\(([^)]*)\)", predicate):
                    fates.append(play.fate(jid[1]))
            # Nobody will look at a run in which nothing happened to the job.
            dull = not failed and all(fate == "kept" for fate in fates)
            trace = None if dull else keep(f"{side} {point}", failed)
            losses += [
                Loss(case.name, point, side, fate, crash.get("window"), trace) for fate in fates
            ]
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
