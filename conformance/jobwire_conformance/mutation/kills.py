"""Which mutants the checks find: each is run, and the table of what killed it is made.

A mutant is killed for a requirement if a check of that requirement fails. A check that is blocked
by a step before it has said nothing, and kills nobody; neither does one that fails without the
mutant, too.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NotRequired, TypedDict

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.cases.obligations import visible
from jobwire_conformance.config import Config, Generation
from jobwire_conformance.mutation.mutants import Mutant
from jobwire_conformance.run import run
from jobwire_conformance.run.verdicts import CaseVerdict

__all__ = ["Fate", "Kill", "Table", "Tally", "kill", "obligations", "try_one"]

Fate = Literal["killed", "survived", "untouched", "unclaimed"]
"""Killed: a check of the requirement failed. Survived: none did. Untouched: nothing passed that the
mistake could be made in. Unclaimed: the implementation claims or offers nothing that it is about.
"""

_FAILED = frozenset(["fail", "warn", "info", "flaky"])


class Kill(TypedDict):
    """What became of a mutant, for one of the requirements that it breaks."""

    mutant: str
    requirement: str
    fate: Fate
    by: list[str]
    said: NotRequired[str]


class About(TypedDict):
    """Whose mistakes they were."""

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
class Tally:
    """How it stands about an obligation: which mutants break it, and which of them live."""

    id: str
    killed: Sequence[str]
    alive: Sequence[str]


Held = Callable[[Case, str], bool]
"""Whether a check of a requirement passes without a mutant."""

_WHOLE = 20.0  # seconds of patience with which the times in cases are as they are written


class _Silent:
    def waiting(self, case: Case, what: str) -> None:
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
) -> tuple[list[Kill], run.Outcome | None]:
    """Return what became of one mutant, and the run that says so.

    Args:
        config: Of the implementation.
        mutant: Its mistake.
        cases: All that the suite has.
        patience: Seconds until something that has to happen must have.
        program: Of the servers.
        everything: Run every case that checks one of its requirements, not only those that it
            names.
        held: What passes without it.
    """
    settings = mutant.on(config)
    chosen = _chosen(settings, mutant, cases, everything)
    if not chosen:
        return [_kill(mutant, id_, "unclaimed") for id_ in mutant.kills], None
    outcome = run.run(
        settings,
        chosen,
        (),
        watcher=_Silent(),
        patience=_patience(chosen, patience),
        program=program,
        rewrites=mutant.rules,
    )
    names = {case.name: case for case in chosen}
    found = []
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
        said = "; ".join(str(error).partition("\n")[0] for error in outcome.errors)
        if not by and not said:
            blocked = {v.finding.blocked_by for v in about if v.finding.blocked_by is not None}
            said = "; ".join(f"blocked: {each}" for each in sorted(blocked))
        fate: Fate = "killed" if by else "untouched" if mutant.untouched else "survived"
        if not by and not about and not said:
            fate, said = "unclaimed", ""
        found.append(_kill(mutant, id_, fate, by, "" if by else said))
    return found, outcome


def _chosen(
    settings: Config, mutant: Mutant, cases: Sequence[Case], everything: bool
) -> list[Case]:
    meant = [
        case
        for case in cases
        if case.name in mutant.cases or (everything and set(mutant.kills) & set(case.requirements))
    ]
    return run.chosen(run.offered(meant, settings), settings.claims, settings.generation)


def _patience(cases: Sequence[Case], usual: float) -> float:
    """Return the patience for these cases: where they wait for something, all that they say."""
    return max(usual, _WHOLE) if any(case.pace for case in cases) else usual


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
    """Run the cases of these mutants without them; return what passes."""
    groups: dict[tuple[Generation, float], dict[str, Case]] = {}
    for generation in dict.fromkeys(each.generation or config.generation for each in mutants):
        settings = replace(config, generation=generation)
        for mutant in mutants:
            if (mutant.generation or config.generation) == generation:
                for case in _chosen(settings, mutant, cases, everything):
                    # Beside a case that waits, others wait as well.
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


def _kill(mutant: Mutant, id_: str, fate: Fate, by: Sequence[str] = (), said: str = "") -> Kill:
    found: Kill = {"mutant": mutant.name, "requirement": id_, "fate": fate, "by": [*by]}
    if said:
        found["said"] = said
    return found


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
    tell: Callable[[Sequence[Kill], float], None] = lambda *_: None,
) -> Table:
    """Run all these mutants; return the table.

    Args:
        config: Of the implementation.
        mutants: Its mistakes.
        cases: All that the suite has.
        patience: Seconds until something that has to happen must have.
        program: Of the servers.
        sandboxes: How many mutants at a time.
        everything: As of `try_one`.
        controlled: Run the cases without a mutant first, to believe only what passes then.
        tell: Told what became of each, and the seconds that it took; one at a time.

    Raises:
        ConformError: Something is in the way of all.
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
    found: dict[str, list[Kill]] = {}
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
                )
            except BaseException as error:  # noqa: BLE001  nobody else would hear of it
                broken.append(error)
                return
            with lock:
                found[mutant.name] = kills
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
        "mutants": [each for mutant in mutants for each in found[mutant.name]],
    }


def obligations(kills: Sequence[Kill]) -> Mapping[str, Tally]:
    """Return how it stands about each obligation that can be seen."""
    found = {}
    for requirement in visible():
        about = [each for each in kills if each["requirement"] == requirement.id]
        found[requirement.id] = Tally(
            requirement.id,
            [each["mutant"] for each in about if each["fate"] == "killed"],
            [each["mutant"] for each in about if each["fate"] != "killed"],
        )
    return found
