"""`jobwire conform kills`: plants mistakes into an implementation to test the checks."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobwire_conformance.cli._options import (
    config_option,
    end_at_term,
    file_option,
    patience_option,
    sandboxes_option,
    server_option,
)
from jobwire_conformance.errors import Usage

if TYPE_CHECKING:
    from jobwire_conformance.mutation.kills import Kill

__all__ = ["kills"]


@click.command()
@config_option
@click.option(
    "--mutant", "names", multiple=True, metavar="NAME", help="Only this mutant; * matches any text."
)
@click.option(
    "--source", is_flag=True, help="Plant mistakes into the source, instead of into the traffic."
)
@click.option(
    "--all", "everything", is_flag=True, help="Run every case of a mutant's requirements. Slow."
)
@sandboxes_option("mutants")
@patience_option()
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@file_option("--store", help="Write the table as JSON to FILE, for trace --strict.")
@click.option(
    "--merge", is_flag=True, help="Keep the rows of all other mutants in the FILE of --store."
)
@file_option("--page", help="Write the table as Markdown to FILE.")
def kills(
    config_path: Path,
    names: tuple[str, ...],
    source: bool,
    everything: bool,
    sandboxes: int,
    patience: float,
    server: str | None,
    as_json: bool,
    store: Path | None,
    merge: bool,
    page: Path | None,
) -> int:
    """Plant each mutant into an implementation and list the checks that find it.

    The implementation must pass the suite without mutants. Exit status 1 if a mutant survives.
    With --source it must be one with a file in conformance/source-mutants of the checkout.
    """
    from jobwire_conformance import compact, config
    from jobwire_conformance.cases import case as cases
    from jobwire_conformance.mutation import kills, mutants
    from jobwire_conformance.mutation.source import Sources
    from jobwire_conformance.reports.kills import closing, markdown

    if merge and (store is None or not store.exists()):
        raise Usage("--merge needs --store FILE, with the table of an earlier run in FILE")
    settings = config.load(config_path)
    sources = Sources.of(settings) if source else None
    known = mutants.load() if sources is None else sources.mutants
    chosen = [
        mutant
        for mutant in known
        if not names or any(fnmatch.fnmatchcase(mutant.name, name) for name in names)
    ]
    if not chosen:
        where = "source-mutants" if source else "mutants"
        raise Usage(f"no mutant {', '.join(names)}; the mutants are in conformance/{where}")
    end_at_term()
    done = 0

    def tell(rows: Sequence[Kill], seconds: float) -> None:
        nonlocal done
        done += 1
        for kill in rows:
            by = ", ".join(kill["by"]) or kill.get("said", "")
            line = f"{kill['fate']:9} {kill['mutant']} [{kill['requirement']}] {by}"
            click.echo(f"{done}/{len(chosen)} {line.rstrip()}, {seconds:.1f} s", err=True)

    table = kills.kill(
        settings,
        chosen,
        cases.load(),
        patience=patience,
        program=server,
        sandboxes=sandboxes,
        everything=everything,
        plant=nullcontext if sources is None else sources.planted,
        tell=tell,
    )
    if sources is not None:
        sources.describe(table)
    if merge and store is not None:
        kept = json.loads(store.read_bytes())
        table = kills.merged(kept, table, [mutant.name for mutant in known])
    if store is not None:
        store.write_bytes(compact.dump(table))
    if page is not None:
        page.write_text(markdown(table), "utf-8")
    if as_json:
        click.echo(json.dumps(table, indent=2, ensure_ascii=False))
    click.echo(closing(table), err=as_json)
    return 1 if any(kill["fate"] == "survived" for kill in table["mutants"]) else 0
