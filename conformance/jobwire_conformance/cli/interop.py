"""`jobwire conform interop`: tests clients and workers of different implementations together."""

from __future__ import annotations

from pathlib import Path

import click

from jobwire_conformance.cli._options import (
    end_at_term,
    file_option,
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
    help="Test only pairs with this implementation; may be repeated.",
)
@file_option(
    "--keep", help="Store the results in FILE; its results of pairs that are not tested now stay."
)
@sandboxes_option("pairs")
@patience_option()
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@file_option("--markdown", "page", help="Write the results as Markdown to FILE.")
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
    """Have each client push for each worker, and each worker retry jobs that another one failed.

    FILES are the conformance.toml of two or more implementations; a single one is tested with
    itself. Claims and deviations do not count here.

    With --only and --keep, only the pairs of one implementation are tested again, and the page
    still shows all pairs.
    """
    import json

    from jobwire_conformance import config
    from jobwire_conformance.interop import report, result_store, run

    configs = [config.load(path) for path in files]
    names = [settings.name for settings in configs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise Usage(
            f"two files have the name {', '.join(sorted(twice))}; "
            "give each its own [implementation] name"
        )
    for section, purpose in (("worker", "performs"), ("driver", "pushes")):
        if all(getattr(settings, section) is None for settings in configs):
            raise Usage(
                f"none of {', '.join(names)} has a section [{section}], so no program {purpose} "
                "jobs; add the file of an implementation that has one"
            )
    if unknown := sorted(set(only).difference(names)):
        raise Usage(
            f"--only {unknown[0]}: no file has this name; expected one of {', '.join(names)}"
        )
    earlier = result_store.load(keep) if keep is not None else ([], [])
    end_at_term()
    table = run.run(
        configs,
        only=set(only) or None,
        sandboxes=sandboxes,
        patience=patience,
        program=server,
        tell=lambda line: click.echo(line, err=True),
    )
    table.add(*earlier)
    if keep is not None:
        result_store.save(keep, table)
    if page is not None:
        page.write_text(report.markdown(table), "utf-8")
    if as_json:
        click.echo(json.dumps(report.as_data(table), ensure_ascii=False, indent=2))
    else:
        click.echo(report.text(table))
    return table.status
