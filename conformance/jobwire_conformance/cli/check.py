"""`jobwire conform check`: every requirement of what an implementation claims."""

from __future__ import annotations

import os
import secrets
import shlex
from pathlib import Path
from typing import cast

import click

from jobwire_conformance.cli._options import (
    config_option,
    end_at_term,
    generation_option,
    patience_option,
    redis_option,
    sandboxes_option,
    server_option,
)
from jobwire_conformance.errors import Usage

__all__ = ["check"]


@click.command()
@click.argument("what", nargs=-1, metavar="[FILE] [CLAIM]...")
@config_option
@click.option(
    "--case", "names", multiple=True, metavar="NAME", help="Only this case; * for any text."
)
@generation_option
@click.option(
    "--spec", metavar="VERSION", help="The checks of this version; later ones do not count."
)
@sandboxes_option("Cases")
@click.option(
    "--repeat",
    default=1,
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Run each case so often; what holds only sometimes is flaky, and a failure.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    help="Of the order of the cases; by default another one each time, and told at the end.",
)
@patience_option
@server_option
@redis_option
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
    help="Write a summary for a matrix to DIR/IMPLEMENTATION/VERSION.json.",
)
@click.option(
    "--variant", default="", metavar="TEXT", help="Which way it is set up, if of several."
)
@click.option(
    "--losses", is_flag=True, help="Find out where jobs are lost, though no claim forbids it. Slow."
)
@click.option("--quiet", "-q", is_flag=True, help="Tell of what did not pass only.")
@click.option("--summary", is_flag=True, help="Tell the outcome of each claim only.")
@click.option("--json", "as_json", is_flag=True, help="Print results.json.")
def check(
    what: tuple[str, ...],
    config_path: Path,
    names: tuple[str, ...],
    generation: str | None,
    spec: str | None,
    sandboxes: int,
    repeat: int,
    seed: int | None,
    patience: float,
    server: str | None,
    redis: str | None,
    mutant: str | None,
    report: Path | None,
    store: Path | None,
    variant: str,
    losses: bool,
    quiet: bool,
    summary: bool,
    as_json: bool,
) -> int:
    """Check the claims of an implementation; with CLAIM, like client/core, only these.

    FILE is the implementation's conformance.toml. Deviations that it knows of are in
    jobwire.deviations.toml beside it.
    """
    from jobwire_conformance import reports
    from jobwire_conformance.cases import case as cases
    from jobwire_conformance.cli._settings import DEVIATIONS, settings
    from jobwire_conformance.mutation import mutants
    from jobwire_conformance.reports import summary as summaries
    from jobwire_conformance.reports.events import Events, Together
    from jobwire_conformance.reports.results import Results, dump
    from jobwire_conformance.reports.terminal import Terminal, closing, errors
    from jobwire_conformance.run import run, sets, verdicts
    from jobwire_conformance.sandbox import external_server

    if redis is not None and (sandboxes > 1 or server is not None):
        raise Usage(
            "--redis is one server, and has room for one sandbox; leave out --sandboxes, --server"
        )
    found_server = None if redis is None else external_server.parse(redis)
    meant = settings(what, config_path, generation)
    deviations = verdicts.load_deviations(meant.path.with_name(DEVIATIONS))
    every = cases.load()
    if unknown := verdicts.unknown_ids(deviations, every):
        click.echo(f"Error: {DEVIATIONS} names what does not exist:", err=True)
        for id_ in unknown:
            click.echo(f"  {verdicts.what_is_wrong(id_, every)}", err=True)
        return 2
    chosen = run.chosen(
        run.offered(cases.load(names=names), meant), meant.claims, meant.generation, losses=losses
    )
    if redis is not None and (left := [case.name for case in chosen if case.rebuilds]):
        click.echo(f"left out, for they change the server itself: {', '.join(left)}", err=True)
        chosen = [case for case in chosen if not case.rebuilds]
    if not chosen:
        raise Usage("no case is left of these claims, this generation and --case")
    mistake = mutants.named(mutant) if mutant else None
    if report is not None:
        try:
            report.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Usage(f"--report: {report} cannot be made: {error.strerror}") from None
    again = _again(meant.path, generation, server, redis)
    terminal = Terminal(len(chosen) + 1, again, cases=not (quiet or summary), failures=not summary)
    events = None if report is None else Events(report / "events.jsonl", chosen)
    end_at_term()
    outcome = run.run(
        mistake.on(meant) if mistake else meant,
        chosen,
        deviations,
        watcher=terminal if events is None else Together(terminal, events),
        sandboxes=sandboxes,
        patience=patience,
        program=server,
        redis=found_server,
        rewrites=mistake.rules if mistake else (),
        trace=None if report is None else report / "trace.jsonl",
        again=again,
        variant=variant,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        repeat=repeat,
        frozen=sets.counted(spec),
    )
    terminal.close()
    found = cast(Results, outcome.as_data())
    if report is not None:
        reports.write_results(report, found)
        reports.write(report, found)
    if events is not None:
        events.ended(found)
    if store is not None:
        reports.put(store / summaries.stored_as(found), summaries.dump(found))
    if as_json:
        click.echo(dump(found), nl=False)
    click.echo(closing(found), err=as_json)
    for deviation in outcome.stale:
        click.echo(
            f"stale: {deviation.id} is declared as a deviation, but passes; take it out of "
            f"{DEVIATIONS}, or let baseline do it",
            err=as_json,
        )
    if outcome.unexplained:
        ids = ", ".join(each.id for each in outcome.unexplained)
        click.echo(
            f"Error: {DEVIATIONS}: still TODO are the reasons of {ids}; say there why it fails",
            err=True,
        )
    for problem in errors(found):
        click.echo(f"Error: {problem}", err=True)
    return outcome.status


def _again(path: Path, generation: str | None, server: str | None, redis: str | None) -> str:
    """Return the command that runs one case again, up to its name."""
    options = {"-C": os.path.relpath(path), "--generation": generation, "--server": server}
    if redis is not None and "@" not in redis:  # a password is for nobody's log
        options["--redis"] = redis
    words = [word for name, value in options.items() if value for word in (name, value)]
    return shlex.join(["jobwire", "conform", "replay", *words])
