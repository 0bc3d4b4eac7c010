"""`jobwire conform baseline`: declare what fails today, so that the next failure is news."""

from __future__ import annotations

import os
from pathlib import Path

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

__all__ = ["baseline"]


@click.command()
@click.argument("what", nargs=-1, metavar="[FILE] [CLAIM]...")
@config_option
@generation_option
@sandboxes_option("Cases")
@click.option("--reason", metavar="TEXT", help="Of all new entries, if one is true of all.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and write nothing.")
@patience_option
@server_option
@redis_option
def baseline(
    what: tuple[str, ...],
    config_path: Path,
    generation: str | None,
    sandboxes: int,
    reason: str | None,
    dry_run: bool,
    patience: float,
    server: str | None,
    redis: str | None,
) -> int:
    """Run the checks and write what fails to jobwire.deviations.toml.

    Entries that are there keep their reasons; those whose checks pass go. The reason of a new one
    begins with TODO, and `check` ends with 2 until you have written why it fails.

    Exit status: 0 the file is up to date; 3, 4, 5, 64 as of `check`, and nothing was written.
    """
    from jobwire_conformance.cases import case as cases
    from jobwire_conformance.cli._settings import DEVIATIONS, settings
    from jobwire_conformance.reports.terminal import Terminal
    from jobwire_conformance.run import baseline as baselines
    from jobwire_conformance.run import run, verdicts
    from jobwire_conformance.sandbox import external_server

    if redis is not None and (sandboxes > 1 or server is not None):
        raise Usage(
            "--redis is one server, and has room for one sandbox; leave out --sandboxes, --server"
        )
    if reason is not None and (not reason.strip() or reason.lstrip().startswith("TODO")):
        raise Usage("--reason has to say why it fails")
    store = None if redis is None else external_server.parse(redis)
    meant = settings(what, config_path, generation)
    path = meant.path.with_name(DEVIATIONS)
    known = verdicts.load_deviations(path)
    every = run.offered(cases.load(), meant)
    unknown = verdicts.unknown_ids(known, cases.load())
    chosen = run.chosen(every, meant.claims, meant.generation)
    if redis is not None:
        chosen = [case for case in chosen if not case.rebuilds]
    if not chosen:
        raise Usage("no case is left of these claims and this generation")
    end_at_term()
    terminal = Terminal(len(chosen) + 1, "", failures=False)
    outcome = run.run(
        meant,
        chosen,
        [each for each in known if each.id not in unknown],
        watcher=terminal,
        sandboxes=sandboxes,
        patience=patience,
        program=server,
        redis=store,
    )
    terminal.close()
    for error in outcome.errors:
        click.echo(f"Error: {error}", err=True)
    if outcome.errors:
        click.echo("Nothing was written: not all of it could be run.", err=True)
        return outcome.status
    gone = [*unknown, *(each.id for each in outcome.stale)]
    change = baselines.change(path, known, gone, outcome.verdicts, chosen, reason)
    for mark, ids in (("+", change.added), ("-", change.removed), (" ", change.kept)):
        for id_ in ids:
            click.echo(f"{mark} {id_}")
    if dry_run:
        return 0
    if change.added or change.removed:
        _write(path, change.text)
    where = os.path.relpath(path)
    click.echo(
        f"{where}: {len(change.added)} added, {len(change.removed)} removed, "
        f"{len(change.kept)} kept"
    )
    if change.added and reason is None:
        click.echo(f"Say in {where} why each new one fails, in place of TODO; then run check.")
    return 0


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.new")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(path)
    except OSError as error:
        raise Usage(f"cannot write {path}: {error.strerror}") from None
