"""The crash matrix: one run for each effect of a process, in which the process is cut off there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobwire_conformance.cases.case import Case
from jobwire_conformance.cases.predicates import OF_JOBS, predicates
from jobwire_conformance.judge.stream import script_or_command
from jobwire_conformance.run.checks import CheckResult
from jobwire_conformance.run.play import Play
from jobwire_conformance.sandbox.idle import is_answered
from jobwire_conformance.sandbox.processes import wait_for
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.faults import Kill, Rule, Side
from jobwire_conformance.wire.points import Point, has_effect, points_of
from jobwire_conformance.wire.resp import decode

__all__ = ["CrashOutcome", "run"]


@dataclass(frozen=True, slots=True)
class CrashOutcome:
    """The fate of a job after its process was cut off at one point."""

    case: str
    point: str
    side: Side
    outcome: str
    window: str | None = None  # name of the loss window that the points of the case cover
    trace: tuple[int, int] | None = None  # first and last line; None for a job that was kept


def run(
    sandbox: Sandbox,
    case: Case,
    *,
    patience: float,
    waits: Callable[[str], None],
    keep: Callable[[str, Sequence[CheckResult]], tuple[int, int] | None] = lambda *_: None,
) -> tuple[list[CheckResult], list[CrashOutcome]]:
    """Run a case once in lockstep, and again for each point and side.

    Args:
        sandbox: The sandbox to use.
        case: The case to run.
        patience: Longest wait for an expected event, in seconds.
        waits: Called with the event that the run waits for.
        keep: Called after a rerun with a failure or a lost job, with the name of the rerun and the
            failed results. Writes the commands to the trace, and returns first and last line.

    Returns:
        One result for each requirement, and the fates of the jobs.
    """
    crash = case.crash
    assert crash is not None
    name = crash["process"]
    play = Play(sandbox, case, patience=patience, waits=waits, cuts={name: []})
    play.run()
    calls = sandbox.workers[name].proxy.snapshot
    # The effect of a command can be seen before its reply, by which it becomes a point.
    wait_for(lambda: all(is_answered(call, time.monotonic()) for call in calls()), patience)
    points = (
        list(_effects(calls(), _jids(case)))
        if crash["points"] == "effects"
        else [Point.parse(text) for text in crash["points"]]
    )
    findings: dict[str, CheckResult] = {}
    losses = []
    for point in points:
        for side in crash["side"]:
            sandbox.reset()
            waits(f"{name} to be cut off {side} {point}")
            rule = _cut(point, Kill(side, lambda: sandbox.workers[name].end()))
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
                jids = [each.of for each in predicates(predicate) if each.function == "performed"]
                fates += [play.fate(jid) for jid in jids[:1]]
            # A run in which the job was kept is not worth a trace.
            all_kept = not failed and all(fate == "kept" for fate in fates)
            trace = None if all_kept else keep(f"{side} {point}", failed)
            losses += [
                CrashOutcome(case.name, str(point), side, fate, crash.get("window"), trace)
                for fate in fates
            ]
    sandbox.reset()
    return list(findings.values()), losses


def _cut(point: Point, action: Kill) -> Rule:
    """Return the rule that cuts a process off at a point."""
    return Rule(action, nth=point.nth, fits=lambda words: script_or_command(words) == point.label)


def _jids(case: Case) -> list[bytes]:
    """Return the ids of the jobs in the checks of a case, and the keys of the queues.

    A job that the implementation makes by itself has no id that a case could name.
    """
    assert case.crash is not None
    checks = case.crash["check"].values()
    conditions = [each for check in checks for each in predicates(check)]
    texts = [each.of for each in conditions if each.function in OF_JOBS]
    texts += [f"queue:{each.of}" for each in conditions if each.function == "order"]
    return [text.encode() for text in texts]


def _effects(calls: Sequence[Call], jids: Sequence[bytes]) -> Iterator[Point]:
    """Yield the points that changed data, beginning with the first that concerns a job."""
    met = False
    # By script: how often a process polls before with another one depends on the machine.
    for point, call in points_of(calls, _label):
        texts = [*call.words, call.reply or b""]
        met = met or any(jid in text for jid in jids for text in texts)
        if not met or not has_effect(call) or point.label in _READS:
            continue
        if not (point.label == "fetch.lua" and _took_nothing(call)):
            yield point


_READS = ("periodic_due.lua", "periodic_look.lua")
"""Scripts that only read. When they run depends on the machine."""


def _label(call: Call) -> str:
    """Return the label that the rule of a cut looks for; it sees a command before any mutant."""
    return script_or_command(call.before or call.words)


def _took_nothing(call: Call) -> bool:
    """Return whether a fetch took no job. Its reply then is not empty: it has empty lists."""
    reply = None if call.reply is None else decode(call.reply)
    return not (isinstance(reply, list) and reply and reply[0])
