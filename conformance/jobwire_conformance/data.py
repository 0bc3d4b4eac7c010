"""Where the suite's files are, and what the requirements say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from jobwire_conformance.errors import SuiteFault

__all__ = [
    "CLAIMS",
    "OFFERS",
    "Requirement",
    "cases_directory",
    "mutants_directory",
    "named_files",
    "requirements",
    "schema",
    "sets_directory",
]

_PACKAGE = Path(__file__).resolve().parent

CLAIMS = (
    *("client/core", "client/bulk", "client/scheduled", "client/faults"),
    *("worker/core", "worker/retry", "worker/monitoring", "worker/signals", "worker/iteration"),
    *("worker/metrics", "worker/reliable", "scheduler/core", "scheduler/reliable"),
    *("inspector/read", "inspector/write"),
)

OFFERS = ("auto", "cancel", "delays", "endings", "hooks", "middleware", "natives", "precise")
"""What an implementation may have or not, without any claim being about it."""


def _shared(name: str) -> Path:
    """Return a file of the specification: beside the suite in a checkout, in a wheel in jobwire."""
    packed = _PACKAGE.parent / "jobwire" / "_data" / name
    return packed if packed.exists() else _PACKAGE.parents[1] / name


def _own(name: str) -> Path:
    packed = _PACKAGE / "_data" / name
    return packed if packed.exists() else _PACKAGE.parent / name


def cases_directory() -> Path:
    """Return where the cases are."""
    return _own("cases")


def mutants_directory() -> Path:
    """Return where the mutants are."""
    return _own("mutants")


def sets_directory() -> Path:
    """Return where the frozen sets of checks are."""
    return _own("sets")


def named_files(directory: Path) -> list[Path]:
    """Return the JSON files in all folders of a directory, by name. The folders are areas.

    Raises:
        SuiteFault: Two files have the same name, which is the identity of a case or mutant.
    """
    paths = sorted(directory.rglob("*.json"), key=lambda path: path.name)
    for former, path in pairwise(paths):
        if former.name == path.name:
            raise SuiteFault(f"{former} and {path} have the same name; rename the newer one")
    return paths


@cache
def schema(name: str) -> dict[str, Any]:
    """Return one of the schemas, like `case`."""
    found: dict[str, Any] = _load(_shared("schema") / f"{name}.json")
    return found


@cache
def scripts() -> Mapping[str, bytes]:
    """Return the name of each script of the specification and its text."""
    return {path.stem: path.read_bytes() for path in sorted(_shared("lua").glob("*.lua"))}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One block of SPEC.md."""

    id: str
    claims: tuple[str, ...]
    keyword: str
    since: str
    retired: bool
    test: str
    text: str

    @property
    def obliges(self) -> bool:
        """Whether a claim is not met without it."""
        return self.keyword in ("MUST", "MUST NOT")

    @property
    def visible(self) -> bool:
        """Whether it can be seen from outside at all."""
        return not self.test.startswith("none")


@cache
def _requirements_file() -> dict[str, Any]:
    found: dict[str, Any] = _load(_shared("schema") / "requirements.json")
    return found


def specification() -> str:
    """Return SPEC.md."""
    return _shared("SPEC.md").read_text("utf-8")


def spec_version() -> str:
    """Return the version of SPEC.md."""
    return str(_requirements_file()["version"])


@cache
def requirements() -> Mapping[str, Requirement]:
    """Return id to requirement, in the order of SPEC.md."""
    return requirements_of(_requirements_file())


def requirements_of(file: Mapping[str, Any]) -> Mapping[str, Requirement]:
    """Return id to requirement, of what requirements.json holds."""
    return {
        each["id"]: Requirement(
            id=each["id"],
            claims=tuple(each["claims"]),
            keyword=each["keyword"],
            since=each["since"],
            retired=bool(each["retired"]),
            test=each["test"],
            text=_one_line_each(each["text"].replace("**", "")),
        )
        for each in file["requirements"]
    }


def _one_line_each(text: str) -> str:
    """Return a text with a line for each paragraph or item, however SPEC.md breaks them."""
    return re.sub(r"\n(?!- |\|)", " ", text)


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SuiteFault(f"the suite is not whole: {path}: {error}") from None
