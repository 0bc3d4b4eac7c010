"""`jobwire conform doctor`: examines the adapter."""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import click

from jobwire_conformance.cli._options import (
    config_option,
    end_at_term,
    patience_option,
    server_option,
)
from jobwire_conformance.errors import AdapterFault

__all__ = ["doctor"]

_MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD ", "left out": "-   "}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@config_option
@patience_option(10)
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(
    file: Path | None, config_path: Path, patience: float, server: str | None, as_json: bool
) -> int:
    """Examine the driver and the worker, not the protocol, and suggest repairs.

    Exit status: 0 the adapter is in order; 3 it is not; 4 no Redis; 64 wrong usage, or an error
    in conformance.toml.
    """
    from jobwire_conformance import config
    from jobwire_conformance.setup.doctor import diagnose

    settings = config.load(file or config_path)
    end_at_term()
    live = sys.stderr.isatty() and not as_json

    def begins(name: str) -> None:
        if live:
            click.echo(f"\r\x1b[K{name} ...", err=True, nl=False)

    items = []
    for item in diagnose(settings, program=server, patience=patience, begins=begins):
        items.append(item)
        if as_json:
            continue
        if live:
            click.echo("\r\x1b[K", err=True, nl=False)
        seen = f": {item.seen}" if item.seen else ""
        click.echo(f"{_MARKS[item.state]} {item.what}{seen}")
        if item.advice:
            click.echo(textwrap.indent(f"remedy: {item.advice}", " " * 9).rstrip())
    if as_json:
        click.echo(json.dumps([asdict(item) for item in items], ensure_ascii=False, indent=2))
    bad = sum(item.state == "bad" for item in items)
    if bad:
        click.echo(f"{bad} {'fault' if bad == 1 else 'faults'} in the adapter", err=True)
        return AdapterFault.status
    click.echo("the adapter is in order", err=True)
    return 0
