"""The matrix: a table of requirements by implementation, from any number of results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
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
from jobwire_conformance.run.verdicts import FAILURES

__all__ = ["SYMBOLS", "Column", "Group", "Mark", "Matrix", "Note", "find", "required"]

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
    "other-generation": ("-", "belongs to another generation"),
    "added-after": ("+", "checked by a check that does not count yet for that version"),
}
"""The sign of each status, and its meaning."""


# The first of these is the status of a requirement that several claims ask for. A claim that did
# not check the requirement says nothing if another claim did.
_WORST = (
    *("fail", "blocked", "flaky", "deviation", "stale", "warn", "info", "added-after", "pass"),
    *("missing", "not-claimed", "other-generation", "unclaimed"),
)


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
    def name(self) -> str:
        """Name of the implementation."""
        return self.results["implementation"]["name"]

    @property
    def version(self) -> str:
        """Version of the implementation, with its setup."""
        about = self.results["implementation"]
        return " ".join(filter(None, [about["version"], about.get("variant", "")]))

    @property
    def language(self) -> str:
        """Language of the implementation."""
        return self.results["implementation"].get("language", "")

    @property
    def address(self) -> str:
        """The place where the implementation lives: its page, or otherwise its source."""
        about = self.results["implementation"]
        return about.get("home") or about.get("source", "")

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

    def makes(self, claim: str) -> bool:
        """Return whether the implementation makes a claim."""
        return claim in self._states

    def claim(self, claim: str) -> Mark:
        """Return the mark of a claim: `met` only if all checkable obligations were checked."""
        return self._marks.get(claim, "unclaimed")

    @cached_property
    def _marks(self) -> Mapping[str, Mark]:
        def mark(claim: str, state: State) -> Mark:
            if state != "met":
                return state
            is_complete = self.current and required(claim, self.generation) <= self.ids(claim)
            return "met" if is_complete else "as-far"

        return {claim: mark(claim, state) for claim, state in self._states.items()}

    def cell(self, claim: str, requirement: str) -> tuple[str, Note | None]:
        """Return the status of a requirement, and the note with the reason."""
        if claim not in self._states:
            return "unclaimed", None
        check = worst(self._checks.get((claim, requirement), ()))
        if check is None:
            known = data.requirements().get(requirement)
            is_other = known is not None and self.generation not in known.generations
            return "other-generation" if is_other else "missing", None
        return check["status"], self.notes.get((requirement, check["status"]))

    def cells(self, requirement: str) -> Mapping[str, tuple[str, Note | None]]:
        """Return the cell of a requirement for each claim that asks for it, the worst one first."""
        known = data.requirements().get(requirement)
        asking = known.claims if known else ()
        cells = {
            claim: self.cell(claim, requirement)
            for claim in CLAIMS
            if claim in self._states
            if claim in asking or (claim, requirement) in self._checks
        }
        return dict(sorted(cells.items(), key=lambda item: _WORST.index(item[1][0])))

    def failing(self, claim: str) -> Mapping[str, Sequence[Check]]:
        """Return the checks that keep a claim from being met, by requirement."""
        return self._failing.get(claim, {})

    @cached_property
    def _failing(self) -> Mapping[str, Mapping[str, Sequence[Check]]]:
        failing: dict[str, dict[str, list[Check]]] = {}
        for check in in_order(self.results["checks"]):
            if check["status"] in FAILURES or check["status"] == "deviation":
                of_claim = failing.setdefault(check["claim"], {})
                of_claim.setdefault(check["requirement"], []).append(check)
        return failing


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
class Group:
    """One implementation in all its versions, generations and setups."""

    name: str
    columns: Sequence[Column]

    def label(self, column: Column) -> str:
        """Return what tells a column from the others: its setup and version."""
        return f"{column.name[len(self.name) + 1 :]} {column.version}".strip()


@dataclass(frozen=True)
class Matrix:
    """All columns and their common rows."""

    columns: Sequence[Column]

    @cached_property
    def groups(self) -> Sequence[Group]:
        """The columns by implementation. `jobwire-basic` is a setup of `jobwire`."""
        of_name: dict[str, list[Column]] = {}
        for column in self.columns:
            of_name.setdefault(_family(column, self.columns), []).append(column)
        return [Group(name, columns) for name, columns in of_name.items()]

    @cached_property
    def anchors(self) -> Sequence[str]:
        """The name of each column in addresses, like `sidekiq` or `sidekiq@7.3`."""
        anchors: list[str] = []
        for column in self.columns:
            name = _in_address(f"{column.name}")
            longer = f"{name}@{_in_address(column.generation)}"
            longest = f"{longer}@{_in_address(column.version)}"
            numbered = (f"{longest}@{number}" for number in range(2, len(self.columns) + 2))
            names = chain([name, longer, longest], numbered)
            anchors.append(next(each for each in names if each not in anchors))
        return anchors

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
    columns = [Column(results) for _, results in latest.values()]
    return Matrix(sorted(columns, key=lambda column: _order(column, columns))), remarks


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir() and not (path / "results.json").exists():
            yield from sorted(path.rglob("*.json"))
        else:
            yield path


def _age(results: Summary) -> str:
    return results["started"]


def _order(column: Column, columns: Sequence[Column]) -> tuple[object, ...]:
    """Order the reference first, then Sidekiq, the projects with an address, and all others."""
    family = _family(column, columns)
    first = ("jobwire", "sidekiq")
    rank = first.index(family) if family in first else 2 if column.address else 3
    newest_first = -data.GENERATIONS.index(column.generation)
    return rank, family.lower(), column.name.lower(), newest_first, column.version


def _family(column: Column, columns: Iterable[Column]) -> str:
    """Return the name of the implementation that a column shows.

    A name that begins with another name and a hyphen is a setup of the other one, if both have the
    same language and live at the same place.
    """
    own = column.name, column.language, column.address
    names = {c.name for c in columns if (c.language, c.address) == own[1:]}
    return min((name for name in names if f"{own[0]}-".startswith(f"{name}-")), key=len)


def _in_address(text: str) -> str:
    """Return a name for addresses: no character in it needs an escape."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text)[:80].strip("-") or "unnamed"
