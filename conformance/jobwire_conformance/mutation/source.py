"""Mutants of an implementation's source: patches, or mistakes that its own switch turns on.

A mutant of the traffic cannot take away a random draw, race with another process or break one
branch; a mutant of the source can. Those of an implementation are in
`conformance/source-mutants/NAME.json`.
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
from jobwire_conformance.mutation.syntax import replaced

__all__ = [
    *("MISTAKE", "Patch", "SourceMutant", "Sources", "SyntaxEdit", "TextEdit"),
    *("edits_of", "load", "load_file", "patched"),
]

MISTAKE = "JOBWIRE_MISTAKE"
"""The variable that turns on a mistake in an implementation that has it built in."""

_COPIED = ("python/jobwire", "lua")
_LINKED = ("SPEC.md", "spec", "schema", "fixtures", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class TextEdit:
    """One place of a patch of a script: `old`, which occurs exactly once, becomes `new`."""

    file: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        """Return the text of the file with the change."""
        if (times := text.count(self.old)) != 1:
            raise SuiteFault(f"has {times} times, not once: {self.old!r}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class SyntaxEdit:
    """One place of a patch of Python: see `syntax.place`."""

    file: str
    function: str
    find: str
    put: str

    def apply(self, text: str) -> str:
        """Return the text of the file with the change."""
        return replaced(text, self.function, self.find, self.put)


Patch = Sequence[TextEdit | SyntaxEdit]


@dataclass(frozen=True, slots=True)
class SourceMutant:
    """One mistake in the source.

    Attributes:
        mutant: Its name, the broken requirements and the cases, as for a mutant of the traffic.
        clause: The words of the requirement that it breaks.
        patch: The changes; empty if the implementation has the mistake built in.
    """

    mutant: Mutant
    clause: str
    patch: Patch = ()


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
        """Add the clause to the rows of a table."""
        for row in table["mutants"]:
            row["clause"] = self._by_name[row["mutant"]].clause


def load(implementation: str) -> list[SourceMutant]:
    """Return the mutants of an implementation's source.

    Raises:
        SuiteFault: The file is wrong.
        Usage: The implementation has none.
    """
    path = data.source_mutants_directory() / f"{implementation}.json"
    if not path.exists():
        raise Usage(
            f"no mutants of the source of {implementation!r} in {path.parent}; run this command in "
            "a checkout of jobwire, with the settings of an implementation that has some"
        )
    return load_file(path)


def load_file(path: Path) -> list[SourceMutant]:
    """Return the mutants of one file.

    Raises:
        SuiteFault: The file is wrong, or two mutants have the same name.
    """
    raw = _checked(path, "source-mutants")
    known = data.requirements()
    for name, times in Counter(each["mutant"] for each in raw["mutants"]).items():
        if times > 1:
            raise SuiteFault(f"{path}: {times} mutants are named {name!r}; rename the newer")
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
            edits_of(each.get("patch", ())),
        )
        for each in raw["mutants"]
    ]


def edits_of(raw: Sequence[Mapping[str, str]]) -> Patch:
    """Return the patch of a list of changes as data."""
    return [
        SyntaxEdit(each["file"], each.get("in", ""), each["find"], each["put"])
        if "find" in each
        else TextEdit(each["file"], each["old"], each["new"])
        for each in raw
    ]


@contextmanager
def patched(patch: Patch, config: Config) -> Iterator[Mapping[str, str]]:
    """Make a copy of the reference with a patch; yield the variables that have it used.

    Args:
        patch: The changes. Their files are relative to the top of the checkout.
        config: Settings of the implementation, somewhere in the checkout.

    Raises:
        SuiteFault: A change does not have exactly one place.
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


def _apply(edit: TextEdit | SyntaxEdit, top: Path) -> None:
    path = top / edit.file
    if not edit.file.startswith(_COPIED) or not path.is_file():
        raise SuiteFault(f"a patch cannot change {edit.file}; it must be in {', '.join(_COPIED)}")
    try:
        path.write_text(edit.apply(path.read_text("utf-8")), "utf-8")
    except SuiteFault as fault:
        raise SuiteFault(f"{edit.file} {fault}") from None


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
