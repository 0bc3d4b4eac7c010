"""The comparison of obligations, cases, runs and mutants with each other.

It shows obligations without a check, and checks that cannot be trusted. All data comes from a
checkout, not from the running suite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from jobwire_conformance import data
from jobwire_conformance.data import Requirement, record, requirements_of
from jobwire_conformance.errors import Usage
from jobwire_conformance.mutation.kills import Kill, Table
from jobwire_conformance.reports.results import Summary
from jobwire_conformance.reports.summary import load as load_summary

__all__ = ["KILLS", "Tree", "faults", "load"]

KILLS = Path("build", "conformance", "kills.json")
"""The table of the last run of the mutants, in a checkout."""

_NOT_REACHED = frozenset(["blocked", "not-claimed"])


@dataclass(frozen=True, slots=True)
class Tree:
    """The content of a checkout.

    Attributes:
        requirements: The requirements by id.
        cases: The ids of the checks of each case, by its name.
        mutants: The ids that each mutant breaks, by its name.
        results: Summaries of the stored runs.
        kills: The rows of the last run of the mutants, if there was one.
    """

    requirements: Mapping[str, Requirement]
    cases: Mapping[str, Sequence[str]]
    mutants: Mapping[str, Sequence[str]]
    results: Sequence[Summary]
    kills: Sequence[Kill] | None


def load(root: Path) -> Tree:
    """Return the content of the checkout at `root`.

    Raises:
        Usage: A file is missing or cannot be read.
    """
    suite, table = root / "conformance", root / KILLS
    if not suite.is_dir():
        raise Usage(f"{suite} does not exist; --strict needs a checkout of jobwire")
    return Tree(
        requirements=requirements_of(record(root)),
        cases={
            name: [*dict.fromkeys(data.checked(case))]
            for name, (_, case) in data.cases(suite / "cases").items()
        },
        mutants={
            mutant["mutant"]: mutant["kills"]
            for path in sorted((suite / "mutants").glob("*.json"))
            for mutant in _json(path)
        },
        results=[load_summary(path) for path in sorted((suite / "reports").rglob("*.json"))],
        kills=cast(Table, _json(table))["mutants"] if table.exists() else None,
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Usage(f"{path}: {error}") from None


def faults(tree: Tree) -> list[str]:
    """Return the faults as messages; none if all obligations have sound checks."""
    return [
        *_reasons(tree),
        *_names(tree),
        *_executed(tree),
        *_mutants(tree),
    ]


def _obligations(tree: Tree) -> Iterator[Requirement]:
    for requirement in tree.requirements.values():
        if requirement.obliges and requirement.visible and not requirement.retired:
            yield requirement


def _reasons(tree: Tree) -> Iterator[str]:
    for requirement in tree.requirements.values():
        if not requirement.visible and not re.fullmatch(r"none \(.*\w.*\)", requirement.test):
            yield f"{requirement.id}: `test: none` has no reason; write none (why)"


def _names(tree: Tree) -> Iterator[str]:
    places = [(f"case {name}", ids) for name, ids in tree.cases.items()]
    places += [(f"mutant {name}", ids) for name, ids in tree.mutants.items()]
    for place, ids in places:
        for id_ in ids:
            if id_ not in tree.requirements:
                yield f"{place}: SPEC.md has no requirement {id_}"
            elif tree.requirements[id_].retired:
                yield f"{place}: {id_} is withdrawn"


def _executed(tree: Tree) -> Iterator[str]:
    ran = {
        (check["case"], check["requirement"])
        for results in tree.results
        for check in results["checks"]
        if check["status"] not in _NOT_REACHED
    }
    executed = {requirement for _, requirement in ran}
    for obligation in _obligations(tree):
        if obligation.id not in executed:
            yield f"{obligation.id}: no stored run has executed a check of it"
    for name, ids in tree.cases.items():
        for id_ in ids:
            if id_ in tree.requirements and (name, id_) not in ran:
                yield f"case {name}: no stored run has executed its check of {id_}"


def _mutants(tree: Tree) -> Iterator[str]:
    fates = {(kill["mutant"], kill["requirement"]): kill for kill in tree.kills or ()}
    broken = {id_ for ids in tree.mutants.values() for id_ in ids}
    for obligation in _obligations(tree):
        if obligation.id not in broken:
            yield f"{obligation.id}: no mutant breaks it"
    for name, ids in tree.mutants.items():
        for id_ in ids:
            kill = fates.get((name, id_))
            if kill is None and tree.kills is not None:
                yield f"mutant {name}: not run yet for {id_}; run jobwire conform kills"
            elif kill is not None and kill["fate"] != "killed":
                remark = f" ({kill['said']})" if "said" in kill else ""
                yield f"mutant {name}: {kill['fate']} the checks of {id_}{remark}"
