"""The commands of `jobwire inspect` that show data."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from jobwire.application.client import Client
from jobwire.cli import output
from jobwire.cli.exits import EXIT_OK
from jobwire.cli.inspect import details, executions, views
from jobwire.cli.inspect.options import (
    SETS,
    change_options,
    filter_of,
    filter_options,
    json_option,
    limit_option,
    not_found,
    number_option,
    opened,
    operating,
    reason_option,
    require_queue,
    view,
    view_options,
)
from jobwire.cli.options import find_places, find_redis
from jobwire.cli.table import Table
from jobwire.errors import OutputGap
from jobwire.inspect import Entry, Inspector, SetName
from jobwire.inspect.formats import to_json
from jobwire.protocol.output import Tail
from jobwire.text import visible

__all__ = ["COMMANDS"]


@click.command()
@view_options
def stats(as_json: bool, **how: Any) -> int:
    """Show totals and sizes; of an application with shards, the sums and a line for each shard."""
    if as_json and how["watch"] is not None:
        raise click.UsageError("--watch and --json cannot be combined")
    places = find_places(how["url"], how["namespace"])
    if "" not in places:
        if how["watch"] is not None:
            output.watch(lambda: (views.shards(places), None), how["watch"])
        output.show(views.shards(places), as_json=as_json, limit=None)
        return EXIT_OK
    if as_json:
        del how["watch"]
        with opened(**how) as inspector:
            click.echo(to_json(inspector.stats()))
        return EXIT_OK
    return view(views.stats, as_json=False, **how)


@click.command()
@click.option("--days", type=click.IntRange(1, 1825), default=30, show_default=True)
@view_options
def history(days: int, **how: Any) -> int:
    """Show executions by day."""
    return view(lambda inspector: views.history(inspector, days), **how)


@click.command()
@view_options
def queues(**how: Any) -> int:
    """Show all queues with their size, latency and state."""
    return view(views.queues, **how)


@click.command()
@click.argument("name")
@filter_options
@limit_option
@view_options
def queue(name: str, **given: Any) -> int:
    """Show the jobs of a queue, newest first."""
    only = filter_of(given)

    def table(inspector: Inspector) -> Table:
        require_queue(inspector, name)
        return views.queue(inspector, name, only, time.time())

    return view(table, **_how(given))


def _set_command(command: str, name: SetName, text: str) -> click.Command:
    @click.command(command, help=text)
    @click.option(
        "--scan",
        "pattern",
        metavar="PATTERN",
        help="Let the server search the payload texts; * and ? match. Gives no order.",
    )
    @filter_options
    @limit_option
    @view_options
    def show_set(pattern: str | None, **given: Any) -> int:
        only = filter_of(given)
        return view(
            lambda inspector: views.jobs(inspector, name, only, time.time(), pattern),
            **_how(given),
        )

    return show_set


_SET_COMMANDS = [
    _set_command("scheduled", "schedule", "Show scheduled jobs, the next one due first."),
    _set_command("retries", "retry", "Show failed jobs that will be retried, the next one first."),
    _set_command("dead", "dead", "Show dead jobs, the last one to die first."),
    _set_command("unreadable", "unreadable", "Show entries of queues and sets that are not jobs."),
]


@click.command()
@reason_option
@filter_options
@limit_option
@json_option
@change_options
def parked(
    reason: str | None,
    limit: int | None,
    as_json: bool,
    url: str | None,
    namespace: str | None,
    **given: Any,
) -> int:
    """Show parked jobs, the oldest first: those that this fleet's workers may not run."""
    if limit is None:
        limit = 50 if sys.stdout.isatty() and not as_json else 0
    with operating(url, namespace, role="viewer") as operations:
        table = views.parked(operations, filter_of(given), reason, time.time())
        output.show(table, as_json=as_json, limit=limit or None)
    return EXIT_OK


@click.command()
@click.argument("jid")
@view_options
def job(
    jid: str, watch: float | None, as_json: bool, url: str | None, namespace: str | None
) -> int:
    """Show all details of one job. Searches all queues and sets."""
    if watch is not None:
        raise click.UsageError("--watch does not work for a single job")
    with opened(url, namespace) as inspector:
        entry = _anywhere(inspector, jid)
        if entry is None:
            return not_found([jid], "anywhere; it may be done, or between two places")
        if as_json:
            click.echo(to_json(views.entry_record(entry)))
            return EXIT_OK
        states = inspector.iterations([jid])
        state = states[0] if states else None
        progress = inspector.progress([jid]).get(jid)
        members = inspector.group_members(entry.fields)
        output.show(details.one_job(entry, state, time.time(), progress, members), as_json=False)
    return EXIT_OK


@click.command()
@click.argument("jid")
@json_option
@change_options
def result(jid: str, as_json: bool, url: str | None, namespace: str | None) -> int:
    """Show the stored result of a job that keeps it."""
    with operating(url, namespace, role="viewer") as operations:
        stored = operations.result(jid)
    if stored is None:
        return not_found(
            [jid], "a job with a stored result: it keeps none, has not ended, or the result expired"
        )
    if as_json:
        click.echo(to_json(stored))
    else:
        output.show(details.one_result(stored, time.time()), as_json=False)
    return EXIT_OK


@click.command("output")
@click.argument("jid")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over, or Ctrl-C.")
@click.option("--after", metavar="POSITION", default="", help="Begin behind this position.")
@json_option
@change_options
def show_output(
    jid: str, follow: bool, after: str, as_json: bool, url: str | None, namespace: str | None
) -> int:
    """Show what a job has emitted, and with --follow what it emits while it runs."""
    redis, _, prefix, _ = find_redis(url, namespace)
    seen = False
    with Client(redis, namespace=prefix) as client:
        tail = Tail(jid, after)
        while True:
            try:
                items = client.read_output(tail, None if follow else 0.0)
            except OutputGap as gap:
                click.echo(f"jobwire: {gap}", err=True)  # the next read goes on behind it
                continue
            if not items:
                break
            seen = True
            for item in items:
                plain = item.value if isinstance(item.value, str) else to_json(item.value)
                click.echo(to_json(item) if as_json else visible(plain))
    return EXIT_OK if seen or follow or after else not_found([jid], "a job with output")


@click.command()
@view_options
def processes(**how: Any) -> int:
    """Show the processes that run jobs."""
    return view(lambda inspector: views.processes(inspector, time.time()), **how)


@click.command()
@view_options
def classes(**how: Any) -> int:
    """Show the classes that jobwire's processes have announced, and which can run them."""
    return view(views.classes, **how)


@click.command()
@number_option("--limit", 1_000, "Show at most this many.")
@number_option(
    "--examine",
    100_000,
    "Examine at most this many keys for locks, and waiting jobs for those that have them.",
)
@view_options
def unique(limit: int, examine: int, **how: Any) -> int:
    """Show the locks of unique jobs, and the jobs that have them."""
    return view(lambda inspector: views.unique(inspector, limit, examine, time.time()), **how)


@click.command()
@number_option("--limit", 100, "Show at most this many.")
@number_option("--examine", 100_000, "Examine at most this many keys for batches.")
@view_options
def batches(limit: int, examine: int, **how: Any) -> int:
    """Show batches, the newest first."""
    return view(lambda inspector: views.batches(inspector, limit, examine), **how)


@click.command()
@click.argument("batch_id", metavar="BATCH")
@click.option("--missing", is_flag=True, help="Search for the open members that are in no place.")
@number_option(
    "--examine",
    1_000_000,
    "With --missing: examine at most this many members, and jobs that wait.",
)
@json_option
@change_options
def batch(
    batch_id: str,
    missing: bool,
    examine: int,
    as_json: bool,
    url: str | None,
    namespace: str | None,
) -> int:
    """Show one batch.

    Open members in no place were removed by another program, without their ends. One of them may
    also run in a worker that has not told of it yet: search again after a minute.
    """
    with opened(url, namespace) as inspector:
        status = inspector.batch(batch_id)
        if status is None:
            return not_found([batch_id], "a batch; 'jobwire inspect batches' shows them")
        lost = inspector.missing_members(batch_id, examine=examine) if missing else None
    if as_json:
        click.echo(to_json({"batch": status, "missing": lost}))
    else:
        output.show(details.one_batch(status, lost, time.time()), as_json=False)
    return EXIT_OK


@click.command()
@number_option("--limit", 1_000, "Show at most this many, those that were used last.")
@view_options
def limits(limit: int, **how: Any) -> int:
    """Show the limits of jobs that were used in the last day."""
    return view(lambda inspector: views.limits(inspector, limit), **how)


@click.command()
@filter_options
@view_options
def works(**given: Any) -> int:
    """Show the jobs in execution, as of the last heartbeats."""
    only = filter_of(given)
    return view(lambda inspector: views.works(inspector, only, time.time()), **_how(given))


@click.command()
@view_options
def holdings(**how: Any) -> int:
    """Show the jobs in the private hashes of jobwire's processes."""
    return view(lambda inspector: views.holdings(inspector, time.time()), **how)


@click.command()
@click.argument("jids", metavar="[JID]...", nargs=-1)
@limit_option
@view_options
def iterations(jids: tuple[str, ...], **how: Any) -> int:
    """Show the progress of iterable jobs: the named ones, or all (which scans every key)."""
    return view(lambda inspector: views.iterations(inspector, jids, time.time()), **how)


@click.command()
@click.argument("class_name", metavar="[CLASS]", required=False)
@click.option("--minutes", type=click.IntRange(1, 480), help="Period to show.  [default: 60]")
@click.option("--hours", type=click.IntRange(1, 72), help="Period to show, in hours.")
@click.option(
    "--generation",
    type=click.Choice(["7", "8"]),
    default="8",
    show_default=True,
    help="7: the counters of Sidekiq 7, which has minutes only.",
)
@view_options
def metrics(
    class_name: str | None, minutes: int | None, hours: int | None, generation: str, **how: Any
) -> int:
    """Show executions by class, longest total time first; for one CLASS also their durations."""
    return view(
        lambda inspector: executions.metrics(
            inspector,
            class_name,
            minutes=minutes,
            hours=hours,
            generation=7 if generation == "7" else 8,
        ),
        **how,
    )


COMMANDS = [
    stats,
    history,
    queues,
    queue,
    *_SET_COMMANDS,
    parked,
    job,
    result,
    show_output,
    processes,
    classes,
    unique,
    batch,
    batches,
    limits,
    works,
    holdings,
    iterations,
    metrics,
]


def _how(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a view that control its output."""
    names = ("url", "namespace", "as_json", "watch", "limit")
    return {name: given[name] for name in names if name in given}


def _anywhere(inspector: Inspector, jid: str) -> Entry | None:
    for work in inspector.works():
        if work.job.jid == jid:
            return work.job
    for name in dict.fromkeys(SETS.values()):
        if entry := inspector.find(name, jid):
            return entry
    for queue_info in inspector.queues():
        if entry := inspector.find_job(queue_info.name, jid):
            return entry
    held = (job for holder in inspector.holdings(most=10_000) for _, job in holder.jobs)
    return next((job for job in held if job.jid == jid), None)
