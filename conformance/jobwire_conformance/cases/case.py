"""Cases: reading, checking and choosing them."""

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
    """One case: the content of one file."""

    name: str
    title: str
    profiles: tuple[str, ...]
    pace: str | None
    generations: tuple[str, ...]
    needs: Sequence[str]
    seed: Sequence[Mapping[str, Any]]
    steps: Sequence[Mapping[str, Any]]
    crash: Mapping[str, Any] | None

    @property
    def requirements(self) -> list[str]:
        """The requirements that the case checks, in order."""
        ids = [step["check"] for step in self.steps if "check" in step]
        if self.crash is not None:
            ids += self.crash["check"]
        return list(dict.fromkeys(ids))

    @property
    def rebuilds(self) -> bool:
        """True if it changes the server itself, so that it needs a server of the suite."""
        return any(_REBUILDS & step.keys() for step in self.steps)

    @property
    def namespace(self) -> str:
        """The namespace that it gives its processes; empty if it gives none."""
        return next((str(s["namespace"]) for s in self.steps if "namespace" in s), "")

    def counts_for(self, requirement: str) -> list[str]:
        """Return the claims that a check of this requirement counts for."""
        rule = data.requirements()[requirement]
        return [rule.claim(profile) for profile in self.profiles if profile in rule.profiles]

    def checks_for(self, claims: Collection[str], generation: str) -> list[str]:
        """Return the requirements that it checks for any of these claims and this generation."""
        if generation not in self.generations:
            return []
        return [
            id_
            for id_ in self.requirements
            if generation in data.requirements()[id_].generations
            and not set(claims).isdisjoint(self.counts_for(id_))
        ]


def load(directory: Path | None = None, names: Collection[str] = ()) -> list[Case]:
    """Return the cases of a directory, or only those whose names match one of `names`.

    Raises:
        SuiteFault: A case is wrong.
    """
    loaded = [load_file(path) for path in data.named_files(directory or data.cases_directory())]
    if not names:
        return loaded
    return [c for c in loaded if any(fnmatch.fnmatchcase(c.name, name) for name in names)]


def load_file(path: Path) -> Case:
    """Return one case.

    Raises:
        SuiteFault: The case is wrong.
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
        profiles=tuple(raw["claims"]),
        pace=raw.get("pace"),
        generations=tuple(raw.get("generations", data.GENERATIONS)),
        needs=raw.get("needs", ()),
        seed=raw.get("seed", ()),
        steps=raw["steps"],
        crash=raw.get("crash"),
    )
    for problem in _faults(case, path):
        raise SuiteFault(f"{path}: {problem}")
    return case


def _deepest(problem: Any) -> str:
    """Return the fault in the alternative that comes nearest to being valid."""
    while problem.context:
        problem = max(problem.context, key=lambda cause: len(cause.absolute_path))
    return str(problem.message)[:300]


def _faults(case: Case, path: Path) -> Iterator[str]:
    if path.stem != case.name:
        yield f"a case named {case.name!r} must be in {case.name}.json"
    if not case.requirements:
        yield "the case has no check"
    known = data.requirements()
    for requirement in case.requirements:
        if requirement not in known or known[requirement].retired:
            yield f"SPEC.md has no requirement {requirement}, or it is withdrawn"
        elif not case.counts_for(requirement):
            claims = ", ".join(known[requirement].profiles)
            yield f"{requirement} belongs to {claims}; the case has none of these profiles"
        elif set(case.generations).isdisjoint(known[requirement].generations):
            generations = ", ".join(known[requirement].generations)
            yield f"{requirement} belongs to {generations}; the case runs for none of these"
