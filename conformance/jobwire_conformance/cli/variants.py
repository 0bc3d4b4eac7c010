"""`jobwire conform variants`: runs lawful variants of the reference to test the checks."""

from __future__ import annotations

import secrets

import click

from jobwire_conformance.cli._options import (
    end_at_term,
    patience_option,
    sandboxes_option,
    server_option,
)

__all__ = ["variants"]


@click.command()
@click.option(
    "--variant",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this variant; * matches any text.",
)
@click.option(
    "--together",
    is_flag=True,
    help="Run variants of different aspects together, in as few runs as possible. Faster, but a "
    "check that fails may be about any of them.",
)
@sandboxes_option("cases")
@patience_option()
@server_option
def variants(
    names: tuple[str, ...],
    together: bool,
    sandboxes: int,
    patience: float,
    server: str | None,
) -> int:
    """Run variants of the reference that break no requirement; list the checks that fail.

    Every check has to pass: one that fails asks for more than the specification. The variants are
    in conformance/variants of the checkout. Exit status 1 if a check fails.
    """
    from jobwire_conformance.cases import case as cases
    from jobwire_conformance.mutation import variants as lawful
    from jobwire_conformance.reports.terminal import Terminal

    chosen = lawful.load(names)
    end_at_term()
    known, failed = cases.load(), 0
    groups = lawful.rounds(chosen, known) if together else [[variant] for variant in chosen]
    for number, group in enumerate(groups, 1):
        picked = lawful.cases_of(group, known)
        title = ", ".join(variant.name for variant in group)
        click.echo(f"{number}/{len(groups)} {title}: {len(picked)} cases", err=True)
        watcher = Terminal(len(picked) + 1, "", cases=False, failures=False)
        outcome = lawful.trial(
            group,
            picked,
            watcher=watcher,
            sandboxes=sandboxes,
            patience=patience,
            program=server,
            seed=secrets.randbelow(2**31),
        )
        watcher.close()
        failed += not outcome.ok
        verdict = "ok  " if outcome.ok else "FAIL"
        click.echo(f"{verdict} {outcome.passed:4} checks {outcome.seconds:6.1f} s  {title}")
        for check, message in outcome.failures:
            click.echo(f"     {check}: {message}")
        for error in outcome.errors:
            click.echo(f"     {error}")
        for variant in group if not outcome.ok else ():
            free = ", ".join(variant.lawful)
            click.echo(f"     {variant.name}: {variant.title}; left open by {free}")
    return 1 if failed else 0
