"""The files of the suite, and the list of requirements."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jobwire_conformance.errors import SuiteFault

__all__ = [
    "CLAIMS",
    "DEFAULT_GENERATION",
    "GENERATIONS",
    "OFFERS",
    "ROBUST",
    "Requirement",
    "cases",
    "cases_directory",
    "checked",
    "checkout",
    "claims_of",
    "complete",
    "level_of",
    "mutants_directory",
    "record",
    "reference_directory",
    "required_claims",
    "requirements",
    "schema",
    "scripts",
    "sets_directory",
    "shared_file",
    "source_mutants_directory",
    "spec_version",
    "variants_directory",
]

_PACKAGE = Path(__file__).resolve().parent

ROBUST = "+robust"
"""The suffix of a claim that also asks for the robust requirements of its profile."""

_PROFILES = (
    *("client/core", "client/bulk", "client/scheduled", "client/faults"),
    *("worker/core", "worker/retry", "worker/monitoring", "worker/signals", "worker/iteration"),
    *("worker/metrics", "worker/reliable", "scheduler/core", "scheduler/reliable"),
    *("inspector/read", "inspector/write"),
    *("scheduler/periodic", "inspector/periodic"),  # of annexes, as the next lines
    *("worker/results", "client/cancelling", "worker/cancelling"),
    *("client/time", "worker/time"),
    *("client/unique", "worker/unique"),
    *("client/flow", "worker/flow"),
    *("client/limits", "worker/limits"),
    *("client/batch", "worker/batch"),
    "worker/activejob",
    *("worker/compression", "worker/parking", "worker/classes"),
    *("client/progress", "worker/progress"),
    *("worker/uniquejobs", "inspector/uniquejobs", "worker/trace"),
    *("worker/gitlab", "client/status", "worker/status"),
    "worker/output",
)
_ROBUST_THROUGHOUT = frozenset(
    [
        *("worker/reliable", "scheduler/reliable"),
        *("worker/results", "client/cancelling", "worker/cancelling"),
        *("client/time", "worker/time"),
        *("client/unique", "worker/unique"),
        *("client/flow", "worker/flow"),
        *("client/limits", "worker/limits"),
        *("client/batch", "worker/batch"),
        "worker/activejob",
        *("worker/compression", "worker/parking", "worker/classes"),
        *("client/progress", "worker/progress"),
        *("worker/uniquejobs", "inspector/uniquejobs", "worker/trace"),
        *("worker/gitlab", "client/status", "worker/status"),
        "worker/output",
    ]
)

CLAIMS = tuple(
    claim
    for profile in _PROFILES
    for claim in (profile, f"{profile}{ROBUST}")
    if claim == profile or profile not in _ROBUST_THROUGHOUT
)
"""Every claim: a profile for its interop requirements, and with the suffix for its robust ones."""

GENERATIONS = ("6.4", "7.3", "8.1")
DEFAULT_GENERATION = "8.1"

OFFERS = (
    *("auto", "cancel", "capsules", "delays", "endings", "fleet", "halves", "hooks", "messages"),
    *("metrics", "middleware", "namespace", "natives", "precise", "sweeps", "unknowns"),
)
"""Features that are optional for an implementation and belong to no claim."""


def _packed(name: str, place: Path) -> Path:
    """Return the path of a file of the installed wheel, or its place in a checkout."""
    packed = _PACKAGE / "_data"
    return (packed if packed.is_dir() else place) / name


def _own(name: str) -> Path:
    return _packed(name, _PACKAGE.parent)


def checkout() -> Path | None:
    """Return the top directory of the checkout; None if this code runs from a wheel."""
    return None if (_PACKAGE / "_data").is_dir() else _PACKAGE.parents[1]


def shared_file(name: str) -> Path:
    """Return the path of a file of the specification, such as `SPEC.md`."""
    return _packed(name, _PACKAGE.parents[1])


def cases_directory() -> Path:
    """Return the directory of the cases."""
    return _own("cases")


def mutants_directory() -> Path:
    """Return the directory of the mutants."""
    return _own("mutants")


def source_mutants_directory() -> Path:
    """Return the directory of the mutants of sources, which only a checkout has."""
    return _PACKAGE.parent / "source-mutants"


def variants_directory() -> Path:
    """Return the directory of the lawful variants of the reference, which only a checkout has."""
    return _PACKAGE.parent / "variants"


def reference_directory() -> Path:
    """Return the directory of the settings of the reference, which only a checkout has."""
    return _PACKAGE.parent / "drivers" / "python"


def sets_directory() -> Path:
    """Return the directory of the frozen sets of checks."""
    return _own("sets")


def cases(directory: Path) -> dict[str, tuple[Path, Mapping[str, Any]]]:
    """Return the cases of a directory by name, each with its file. The folders are areas.

    Raises:
        SuiteFault: A file is not an array of cases, or two cases have the same name.
    """
    found: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for path in sorted(directory.rglob("*.json")):
        several = _load(path)
        if not isinstance(several, list) or not all("case" in raw for raw in several):
            raise SuiteFault(f"{path}: not an array of cases")
        for raw in several:
            if (former := found.setdefault(raw["case"], (path, raw)))[1] is not raw:
                places = f"{former[0]} and {path}"
                raise SuiteFault(f"{places}: two cases {raw['case']}; rename the newer one")
    return dict(sorted(found.items()))


def checked(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of the checks of a case, as its file has it."""
    yield from (step["check"] for step in case["steps"] if "check" in step)
    yield from case.get("crash", {}).get("check", ())


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema of this name, like `case`."""
    content: dict[str, Any] = _load(shared_file("schema") / f"{name}.json")
    return content


@cache
def required_claims(claim: str) -> Sequence[str]:
    """Return the claims that a claim is made together with, by the table of SPEC.md."""
    profile, suffix = claim.removesuffix(ROBUST), ROBUST if claim.endswith(ROBUST) else ""
    named = next(row["requires"] for row in _profiles() if row["profile"] == profile)
    required = [name if name.endswith(ROBUST) else f"{name}{suffix}" for name in named]
    return [profile, *required] if suffix else required


@cache
def claims_of(generation: str) -> frozenset[str]:
    """Return the claims that can be made for a generation.

    Those are the claims that a requirement of the generation names first. A claim that it names
    later may be one of another generation, such as `worker/iteration` of KEY-1.
    """
    return frozenset(
        requirement.claims[0]
        for requirement in requirements().values()
        if generation in requirement.generations and not requirement.retired
    )


def complete(claims: Iterable[str]) -> list[str]:
    """Return these claims with all that they require, in the order of SPEC.md."""
    named = set(claims)
    while missing := {part for claim in named for part in required_claims(claim)} - named:
        named |= missing
    return [claim for claim in CLAIMS if claim in named]


def level_of(claim: str) -> str:
    """Return the level of the requirements of a claim."""
    is_robust = claim.endswith(ROBUST) or claim in _ROBUST_THROUGHOUT
    return "robust" if is_robust else "interop"


def _profiles() -> Sequence[Mapping[str, Any]]:
    file = _requirements_file()
    return [row for part in (file, *file["annexes"]) for row in part["profiles"]]


@cache
def scripts() -> Mapping[str, bytes]:
    """Return the Lua scripts of the specification: name to text."""
    return {path.stem: path.read_bytes() for path in sorted(shared_file("lua").glob("*.lua"))}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of SPEC.md, or of an annex.

    Attributes:
        profiles: Role and profile, without the level.
        generations: The generations of the protocol that it belongs to.
        why: The reason; None if it needs none.
        seen_in: The behaviour of known programs.
        example: An example for redis-cli.
    """

    id: str
    profiles: tuple[str, ...]
    level: str
    generations: tuple[str, ...]
    keyword: str
    since: str
    retired: bool
    test: str
    text: str
    why: str | None
    seen_in: str | None
    example: str | None

    @property
    def claims(self) -> tuple[str, ...]:
        """The claims that ask for it, each with its level."""
        return tuple(self.claim(profile) for profile in self.profiles)

    def claim(self, profile: str) -> str:
        """Return the claim that asks for it in one of its profiles."""
        is_bare = self.level == "interop" or profile in _ROBUST_THROUGHOUT
        return profile if is_bare else f"{profile}{ROBUST}"

    @property
    def obliges(self) -> bool:
        """True if a claim cannot be met without it."""
        return self.keyword in ("MUST", "MUST NOT")

    @property
    def visible(self) -> bool:
        """True if it can be observed from outside the implementation."""
        return not self.test.startswith("none")


@cache
def _requirements_file() -> dict[str, Any]:
    return record(shared_file(""))


def record(root: Path) -> dict[str, Any]:
    """Return the content of requirements.json: of the file in a wheel, or made from the text."""
    file = root / "schema" / "requirements.json"
    if file.is_file():
        content: dict[str, Any] = _load(file)
        return content
    from jobwire_conformance.spec.record import of_checkout

    try:
        return of_checkout(root)
    except (OSError, ValueError) as error:
        raise SuiteFault(f"cannot make {file}: {error}") from None


def spec_version() -> str:
    """Return the version of the specification."""
    return str(_requirements_file()["version"])


@cache
def requirements() -> Mapping[str, Requirement]:
    """Return the requirements by id, in the order of SPEC.md, then those of annexes."""
    return requirements_of(_requirements_file())


def requirements_of(file: Mapping[str, Any]) -> Mapping[str, Requirement]:
    """Return the requirements by id, from the content of requirements.json.

    Those of an annex are there if the suite has cases for its claims.
    """
    return {
        entry["id"]: Requirement(
            id=entry["id"],
            profiles=tuple(name for name in entry["claims"] if name in _PROFILES),
            level=entry["level"],
            generations=tuple(entry["generations"]),
            keyword=entry["keyword"],
            since=entry["since"],
            retired=bool(entry["retired"]),
            test=_test(entry["test"]),
            text=_one_line_each(entry["text"].replace("**", "")),
            why=_one_line(entry.get("why")),
            seen_in=_one_line(entry.get("seen_in")),
            example=_example(entry.get("examples", ())),
        )
        for part in (file, *file.get("annexes", ()))
        for entry in part["requirements"]
        if not set(entry["claims"]).isdisjoint(_PROFILES)
    }


def _one_line(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())


def _example(examples: Sequence[Mapping[str, str]]) -> str | None:
    texts = (each["text"].rstrip() for each in examples if each["language"] == "redis-cli")
    return next(texts, None)


def _test(test: Mapping[str, Any]) -> str:
    reason = test["reason"]
    return f"{test['kind']} ({reason})" if reason else str(test["kind"])


def _one_line_each(text: str) -> str:
    """Return a text with one line for each paragraph or list item."""
    return re.sub(r"\n(?!- |\|)", " ", text)


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SuiteFault(f"cannot read a file of the suite: {path}: {error}") from None
