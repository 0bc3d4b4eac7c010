"""Facts about each requirement, collected for the site: from the record, the suite and the reports.

The text, level and citations come from the specification and the checkout, the cases and mutants
from the suite, the verdicts from `conformance/reports`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jobwire_conformance import data
from jobwire_conformance.mutation import mutants
from jobwire_conformance.mutation.mutants import Mutant
from jobwire_conformance.reports import matrix
from jobwire_conformance.reports.lossmap import WINDOWS, rows
from jobwire_conformance.reports.matrix import Column, Matrix
from jobwire_conformance.run import traffic
from jobwire_conformance.run.run import every_case
from jobwire_conformance.spec import checks, citations, document, record
from jobwire_conformance.spec.document import Requirement, Section
from tools.markdown import ROOT

# The worst status of a requirement in an implementation decides over its row in the matrix.
# A claim that did not check the requirement says nothing if another claim did.
_WORST = (
    *("fail", "blocked", "flaky", "deviation", "stale", "warn", "info", "added-after", "pass"),
    *("missing", "not-claimed"),
)


def part_place(file: str) -> str:
    """Return the place on the site of a part of the specification."""
    return "specification/index.md" if file == "SPEC.md" else f"specification/{Path(file).name}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one implementation for one requirement."""

    column: Column
    status: str
    why: str


class Facts:
    """All that the site says about requirements.

    Attributes:
        document: The specification as data.
        checks: Id to the cases that check it.
        record: The content of requirements.json.
        citations: The citations of each id, by kind.
        matrix: The results of all implementations.
    """

    def __init__(self) -> None:
        self.document = document.read_checkout(ROOT)
        self.checks = checks.cases(ROOT)
        self.record = record.of_checkout(ROOT, self.checks)
        self._entries = {entry["id"]: entry for entry in self.record["requirements"]}
        self.citations = citations.cited(ROOT)
        self.matrix: Matrix = matrix.find([ROOT / "conformance" / "reports"])[0]

    @property
    def version(self) -> str:
        """Version of the specification, such as 1.0-draft.1."""
        return self.document.version or "0.0"

    @property
    def release(self) -> str:
        """Major and minor version, which stand in addresses: 1.0."""
        return ".".join(self.version.partition("-")[0].split(".")[:2])

    @property
    def requirements(self) -> Sequence[Requirement]:
        """All requirements, in the order of the specification."""
        return self.document.requirements

    def section(self, requirement: Requirement) -> Section:
        """Return the section that holds a requirement."""
        return next(each for each in self.document.sections if each.number == requirement.section)

    @cached_property
    def homes(self) -> Mapping[str, str]:
        """The place on the site of the page with the block of each requirement."""
        files = ((each.id, self.document.file(each.line)) for each in self.requirements)
        return {name: part_place(file) for name, file in files}

    def deviations(self, requirement: Requirement) -> list[str]:
        """Return the versions of Sidekiq that do not meet a requirement."""
        found: list[str] = self._entries[requirement.id]["deviations"]
        return found

    @cached_property
    def _mutants(self) -> Sequence[Mutant]:
        return mutants.load()

    @cached_property
    def places(self) -> Mapping[str, str]:
        """The file of each case and mutant in the checkout: `case NAME` or `mutant NAME`."""
        suite = ROOT / "conformance"
        cases = data.cases(suite / "cases")
        found = {f"case {name}": path for name, (path, _) in cases.items()}
        for path in (suite / "mutants").glob("*.json"):
            found |= {f"mutant {raw['mutant']}": path for raw in json.loads(path.read_bytes())}
        return {name: path.relative_to(ROOT).as_posix() for name, path in found.items()}

    def cases(self, requirement: Requirement) -> list[tuple[str, str]]:
        """Return name and title of the cases that check a requirement."""
        return [
            (case.name, case.title) for case in every_case() if requirement.id in case.requirements
        ]

    def is_judged_in_traffic(self, requirement: Requirement) -> bool:
        """Return whether the judge of the traffic of all cases looks at a requirement."""
        return requirement.id in traffic.REQUIREMENTS

    def mutants(self, requirement: Requirement) -> list[str]:
        """Return the names of the mutants that the checks of a requirement must find."""
        return [mutant.name for mutant in self._mutants if requirement.id in mutant.kills]

    def verdicts(self, requirement: Requirement) -> list[Verdict]:
        """Return the result of each implementation that makes a claim with this requirement."""
        return [
            verdict
            for column in self.matrix.columns
            if (verdict := self.verdict(column, requirement)) is not None
        ]

    def verdict(self, column: Column, requirement: Requirement) -> Verdict | None:
        """Return the result of one implementation; None if it makes no claim with it."""
        if column.generation not in requirement.generations:
            return None
        claims = data.requirements()[requirement.id].claims
        cells = [
            column.cell(claim, requirement.id)
            for claim in claims
            if claim in column.results["claims"]
        ]
        if not cells:
            return None
        status, note = min(cells, key=lambda cell: _WORST.index(cell[0]))
        return Verdict(column, status, note.why if note else "")

    def windows(self, requirement: Requirement) -> list[str]:
        """Return the loss windows that a requirement is about, by its text or by its checks."""
        text = " ".join([requirement.text, requirement.why or "", requirement.seen or ""])
        named = set(re.findall(r"\bLW-\d\b", text))
        for case in every_case():
            if case.crash and requirement.id in case.crash["check"]:
                named.add(str(case.crash["window"]))
        return sorted(named & WINDOWS.keys())

    @property
    def mapped_windows(self) -> set[str]:
        """The loss windows of which at least one implementation has a map."""
        return {row.window for column in self.matrix.columns for row in rows(column.results)}
