"""`jobwire conform matrix`: shows the results of several implementations on one page."""

from __future__ import annotations

from pathlib import Path

import click

from jobwire_conformance.cli._options import directory_option

__all__ = ["matrix"]


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@directory_option("--out", "Write matrix.md, matrix.html and loss-maps.md to DIR.")
def matrix(files: tuple[Path, ...], out: Path | None) -> int:
    """Show the results of several implementations as one table: requirement by implementation.

    FILE is a results.json, a summary from `check --store`, or a directory of such files. If there
    are several runs of a version, the latest one counts. Without --out, the command prints
    Markdown. Exit status 64 if a file is none of these.
    """
    from jobwire_conformance import reports
    from jobwire_conformance.reports.matrix import find

    columns, remarks = find(files)
    for remark in remarks:
        click.echo(remark, err=True)
    pages = reports.matrix_pages(columns)
    if out is None:
        click.echo(pages["matrix.md"], nl=False)
        return 0
    for name, text in pages.items():
        reports.put(out / name, text)
        click.echo(str(out / name))
    return 0
