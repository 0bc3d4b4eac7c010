"""`jobwire conform baseline`: declares today's failures, so that a new failure is noticed."""

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
@click.argument("arguments", nargs=-1, metavar="[FILE] [CLAIM]...")
@config_option
@generation_option
@sandboxes_option("cases")
@click.option("--reason", metavar="TEXT", help="The reason to write into all new entries.")
@click.option("--dry-run", is_flag=True, help="Print the changes and write nothing.")
@patience_option()
@server_option
@redis_option
def baseline(
    arguments: tuple[str, ...],
    config_path: Path,
    generation: str | None,
    sandboxes: int,
    reason: str | None,
    dry_run: bool,
    patience: float,
    server: str | None,
    redis: str | None,
) -> int:
    """Run the checks and write the failures to jobwire.deviations.toml.

    Existing entries keep their reasons; entries whose checks pass are removed. The reason of a new
    entry begins with TODO, and `check` exits with 2 until you have replaced it.

    Exit status: 0 the file is up to date; 3, 4, 5, 64 as for `check`, and nothing was written.
    """
    from jobwire_conformance.cases import case as cases
    from jobwire_conformance.cli._settings import DEVIATIONS, settings
    from jobwire_conformance.reports.terminal import Terminal
    from jobwire_conformance.run import baseline as baselines
    from jobwire_conformance.run import run, verdicts
    from jobwire_conformance.sandbox import external_server

    if redis is not None and (sandboxes > 1 or server is not None):
        raise Usage(
            "--redis names one server, which serves one sandbox; leave out --sandboxes and --server"
        )
    if reason is not None and (not reason.strip() or reason.lstrip().startswith("TODO")):
        raise Usage(f"--reason {reason!r} must be the reason of the failure, not empty nor TODO")
    store = None if redis is None else external_server.parse(redis)
    config = settings(arguments, config_path, generation)
    path = config.path.with_name(DEVIATIONS)
    known = verdicts.load_deviations(path)
    offered = run.offered(cases.load(), config)
    unknown = verdicts.unknown_ids(known, cases.load())
    chosen = run.chosen(offered, config.claims, config.generation)
    if redis is not None:
        chosen = [case for case in chosen if not case.rebuilds]
    if not chosen:
        raise Usage("no case belongs to these claims and this generation")
    end_at_term()
    terminal = Terminal(len(chosen) + 1, "", failures=False)
    outcome = run.run(
        config,
        chosen,
        [deviation for deviation in known if deviation.id not in unknown],
        watcher=terminal,
        sandboxes=sandboxes,
        patience=patience,
        program=server,
        redis=store,
    )
    terminal.close()
    for error in outcome.errors:
        click.echo(f"jobwire: {error}", err=True)
    if outcome.errors:
        click.echo("Nothing was written, because some cases could not be run.", err=True)
        return outcome.status
    gone = [*unknown, *(deviation.id for deviation in outcome.stale)]
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
        click.echo(f"Replace each TODO in {where} by the reason of the failure; then run check.")
    return 0


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.new")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(path)
    except OSError as error:
        raise Usage(f"cannot write {path}: {error.strerror}") from None
