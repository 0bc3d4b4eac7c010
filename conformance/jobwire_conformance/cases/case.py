"""Cases: read, checked, chosen."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from jobwire_conformance import data
from jobwire_conformance.errors import SuiteFault

__all__ = ["Case", "load", "load_file"]

_REBUILDS = frozenset(["cluster", "monitor", "user"])


@dataclass(frozen=True, slots=True)
class Case:
    """One file."""

    name: str
    title: str
    claims: tuple[str, ...]
    pace: str | None
    generation: int | None
    needs: Sequence[str]
    seed: Sequence[Mapping[str, Any]]
    steps: Sequence[Mapping[str, Any]]
    crash: Mapping[str, Any] | None

    @property
    def requirements(self) -> list[str]:
        """The requirements that it checks, in order."""
        found = [step["check"] for step in self.steps if "check" in step]
        if self.crash is not None:
            found += self.crash["check"]
        return list(dict.fromkeys(found))

    @property
    def rebuilds(self) -> bool:
        """Whether it changes the server itself, which only one of the suite's own may suffer."""
        return any(_REBUILDS & step.keys() for step in self.steps)

    def counts_for(self, requirement: str) -> list[str]:
        """Return the claims that a check of this requirement counts for."""
        of = data.requirements()[requirement].claims
        return [claim for claim in self.claims if claim in of]


def load(directory: Path | None = None, names: Collection[str] = ()) -> list[Case]:
    """Return the cases of a directory; only those with these names or patterns, if any.

    Raises:
        SuiteFault: A case is wrong.
    """
    found = [load_file(path) for path in data.named_files(directory or data.cases_directory())]
    if not names:
        return found
    return [c for c in found if any(fnmatch.fnmatchcase(c.name, name) for name in names)]


def load_file(path: Path) -> Case:
    """Return one case.

    Raises:
        SuiteFault: It is wrong.
    """
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SuiteFault(f"{path}: {error}") from None
    for problem in Draft202012Validator(data.schema("case")).iter_errors(raw):
        place = "/".join(map(str, problem.absolute_path))
        raise SuiteFault(f"{path}: {place}: {_deepest(problem)}")
    case = Case(
        name=raw["case"],
        title=raw["title"],
        claims=tuple(raw["claims"]),
        pace=raw.get("pace"),
        generation=raw.get("generation"),
        needs=raw.get("needs", ()),
        seed=raw.get("seed", ()),
        steps=raw["steps"],
        crash=raw.get("crash"),
    )
    for problem in _faults(case, path):
        raise SuiteFault(f"{path}: {problem}")
    return case


def _deepest(problem: Any) -> str:
    """Return what is wrong in the alternative that came nearest."""
    while problem.context:
        problem = max(problem.context, key=lambda each: len(each.absolute_path))
    return str(problem.message)[:300]


def _faults(case: Case, path: Path) -> Iterator[str]:
    if path.stem != case.name:
        yield f"the file of {case.name!r} has to be named {case.name}.json"
    if not case.requirements:
        yield "it checks nothing"
    known = data.requirements()
    for requirement in case.requirements:
        if requirement not in known or known[requirement].retired:
            yield f"{requirement} is no requirement of SPEC.md, or was withdrawn"
        elif not case.counts_for(requirement):
            claims = ", ".join(known[requirement].claims)
            yield f"{requirement} belongs to {claims}, and none of them is a claim of the case"
