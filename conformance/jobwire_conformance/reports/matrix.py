"""The matrix: a table of requirements by implementation, from any number of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from jobwire_conformance import data
from jobwire_conformance.data import CLAIMS
from jobwire_conformance.errors import Usage
from jobwire_conformance.reports.claim_status import State, called, held, in_order, states, worst
from jobwire_conformance.reports.results import Check, Summary
from jobwire_conformance.reports.summary import load, why
from jobwire_conformance.run import sets
from jobwire_conformance.run.run import every_case

__all__ = ["SYMBOLS", "Column", "Matrix", "Note", "find", "required"]

Mark = Literal["met", "as-far", "failed", "deviation", "alone", "part", "none", "unclaimed"]

SYMBOLS: Mapping[str, tuple[str, str]] = {
    "pass": ("✓", "holds"),
    "met": ("✓", "met: every obligation that the suite can check ran and holds"),
    "as-far": ("(✓)", "met in a run with another specification or fewer checks"),
    "fail": ("✗", "does not hold"),
    "failed": ("✗", "not met"),
    "blocked": ("✗", "could not be tried, because an earlier step failed"),
    "flaky": ("✗", "holds in some runs only"),
    "deviation": ("≠", "does not hold, and the implementation gives a reason"),
    "stale": ("✓!", "holds, though it is declared as a deviation"),
    "warn": ("!", "a recommendation that is not followed"),
    "info": ("i", "a permission that is not used"),
    "alone": ("(≠)", "holds by itself; a claim that it requires is not met"),
    "part": ("?", "not all of it was checked"),
    "missing": ("?", "not checked"),
    "none": ("?", "not checked"),
    "unclaimed": ("·", "not claimed"),
    "not-claimed": ("·", "not claimed"),
    "added-after": ("+", "checked by a check that does not count yet for that version"),
}
"""The sign of each status, and its meaning."""


@dataclass(frozen=True, slots=True)
class Note:
    """The reason of a cell that is not green.

    Attributes:
        number: Number in the list of its column, from 1.
        check: The check that decides.
        why: Text of the reason.
    """

    number: int
    check: Check
    why: str


@dataclass(frozen=True)
class Column:
    """One implementation, with the results of one file."""

    results: Summary

    @property
    def title(self) -> str:
        """Name of the column in tables."""
        name = called(self.results)
        # The default generation is not named.
        is_default = self.generation == data.DEFAULT_GENERATION
        return name if is_default else f"{name}, generation {self.generation}"

    @property
    def generation(self) -> str:
        """Generation of its claims."""
        return self.results.get("generation", data.DEFAULT_GENERATION)

    @property
    def day(self) -> str:
        """Day of the run."""
        return self.results["started"][:10]

    @property
    def current(self) -> bool:
        """True if the run used the specification of this suite."""
        return self.results["spec"] == data.spec_version()

    @cached_property
    def _checks(self) -> Mapping[tuple[str, str], Sequence[Check]]:
        by_cell: dict[tuple[str, str], list[Check]] = {}
        for check in self.results["checks"]:
            by_cell.setdefault((check["claim"], check["requirement"]), []).append(check)
        return by_cell

    @cached_property
    def _states(self) -> Mapping[str, State]:
        return states(self.results)

    @cached_property
    def notes(self) -> Mapping[tuple[str, str], Note]:
        """Requirement and status to its note, in the order of the specification."""
        first: dict[tuple[str, str], Check] = {}
        for check in in_order(self.results["checks"]):
            if not held(check):
                first.setdefault((check["requirement"], check["status"]), check)
        order = {id_: number for number, id_ in enumerate(data.requirements())}
        keys = sorted(first, key=lambda key: (order.get(key[0], len(order)), key))
        return {
            key: Note(number, first[key], why(first[key])) for number, key in enumerate(keys, 1)
        }

    def ids(self, claim: str) -> set[str]:
        """Return the requirements that were checked for a claim."""
        return {requirement for of, requirement in self._checks if of == claim}

    def claim(self, claim: str) -> Mark:
        """Return the mark of a claim: `met` only if all checkable obligations were checked."""
        if claim not in self._states:
            return "unclaimed"
        state = self._states[claim]
        if state != "met":
            return state
        is_complete = self.current and required(claim, self.generation) <= self.ids(claim)
        return "met" if is_complete else "as-far"

    def cell(self, claim: str, requirement: str) -> tuple[str, Note | None]:
        """Return the status of a requirement, and the note with the reason."""
        if claim not in self._states:
            return "unclaimed", None
        check = worst(self._checks.get((claim, requirement), ()))
        if check is None:
            return "missing", None
        return check["status"], self.notes.get((requirement, check["status"]))


def required(claim: str, generation: str) -> set[str]:
    """Return the obligations that must be checked before a claim counts as met.

    They are the frozen set of the version, without the cases that need an optional offer.
    """
    cases = {
        case.name: case
        for case in every_case()
        if generation in case.generations and not case.needs
    }
    checks = (check.partition("#") for check in sets.load(data.spec_version()).claims[claim])
    return {
        requirement
        for case, _, requirement in checks
        if case in cases
        and data.requirements()[requirement].obliges
        and generation in data.requirements()[requirement].generations
    }


@dataclass(frozen=True)
class Matrix:
    """All columns and their common rows."""

    columns: Sequence[Column]

    @property
    def claims(self) -> list[str]:
        """The claims of all columns."""
        made = {claim for column in self.columns for claim in column.results["claims"]}
        return [claim for claim in CLAIMS if claim in made]

    def requirements(self, claim: str) -> list[str]:
        """Return the requirements checked for a claim in any column, in the order of SPEC.md."""
        checked = {id_ for column in self.columns for id_ in column.ids(claim)}
        order = {id_: number for number, id_ in enumerate(data.requirements())}
        return sorted(checked, key=lambda id_: (order.get(id_, len(order)), id_))

    def unchecked(self, claim: str) -> list[str]:
        """Return the obligations of a claim that were checked in no column."""
        checked = set(self.requirements(claim))
        return [
            rule.id
            for rule in data.requirements().values()
            if claim in rule.claims and rule.obliges and rule.visible and not rule.retired
            if rule.id not in checked
        ]


def find(paths: Iterable[Path]) -> tuple[Matrix, list[str]]:
    """Return the matrix of these files, and remarks about them.

    A directory stands for its results.json, or otherwise for all `.json` files below it. If there
    are several runs of a version, the latest one counts.

    Raises:
        Usage: A file holds no results, or no file is found.
    """
    latest: dict[tuple[str, ...], tuple[Path, Summary]] = {}
    remarks = []
    for path in _files(paths):
        results = load(path)
        if claims := results.get("unknown"):
            remarks.append(
                f"{path}: the checks of {', '.join(claims)} have changed since this run, so those "
                "that passed are not known; check again"
            )
        about = results["implementation"]
        key = (
            *(about["name"].lower(), about["version"], about.get("variant", "")),
            results.get("generation", data.DEFAULT_GENERATION),
        )
        if key in latest:
            older, newer = sorted([latest[key], (path, results)], key=lambda run: _age(run[1]))
            remarks.append(f"{older[0]} is left out: {newer[0]} is a later run of the same version")
            latest[key] = newer
        else:
            latest[key] = path, results
    if not latest:
        raise Usage("no file with results; name such files, or a directory that holds them")
    columns = [Column(latest[key][1]) for key in sorted(latest, key=_order)]
    return Matrix(columns), remarks


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir() and not (path / "results.json").exists():
            yield from sorted(path.rglob("*.json"))
        else:
            yield path


def _age(results: Summary) -> str:
    return results["started"]


def _order(key: tuple[str, ...]) -> tuple[object, ...]:
    # The variants of the reference come first, then Sidekiq, then all others by name.
    name = key[0].partition("-")[0]
    first = ("jobwire", "sidekiq")
    *about, generation = key
    newest_first = -data.GENERATIONS.index(generation)
    return (first.index(name) if name in first else len(first), *about, newest_first)
