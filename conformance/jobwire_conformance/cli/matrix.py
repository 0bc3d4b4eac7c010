"""`jobwire conform matrix`: what several implementations meet, in one page."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["matrix"]


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write matrix.md, matrix.html and loss-maps.md there.",
)
def matrix(files: tuple[Path, ...], out: Path | None) -> int:
    """Show what the results in FILE say side by side: requirement by implementation.

    FILE is a results.json, what `check --store` wrote, or a directory with such files. Of several
    runs of the same version the latest counts. Prints Markdown without --out. Exit status 64 if a
    file is none of these.
    """
    from jobwire_conformance import reports
    from jobwire_conformance.reports.matrix import find

    found, remarks = find(files)
    for remark in remarks:
        click.echo(remark, err=True)
    pages = reports.matrix_pages(found)
    if out is None:
        click.echo(pages["matrix.md"], nl=False)
        return 0
    for name, text in pages.items():
        reports.put(out / name, text)
        click.echo(str(out / name))
    return 0
