"""`jobwire doctor`, `explain`, `groups`, `journal`, `undo`: the commands for operators."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from jobwire.cli import output
from jobwire.cli.exits import EXIT_NOT_FOUND, EXIT_OK, EXIT_UNEXPECTED, NotFound
from jobwire.cli.inspect.options import (
    change_options,
    filter_of,
    filter_options,
    json_option,
    limit_option,
    operating,
    options,
)
from jobwire.cli.inspect.views import entry_record
from jobwire.cli.options import find_redis
from jobwire.cli.table import Cell, Column, Moment, Styled, Table
from jobwire.console.ops.groups import MAX_GROUPS
from jobwire.console.ops.journal import joined
from jobwire.console.ops.locate import MAX_EXAMINED_JOBS
from jobwire.errors import ConfigError
from jobwire.inspect.formats import clean, duration, plain, to_json
from jobwire.ops import Explanation, FailureSet, Finding, JobLocation
from jobwire.text import counted

__all__ = ["doctor", "explain", "findings_table", "groups", "journal", "undo"]

_STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}
_HELP = {"help_option_names": ["-h", "--help"]}
_common = options(change_options, json_option)


@click.command(context_settings=_HELP)
@_common
def doctor(url: str | None, namespace: str | None, as_json: bool) -> int:
    """Find problems of a Redis, its queues and its processes.

    It changes nothing. An error means that jobs are lost or do not run; a warning, that this may
    happen; a note is worth knowing. If an application is named, its `wait_replicas` is compared
    with the replicas of the server.

    Exit status: 0 no error; 1 an error was found; 2 wrong usage; 4 Redis cannot be used.
    """
    place = find_redis(url, namespace)
    with operating(place.url, place.namespace) as operations:
        findings = operations.doctor(wait_replicas=place.wait_replicas)
    output.show(findings_table(findings), as_json=as_json)
    return EXIT_UNEXPECTED if any(one.severity == "error" for one in findings) else EXIT_OK


@click.command(context_settings=_HELP)
@click.argument("jid")
@click.option(
    "--examine",
    type=click.IntRange(min=1),
    default=MAX_EXAMINED_JOBS,
    show_default=True,
    metavar="N",
    help="Look at the next N jobs of each queue.",
)
@_common
def explain(jid: str, examine: int, url: str | None, namespace: str | None, as_json: bool) -> int:
    """Say where the job JID is, why it does not run now, and how to make it run.

    Exit status: 0 the job was found; 1 it was not; 2 wrong usage; 4 Redis cannot be used.
    """
    with operating(url, namespace) as operations:
        explanation = operations.explain(jid, examine=examine)
    if as_json:
        click.echo(to_json(_explanation_record(explanation)))
    else:
        output.show(_explanation(explanation), as_json=False)
    return EXIT_OK if explanation.places else EXIT_NOT_FOUND


@click.command(context_settings=_HELP)
@click.option(
    "--from",
    "places",
    type=click.Choice(["retries", "dead"]),
    multiple=True,
    help="Only this set.  [default: both]",
)
@click.option(
    "--examine",
    type=click.IntRange(min=1),
    metavar="N",
    help="Look at N jobs of each set.  [default: all]",
)
@filter_options
@limit_option
@_common
def groups(places: tuple[str, ...], examine: int | None, as_json: bool, **given: Any) -> int:
    """Show the failures of the retry set and the dead set, grouped by their cause.

    Failures of one group have the same class of error, message, job class, and innermost call of
    the application. Numbers, ids and quoted values in the message do not count.
    """
    names: dict[str, FailureSet] = {"retries": "retry", "dead": "dead"}
    wanted = [names[place] for place in places] or list(names.values())
    limit = given["limit"]
    if limit is None:
        limit = 50 if sys.stdout.isatty() and not as_json else 0
    with (
        operating(given["url"], given["namespace"]) as operations,
        output.progress_bar("read") as progress,
    ):
        found = operations.groups(wanted, only=filter_of(given), examine=examine, progress=progress)
    problems = []
    if found.rest:
        problems.append(
            f"{found.rest:,} jobs are in none of these groups, because there are more than "
            f"{MAX_GROUPS:,}; the counts are lower bounds"
        )
    now = time.time()
    table = Table(
        f"{counted(len(found.groups), 'group')} of failures in {found.seen:,} of "
        f"{counted(found.total, 'job')}",
        [
            Column("group", style="cyan"),
            Column("jobs", "right"),
            Column("retry", "right", spare=True),
            Column("dead", "right", spare=True),
            Column("first", "right", spare=True),
            Column("last", "right"),
            Column("class", style="cyan"),
            Column("error", grow=True),
            Column("in", grow=True, spare=True),
            Column("first after", style="cyan", spare=True),
        ],
        found.groups,
        lambda group: (
            group.key,
            f"{group.count:,}",
            f"{group.places.get('retry', 0):,}",
            f"{group.places.get('dead', 0):,}",
            Moment(group.first_seen, now),
            Moment(group.last_seen, now),
            clean(group.job_class or "?"),
            Styled(clean(f"{group.error_class}: {group.message}"), "red"),
            clean(group.frame),
            clean(group.deployed.label) if group.deployed else "",
        ),
        problems=problems,
        empty="no failure",
    )
    output.show(table, as_json=as_json, limit=limit or None)
    return EXIT_OK


@click.command(context_settings=_HELP)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Show at most this many.",
)
@_common
def journal(limit: int, url: str | None, namespace: str | None, as_json: bool) -> int:
    """Show the changes that people made with jobwire, newest first.

    A change of many jobs is one line, at its end; --json also has its start. The last column has
    the id for 'jobwire undo', which works for 24 hours.
    """
    with operating(url, namespace) as operations:
        entries = operations.journal(limit=limit)
    now = time.time()
    table = Table(
        "Journal",
        [
            Column("at", "right"),
            Column("person", style="cyan"),
            Column("action"),
            Column("target", grow=True),
            Column("count", "right"),
            Column("state", spare=True),
            Column("undo"),
        ],
        entries if as_json else joined(entries),
        lambda entry: (
            Moment(entry.at, now),
            clean(entry.person),
            clean(entry.act),
            clean(entry.target),
            f"{entry.count:,}",
            clean(entry.status),
            clean(entry.undo),
        ),
        empty="no change",
    )
    output.show(table, as_json=as_json)
    return EXIT_OK


@click.command(context_settings=_HELP)
@click.argument("undo_id", metavar="ID")
@_common
def undo(undo_id: str, url: str | None, namespace: str | None, as_json: bool) -> int:
    """Put jobs back that were deleted less than 24 hours ago.

    ID is the one that the deletion printed; 'jobwire journal' has it as well. The jobs return with
    the same bytes and scores, and in the same order.

    Exit status: 0 done; 1 there is no such deletion; 2 wrong usage; 4 Redis cannot be used.
    """
    with operating(url, namespace) as operations:
        try:
            with output.progress_bar("put back") as progress:
                undone = operations.undo(undo_id, progress=progress)
        except ConfigError as error:
            raise NotFound(str(error)) from None
    if as_json:
        click.echo(to_json(undone))
        return EXIT_OK
    click.echo(f"put back {undone.restored:,} in {clean(undone.place)}")
    if undone.kept:
        click.echo(f"jobwire: {undone.kept:,} were there again already", err=True)
    if undone.unsure:
        click.echo(
            f"jobwire: a worker may have fetched {undone.unsure:,} of them at the instant of the "
            "deletion; these may run twice",
            err=True,
        )
    return EXIT_OK


# -- views


def findings_table(findings: Sequence[Finding], *, empty: str = "nothing is wrong") -> Table:
    """Return findings, with problem and remedy."""
    return Table(
        f"{counted(len(findings), 'finding')}",
        [
            Column("severity"),
            Column("finding", style="cyan"),
            Column("problem and remedy", fold=True),
        ],
        findings,
        lambda one: (
            Styled(one.severity, _STYLES[one.severity]),
            one.code,
            f"{clean(one.sentence)} -> {clean(one.remedy)}",
        ),
        empty=empty,
    )


def _explanation(explanation: Explanation) -> Table:
    lines: list[tuple[str, Cell]] = [("place", clean(_place(one))) for one in explanation.places]
    for reason in explanation.reasons:
        style = "red" if reason.blocks else "yellow" if reason.remedy else "green"
        lines.append((reason.code, Styled(clean(reason.sentence), style)))
        if reason.remedy:
            lines.append(("", f"-> {clean(reason.remedy)}"))
    return Table(
        f"Job {clean(explanation.jid)}",
        [Column("what", style="cyan"), Column("", fold=True)],
        lines,
        tuple,
    )


def _place(one: JobLocation) -> str:
    if one.place == "running":
        return f"running in process {one.identity}"
    if one.place == "held":
        lease = "without a lease" if one.lease is None else f"lease {duration(one.lease)}"
        return f"fetched by process {one.identity}, {lease}"
    if one.ahead is not None:
        return f"{one.place}, {counted(one.ahead, 'job')} before it"
    return one.place


def _explanation_record(explanation: Explanation) -> dict[str, Any]:
    return {
        "jid": explanation.jid,
        "places": [
            {
                "place": one.place,
                "ahead": one.ahead,
                "identity": one.identity or None,
                "lease": one.lease,
                "queue": one.queue or None,
                "run_at": one.run_at,
                "thread": one.thread or None,
                "job": entry_record(one.job),
            }
            for one in explanation.places
        ],
        "reasons": plain(list(explanation.reasons)),
    }
