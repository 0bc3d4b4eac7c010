"""`jobwire shards`: shows the shards of an application, and changes their states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from jobwire.cli import output
from jobwire.cli.exits import EXIT_OK
from jobwire.cli.groups import Group
from jobwire.cli.inspect.options import json_option
from jobwire.cli.loading import load_app
from jobwire.cli.table import Column, Styled, Table
from jobwire.inspect.shards import ShardReport, ShardStates

__all__ = ["shards"]

_HELP = {"help_option_names": ["-h", "--help"]}
_app = click.argument("target", metavar="MODULE:APP")
_names = click.argument("names", metavar="NAME...", nargs=-1, required=True)
_STYLES = {"used": "green", "draining": "yellow", "new": "yellow"}


@click.group(cls=Group, context_settings=_HELP)
def shards() -> None:
    """Show the shards of an application, and change their states.

    Programs that push and workers follow a change within seconds, without a restart. A command
    that was killed, or that could not tell a shard, is repeated without harm.

    Exit status: 0 done; 2 wrong usage, or the change is refused; 3 the application cannot be
    loaded; 4 a shard could not be told, and the others were.
    """


@contextmanager
def _opened(target: str) -> Iterator[ShardStates]:
    app = load_app(target)
    if not app.shards:
        raise click.UsageError(f"{target} has no shards; write App(shards={{'a': URL, 'b': URL}})")
    urls = {name: app.redis[name] for name in app.shards}
    with ShardStates(urls, app.namespace) as states:
        yield states


@shards.command(context_settings=_HELP)
@_app
@json_option
def status(target: str, as_json: bool) -> int:
    """Show each shard: its state, the jobs on it, and the shards that do not know its state."""
    with _opened(target) as states:
        output.show(_table(states.reports()), as_json=as_json)
    return EXIT_OK


@shards.command(context_settings=_HELP)
@_app
@_names
def add(target: str, names: tuple[str, ...]) -> int:
    """Let shards get jobs: new ones, or those that were draining or removed.

    The first change of an application names all its shards; later ones that its code names get no
    jobs until they are added.
    """
    with _opened(target) as states:
        states.use(names)
    return _done("get jobs", names)


@shards.command(context_settings=_HELP)
@_app
@_names
def drain(target: str, names: tuple[str, ...]) -> int:
    """Let shards get no more jobs, while workers run those that are there."""
    with _opened(target) as states:
        states.drain(names)
    return _done("get no more jobs; 'jobwire shards status' shows what is left", names)


@shards.command(context_settings=_HELP)
@_app
@_names
def remove(target: str, names: tuple[str, ...]) -> int:
    """Let workers leave shards that are draining and empty, within a quarter of a minute.

    It refuses while there is a job in a queue, scheduled, to be retried, parked, dead, fetched or
    running, a periodic job, or an open batch.
    """
    with _opened(target) as states:
        states.remove(names)
    return _done("are removed; take them out of the application at its next release", names)


def _done(what: str, names: Sequence[str]) -> int:
    click.echo(f"{', '.join(names)}: {what}", err=True)
    return EXIT_OK


def _table(reports: Sequence[ShardReport]) -> Table:
    return Table(
        "Shards",
        [
            Column("shard", style="cyan"),
            Column("state"),
            Column("epoch", "right"),
            Column("left", grow=True),
            Column("not told", grow=True),
        ],
        reports,
        lambda one: (
            one.name,
            Styled(one.state, _STYLES.get(one.state, "")),
            str(one.epoch),
            "?" if one.problem else ", ".join(f"{place} {n:,}" for place, n in one.left.items()),
            ", ".join(one.stale),
        ),
        _record,
        problems=[f"shard {one.name}: {one.problem}" for one in reports if one.problem],
    )


def _record(one: ShardReport) -> dict[str, Any]:
    return {
        "shard": one.name,
        "state": one.state,
        "epoch": one.epoch,
        "left": None if one.problem else dict(one.left),
        "not_told": list(one.stale),
    }
