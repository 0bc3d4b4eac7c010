"""The crash matrix: cut a process off at each of its effects, and see what became of the job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobwire_conformance.cases.case import Case
from jobwire_conformance.run.checks import Finding
from jobwire_conformance.run.play import Play
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.faults import Kill, Side
from jobwire_conformance.wire.points import Point, has_effect, points_of

__all__ = ["Loss", "run"]


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
    sandbox: Sandbox,
    case: Case,
    *,
    patience: float,
    waits: Callable[[str], None],
    keep: Callable[[str, Sequence[Finding]], tuple[int, int] | None] = lambda *_: None,
) -> tuple[list[Finding], list[Loss]]:
    """Run a case once in lockstep, and again for each point and side.

    Args:
        sandbox: Where.
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
    play = Play(sandbox, case, patience=patience, waits=waits, cuts={name: []})
    play.run()
    points = (
        list(_effects(sandbox.workers[name].proxy.snapshot(), _jids(case)))
        if crash["points"] == "effects"
        else [Point.parse(text) for text in crash["points"]]
    )
    findings: dict[str, Finding] = {}
    losses = []
    for point in points:
        for side in crash["side"]:
            sandbox.reset()
            waits(f"{name} to be cut off {side} {point}")
            rule = point.rule(Kill(side, lambda: sandbox.workers[name].end()))
            play = Play(sandbox, case, patience=patience, waits=waits, cuts={name: [rule]})
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
                Loss(case.name, str(point), side, fate, crash.get("window"), trace)
                for fate in fates
            ]
    sandbox.reset()
    return list(findings.values()), losses


def _jids(case: Case) -> list[bytes]:
    """Return the ids of the jobs that the case is about."""
    assert case.crash is not None
    predicates = " ".join(case.crash["check"].values())
    return [jid.encode() for jid in re.findall(r"\(([^)]*)\)", predicates)]


def _effects(calls: Sequence[Call], jids: Sequence[bytes]) -> Iterator[Point]:
    """Yield the points that changed something, from the first that has one of the jobs on."""
    met = False
    for point, call in points_of(calls):
        texts = [*call.words, call.reply or b""]
        met = met or any(jid in text for jid in jids for text in texts)
        if met and has_effect(call):
            yield point
