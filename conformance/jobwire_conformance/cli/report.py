"""`jobwire conform report`: writes the reports of a finished run again."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["report"]


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
def report(directory: Path) -> int:
    """Write the reports in DIR again from its results.json and trace.jsonl.

    The reports are report.html, junit.xml, summary.md, badge.json and badge.svg. Without
    trace.jsonl, report.html has no logs and no diagrams. Exit status 64 if results.json is missing
    or has another format.
    """
    from jobwire_conformance import reports
    from jobwire_conformance.reports.results import load

    reports.write(directory, load(directory / "results.json"))
    click.echo("\n".join(str(directory / name) for name in reports.FILES))
    return 0
