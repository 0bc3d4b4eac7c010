"""`jobwire periodic`: shows periodic jobs, and changes them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from jobwire.cli import output
from jobwire.cli.exits import EXIT_NOT_FOUND, EXIT_OK, NotFound
from jobwire.cli.groups import Group, did_you_mean
from jobwire.cli.inspect.change import agreed
from jobwire.cli.inspect.options import (
    change_options,
    json_option,
    operating,
    options,
    yes_option,
)
from jobwire.cli.loading import load_app
from jobwire.cli.table import Column, Moment, Styled, Table
from jobwire.inspect.formats import clean, iso, to_json
from jobwire.inspect.periodic import PeriodicJob
from jobwire.ops import PeriodicOperations
from jobwire.periodic.schedule import Difference
from jobwire.protocol.periodic_entry import DEFAULT_NAMESPACE, PeriodicEntry
from jobwire.settings.schedules import from_file
from jobwire.text import counted

__all__ = ["periodic"]

_HELP = {"help_option_names": ["-h", "--help"]}
_common = options(
    change_options,
    click.option(
        "--cron-namespace",
        default=DEFAULT_NAMESPACE,
        show_default=True,
        metavar="NAME",
        help="Namespace of the entries in sidekiq-cron 2.",
    ),
)


@click.group(cls=Group, context_settings=_HELP)
def periodic() -> None:
    """Show periodic jobs, and change them.

    They are the entries that Python and Ruby (sidekiq-cron) share. Changes are written to the
    journal. Output is a table on a terminal,
    lines with tabs in a pipe, and with --json one object per line.

    Exit status: 0 done; 1 a named entry does not exist, or you answered no; 2 wrong usage, or an
    invalid schedule; 3 the application cannot be loaded; 4 Redis cannot be used.
    """


@contextmanager
def _opened(
    url: str | None, namespace: str | None, cron_namespace: str
) -> Iterator[PeriodicOperations]:
    with operating(url, namespace) as operations:
        yield operations.periodic(cron_namespace)


def _require(jobs: PeriodicOperations, name: str) -> PeriodicJob:
    known = jobs.all()
    for job in known:
        if job.entry.name == name:
            return job
    hint = did_you_mean(name, [job.entry.name for job in known])
    raise NotFound(f"there is no periodic job {name!r}{hint}")


@periodic.command("list", context_settings=_HELP)
@json_option
@_common
def list_(as_json: bool, **where: Any) -> int:
    """Show all periodic jobs, with their next times."""
    with _opened(**where) as jobs:
        found = jobs.all()
    now = time.time()
    table = Table(
        counted(len(found), "periodic job"),
        [
            Column("name", style="cyan"),
            Column("line"),
            Column("class", style="cyan", grow=True),
            Column("status"),
            Column("next", "right"),
            Column("last", "right", spare=True),
            Column("schedule", spare=True),
        ],
        found,
        lambda job: (
            clean(job.entry.name),
            clean(job.entry.cron),
            clean(job.entry.job),
            _status(job),
            Moment(job.next_at, now),
            clean(job.entry.fields.get("last_enqueue_time") or "-"),
            clean(job.entry.schedule or "-"),
        ),
        _record,
        problems=[f"{job.entry.name}: {job.problem}" for job in found if job.problem],
        empty="no periodic job",
    )
    output.show(table, as_json=as_json)
    return EXIT_OK


def _status(job: PeriodicJob) -> str | Styled:
    if job.problem:
        return Styled("not read", "red")
    return Styled("enabled", "green") if job.entry.enabled else Styled("disabled", "yellow")


def _record(job: PeriodicJob) -> dict[str, Any]:
    return {
        "name": job.entry.name,
        "namespace": job.entry.namespace,
        "class": job.entry.job,
        "cron": job.entry.cron,
        "args": job.entry.args,
        "enabled": job.entry.enabled,
        "next_at": job.next_at,
        "schedule": job.entry.schedule or None,
        "layout": 1 if job.entry.layout_namespace is None else 2,
        "problem": job.problem or None,
        "fields": dict(job.entry.fields),
    }


@periodic.command("next", context_settings=_HELP)
@click.argument("name")
@click.option("-n", "--count", type=click.IntRange(1, 10_000), default=5, show_default=True)
@json_option
@_common
def next_(name: str, count: int, as_json: bool, **where: Any) -> int:
    """Show the next times of the periodic job NAME."""
    with _opened(**where) as jobs:
        ticks = jobs.next_ticks(_require(jobs, name), count)
    now = time.time()
    table = Table(
        f"Next times of {clean(name)}",
        [Column("at", "right"), Column("in", "right")],
        ticks,
        lambda tick: (iso(tick), Moment(tick, now)),
        lambda tick: {"at": tick},
    )
    output.show(table, as_json=as_json)
    return EXIT_OK


@periodic.command(context_settings=_HELP)
@click.argument("name")
@json_option
@_common
def history(name: str, as_json: bool, **where: Any) -> int:
    """Show the newest ten jobs that the periodic job NAME enqueued."""
    with _opened(**where) as jobs:
        pushes = jobs.history(_require(jobs, name))
    table = Table(
        f"Jobs of {clean(name)}",
        [Column("enqueued", "right"), Column("jid", style="cyan")],
        pushes,
        lambda push: (clean(str(push.get("enqueued"))), clean(str(push.get("jid")))),
        empty="no job yet",
    )
    output.show(table, as_json=as_json)
    return EXIT_OK


def _switch(verb: str, text: str, *, enabled: bool) -> click.Command:
    @periodic.command(verb, help=text, context_settings=_HELP)
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    @_common
    def command(names: Sequence[str], **where: Any) -> int:
        with _opened(**where) as jobs:
            for job in [_require(jobs, name) for name in names]:
                changed = jobs.enable(job) if enabled else jobs.disable(job)
                done = f"{verb}d" if changed else f"was {verb}d already"
                click.echo(f"{clean(job.entry.name)}: {'gone' if changed is None else done}")
        return EXIT_OK

    return command


enable = _switch("enable", "Enable periodic jobs. Ticks before now are left out.", enabled=True)
disable = _switch("disable", "Disable periodic jobs, until they are enabled.", enabled=False)


@periodic.command(context_settings=_HELP)
@click.argument("name")
@_common
def run(name: str, **where: Any) -> int:
    """Enqueue the job of NAME now, and print its id; also if NAME is disabled."""
    with _opened(**where) as jobs:
        click.echo(jobs.enqueue(_require(jobs, name)))
    return EXIT_OK


@periodic.command(context_settings=_HELP)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@yes_option
@_common
def remove(names: Sequence[str], yes: bool, **where: Any) -> int:
    """Remove periodic jobs, with their histories.

    A worker whose application defines such a job writes it again when it starts.
    """
    with _opened(**where) as jobs:
        found = [_require(jobs, name) for name in names]
        if not agreed(f"Remove {counted(len(found), 'periodic job')}?", yes):
            return EXIT_NOT_FOUND
        for job in found:
            jobs.remove(job)
            click.echo(f"{clean(job.entry.name)}: removed")
    return EXIT_OK


def _entries(source: str, schedule: str | None) -> tuple[list[PeriodicEntry], str]:
    """Return the entries of a file or an application, and the name of their schedule."""
    if source.endswith((".yml", ".yaml", ".erb", ".toml")):
        return from_file(source), schedule or "jobwire"
    app = load_app(source)
    return list(app.periodic_entries), schedule or app.schedule


_source_options = options(
    click.argument("source", metavar="FILE|MODULE:APP"),
    click.option(
        "--name",
        "schedule",
        metavar="NAME",
        help="Name of the schedule.  [default: that of the application, or jobwire]",
    ),
    json_option,
    _common,
)


@periodic.command(context_settings=_HELP)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@_source_options
def load(source: str, schedule: str | None, dry_run: bool, as_json: bool, **where: Any) -> int:
    """Make the entries of a schedule those of a file or an application.

    FILE is a schedule.yml of sidekiq-cron, a sidekiq.yml of sidekiq-scheduler, or a TOML file with
    a table for each entry. Entries that the schedule no longer has are removed, those of other
    schedules and dynamic ones stay. A worker does this with its own schedule when it starts.
    """
    entries, name = _entries(source, schedule)
    with _opened(**where) as jobs:
        change = jobs.difference if dry_run else jobs.load
        found = change(entries, schedule=name)
    _show(found, as_json)
    return EXIT_OK


@periodic.command(context_settings=_HELP)
@_source_options
def diff(source: str, schedule: str | None, as_json: bool, **where: Any) -> int:
    """Show what `load` would change. It changes nothing."""
    entries, name = _entries(source, schedule)
    with _opened(**where) as jobs:
        found = jobs.difference(entries, schedule=name)
    _show(found, as_json)
    return EXIT_OK


def _show(found: Difference, as_json: bool) -> None:
    if as_json:
        record = {
            "added": found.added,
            "changed": dict(found.changed),
            "removed": found.removed,
            "unchanged": found.unchanged,
            "taken_over": found.taken_over,
        }
        click.echo(to_json(record))
        return
    rows = [
        *(("add", name, "") for name in found.added),
        *(("change", name, ", ".join(fields)) for name, fields in found.changed),
        *(("remove", name, "") for name in found.removed),
    ]
    table = Table(
        f"{counted(len(rows), 'change')}, {len(found.unchanged)} unchanged",
        [Column("change"), Column("name", style="cyan"), Column("fields", grow=True)],
        rows,
        lambda row: tuple(map(clean, row)),
        problems=[f"{name} is of another schedule or program so far" for name in found.taken_over],
        empty="nothing to change",
    )
    output.show(table, as_json=False)


@periodic.command(context_settings=_HELP)
@yes_option
@_common
def migrate(yes: bool, **where: Any) -> int:
    """Move all entries from the keys of sidekiq-cron 1 to those of sidekiq-cron 2.

    Their ticks and histories move as well. Processes with sidekiq-cron 1 do not see them any more.
    """
    if not agreed("Move all entries of sidekiq-cron 1 to the keys of version 2?", yes):
        return EXIT_NOT_FOUND
    with _opened(**where) as jobs:
        click.echo(f"moved {counted(jobs.migrate(), 'periodic job')}")
    return EXIT_OK
