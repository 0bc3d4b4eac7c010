"""A run: plays cases in sandboxes, collects verdicts, and ends all processes."""

from __future__ import annotations

import json
import queue
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import jobwire_conformance
from jobwire_conformance import data
from jobwire_conformance.cases.case import Case, load
from jobwire_conformance.config import Config
from jobwire_conformance.errors import AdapterFault, ConformError, SuiteFault
from jobwire_conformance.run import crash, traffic
from jobwire_conformance.run.causes import causes
from jobwire_conformance.run.checks import CheckResult
from jobwire_conformance.run.evidence import Line, describe
from jobwire_conformance.run.play import Play, date_in_utc
from jobwire_conformance.run.sets import Frozen
from jobwire_conformance.run.traffic import Traffic
from jobwire_conformance.run.verdicts import (
    CaseVerdict,
    ClaimStatus,
    Deviation,
    judge,
    stale,
    status,
    summary,
)
from jobwire_conformance.sandbox.external_server import ExternalServer, borrow
from jobwire_conformance.sandbox.history import Note
from jobwire_conformance.sandbox.local_server import Database, LocalServer, server_program
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.sandbox.sandbox import Sandbox, side_by_side
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.faults import Rule

__all__ = ["Outcome", "Watcher", "check_data", "chosen", "run"]

_WORST = {status: rank for rank, status in enumerate((5, 4, 64, 3, 1, 2, 0))}
_LONG_S = 10.0  # of an interval that is not shortened for a case, or of the wait for an event
_MANY = 4  # workers that a case starts one after the other
_FAULTS_IN_A_ROW = 3  # consecutive cases ended by adapter faults, after which the run ends


class Watcher(Protocol):
    """Receives the progress of a run, from several threads, one call at a time."""

    def waiting(self, case: Case, event: str) -> None:
        """Receive an event that a case waits for."""

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        """Receive the verdicts of a finished case."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a run."""

    config: Config
    cases: Sequence[Case] = ()  # all cases of the suite, even if they did not run
    again: str = ""  # the command that runs one case again, without the name of the case
    variant: str = ""  # name of the setup, if the implementation has several
    seed: int = 0
    frozen: Frozen | None = None  # the checks that count, if not all of the suite's
    verdicts: list[CaseVerdict] = field(default_factory=list)
    losses: list[crash.CrashOutcome] = field(default_factory=list)
    stale: list[Deviation] = field(default_factory=list)
    unexplained: list[Deviation] = field(default_factory=list)
    errors: list[ConformError] = field(default_factory=list)
    version: str = ""
    answer_times: list[float] = field(default_factory=list)  # of the driver, in seconds
    server: tuple[str, str] = ("redis", "unknown")
    started: str = ""
    seconds: float = 0.0
    status: int = 0
    command: str = ""  # the command that made the run

    @property
    def stopped(self) -> bool:
        """True if an error ended the run. An adapter fault in a case ends only that case."""
        return any(getattr(error, "case", None) is None for error in self.errors)

    def as_data(self) -> dict[str, Any]:
        """Return results.json. See schema/results.json."""
        about = {"name": self.config.name, "version": self.version or "unknown"}
        if self.variant:
            about["variant"] = self.variant
        for name in ("language", "source", "home"):
            if value := getattr(self.config, name):
                about[name] = value
        results = {
            "results": 1,
            "spec": data.spec_version() if self.frozen is None else self.frozen.spec,
            "suite": suite_version(),
            "driver": 1,
            "implementation": about,
            "claims": {
                claim: {
                    "met": claim_status.met and not self.stopped,
                    "checks": dict(sorted(claim_status.counts.items())),
                    "missing": [*claim_status.missing],
                    "unchecked": [*claim_status.unchecked],
                    "without_case": [*claim_status.without_case],
                }
                for claim, claim_status in self._claim_statuses().items()
            },
            "generation": self.config.generation,
            "server": {"name": self.server[0], "version": self.server[1]},
            "seed": self.seed,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "status": self.status,
            "checks": self._checks(),
            "loss_map": [_loss(loss) for loss in self.losses],
            "errors": [_error(error) for error in self.errors],
            "trace": "trace.jsonl",
        }
        for name in ("again", "command"):
            if command := getattr(self, name):
                results[name] = command
        return results

    def _checks(self) -> list[dict[str, Any]]:
        checks = [check_data(verdict) for verdict in self.verdicts]
        for index, cause in causes(checks).items():
            checks[index]["follows"] = cause
        return checks

    def _claim_statuses(self) -> Mapping[str, ClaimStatus]:
        return summary(self.config.claims, self.verdicts, self.cases, self.config.generation)


@cache
def every_case() -> Sequence[Case]:
    """Return all cases of the suite. They are read only once."""
    return load()


def suite_version() -> str:
    """Return the version of the suite."""
    return jobwire_conformance.__version__


def check_data(verdict: CaseVerdict) -> dict[str, Any]:
    """Return a check of results.json."""
    finding = verdict.finding
    entry: dict[str, Any] = {
        "case": verdict.case,
        "requirement": finding.requirement,
        "claim": verdict.claim,
        "keyword": verdict.keyword,
        "status": verdict.status,
        "seconds": round(finding.seconds, 3),
    }
    if verdict.runs > 1:
        entry["runs"] = verdict.runs
        if verdict.held:
            entry["held"] = verdict.held
    if not finding.ok:
        entry |= {"message": finding.message or finding.blocked_by or "", "by": finding.by}
        entry |= {"expected": finding.expected, "seen": finding.seen}
    if finding.blocked_by is not None:
        entry["blocked_by"] = finding.blocked_by
    if finding.trace:
        entry["trace"] = finding.trace
    if finding.evidence:
        entry["evidence"] = finding.evidence
    if finding.again is not None and not finding.ok:
        entry["again"] = finding.again
    if verdict.deviation is not None:
        entry["reason"] = verdict.deviation.reason
        if verdict.deviation.issue:
            entry["issue"] = verdict.deviation.issue
    return entry


def _loss(loss: crash.CrashOutcome) -> dict[str, Any]:
    entry: dict[str, Any] = {"case": loss.case, "point": loss.point, "side": loss.side}
    if loss.window is not None:
        entry["window"] = loss.window
    entry["outcome"] = loss.outcome
    if loss.trace is not None:
        entry["trace"] = [*loss.trace]
    return entry


def _error(error: ConformError) -> dict[str, Any]:
    if isinstance(error, AdapterFault) and error.case is not None:
        return {"status": error.status, "message": error.problem, "case": error.case}
    return {"status": error.status, "message": str(error)}


def offered(cases: Sequence[Case], config: Config) -> list[Case]:
    """Return the cases whose needs the implementation offers or claims."""
    has = {*config.offers, *config.claims, *config.unasked}
    return [case for case in cases if set(case.needs) <= has]


def chosen(
    cases: Sequence[Case], claims: Sequence[str], generation: str, *, losses: bool = False
) -> list[Case]:
    """Return the cases that count for these claims and this generation.

    Args:
        cases: The cases to choose from.
        claims: Claims of the implementation.
        generation: Generation of the implementation.
        losses: True to include crash matrices of claimed roles whose profile is not claimed. They
            show where jobs are lost.
    """
    roles = {claim.partition("/")[0] for claim in claims}
    of_roles = [claim for claim in data.CLAIMS if claim.partition("/")[0] in roles]
    return [
        case
        for case in cases
        if case.checks_for(of_roles if losses and case.crash is not None else claims, generation)
    ]


class _Trace:
    """Writer of trace.jsonl, case by case. Without a path it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("w", encoding="utf-8")
        self._lines = 0

    def add(self, case: Case, record: Sequence[Line], crash: str | None = None) -> dict[int, int]:
        """Write what happened in a case; return the line of each event by `id`, from 0.

        Args:
            case: The case.
            record: The commands, requests and signals, each with its process.
            crash: The point of the cut, for a rerun in which a process was cut off.
        """
        places = {}
        for name, event in record:
            places[id(event)] = self._lines
            self._lines += 1
            if self._file is not None:
                line = {"case": case.name, "proc": name, **_members(event)}
                line["ms"] = round((event.at - record[0][1].at) * 1e3, 3)
                if crash is not None:
                    line["crash"] = crash
                self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return places

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _only_waits(case: Case) -> bool:
    """Return whether a case waits for intervals of 10 s or more, and needs hardly any CPU time."""
    knobs = [step[knob] for step in case.steps for knob in ("poll", "beat") if knob in step]
    return any(knob is None or knob >= _LONG_S for knob in knobs)


def _taken(share: Sequence[queue.SimpleQueue[Case]]) -> Iterator[Case]:
    """Take the cases of one queue after another, until all are empty."""
    for cases in share:
        with suppress(queue.Empty):
            while True:
                yield cases.get_nowait()


def _span(case: Case) -> float:
    """Return the part of a run, from its start, within which a case is to begin."""
    if case.crash is not None:
        return 0.0
    waits = any(step.get("within", 0.0) >= _LONG_S for step in case.steps)
    return 0.7 if waits or sum("start" in step for step in case.steps) >= _MANY else 1.0


class _Run:
    def __init__(
        self,
        outcome: Outcome,
        cases: Sequence[Case],
        deviations: Sequence[Deviation],
        watcher: Watcher,
        patience: float,
        trace: _Trace,
        repeat: int,
        in_a_row: bool,
    ) -> None:
        self._outcome = outcome
        self._deviations = deviations
        self._watcher = watcher
        self._patience = patience
        self._trace = trace
        self._repeat = repeat
        self._traffic = Traffic(outcome.config)
        self._lock = threading.Lock()
        self._row: list[str] = []  # names of the last cases, if the adapter ended all of them
        self.finished: list[Case] = []
        self._cases: queue.SimpleQueue[Case] = queue.SimpleQueue()
        self._paced: queue.SimpleQueue[Case] = queue.SimpleQueue()
        self._waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
        order = sorted(cases, key=lambda case: case.name)
        draw = random.Random(outcome.seed)
        draw.shuffle(order)
        if not in_a_row:
            # Slow cases come early, so that no sandbox runs them alone at the end; they are mixed
            # with others, because they wait most of the time.
            places = {case.name: draw.random() * _span(case) for case in order}
            order.sort(key=lambda case: places[case.name])
        for case in order:
            if in_a_row:
                self._cases.put(case)
            elif _only_waits(case):
                self._waiting.put(case)
            else:
                (self._cases if case.pace is None else self._paced).put(case)
        self._shares: queue.SimpleQueue[Sequence[queue.SimpleQueue[Case]]] = queue.SimpleQueue()

    def share_out(self, sandboxes: int) -> int:
        """Share the cases out to sandboxes; return the number of these.

        Cases that wait for a pace of the worker have as many sandboxes of their own as the others,
        and each that only waits has one. If they took the place of others, the processors would be
        idle meanwhile.
        """
        for _ in range(self._waiting.qsize()):
            self._shares.put((self._waiting,))
        for mine, others in ((self._paced, self._cases), (self._cases, self._paced)):
            for _ in range(min(sandboxes, mine.qsize())):
                self._shares.put((mine, others))
        if self._shares.empty():
            self._shares.put(())
        return self._shares.qsize()

    def judge_traffic(self) -> None:
        """Add the verdicts on the traffic of all cases."""
        verdicts = self._scored(self._traffic.verdicts(self._deviations))
        self._outcome.verdicts += verdicts
        self._watcher.finished(self._traffic.case(), verdicts, 0.0)

    def sandbox(
        self,
        reaper: Reaper,
        servers: Callable[[], tuple[Database, Database]],
        rewrites: Sequence[Rule],
        pause: Callable[[], float] | None,
    ) -> None:
        """Run the cases of a share until none is left, or an error ends the run."""
        share = self._shares.get_nowait()
        try:
            with Sandbox(reaper, self._outcome.config, servers, rewrites, pause) as sandbox:
                self._outcome.server = sandbox.server()
                for case in _taken(share):
                    if self._outcome.stopped:
                        break
                    self._one(sandbox, case)
                unknown = not (self._outcome.version or self._outcome.errors)
                if unknown and self._outcome.config.driver is not None:
                    # No case needed the driver, so a fault of it is not one of this run.
                    with suppress(AdapterFault):
                        sandbox.driver.hello()
                    self._outcome.version = sandbox.version
                with self._lock:
                    self._outcome.answer_times += sandbox.history.taken
        except ConformError as error:
            with self._lock:
                self._outcome.errors.append(error)
        except Exception:  # noqa: BLE001  an exception that ends a thread would be lost
            with self._lock:
                self._outcome.errors.append(
                    SuiteFault(f"defect of the suite; please report it:\n{traceback.format_exc()}")
                )

    def _one(self, sandbox: Sandbox, case: Case) -> None:
        began = time.monotonic()
        waits = lambda event: self._tell(case, event)  # noqa: E731
        runs: list[list[CheckResult]] = []
        fault: AdapterFault | None = None
        try:
            for _ in range(self._repeat):
                sandbox.reset()
                runs.append(self._play(sandbox, case, waits))
        except AdapterFault as error:
            if self._outcome.stopped:
                raise  # the end of the run has killed the processes
            fault = AdapterFault(error.problem, case.name)
            runs.append(self._ended(sandbox, case, fault))
        except ConformError as error:
            raise type(error)(f"in case {case.name}: {error}") from None
        config, deviations = self._outcome.config, self._deviations
        verdicts = self._scored(
            judge(case, runs[0], config.claims, config.generation, deviations, again=runs[1:])
        )
        with self._lock:
            self._outcome.version = self._outcome.version or sandbox.version
            self._outcome.verdicts += verdicts
            self.finished.append(case)
            self._watcher.finished(case, verdicts, time.monotonic() - began)
            self._count(fault)
        if fault is not None:
            sandbox.renew()

    def _ended(self, sandbox: Sandbox, case: Case, fault: AdapterFault) -> list[CheckResult]:
        """Return the results of a case that an adapter fault ended: all its checks are blocked."""
        with self._lock:
            # The commands may belong to a rerun, and must not be mixed with those of the first run.
            rerun = None if case.crash is None else "ended by the adapter"
            places = self._trace.add(case, sandbox.record(), rerun).values()
        lines = [min(places), max(places)] if places else []
        return [
            CheckResult(requirement, False, blocked_by=fault.short, trace=[*lines], by="adapter")
            for requirement in case.requirements
        ]

    def _count(self, fault: AdapterFault | None) -> None:
        """Count consecutive cases that an adapter fault ended; after too many, end the run."""
        if fault is None:
            self._row.clear()
            return
        assert fault.case is not None
        self._outcome.errors.append(fault)
        self._row.append(fault.case)
        left = sum(cases.qsize() for cases in (self._cases, self._paced, self._waiting))
        if len(self._row) == _FAULTS_IN_A_ROW and left:
            self._outcome.errors.append(
                AdapterFault(
                    f"adapter faults ended {len(self._row)} consecutive cases: "
                    f"{', '.join(self._row)}; {left} cases were not run.\n  Remedy: "
                    "run `jobwire conform doctor`, which examines the adapter alone."
                )
            )

    def _play(self, sandbox: Sandbox, case: Case, waits: Any) -> list[CheckResult]:
        findings = self._within_a_day(sandbox, case, waits)
        with self._lock:
            record = sandbox.record()
            places = self._trace.add(case, record)
            calls = [(name, event) for name, event in record if not isinstance(event, Note)]
            _place(self._traffic.look(case, calls, findings), record, places)
        _place(findings, record, places)
        if case.crash is not None and all(finding.ok for finding in findings):
            sandbox.reset()

            def keep(where: str, failed: Sequence[CheckResult]) -> tuple[int, int] | None:
                record = sandbox.record()
                with self._lock:
                    places = self._trace.add(case, record, where)
                if not places:
                    return None
                lines = min(places.values()), max(places.values())
                _place(failed, record, places)
                for finding in failed:
                    finding.trace[:] = lines
                return lines

            cut_off, losses = crash.run(
                sandbox, case, patience=self._patience, waits=waits, keep=keep
            )
            findings += cut_off
            with self._lock:
                self._outcome.losses += losses
        elif case.crash is not None:
            failed = next(finding for finding in findings if not finding.ok)
            findings += [
                CheckResult(requirement, False, blocked_by=f"{case.name}#{failed.requirement}")
                for requirement in case.crash["check"]
            ]
        return findings

    def _within_a_day(self, sandbox: Sandbox, case: Case, waits: Any) -> list[CheckResult]:
        """Run a case; again if it failed and midnight UTC has passed, as its counts are by day."""
        while True:
            play = Play(sandbox, case, patience=self._patience, waits=waits)
            findings = play.run()
            if all(finding.ok for finding in findings) or date_in_utc() == play.date:
                return findings
            sandbox.reset()

    def _scored(self, verdicts: list[CaseVerdict]) -> list[CaseVerdict]:
        """Mark the verdicts of checks that are newer than the frozen set; they do not count."""
        frozen = self._outcome.frozen
        for verdict in verdicts:
            if frozen is not None and not frozen.has(verdict):
                verdict.status = "added-after"
        return verdicts

    def _tell(self, case: Case, event: str) -> None:
        with self._lock:
            self._watcher.waiting(case, event)


def _place(
    findings: Sequence[CheckResult], record: Sequence[Line], places: Mapping[int, int]
) -> None:
    """Add the place in the trace, and the text of the evidence."""
    for finding in findings:
        known = [line for line in finding.lines if id(line[1]) in places]
        if known:
            numbers = [places[id(event)] for _, event in known]
            finding.trace[:] = [min(numbers), max(numbers)]
            finding.evidence[:] = [describe(line, record[0][1].at) for line in known]


def _members(event: Call | Note) -> dict[str, Any]:
    """Return the members of an event for the trace."""
    if isinstance(event, Note):
        answer = None if event.answer is None else event.answer.decode("utf-8", "backslashreplace")
        return {"kind": event.kind, "text": event.text, "answer": answer}
    return {**json.loads(event.as_json()), "sent": event.sent is not None}


def _left_out(outcome: Outcome, ran: Sequence[Case]) -> set[str]:
    """Return the ids of deviations with checks that did not run.

    These are the requirements with checks in other cases of the claims. If there are such cases,
    the requirements on the traffic of all cases also belong to them.
    """
    names = {case.name for case in ran}
    config = outcome.config
    others = [case for case in outcome.cases if case.name not in names]
    not_run = chosen(others, [*config.claims, *config.unasked], config.generation)
    claims = [*config.claims, *config.unasked]
    ids = {id_ for case in not_run for id_ in case.checks_for(claims, config.generation)}
    if not_run:
        ids.update(traffic.REQUIREMENTS)
        ids.update(f"{traffic.NAME}#{requirement}" for requirement in traffic.REQUIREMENTS)
    return ids


def run(
    config: Config,
    cases: Sequence[Case],
    deviations: Sequence[Deviation],
    *,
    watcher: Watcher,
    sandboxes: int = 1,
    patience: float = 20.0,
    program: str | None = None,
    redis: ExternalServer | None = None,
    rewrites: Sequence[Rule] = (),
    trace: Path | None = None,
    again: str = "",
    variant: str = "",
    seed: int = 0,
    repeat: int = 1,
    frozen: Frozen | None = None,
    pause: Callable[[], float] | None = None,
) -> Outcome:
    """Run cases and return the outcome.

    Args:
        config: Settings of the implementation.
        cases: The cases to run.
        deviations: Deviations that the implementation declares.
        watcher: Receives the progress.
        sandboxes: Number of cases at a time. If it is more than one, as many cases that wait for a
            pace of the worker run beside them, and all that only wait for long intervals.
        patience: Longest wait for an expected event, in seconds.
        program: Program of the servers; None for the first one on PATH.
        redis: A running server to use instead, for a single sandbox.
        rewrites: Mistakes that every process makes.
        trace: Path for all commands; None to write none.
        again: The command that runs one case again, without the name of the case.
        variant: Name of the setup, if the implementation has several.
        seed: Seed of the order of the cases.
        repeat: Number of runs of each case.
        frozen: The checks that count; None for all.
        pause: Returns the seconds for which to hold back a reply of Redis; None to pass all at
            once. Correct implementations pass all checks in both cases.
    """
    cases = offered(cases, config)
    outcome = Outcome(config, offered(every_case(), config), again, variant, seed, frozen)
    outcome.unexplained = [deviation for deviation in deviations if deviation.unexplained]
    outcome.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    began = time.monotonic()
    lines = _Trace(trace)
    work = _Run(
        outcome, cases, deviations, watcher, patience, lines, repeat, in_a_row=sandboxes == 1
    )
    try:
        server = None if redis else server_program(program)
        with Reaper() as reaper:

            def servers() -> tuple[Database, Database]:
                if redis is not None:
                    return borrow(reaper, redis)
                assert server is not None
                return LocalServer(reaper, server), LocalServer(reaper, server)

            one = lambda: work.sandbox(reaper, servers, rewrites, pause)  # noqa: E731
            side_by_side(reaper, work.share_out(sandboxes), one, outcome.errors)
    except ConformError as error:
        outcome.errors.append(error)
    finally:
        lines.close()
    work.judge_traffic()
    outcome.verdicts.sort(key=lambda verdict: (verdict.case, verdict.claim))
    outcome.losses.sort(key=lambda loss: loss.case)
    outcome.stale = stale(deviations, outcome.verdicts, _left_out(outcome, work.finished))
    outcome.seconds = time.monotonic() - began
    wrong = bool(outcome.stale or outcome.unexplained)
    statuses = [status(outcome.verdicts, stale_or_unknown=wrong)]
    statuses += [error.status for error in outcome.errors]
    outcome.status = min(statuses, key=lambda status_: _WORST[status_])
    return outcome
