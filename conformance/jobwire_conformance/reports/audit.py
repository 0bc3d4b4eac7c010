"""Whether each obligation is checked, and whether the checks can be trusted.

What SPEC.md says, what cases declare, what runs have really executed and what mutants came to are
held against each other. It looks into a checkout, and takes nothing from the suite that runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from jobwire_conformance.data import Requirement, requirements_of
from jobwire_conformance.errors import Usage
from jobwire_conformance.mutation.kills import Kill, Table
from jobwire_conformance.reports.results import Summary
from jobwire_conformance.reports.summary import load as load_summary

__all__ = ["Tree", "faults", "load"]

_NOT_REACHED = frozenset(["blocked", "not-claimed"])


@dataclass(frozen=True, slots=True)
class Tree:
    """What a checkout holds.

    Attributes:
        requirements: Id to requirement.
        cases: Name of each case to the ids that its checks name.
        mutants: Name of each mutant to the ids that it breaks.
        results: Of the runs that are kept.
        kills: What mutants came to.
    """

    requirements: Mapping[str, Requirement]
    cases: Mapping[str, Sequence[str]]
    mutants: Mapping[str, Sequence[str]]
    results: Sequence[Summary]
    kills: Sequence[Kill]


def load(root: Path) -> Tree:
    """Return what the checkout at `root` holds.

    Raises:
        Usage: Something is missing there, or cannot be read.
    """
    suite = root / "conformance"
    kills: Table = cast(Table, _json(suite / "kills.json"))
    return Tree(
        requirements=requirements_of(_json(root / "schema" / "requirements.json")),
        cases={
            path.stem: [*dict.fromkeys(_checks(_json(path)))]
            for path in sorted((suite / "cases").rglob("*.json"))
        },
        mutants={
            path.stem: _json(path)["kills"] for path in sorted((suite / "mutants").rglob("*.json"))
        },
        results=[load_summary(path) for path in sorted((suite / "reports").rglob("*.json"))],
        kills=kills["mutants"],
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Usage(f"{path} is not there; --strict needs a checkout of jobwire") from None
    except (OSError, ValueError) as error:
        raise Usage(f"{path}: {error}") from None


def _checks(case: Mapping[str, Any]) -> Iterator[str]:
    yield from (step["check"] for step in case["steps"] if "check" in step)
    yield from case.get("crash", {}).get("check", ())


def faults(tree: Tree) -> list[str]:
    """Return what is wrong, in words; nothing if all obligations are checked well."""
    return [
        *_reasons(tree),
        *_names(tree),
        *_executed(tree),
        *_mutants(tree),
    ]


def _obligations(tree: Tree) -> Iterator[Requirement]:
    for each in tree.requirements.values():
        if each.obliges and each.visible and not each.retired:
            yield each


def _reasons(tree: Tree) -> Iterator[str]:
    for each in tree.requirements.values():
        if not each.visible and not re.fullmatch(r"none \(.*\w.*\)", each.test):
            yield f"{each.id}: `test: none` has no reason; write none (why)"


def _names(tree: Tree) -> Iterator[str]:
    places = [(f"case {name}", ids) for name, ids in tree.cases.items()]
    places += [(f"mutant {name}", ids) for name, ids in tree.mutants.items()]
    for place, ids in places:
        for id_ in ids:
            if id_ not in tree.requirements:
                yield f"{place}: {id_} is no requirement of SPEC.md"
            elif tree.requirements[id_].retired:
                yield f"{place}: {id_} was withdrawn"


def _executed(tree: Tree) -> Iterator[str]:
    ran = {
        (check["case"], check["requirement"])
        for results in tree.results
        for check in results["checks"]
        if check["status"] not in _NOT_REACHED
    }
    about = {requirement for _, requirement in ran}
    for each in _obligations(tree):
        if each.id not in about:
            yield f"{each.id}: no run that is kept has executed a check of it"
    for name, ids in tree.cases.items():
        for id_ in ids:
            if id_ in tree.requirements and (name, id_) not in ran:
                yield f"case {name}: no run that is kept has reached its check of {id_}"


def _mutants(tree: Tree) -> Iterator[str]:
    fates = {(each["mutant"], each["requirement"]): each for each in tree.kills}
    broken = {id_ for ids in tree.mutants.values() for id_ in ids}
    for each in _obligations(tree):
        if each.id not in broken:
            yield f"{each.id}: no mutant breaks it"
    for name, ids in tree.mutants.items():
        for id_ in ids:
            kill = fates.get((name, id_))
            if kill is None:
                yield f"mutant {name}: not tried yet for {id_}; run jobwire conform kills"
            elif kill["fate"] != "killed":
                why = f" ({kill['said']})" if "said" in kill else ""
                yield f"mutant {name}: {kill['fate']} the checks of {id_}{why}"
