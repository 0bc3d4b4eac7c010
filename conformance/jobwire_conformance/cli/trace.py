"""`jobwire conform trace`: lists requirements and the cases that check them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from jobwire_conformance.cases.case import Case

__all__ = ["trace"]


@click.command()
@click.argument("arguments", nargs=-1, metavar="[FILE] [CLAIM]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--set", "as_set", is_flag=True, help="Print all checks in the form of a frozen set.")
@click.option(
    "--strict",
    "root",
    is_flag=False,
    flag_value=".",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="[DIR]",
    help="List the gaps between requirements, cases, runs and mutants of a checkout. [default: .]",
)
def trace(arguments: tuple[str, ...], as_json: bool, as_set: bool, root: Path | None) -> int:
    """List the checks of the suite, and the obligations that it does not check yet.

    With FILE, a conformance.toml, or with CLAIM, list each requirement of these claims with the
    cases that check it, for its generation and its offers. The exit status then is 0.

    With --strict, compare the requirements with the runs in conformance/reports, the mutants, and
    their last run if build/conformance/kills.json has one. Exit status 1 if an obligation has no
    check or a gap exists.
    """
    from jobwire_conformance import data
    from jobwire_conformance.cases import case as cases
    from jobwire_conformance.cases import obligations
    from jobwire_conformance.reports import audit
    from jobwire_conformance.run import sets

    if root is not None:
        tree = audit.load(root)
        faults = audit.faults(tree)
        for line in faults:
            click.echo(line)
        click.echo(
            f"{len(tree.requirements)} requirements, {len(tree.cases)} cases, "
            f"{len(tree.mutants)} mutants, {len(tree.results)} runs: {len(faults)} faults",
            err=True,
        )
        return 1 if faults else 0

    known_cases = cases.load()
    if arguments:
        return _of_claims(arguments, known_cases, as_json=as_json)
    if as_set:
        click.echo(sets.text(sets.current(known_cases)), nl=False)
        return 0
    checks: dict[str, list[str]] = {}
    for case in known_cases:
        for requirement in case.requirements:
            checks.setdefault(requirement, []).append(case.name)
    missing = {claim: obligations.uncovered(known_cases, [claim]) for claim in data.CLAIMS}
    if as_json:
        click.echo(json.dumps({"checks": checks, "uncovered": missing}, indent=2))
    else:
        for requirement in data.requirements():
            if requirement in checks:
                click.echo(f"{requirement:9} {', '.join(checks[requirement])}")
        click.echo("\nNot checked yet:")
        for claim, ids in missing.items():
            if ids:
                click.echo(f"{claim:20} {', '.join(ids)}")
    hidden = [r.id for r in data.requirements().values() if not r.visible]
    total = len(data.requirements())
    click.echo(
        f"{len(checks)} of {total} requirements have a check; not visible from outside: "
        f"{', '.join(hidden) or 'none'}",
        err=True,
    )
    return 1 if any(missing.values()) else 0


def _of_claims(arguments: Sequence[str], known_cases: Sequence[Case], *, as_json: bool) -> int:
    """List the requirements of claims with their cases, or the reason why they have none."""
    from jobwire_conformance.cli._settings import settings
    from jobwire_conformance.config import NAME
    from jobwire_conformance.reports.coverage import covered

    config = settings(arguments, Path(NAME), None)
    found = {claim: covered(known_cases, claim, config) for claim in config.claims}
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return 0
    for claim, requirements in found.items():
        click.echo(claim)
        for id_, entry in requirements.items():
            names = ", ".join(entry["cases"]) or f"no case: {entry['without']}"
            click.echo(f"  {id_:9} {names}")
    return 0
