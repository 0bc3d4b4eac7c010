"""`jobwire conform trace`: which case checks what."""

from __future__ import annotations

import json

import click

__all__ = ["trace"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--set", "as_set", is_flag=True, help="Print the file of the set of all checks.")
def trace(as_json: bool, as_set: bool) -> int:
    """List what the suite checks, and the obligations that it does not check yet.

    Exit status 1 if there are any.
    """
    from jobwire_conformance import cases, data, obligations, sets

    every = cases.load()
    if as_set:
        click.echo(sets.text(sets.current(every)), nl=False)
        return 0
    checks: dict[str, list[str]] = {}
    for case in every:
        for requirement in case.requirements:
            checks.setdefault(requirement, []).append(case.name)
    missing = {claim: obligations.uncovered(every, [claim]) for claim in data.CLAIMS}
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
