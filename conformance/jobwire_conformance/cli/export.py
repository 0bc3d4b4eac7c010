"""`jobwire conform export`: writes cases that need no suite."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jobwire_conformance.data import CLAIMS, DEFAULT_GENERATION, GENERATIONS
from jobwire_conformance.errors import Usage

__all__ = ["export"]


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.argument("claims", nargs=-1, metavar="[CLAIM]...")
@click.option(
    "--generation",
    type=click.Choice(GENERATIONS),
    default=DEFAULT_GENERATION,
    show_default=True,
    help="Generation of the payloads that the implementation writes.",
)
def export(directory: Path, claims: tuple[str, ...], generation: str) -> int:
    """Write the cases that need only a connection to Redis, one JSON file each, to DIR.

    A port's own tests can run them without this program: see docs/how-to/portable-cases.md and
    schema/portable-case.json. CLAIM, like client/core, limits them to cases of these claims.
    """
    from jobwire_conformance import reports
    from jobwire_conformance.cases import case as cases
    from jobwire_conformance.cases.portable import NotPortable, portable

    if unknown := [claim for claim in claims if claim not in CLAIMS]:
        raise Usage(f"unknown claim {unknown[0]!r}; expected one of {', '.join(CLAIMS)}")
    every, written = cases.load(), 0
    for case in every:
        if claims and set(claims).isdisjoint(case.profiles):
            continue
        try:
            content = portable(case, generation)
        except NotPortable:
            continue
        # 1e400 is larger than any double: an infinity, which JSON has no word for.
        text = json.dumps(content, indent=2).replace("Infinity", "1e400")
        reports.put(directory / f"{case.name}.json", f"{text}\n".encode())
        written += 1
    click.echo(f"{written} of {len(every)} cases written to {directory}")
    return 0
