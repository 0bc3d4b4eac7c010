"""`jobwire inspect`: shows queues, sets and processes, and changes them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jobwire.cli.options import find_redis, redis_option
from jobwire.protocol.visible import visible

if TYPE_CHECKING:
    from jobwire.cli.inspect_output import Sheet
    from jobwire.inspect import Action, Entry, Filter, Inspector, SetName, Swept

__all__ = ["inspect"]

F = TypeVar("F", bound=Callable[..., Any])

SETS: dict[str, SetName] = {
    "scheduled": "schedule",
    "schedule": "schedule",
    "retries": "retry",
    "retry": "retry",
    "dead": "dead",
    "unreadable": "unreadable",
}
EXIT_OK = 0
EXIT_NOT_FOUND = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def inspect() -> None:
    """Show queues, sets and processes, and change them.

    Output is a table on a terminal, lines with tabs in a pipe, and with --json one object per
    line. Commands that show data change nothing. Changes of many entries ask first; without a
    terminal they need --yes.

    Exit status: 0 done; 1 a named item does not exist, or you answered no; 2 wrong usage;
    4 Redis cannot be used.
    """


# -- options


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


namespace_option = click.option("--namespace", default="", help="Prefix of every key.")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line."
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
view_options = _options(
    redis_option,
    namespace_option,
    json_option,
    click.option(
        "-w",
        "--watch",
        type=click.FloatRange(min=0.1),
        metavar="SECONDS",
        help="Update the output every SECONDS, until Ctrl-C.",
    ),
)
change_options = _options(redis_option, namespace_option)
limit_option = click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    help="Show at most this many; 0 for all.  [default: 50 on a terminal, otherwise all]",
)


def _seconds(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of a time span like `90`, `15m`, `2h` or `30d`."""
    if value is None:
        return None
    units = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
    number, unit = (value[:-1], units[value[-1]]) if value[-1:] in units else (value, 1)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e11:
        raise click.BadParameter(f"{value!r} is not a time span; write 90, 15m, 2h or 30d")
    return seconds


filter_options = _options(
    click.option(
        "--class", "class_name", metavar="NAME", help="Only jobs of this class; * matches."
    ),
    click.option("--queue", "queue_name", metavar="NAME", help="Only of this queue; * matches."),
    click.option("--jid", help="Only the job with this id."),
    click.option("--error", metavar="TEXT", help="Only with TEXT in the error class or message."),
    click.option("--tag", help="Only with this tag."),
    click.option("--text", metavar="TEXT", help="Only with TEXT anywhere in the payload."),
    click.option(
        "--older-than",
        metavar="SPAN",
        callback=_seconds,
        help="Only older than 90 (seconds), 15m, 2h or 30d. The age of a dead or failed job "
        "counts from its death or failure.",
    ),
)


def _filter(given: dict[str, Any]) -> Filter:
    from jobwire.inspect import Filter

    return Filter(
        class_name=given["class_name"],
        queue=given["queue_name"],
        jid=given["jid"],
        error=given["error"],
        tag=given["tag"],
        text=given["text"],
        older_than=given["older_than"],
    )


@contextmanager
def _inspector(url: str | None, namespace: str) -> Iterator[Inspector]:
    from jobwire.inspect import Inspector

    redis, _ = find_redis(url)
    with Inspector(redis, namespace=namespace) as inspector:
        yield inspector


def _view(
    make: Callable[[Inspector], Sheet],
    *,
    url: str | None,
    namespace: str,
    as_json: bool,
    watch: float | None,
    limit: int | None = 0,
) -> int:
    """Print the sheet that `make` returns, once or repeatedly."""
    from jobwire.cli import inspect_output as output

    if watch is not None and as_json:
        raise click.UsageError("--watch and --json cannot be combined")
    if limit is None:
        limit = 50 if sys.stdout.isatty() and not as_json else 0
    with _inspector(url, namespace) as inspector:
        if watch is not None:
            output.watch(lambda: (make(inspector), limit or None), watch)
        else:
            output.show(make(inspector), as_json=as_json, limit=limit or None)
    return EXIT_OK


# -- commands that show data


@inspect.command()
@view_options
def stats(as_json: bool, **how: Any) -> int:
    """Show totals and sizes."""
    if as_json:
        from jobwire.cli.inspect_output import to_json

        if how.pop("watch") is not None:
            raise click.UsageError("--watch and --json cannot be combined")
        with _inspector(**how) as inspector:
            click.echo(to_json(inspector.stats()))
        return EXIT_OK
    from jobwire.cli import inspect_views as views

    return _view(views.stats, as_json=False, **how)


@inspect.command()
@click.option("--days", type=click.IntRange(1, 1825), default=30, show_default=True)
@view_options
def history(days: int, **how: Any) -> int:
    """Show executions by day."""
    from jobwire.cli import inspect_views as views

    return _view(lambda inspector: views.history(inspector, days), **how)


@inspect.command()
@view_options
def queues(**how: Any) -> int:
    """Show all queues with their size, latency and state."""
    from jobwire.cli import inspect_views as views

    return _view(views.queues, **how)


@inspect.command()
@click.argument("name")
@filter_options
@limit_option
@view_options
def queue(name: str, **given: Any) -> int:
    """Show the jobs of a queue, newest first."""
    from jobwire.cli import inspect_views as views

    only = _filter(given)
    return _view(lambda inspector: views.queue(inspector, name, only, time.time()), **_how(given))


def _set_command(command: str, name: SetName, text: str) -> None:
    @inspect.command(command, help=text)
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
        from jobwire.cli import inspect_views as views

        only = _filter(given)
        return _view(
            lambda inspector: views.jobs(inspector, name, only, time.time(), pattern),
            **_how(given),
        )


_set_command("scheduled", "schedule", "Show scheduled jobs, the last one due first.")
_set_command("retries", "retry", "Show failed jobs that will be retried, the last one due first.")
_set_command("dead", "dead", "Show dead jobs, the last one to die first.")
_set_command("unreadable", "unreadable", "Show entries of queues and sets that are not jobs.")


@inspect.command()
@click.argument("jid")
@view_options
def job(jid: str, watch: float | None, as_json: bool, url: str | None, namespace: str) -> int:
    """Show all details of one job. Searches all queues and sets."""
    from jobwire.cli import inspect_output as output
    from jobwire.cli import inspect_views as views

    if watch is not None:
        raise click.UsageError("--watch does not work for a single job")
    with _inspector(url, namespace) as inspector:
        entry = _anywhere(inspector, jid)
        if entry is None:
            return _missing([jid], "anywhere; it may be done, or between two places")
        if as_json:
            click.echo(output.to_json(views.entry_record(entry)))
            return EXIT_OK
        states = inspector.iterations([jid])
        state = states[0] if states else None
        output.show(views.one_job(entry, state, time.time()), as_json=False)
    return EXIT_OK


@inspect.command()
@view_options
def processes(**how: Any) -> int:
    """Show the processes that run jobs."""
    from jobwire.cli import inspect_views as views

    return _view(lambda inspector: views.processes(inspector, time.time()), **how)


@inspect.command()
@filter_options
@view_options
def works(**given: Any) -> int:
    """Show the jobs in execution, as of the last heartbeats."""
    from jobwire.cli import inspect_views as views

    only = _filter(given)
    return _view(lambda inspector: views.works(inspector, only, time.time()), **_how(given))


@inspect.command()
@view_options
def holdings(**how: Any) -> int:
    """Show the jobs in the private hashes of jobwire's processes."""
    from jobwire.cli import inspect_views as views

    return _view(lambda inspector: views.holdings(inspector, time.time()), **how)


@inspect.command()
@click.argument("jids", metavar="[JID]...", nargs=-1)
@limit_option
@view_options
def iterations(jids: tuple[str, ...], **how: Any) -> int:
    """Show the progress of iterable jobs: the named ones, or all (which scans every key)."""
    from jobwire.cli import inspect_views as views

    return _view(lambda inspector: views.iterations(inspector, jids, time.time()), **how)


@inspect.command()
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
    from jobwire.cli import inspect_views as views

    return _view(
        lambda inspector: views.metrics(
            inspector,
            class_name,
            minutes=minutes,
            hours=hours,
            generation=7 if generation == "7" else 8,
        ),
        **how,
    )


# -- commands that change data


def _place(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value in SETS:
        return SETS[value]
    if value.startswith("queue:") and value != "queue:":
        return value
    raise click.BadParameter(f"{value!r} is not one of {', '.join(SETS)} or queue:NAME")


def _bulk(action: Action, *, source: str, doc: str, done: str) -> None:
    @inspect.command("add-to-queue" if action == "add_to_queue" else action, help=doc)
    @click.argument("jids", metavar="[JID]...", nargs=-1)
    @click.option(
        "--from",
        "place",
        callback=_place,
        default=source,
        show_default=True,
        metavar="PLACE",
        help="scheduled, retries, dead, unreadable" + (", queue:NAME" * (action == "delete")),
    )
    @click.option("--all", "every", is_flag=True, help="All jobs of the place.")
    @filter_options
    @yes_option
    @change_options
    def change(jids: tuple[str, ...], place: str, every: bool, yes: bool, **given: Any) -> int:
        only = _filter(given)
        if place.startswith("queue:") and action != "delete":
            raise click.UsageError(f"{action} is for sets; jobs in {place} run anyway")
        if bool(jids) + (every or bool(only)) != 1:
            raise click.UsageError("give ids of jobs, or --all, or a filter like --class")
        with _inspector(given["url"], given["namespace"]) as inspector:
            if jids:
                return _change_each(inspector, action, place, jids, done)
            return _change_all(inspector, action, place, only, yes, done)


_bulk(
    "retry",
    source="retries",
    done="enqueued",
    doc="Push failed, dead or scheduled jobs to their queues now; the retry is not counted.",
)
_bulk(
    "add_to_queue",
    source="scheduled",
    done="enqueued",
    doc="Push jobs to their queues now; the attempt counts as a retry.",
)
_bulk("kill", source="retries", done="killed", doc="Move jobs to the dead set.")
_bulk("delete", source="retries", done="deleted", doc="Delete jobs permanently.")


@inspect.command()
@click.argument("jids", metavar="JID...", nargs=-1, required=True)
@click.option(
    "--from", "place", callback=_place, default="scheduled", show_default=True, metavar="PLACE"
)
@click.option(
    "--in", "delay", callback=_seconds, metavar="SPAN", help="Due after this time: 90, 2h."
)
@click.option(
    "--at", metavar="TIME", help="Due at this time: 2026-12-24T18:00:00Z or epoch seconds."
)
@change_options
def reschedule(
    jids: tuple[str, ...],
    place: str,
    delay: float | None,
    at: str | None,
    url: str | None,
    namespace: str,
) -> int:
    """Change the time at which jobs are due."""
    from datetime import timedelta

    from jobwire.cli.enqueue import _time

    if place not in ("schedule", "retry"):
        raise click.UsageError("--from: only scheduled jobs and retries become due")
    if (delay is None) == (at is None):
        raise click.UsageError("give either --in or --at")
    when = _time(at) if at is not None else timedelta(seconds=delay or 0)
    with _inspector(url, namespace) as inspector:
        return _each_of(
            inspector,
            place,
            jids,
            "rescheduled",
            lambda entry: inspector.reschedule(entry, when),
        )


@inspect.command()
@click.argument("place", callback=_place, metavar="PLACE")
@yes_option
@change_options
def clear(place: str, yes: bool, url: str | None, namespace: str) -> int:
    """Delete all jobs of a PLACE in one step.

    PLACE is scheduled, retries, dead, unreadable or queue:NAME.
    """
    with _inspector(url, namespace) as inspector:
        size = _size(inspector, place)
        if not _agreed(f"Delete all {size:,} jobs of {place}?", yes):
            return EXIT_NOT_FOUND
        name = place.removeprefix("queue:")
        count = inspector.clear_queue(name) if name != place else inspector.clear(SETS[place])
    click.echo(f"deleted {count:,}")
    return EXIT_OK


@inspect.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@change_options
def pause(names: tuple[str, ...], url: str | None, namespace: str) -> int:
    """Pause queues: jobwire's workers fetch no jobs from them. Sidekiq's workers do not stop."""
    with _inspector(url, namespace) as inspector:
        for name in names:
            inspector.pause(name)
            click.echo(f"paused {name}")
    return EXIT_OK


@inspect.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@change_options
def unpause(names: tuple[str, ...], url: str | None, namespace: str) -> int:
    """Unpause queues: workers fetch jobs from them again."""
    missing = []
    with _inspector(url, namespace) as inspector:
        for name in names:
            if inspector.unpause(name):
                click.echo(f"unpaused {name}")
            else:
                missing.append(name)
    return _missing(missing, "paused")


def _signal_command(command: str, text: str) -> None:
    @inspect.command(command, help=text)
    @click.argument("identities", metavar="[PROCESS]...", nargs=-1)
    @click.option("--all", "every", is_flag=True, help="All processes.")
    @yes_option
    @change_options
    def send(
        identities: tuple[str, ...], every: bool, yes: bool, url: str | None, namespace: str
    ) -> int:
        if bool(identities) == every:
            raise click.UsageError(
                "give processes as 'inspect processes' shows them, or --all for all of them"
            )
        with _inspector(url, namespace) as inspector:
            known = [
                process.identity
                for process in inspector.processes()
                if not process.embedded or command == "dump"
            ]
            if every and not _agreed(f"Tell all {len(known)} processes to {command}?", yes):
                return EXIT_NOT_FOUND
            missing = [identity for identity in identities if identity not in known]
            for identity in known if every else identities:
                if identity not in missing:
                    getattr(inspector, command)(identity)
                    click.echo(f"told {visible(identity)}; it acts at its next heartbeat")
        return _missing(missing, "registered, or is embedded in another program")


_signal_command("quiet", "Tell processes to fetch no more jobs.")
_signal_command("stop", "Tell processes to stop.")
_signal_command("dump", "Tell processes to log the stacks of their threads.")


@inspect.command()
@click.argument("jids", metavar="JID...", nargs=-1, required=True)
@change_options
def cancel(jids: tuple[str, ...], url: str | None, namespace: str) -> int:
    """Cancel iterable jobs; they stop within seconds, or at their next start."""
    with _inspector(url, namespace) as inspector:
        for jid in jids:
            if inspector.cancel(jid).started:
                click.echo(f"cancelled {jid}")
            else:
                click.echo(
                    f"{jid} has no saved state; if it is an iterable job, it ends when it starts "
                    "or next saves its state, and any other job ignores this"
                )
    return EXIT_OK


@inspect.command("mark-deploy")
@click.argument("label")
@change_options
def mark_deploy(label: str, url: str | None, namespace: str) -> int:
    """Mark a deployment in the metrics charts, with a LABEL such as v1.2."""
    with _inspector(url, namespace) as inspector:
        made = inspector.mark_deploy(label)
    click.echo(f"marked {label}" if made else f"{label} was already marked in this minute")
    return EXIT_OK


# -- helpers


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


def _size(inspector: Inspector, place: str) -> int:
    if place.startswith("queue:"):
        return inspector.queue(place.removeprefix("queue:")).size
    totals = inspector.stats()
    sizes = {
        "schedule": totals.scheduled,
        "retry": totals.retries,
        "dead": totals.dead,
        "unreadable": totals.unreadable,
    }
    return sizes[place]


def _agreed(question: str, yes: bool) -> bool:
    """Ask on standard error; return True if the answer is yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Standard input is not a terminal: add --yes to confirm")
    if click.confirm(question, err=True):
        return True
    click.echo("nothing was changed", err=True)
    return False


def _missing(names: Sequence[str], where: str) -> int:
    for name in names:
        click.echo(f"jobwire: {name} is not {where}", err=True)
    return EXIT_NOT_FOUND if names else EXIT_OK


def _each_of(
    inspector: Inspector,
    place: str,
    jids: Sequence[str],
    done: str,
    change: Callable[[Entry], bool],
) -> int:
    missing = []
    for jid in jids:
        if place.startswith("queue:"):
            entry = inspector.find_job(place.removeprefix("queue:"), jid)
        else:
            entry = inspector.find(SETS[place], jid)
        if entry is not None and change(entry):
            click.echo(f"{done} {jid}")
        else:
            missing.append(jid)
    return _missing(missing, f"in {place}")


def _change_each(
    inspector: Inspector, action: Action, place: str, jids: Sequence[str], done: str
) -> int:
    return _each_of(inspector, place, jids, done, getattr(inspector, action))


def _change_all(
    inspector: Inspector, action: Action, place: str, only: Filter, yes: bool, done: str
) -> int:
    size = _size(inspector, place)
    verb = action.replace("_", " ")
    which = f"those of the {size:,} jobs in {place} that match" if only else f"all {size:,} jobs of"
    question = f"{verb.capitalize()} {which}{'' if only else ' ' + place}?"
    if not _agreed(question, yes):
        return EXIT_NOT_FOUND
    with _progress(verb, size) as progress:
        if place.startswith("queue:"):
            queue_name = place.removeprefix("queue:")
            swept = inspector.delete_jobs(queue_name, only=only, progress=progress)
        else:
            swept = inspector.sweep(SETS[place], action, only=only, progress=progress)
    click.echo(f"{done} {swept.done:,}")
    if swept.left:
        click.echo(
            f"jobwire: {swept.left:,} stay in {place}: they name no queue, "
            "or the key of their queue is not a list",
            err=True,
        )
    return EXIT_OK


@contextmanager
def _progress(verb: str, size: int) -> Iterator[Callable[[Swept], None] | None]:
    """Draw a bar on standard error while many entries are changed, if it is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=size)
        yield lambda swept: bar.update(task, total=swept.total, completed=swept.seen)
