"""`jobwire conform check`: every requirement of what an implementation claims."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import cast

import click

from jobwire_conformance.cli._options import config_option, end_at_term
from jobwire_conformance.errors import Usage

__all__ = ["check"]


@click.command()
@click.argument("what", nargs=-1, metavar="[FILE] [CLAIM]...")
@config_option
@click.option(
    "--case", "names", multiple=True, metavar="NAME", help="Only this case; * for any text."
)
@click.option("--generation", type=click.Choice(["7", "8"]), help="Instead of the file's.")
@click.option(
    "--lanes", default=1, type=click.IntRange(1, 64), help="Cases at a time. [default: 1]"
)
@click.option(
    "--patience",
    default=20.0,
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help="How long to wait for what has to happen. [default: 20]",
)
@click.option("--server", metavar="PROGRAM", help="redis-server or valkey-server to use.")
@click.option("--mutant", metavar="NAME", help="Have every process make this mistake.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write results.json, trace.jsonl, report.html, junit.xml and the rest there.",
)
@click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the results for a matrix to DIR/IMPLEMENTATION/VERSION.json.",
)
@click.option(
    "--variant", default="", metavar="TEXT", help="Which way it is set up, if of several."
)
@click.option(
    "--losses", is_flag=True, help="Find out where jobs are lost, though no claim forbids it. Slow."
)
@click.option("--json", "as_json", is_flag=True, help="Print results.json.")
def check(
    what: tuple[str, ...],
    config_path: Path,
    names: tuple[str, ...],
    generation: str | None,
    lanes: int,
    patience: float,
    server: str | None,
    mutant: str | None,
    report: Path | None,
    store: Path | None,
    variant: str,
    losses: bool,
    as_json: bool,
) -> int:
    """Check the claims of an implementation; with CLAIM, like client/core, only these.

    FILE is the implementation's jobwire.toml. Deviations that it knows of are in
    jobwire.deviations.toml beside it.
    """
    from dataclasses import replace

    from jobwire_conformance import cases, config, mutants, reports, run, verdicts
    from jobwire_conformance.data import CLAIMS
    from jobwire_conformance.reports.events import Events, Together
    from jobwire_conformance.reports.results import Results, dump, small, stored_as
    from jobwire_conformance.reports.terminal import Terminal, closing

    claims = [each for each in what if each in CLAIMS]
    for each in (each for each in what if each not in CLAIMS):
        if not (each.endswith(".toml") or Path(each).is_dir()):
            raise Usage(
                f"{each!r} is neither a file with the settings nor one of {', '.join(CLAIMS)}"
            )
        config_path = Path(each)
    settings = config.load(config_path)
    if missing := [claim for claim in claims if claim not in settings.claims]:
        raise Usage(f"{settings.path}: {', '.join(missing)} is not among the claims there")
    settings = replace(
        settings,
        claims=claims or settings.claims,
        generation=settings.generation if generation is None else config.GENERATIONS[generation],
    )
    deviations = verdicts.load_deviations(settings.path.with_name("jobwire.deviations.toml"))
    every = cases.load()
    if unknown := verdicts.unknown_ids(deviations, every):
        click.echo(f"Error: deviations of what does not exist: {', '.join(unknown)}", err=True)
        return 2
    chosen = run.chosen(
        run.offered(cases.load(names=names), settings),
        settings.claims,
        settings.generation,
        losses=losses,
    )
    if not chosen:
        raise Usage("no case is left of these claims, this generation and --case")
    if report is not None:
        report.mkdir(parents=True, exist_ok=True)
    again = f"jobwire conform check {shlex.quote(os.path.relpath(settings.path))} --case"
    terminal = Terminal(len(chosen) + 1, again)
    events = None if report is None else Events(report / "events.jsonl", chosen)
    end_at_term()
    outcome = run.run(
        settings,
        chosen,
        deviations,
        watcher=terminal if events is None else Together(terminal, events),
        lanes=lanes,
        patience=patience,
        program=server,
        rewrites=mutants.named(mutant).rules if mutant else (),
        trace=None if report is None else report / "trace.jsonl",
        again=again,
        variant=variant,
    )
    terminal.close()
    found = cast(Results, outcome.as_data())
    if report is not None:
        reports.write_results(report, found)
        reports.write(report, found)
    if events is not None:
        events.ended(found)
    if store is not None:
        path = store / stored_as(found)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dump(small(found)))
    if as_json:
        click.echo(dump(found), nl=False)
    click.echo(closing(found), err=as_json)
    for error in outcome.errors:
        click.echo(f"Error: {error}", err=True)
    return outcome.status
