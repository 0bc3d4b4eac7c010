"""The table of kills: runs of all mutants, and the checks that find each of them.

A mutant is killed for a requirement if a check of that requirement fails. A check that is blocked
by an earlier step does not count, nor does a check that also fails without the mutant.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, NotRequired, TypedDict

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.cases.obligations import visible
from jobwire_conformance.config import Config, Generation
from jobwire_conformance.mutation.mutants import Mutant
from jobwire_conformance.run import run
from jobwire_conformance.run.verdicts import CaseVerdict

__all__ = [
    *("Fate", "Kill", "ObligationKills", "Plant", "Table"),
    *("kill", "merged", "obligations", "try_one"),
]

Fate = Literal["killed", "survived", "untouched", "unclaimed"]
"""The fate of a mutant.

- `killed`: a check of the requirement failed
- `survived`: no check of the requirement failed
- `untouched`: no command or answer gave occasion for the mistake
- `unclaimed`: no claim and no offer of the implementation concerns the mistake
"""

_FAILED = frozenset(["fail", "warn", "info", "flaky"])


class Kill(TypedDict):
    """A row of the table: the fate of a mutant, for one of the requirements that it breaks."""

    mutant: str
    requirement: str
    fate: Fate
    by: list[str]
    said: NotRequired[str]
    clause: NotRequired[str]
    day: NotRequired[str]


class About(TypedDict):
    """The implementation into which the mutants were planted."""

    name: str
    version: str


class Table(TypedDict):
    """kills.json. See schema/kills.json."""

    kills: int
    spec: str
    suite: str
    implementation: About
    server: str
    started: str
    seconds: float
    mutants: list[Kill]


@dataclass(frozen=True, slots=True)
class ObligationKills:
    """The mutants that break an obligation, killed and alive."""

    id: str
    killed: Sequence[str]
    alive: Sequence[str]


Held = Callable[[Case, str], bool]
"""Returns whether a check of a requirement passes without a mutant."""

Plant = Callable[[Mutant], AbstractContextManager[Mutant]]
"""Prepares an implementation for a mutant; gives the mutant with all that its run needs."""

_FULL_PATIENCE_S = 20.0  # the patience at which the times in cases are not shortened


class _Silent:
    def waiting(self, case: Case, event: str) -> None:
        pass

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        pass


def try_one(
    config: Config,
    mutant: Mutant,
    cases: Sequence[Case],
    *,
    patience: float,
    program: str | None = None,
    everything: bool = False,
    held: Held = lambda *_: True,
    plant: Plant = nullcontext,
) -> tuple[list[Kill], run.Outcome | None]:
    """Run one mutant; return its fates and the outcome of the run.

    Args:
        config: Settings of the implementation.
        mutant: The mutant.
        cases: All cases of the suite.
        patience: Longest wait for an expected event, in seconds.
        program: Program of the servers.
        everything: True to run every case that checks one of its requirements, not only the cases
            that the mutant names.
        held: Returns whether a check passes without the mutant.
        plant: Prepares the implementation for the mutant.
    """
    settings = mutant.on(config)
    chosen = _chosen(settings, mutant, cases, everything)
    if not chosen:
        return [_kill(mutant, id_, "unclaimed") for id_ in mutant.kills], None
    with plant(mutant) as planted:
        outcome = run.run(
            planted.on(config),
            chosen,
            (),
            watcher=_Silent(),
            patience=_patience(chosen, patience),
            program=program,
            rewrites=mutant.rules,
        )
    names = {case.name: case for case in chosen}
    rows = []
    for id_ in mutant.kills:
        about = [verdict for verdict in outcome.verdicts if verdict.requirement == id_]
        by = sorted(
            {
                verdict.case
                for verdict in about
                if verdict.status in _FAILED
                and (verdict.case not in names or held(names[verdict.case], id_))
            }
        )
        remark = "; ".join(str(error).partition("\n")[0] for error in outcome.errors)
        if not by and not remark:
            blocked = {v.finding.blocked_by for v in about if v.finding.blocked_by is not None}
            remark = "; ".join(f"blocked: {problem}" for problem in sorted(blocked))
        fate: Fate = "killed" if by else "untouched" if planted.untouched else "survived"
        if not by and not about and not remark:
            fate, remark = "unclaimed", ""
        rows.append(_kill(mutant, id_, fate, by, "" if by else remark))
    return rows, outcome


def _chosen(
    settings: Config, mutant: Mutant, cases: Sequence[Case], everything: bool
) -> list[Case]:
    any_of_it = everything or not mutant.cases
    wanted = [
        case
        for case in cases
        if case.name in mutant.cases or (any_of_it and set(mutant.kills) & set(case.requirements))
    ]
    return run.chosen(run.offered(wanted, settings), settings.claims, settings.generation)


def _patience(cases: Sequence[Case], usual: float) -> float:
    """Return the patience for these cases. Cases with a pace get the full patience."""
    return max(usual, _FULL_PATIENCE_S) if any(case.pace for case in cases) else usual


def control(
    config: Config,
    mutants: Sequence[Mutant],
    cases: Sequence[Case],
    *,
    patience: float,
    program: str | None,
    sandboxes: int,
    everything: bool,
) -> Held:
    """Run the cases of these mutants without mutants; return a test for the checks that pass."""
    groups: dict[tuple[Generation, float], dict[str, Case]] = {}
    for generation in dict.fromkeys(mutant.generation or config.generation for mutant in mutants):
        settings = replace(config, generation=generation)
        for mutant in mutants:
            if (mutant.generation or config.generation) == generation:
                for case in _chosen(settings, mutant, cases, everything):
                    # Cases with the full patience form a group of their own.
                    group = groups.setdefault((generation, _patience([case], patience)), {})
                    group[case.name] = case
    failed: set[tuple[str, str]] = set()
    for (generation, seconds), chosen in groups.items():
        outcome = run.run(
            replace(config, generation=generation),
            [*chosen.values()],
            (),
            watcher=_Silent(),
            patience=seconds,
            program=program,
            sandboxes=sandboxes,
        )
        for error in outcome.errors:
            raise error
        failed |= {(v.case, v.requirement) for v in outcome.verdicts if v.status != "pass"}
    return lambda case, id_: (case.name, id_) not in failed


def _kill(mutant: Mutant, id_: str, fate: Fate, by: Sequence[str] = (), remark: str = "") -> Kill:
    row: Kill = {"mutant": mutant.name, "requirement": id_, "fate": fate, "by": [*by]}
    if remark:
        row["said"] = remark
    return row


def kill(
    config: Config,
    mutants: Sequence[Mutant],
    cases: Sequence[Case],
    *,
    patience: float = 5.0,
    program: str | None = None,
    sandboxes: int = 1,
    everything: bool = False,
    controlled: bool = True,
    plant: Plant = nullcontext,
    tell: Callable[[Sequence[Kill], float], None] = lambda *_: None,
) -> Table:
    """Run these mutants; return the table.

    Args:
        config: Settings of the implementation.
        mutants: The mutants.
        cases: All cases of the suite.
        patience: Longest wait for an expected event, in seconds.
        program: Program of the servers.
        sandboxes: Number of mutants at a time.
        everything: See `try_one`.
        controlled: True to run the cases without mutants first, and to count only checks that pass.
        plant: See `try_one`.
        tell: Called with the rows of each mutant and the seconds of its run, one call at a time.

    Raises:
        ConformError: An error that prevents all runs.
    """
    started, began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.monotonic()
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    held: Held = lambda *_: True  # noqa: E731
    if controlled:
        held = control(
            config,
            mutants,
            cases,
            patience=patience,
            program=program,
            sandboxes=sandboxes,
            everything=everything,
        )
    rows: dict[str, list[Kill]] = {}
    broken: list[BaseException] = []
    about: About = {"name": config.name, "version": "unknown"}
    server = ["unknown"]
    lock = threading.Lock()

    def sandbox() -> None:
        while not broken:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            since = time.monotonic()
            try:
                kills, outcome = try_one(
                    config,
                    mutant,
                    cases,
                    patience=patience,
                    program=program,
                    everything=everything,
                    held=held,
                    plant=plant,
                )
            except BaseException as error:  # noqa: BLE001  an exception in a thread would be lost
                broken.append(error)
                return
            with lock:
                rows[mutant.name] = kills
                if outcome is not None:
                    about["version"] = outcome.version or about["version"]
                    server[0] = " ".join(outcome.server)
                    broken.extend(e for e in outcome.errors if e.status in (4, 5))
                tell(kills, time.monotonic() - since)

    threads = [threading.Thread(target=sandbox, daemon=True) for _ in range(sandboxes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in broken:
        raise error
    return {
        "kills": 1,
        "spec": data.spec_version(),
        "suite": run.suite_version(),
        "implementation": about,
        "server": server[0],
        "started": started,
        "seconds": round(time.monotonic() - began, 1),
        "mutants": [row for mutant in mutants for row in rows[mutant.name]],
    }


def merged(kept: Table, table: Table, names: Sequence[str]) -> Table:
    """Return a stored table with the rows of a later run of some of its mutants.

    Start and duration stay those of the stored run; a later row has its own day.

    Args:
        kept: The stored table.
        table: The later run.
        names: All mutants, in the order of the result. The rows of others are left out.
    """
    rows: dict[str, list[Kill]] = {}
    for row in kept["mutants"]:
        rows.setdefault(row["mutant"], []).append(row)
    again = {row["mutant"] for row in table["mutants"]}
    rows |= {name: [] for name in again}
    for row in table["mutants"]:
        later = table["started"][:10]
        rows[row["mutant"]].append(row if later == kept["started"][:10] else {**row, "day": later})
    return {**kept, "mutants": [row for name in names for row in rows.get(name, ())]}


def obligations(kills: Sequence[Kill]) -> Mapping[str, ObligationKills]:
    """Return the mutants of each obligation that can be observed from outside."""
    by_id = {}
    for requirement in visible():
        rows = [row for row in kills if row["requirement"] == requirement.id]
        by_id[requirement.id] = ObligationKills(
            requirement.id,
            [row["mutant"] for row in rows if row["fate"] == "killed"],
            [row["mutant"] for row in rows if row["fate"] != "killed"],
        )
    return by_id
