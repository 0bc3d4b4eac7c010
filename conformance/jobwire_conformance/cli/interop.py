"""`jobwire conform interop`: whether implementations understand each other."""

from __future__ import annotations

from pathlib import Path

import click

from jobwire_conformance.cli._options import (
    end_at_term,
    patience_option,
    sandboxes_option,
    server_option,
)
from jobwire_conformance.errors import Usage

__all__ = ["interop"]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Try only pairs with this implementation; may be given several times.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Keep what was found there; what it has of pairs that are not tried now stays.",
)
@sandboxes_option("Pairs")
@patience_option
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.option(
    "--markdown",
    "page",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write a page there.",
)
def interop(
    files: tuple[Path, ...],
    only: tuple[str, ...],
    keep: Path | None,
    sandboxes: int,
    patience: float,
    server: str | None,
    as_json: bool,
    page: Path | None,
) -> int:
    """Let each client push for each worker, and each worker retry what another one failed.

    FILES are the conformance.toml of two or more implementations; one is tried with itself. What
    they claim, and their deviations, do not count here.

    With --only and --keep, what changed is tried again, and the page still has everything.

    Exit status: 0 every job arrived as it was pushed, and every failed one was retried; 1 not; 3 an
    adapter failed; the others are those of `check`.
    """
    import json

    from jobwire_conformance import config
    from jobwire_conformance.interop import report, result_store, run

    configs = [config.load(path) for path in files]
    names = [each.name for each in configs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise Usage(
            f"two files are of {', '.join(sorted(twice))}; give each another [implementation] name"
        )
    if all(each.worker is None for each in configs):
        raise Usage(f"none of {', '.join(names)} has a section [worker], so nobody performs")
    if all(each.driver is None for each in configs):
        raise Usage(f"none of {', '.join(names)} has a section [driver], so nobody pushes")
    if unknown := sorted(set(only).difference(names)):
        raise Usage(
            f"--only {unknown[0]}: that is the name of none of the files; "
            f"their names are {', '.join(names)}"
        )
    earlier = result_store.load(keep) if keep is not None else ([], [])
    end_at_term()
    found = run.run(
        configs,
        only=set(only) or None,
        sandboxes=sandboxes,
        patience=patience,
        program=server,
        tell=lambda line: click.echo(line, err=True),
    )
    found.add(*earlier)
    if keep is not None:
        result_store.save(keep, found)
    if page is not None:
        page.write_text(report.markdown(found), "utf-8")
    if as_json:
        click.echo(json.dumps(report.as_data(found), ensure_ascii=False, indent=2))
    else:
        click.echo(report.text(found))
    return found.status
