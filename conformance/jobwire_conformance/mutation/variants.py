"""Lawful variants: changes of the reference that break no requirement, so all checks must pass.

A check that fails asks for more than the specification does. The files are in
`conformance/variants`.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from jobwire_conformance import config, data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.config import Config
from jobwire_conformance.errors import ConformError, SuiteFault, Usage
from jobwire_conformance.mutation.mutants import Mutant
from jobwire_conformance.mutation.source import Patch, edits_of, patched
from jobwire_conformance.run import run
from jobwire_conformance.run.run import Watcher
from jobwire_conformance.run.verdicts import FAILURES

__all__ = ["Trial", "Variant", "cases_of", "load", "rounds", "trial"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One lawful variant.

    Attributes:
        name: Its name.
        title: The behaviour, in one sentence.
        lawful: Requirements that leave it to the implementation.
        aspect: The part of the behaviour that it changes.
        settings: The file with the settings of the reference.
        claims: Profiles whose cases are run.
        cases: Patterns of other cases to run. Without both, all are run.
        without: Patterns of cases to leave out, because the variant makes no difference to them.
        excepted: Robust requirements that it does not meet.
        patch: The changes of the source.
    """

    name: str
    title: str
    lawful: Sequence[str]
    aspect: str
    settings: str
    claims: Sequence[str]
    cases: Sequence[str]
    without: Sequence[str]
    excepted: Sequence[str]
    patch: Patch


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of variants that ran together.

    Attributes:
        variants: Their names.
        cases: Number of cases.
        passed: Number of checks that passed.
        failures: The checks that failed, each with its message.
        errors: Errors that ended a case or the run.
        seconds: Duration.
    """

    variants: Sequence[str]
    cases: int
    passed: int
    failures: Sequence[tuple[str, str]]
    errors: Sequence[ConformError]
    seconds: float

    @property
    def ok(self) -> bool:
        """True if every check passed."""
        return not self.failures and not self.errors


def load(names: Sequence[str] = ()) -> list[Variant]:
    """Return the variants whose names match one of the patterns, or all, by name.

    Raises:
        SuiteFault: A variant is wrong, or two have the same name.
        Usage: There is none of these names.
    """
    directory = data.variants_directory()
    every = sorted(
        (variant for path in directory.glob("*.json") for variant in _load(path)),
        key=lambda variant: variant.name,
    )
    for former, variant in pairwise(every):
        if former.name == variant.name:
            raise SuiteFault(f"two variants have the name {variant.name}; rename the newer one")
    chosen = [v for v in every if not names or any(fnmatch.fnmatchcase(v.name, n) for n in names)]
    if not chosen:
        raise Usage(f"no variant {', '.join(names)} in {directory}, which is part of a checkout")
    return chosen


def _load(path: Path) -> list[Variant]:
    try:
        several: list[dict[str, Any]] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SuiteFault(f"{path}: {error}") from None
    return [_variant(raw, f"{path}: {raw.get('variant')}") for raw in several]


def _variant(raw: dict[str, Any], source: str) -> Variant:
    for problem in Draft202012Validator(data.schema("variant")).iter_errors(raw):
        place = "/".join(map(str, problem.absolute_path))
        raise SuiteFault(f"{source}: {place}: {problem.message[:300]}")
    for id_ in (*raw["lawful"], *raw.get("except", ())):
        if id_ not in data.requirements():
            raise SuiteFault(f"{source}: SPEC.md has no requirement {id_}")
    return Variant(
        name=raw["variant"],
        title=raw["title"],
        lawful=raw["lawful"],
        aspect=raw["aspect"],
        settings=raw.get("settings", "conformance.toml"),
        claims=raw.get("claims", ()),
        cases=raw.get("cases", ()),
        without=raw.get("without", ()),
        excepted=raw.get("except", ()),
        patch=edits_of(raw["patch"]),
    )


def rounds(variants: Sequence[Variant], cases: Sequence[Case]) -> list[list[Variant]]:
    """Return the variants in rounds of different aspects.

    Variants with many cases come first: then the first round runs most of the cases, and each
    further round few.

    Args:
        variants: The variants.
        cases: All cases.
    """
    size = {variant.name: len(cases_of([variant], cases)) for variant in variants}
    by_settings: dict[str, list[list[Variant]]] = {}
    for variant in sorted(variants, key=lambda variant: -size[variant.name]):
        groups = by_settings.setdefault(variant.settings, [])
        free = (g for g in groups if all(other.aspect != variant.aspect for other in g))
        group = next(free, None)
        if group is None:
            groups.append([variant])
        else:
            group.append(variant)
    return [group for groups in by_settings.values() for group in groups]


def cases_of(variants: Sequence[Variant], cases: Sequence[Case]) -> list[Case]:
    """Return the cases that at least one of the variants concerns, and that can still fail."""
    settings = config.load(data.reference_directory() / variants[0].settings)
    offered = run.offered(cases, settings)
    chosen = {name for variant in variants for name in _concerned(variant, settings, offered)}
    excepted = {id_ for variant in variants for id_ in variant.excepted}
    return [
        case
        for case in offered
        if case.name in chosen and not excepted.issuperset(case.requirements)
    ]


def _concerned(variant: Variant, settings: Config, offered: Sequence[Case]) -> Iterator[str]:
    """Yield the names of the cases that a variant concerns."""
    everything = not variant.claims and not variant.cases
    claims = [
        claim
        for claim in settings.claims
        if everything or claim.removesuffix(data.ROBUST) in variant.claims
    ]
    named = [case for case in offered if _is_among(case, variant.cases)]
    for case in (
        *run.chosen(offered, claims, settings.generation),
        *run.chosen(named, settings.claims, settings.generation),
    ):
        if not _is_among(case, variant.without):
            yield case.name


def _is_among(case: Case, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)


def trial(
    variants: Sequence[Variant],
    cases: Sequence[Case],
    *,
    watcher: Watcher,
    sandboxes: int = 1,
    patience: float = 20.0,
    program: str | None = None,
    seed: int = 0,
) -> Trial:
    """Run the reference with the patches of these variants, which must fit together.

    Args:
        variants: The variants, all with the same settings.
        cases: The cases to run.
        watcher: Receives the progress.
        sandboxes: Number of cases at a time.
        patience: Longest wait for an expected event, in seconds.
        program: Program of the servers.
        seed: Seed of the order of the cases.

    Raises:
        SuiteFault: A patch does not fit.
    """
    began = time.monotonic()
    settings = config.load(data.reference_directory() / variants[0].settings)
    patch = [edit for variant in variants for edit in variant.patch]
    with _this_python(), patched(patch, settings) as variables:
        changed = Mutant("variant", (), (), environment=variables).on(settings)
        outcome = run.run(
            changed,
            cases,
            (),
            watcher=watcher,
            sandboxes=sandboxes,
            patience=patience,
            program=program,
            seed=seed,
        )
    excepted = {id_ for variant in variants for id_ in variant.excepted}
    failures = {
        f"{verdict.case}#{verdict.requirement}": str(
            verdict.finding.message or verdict.finding.blocked_by
        )
        for verdict in outcome.verdicts
        if verdict.status in FAILURES and verdict.requirement not in excepted
    }
    return Trial(
        [variant.name for variant in variants],
        len(cases),
        sum(verdict.status == "pass" for verdict in outcome.verdicts),
        sorted(failures.items()),
        outcome.errors,
        time.monotonic() - began,
    )


@contextmanager
def _this_python() -> Iterator[None]:
    """Let `python3` in the settings of the reference be the one that runs the suite."""
    before = os.environ["PATH"]
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before
