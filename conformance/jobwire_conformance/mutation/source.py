"""Mutants of an implementation's source: patches, or mistakes that its own switch turns on.

A mutant of the traffic cannot take away a random draw, race with another process or break one
branch; a mutant of the source can. Each implementation has its lists in
`conformance/source-mutants/NAME`, one file for each family of requirements.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from jobwire_conformance import data
from jobwire_conformance.config import Config
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.mutation.kills import Table
from jobwire_conformance.mutation.mutants import Mutant

__all__ = [
    "MISTAKE",
    "Edit",
    "Patch",
    "SourceMutant",
    "Sources",
    "edits_of",
    "load",
    "load_file",
    "patched",
]

MISTAKE = "JOBWIRE_MISTAKE"
"""The variable that turns on a mistake in an implementation that has it built in."""

_COPIED = ("python/jobwire", "lua")
_LINKED = ("SPEC.md", "schema", "fixtures", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Edit:
    """One place of a patch: `old`, which occurs exactly once in `file`, becomes `new`."""

    file: str
    old: str
    new: str


Patch = Sequence[Edit]


@dataclass(frozen=True, slots=True)
class SourceMutant:
    """One mistake in the source.

    Attributes:
        mutant: Its name, the broken requirements and the cases, as for a mutant of the traffic.
        clause: The words of the requirement that it breaks.
        operator: The kind of mistake.
        patch: The changes; empty if the implementation has the mistake built in.
        reason: Why no check can find it; empty for one that must be found.
    """

    mutant: Mutant
    clause: str
    operator: str
    patch: Patch = ()
    reason: str = ""


class Sources:
    """The mutants of one implementation's source.

    Args:
        config: Settings of the implementation.
        mutants: Its mutants.
    """

    def __init__(self, config: Config, mutants: Sequence[SourceMutant]) -> None:
        self._config = config
        self._by_name = {each.mutant.name: each for each in mutants}

    @classmethod
    def of(cls, config: Config) -> Sources:
        """Return the mutants that the checkout has for an implementation."""
        return cls(config, load(config.name))

    @property
    def mutants(self) -> list[Mutant]:
        """The mutants as those of the traffic, without their patches."""
        return [each.mutant for each in self._by_name.values()]

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[Mutant]:
        """Yield a mutant with variables that make the implementation run with its patch."""
        patch = self._by_name[mutant.name].patch
        if not patch:
            yield mutant
            return
        with patched(patch, self._config) as variables:
            yield replace(mutant, environment={**mutant.environment, **variables})

    def describe(self, table: Table) -> None:
        """Add clause, operator, and the reason for a survivor to the rows of a table."""
        for row in table["mutants"]:
            each = self._by_name[row["mutant"]]
            row["clause"], row["operator"] = each.clause, each.operator
            if each.reason and row["fate"] != "killed":
                row["said"] = each.reason


def load(implementation: str) -> list[SourceMutant]:
    """Return the mutants of an implementation's source.

    Raises:
        SuiteFault: A file is wrong, or two mutants have the same name.
        Usage: The implementation has none.
    """
    directory = data.source_mutants_directory() / implementation
    mutants = [each for path in sorted(directory.glob("*.json")) for each in load_file(path)]
    if not mutants:
        raise Usage(
            f"no mutants of the source of {implementation!r} in {directory}; run this command in "
            "a checkout of jobwire, with the settings of an implementation that has some"
        )
    for name, times in Counter(each.mutant.name for each in mutants).items():
        if times > 1:
            raise SuiteFault(f"{directory}: {times} mutants are named {name!r}; rename the newer")
    return mutants


def load_file(path: Path) -> list[SourceMutant]:
    """Return the mutants of one file.

    Raises:
        SuiteFault: The file is wrong.
    """
    raw = _checked(path, "source-mutants")
    known = data.requirements()
    for each in raw["mutants"]:
        for id_ in each["kills"]:
            if id_ not in known or known[id_].retired:
                raise SuiteFault(
                    f"{path}: {each['mutant']}: SPEC.md has no requirement {id_}, or it is "
                    "withdrawn"
                )
    return [
        SourceMutant(
            Mutant(
                each["mutant"],
                tuple(each["kills"]),
                tuple(each["cases"]),
                generation=each.get("generation"),
                environment={MISTAKE: each["mistake"]} if "mistake" in each else {},
            ),
            each["clause"],
            each["operator"],
            edits_of(each.get("patch", ())),
            each.get("survives", ""),
        )
        for each in raw["mutants"]
    ]


def edits_of(raw: Sequence[Mapping[str, str]]) -> Patch:
    """Return the patch of a list of changes as data."""
    return [Edit(each["file"], each["old"], each["new"]) for each in raw]


@contextmanager
def patched(patch: Patch, config: Config) -> Iterator[Mapping[str, str]]:
    """Make a copy of the reference with a patch; yield the variables that have it used.

    Args:
        patch: The changes. Their files are relative to the top of the checkout.
        config: Settings of the implementation, somewhere in the checkout.

    Raises:
        SuiteFault: A text to replace does not occur exactly once.
        Usage: The settings are not in a checkout.
    """
    top = _checkout(config)
    with tempfile.TemporaryDirectory(prefix="jobwire-patched-") as directory:
        copy = Path(directory)
        for name in _COPIED:
            # With the compiled modules, which stay valid because the copies keep their times.
            shutil.copytree(top / name, copy / name)
        for name in _LINKED:
            (copy / name).symlink_to(top / name)
        for edit in patch:
            _apply(edit, copy)
        paths = [str(copy / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        yield {"PYTHONPATH": os.pathsep.join(paths)}


def _apply(edit: Edit, top: Path) -> None:
    path = top / edit.file
    if not edit.file.startswith(_COPIED) or not path.is_file():
        raise SuiteFault(f"a patch cannot change {edit.file}; it must be in {', '.join(_COPIED)}")
    text = path.read_text("utf-8")
    if (times := text.count(edit.old)) != 1:
        raise SuiteFault(f"{edit.file} has {times} times, not once: {edit.old!r}")
    path.write_text(text.replace(edit.old, edit.new), "utf-8")


def _checkout(config: Config) -> Path:
    for directory in config.path.resolve().parents:
        if all((directory / name).is_dir() for name in _COPIED):
            return directory
    raise Usage(f"{config.path} is not in a checkout of jobwire, so there is no source to patch")


def _checked(path: Path, schema: str) -> dict[str, Any]:
    """Return the content of a file that fits a schema."""
    try:
        raw: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SuiteFault(f"{path}: {error}") from None
    for problem in Draft202012Validator(data.schema(schema)).iter_errors(raw):
        place = "/".join(map(str, problem.absolute_path))
        raise SuiteFault(f"{path}: {place}: {problem.message[:300]}")
    return raw
