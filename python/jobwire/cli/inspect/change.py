"""The commands of `jobwire inspect` that change data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import click

from jobwire.cli.enqueue import time_of
from jobwire.cli.exits import EXIT_NOT_FOUND, EXIT_OK
from jobwire.cli.inspect.options import (
    SETS,
    change_options,
    filter_of,
    filter_options,
    not_found,
    operating,
    reason_option,
    require_queue,
    yes_option,
)
from jobwire.cli.options import time_span
from jobwire.cli.output import progress_bar
from jobwire.inspect import Action, Entry, Inspector
from jobwire.inspect.display import CANCELLED
from jobwire.inspect.formats import clean
from jobwire.ops import Deleted, Operations, Selection
from jobwire.text import counted, visible

__all__ = ["COMMANDS", "agreed"]


def _place(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    if value in SETS:
        return SETS[value]
    if value.startswith("queue:") and value != "queue:":
        return value
    raise click.BadParameter(f"{value!r} is not one of {', '.join(SETS)} or queue:NAME")


def _bulk(action: Action, *, source: str, doc: str, done: str) -> click.Command:
    @click.command("add-to-queue" if action == "add_to_queue" else action, help=doc)
    @click.argument("jids", metavar="[JID]...", nargs=-1)
    @click.option(
        "--from",
        "place",
        callback=_place,
        metavar="PLACE",
        help="scheduled, retries, dead, unreadable"
        + (", queue:NAME" * (action == "delete"))
        + f"  [default: {source}{', and dead for ids' * (action == 'retry')}]",
    )
    @click.option("--all", "every", is_flag=True, help="All jobs of the place.")
    @filter_options
    @click.option("--group", metavar="KEY", help="Only of this group of 'jobwire groups'.")
    @click.option(
        "-n", "--limit", type=click.IntRange(min=1), help="At most this many: the first that match."
    )
    @click.option("--dry-run", is_flag=True, help="Show the number and some jobs; change nothing.")
    @yes_option
    @change_options
    def change(
        jids: tuple[str, ...],
        place: str | None,
        every: bool,
        group: str | None,
        limit: int | None,
        dry_run: bool,
        yes: bool,
        **given: Any,
    ) -> int:
        only = filter_of(given)
        others = ["dead"] if action == "retry" and place is None else []
        place = SETS[source] if place is None else place
        if place.startswith("queue:") and action != "delete":
            raise click.UsageError(f"{action} is for sets; jobs in {place} run anyway")
        many = every or bool(only) or group is not None or limit is not None
        if bool(jids) + many != 1:
            given_both = ", not both" if jids else ""
            raise click.UsageError(
                f"give ids of jobs, or --all, --limit or a filter like --class{given_both}"
            )
        if jids and dry_run:
            raise click.UsageError("--dry-run is for --all, --limit or a filter")
        with operating(given["url"], given["namespace"]) as operations:
            if jids:
                return _change_each(operations, action, [place, *others], jids, done)
            chosen = Selection(place=place, only=only, group=group, limit=limit)
            if dry_run:
                return _show_preview(operations, chosen)
            return _change_all(operations, action, chosen, yes, done)

    return change


_BULK_COMMANDS = [
    _bulk(
        "retry",
        source="retries",
        done="enqueued",
        doc="Push failed, dead or scheduled jobs to their queues now; the retry is not counted.",
    ),
    _bulk(
        "add_to_queue",
        source="scheduled",
        done="enqueued",
        doc="Push jobs to their queues now; the attempt counts as a retry.",
    ),
    _bulk("kill", source="retries", done="killed", doc="Move jobs to the dead set."),
    _bulk(
        "delete",
        source="retries",
        done="deleted",
        doc="Delete jobs; 'jobwire undo' can put them back.",
    ),
]


@click.command()
@click.argument("jids", metavar="JID...", nargs=-1, required=True)
@click.option(
    "--from", "place", callback=_place, default="scheduled", show_default=True, metavar="PLACE"
)
@click.option(
    "--in", "delay", callback=time_span, metavar="SPAN", help="Due after this time: 90, 2h."
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
    namespace: str | None,
) -> int:
    """Change the time at which jobs are due."""
    if place not in ("schedule", "retry"):
        raise click.UsageError("--from: only scheduled jobs and retries become due")
    if (delay is None) == (at is None):
        raise click.UsageError("give either --in or --at")
    when = time_of(at) if at is not None else timedelta(seconds=delay or 0)
    with operating(url, namespace) as operations:
        return _each_of(
            operations,
            "reschedule",
            [place],
            jids,
            "rescheduled",
            lambda entry: operations.reschedule(entry, when),
        )


@click.command()
@click.argument("place", callback=_place, metavar="PLACE")
@yes_option
@change_options
def clear(place: str, yes: bool, url: str | None, namespace: str | None) -> int:
    """Delete all jobs of a PLACE in one step.

    PLACE is scheduled, retries, dead, unreadable or queue:NAME.
    """
    with operating(url, namespace) as operations:
        size = _size(operations.inspector, place)
        if not agreed(f"Delete {_all(size, 'job')} of {place}?", yes):
            return EXIT_NOT_FOUND
        deleted = operations.clear(place)
    click.echo(f"deleted {deleted.count:,}")
    _say_undo(deleted.undo)
    return EXIT_OK


@click.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@change_options
def pause(names: tuple[str, ...], url: str | None, namespace: str | None) -> int:
    """Pause queues: jobwire's workers fetch no jobs from them. Sidekiq's workers do not stop."""
    with operating(url, namespace) as operations:
        for name in names:
            operations.pause(name)
            click.echo(f"paused {name}")
    return EXIT_OK


@click.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@change_options
def unpause(names: tuple[str, ...], url: str | None, namespace: str | None) -> int:
    """Unpause queues: workers fetch jobs from them again."""
    missing = []
    with operating(url, namespace) as operations:
        for name in names:
            if operations.unpause(name):
                click.echo(f"unpaused {name}")
            else:
                missing.append(name)
    return not_found(missing, "paused")


@click.command()
@click.option("--all", "every", is_flag=True, help="All parked jobs.")
@reason_option
@filter_options
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), help="At most this many: the oldest first."
)
@change_options
def unpark(
    every: bool,
    reason: str | None,
    limit: int | None,
    url: str | None,
    namespace: str | None,
    **given: Any,
) -> int:
    """Push parked jobs back to their queues, unchanged."""
    only = filter_of(given)
    if every == (bool(only) or reason is not None or limit is not None):
        raise click.UsageError("give either --all, or --reason, --limit or a filter like --class")
    with operating(url, namespace) as operations:
        unparked = operations.unpark(only=only, reason=reason, limit=limit)
    click.echo(f"enqueued {unparked.done:,}")
    if unparked.left:
        click.echo(
            f"jobwire: {unparked.left:,} stay parked: they name no queue, the key of their queue "
            "is not a list, or another program has moved them",
            err=True,
        )
    return EXIT_OK if unparked.done else EXIT_NOT_FOUND


@click.command()
@click.argument("digests", metavar="LOCK...", nargs=-1, required=True)
@change_options
def unlock(digests: tuple[str, ...], url: str | None, namespace: str | None) -> int:
    """Release locks of unique jobs, named as 'inspect unique' shows them.

    The jobs stay where they are, and a second job with the same key is accepted. A job of
    while_running may then run while the other one still does.
    """
    missing = []
    with operating(url, namespace) as operations:
        for digest in digests:
            lock = operations.inspector.lock(digest)
            if lock is not None and operations.unlock(lock):
                click.echo(f"released {digest} of job {visible(lock.jid)}")
            else:
                missing.append(digest)
    return not_found(missing, "a lock; 'jobwire inspect unique' shows the locks")


@click.command("cancel-batch")
@click.argument("batch_ids", metavar="BATCH...", nargs=-1, required=True)
@yes_option
@change_options
def cancel_batch(
    batch_ids: tuple[str, ...], yes: bool, url: str | None, namespace: str | None
) -> int:
    """Cancel batches: drop their members that have not begun, and all their callbacks.

    Members that run go on. The jobs cannot be put back.
    """
    missing = []
    with operating(url, namespace) as operations:
        statuses = [operations.inspector.batch(one) for one in batch_ids]
        members = sum(status.open for status in statuses if status)
        question = f"Cancel {counted(len(batch_ids), 'batch')} with {members:,} open members?"
        if not agreed(question, yes):
            return EXIT_NOT_FOUND
        for batch_id in batch_ids:
            if operations.cancel_batch(batch_id):
                click.echo(f"cancelled {visible(batch_id)}")
            else:
                missing.append(batch_id)
    return not_found(missing, "a batch that has not ended; 'jobwire inspect batches' shows them")


def _signal_command(command: str, text: str) -> click.Command:
    @click.command(command, help=text)
    @click.argument("identities", metavar="[PROCESS]...", nargs=-1)
    @click.option("--all", "every", is_flag=True, help="All processes.")
    @yes_option
    @change_options
    def send(
        identities: tuple[str, ...], every: bool, yes: bool, url: str | None, namespace: str | None
    ) -> int:
        if bool(identities) == every:
            raise click.UsageError(
                "give processes as 'inspect processes' shows them, or --all for all of them"
            )
        with operating(url, namespace) as operations:
            known = [
                process.identity
                for process in operations.inspector.processes()
                if not process.embedded or command == "dump"
            ]
            if every and not agreed(f"Tell {_all(len(known), 'process')} to {command}?", yes):
                return EXIT_NOT_FOUND
            missing = [identity for identity in identities if identity not in known]
            for identity in known if every else identities:
                if identity not in missing:
                    getattr(operations, command)(identity)
                    click.echo(f"told {visible(identity)}; it acts at its next heartbeat")
        return not_found(missing, "registered, or is embedded in another program")

    return send


_SIGNAL_COMMANDS = [
    _signal_command("quiet", "Tell processes to fetch no more jobs."),
    _signal_command("stop", "Tell processes to stop."),
    _signal_command("dump", "Tell processes to log the stacks of their threads."),
]


@click.command()
@click.argument("jids", metavar="JID...", nargs=-1, required=True)
@change_options
def cancel(jids: tuple[str, ...], url: str | None, namespace: str | None) -> int:
    """Cancel jobs: remove those that wait, and ask those that run to end."""
    with operating(url, namespace) as operations:
        for jid in jids:
            click.echo(f"{jid} {CANCELLED[operations.cancel(jid).place]}")
    return EXIT_OK


@click.command("mark-deploy")
@click.argument("label")
@change_options
def mark_deploy(label: str, url: str | None, namespace: str | None) -> int:
    """Mark a deployment in the metrics charts, with a LABEL such as v1.2."""
    with operating(url, namespace) as operations:
        made = operations.mark_deploy(label)
    click.echo(f"marked {label}" if made else f"{label} was already marked in this minute")
    return EXIT_OK


COMMANDS = [
    *_BULK_COMMANDS,
    reschedule,
    clear,
    pause,
    unpause,
    unpark,
    unlock,
    cancel_batch,
    *_SIGNAL_COMMANDS,
    cancel,
    mark_deploy,
]


def _size(inspector: Inspector, place: str) -> int:
    if place.startswith("queue:"):
        require_queue(inspector, place.removeprefix("queue:"))
        return inspector.queue(place.removeprefix("queue:")).size
    totals = inspector.stats()
    sizes = {
        "schedule": totals.scheduled,
        "retry": totals.retries,
        "dead": totals.dead,
        "unreadable": totals.unreadable,
    }
    return sizes[place]


def _all(number: int, noun: str) -> str:
    return counted(number, noun) if number == 1 else f"all {counted(number, noun)}"


def agreed(question: str, yes: bool) -> bool:
    """Ask on standard error; return True if the answer is yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Standard input is not a terminal: add --yes to confirm")
    if click.confirm(question, err=True):
        return True
    click.echo("nothing was changed", err=True)
    return False


def _each_of(
    operations: Operations,
    command: str,
    places: Sequence[str],
    jids: Sequence[str],
    done: str,
    change: Callable[[Entry], bool | Deleted],
) -> int:
    inspector = operations.inspector
    status = EXIT_OK
    for jid in jids:
        found = (_find(inspector, place, jid) for place in places)
        entry = next((entry for entry in found if entry is not None), None)
        changed = change(entry) if entry is not None else False
        if changed:
            click.echo(f"{done} {jid}")
            if isinstance(changed, Deleted):
                _say_undo(changed.undo)
        else:
            where = f"in {' or '.join(places)}{_hint(inspector, command, places, jid)}"
            status = not_found([jid], where)
    return status


def _say_undo(undo_id: str) -> None:
    """Say how to undo a deletion, on standard error."""
    if undo_id:
        click.echo(f"to undo this within 24 hours: jobwire undo {undo_id}", err=True)


_REFUSED_IN = {
    "dead": ("kill", "reschedule"),
    "unreadable": ("kill", "reschedule", "retry", "add-to-queue"),
}


def _find(inspector: Inspector, place: str, jid: str) -> Entry | None:
    if place.startswith("queue:"):
        return inspector.find_job(place.removeprefix("queue:"), jid)
    return inspector.find(SETS[place], jid)


def _hint(inspector: Inspector, command: str, places: Sequence[str], jid: str) -> str:
    """Return in which other set a job is, with the command that changes it there; "" if in none."""
    for name in dict.fromkeys(SETS.values()):
        if name not in places and inspector.find(name, jid) is not None:
            if command in _REFUSED_IN.get(name, ()):
                return f"; it is in {name}"
            return f"; it is in {name}: jobwire inspect {command} --from {name} {jid}"
    return f"; jobwire inspect job {jid} searches all places"


def _change_each(
    operations: Operations, action: Action, places: Sequence[str], jids: Sequence[str], done: str
) -> int:
    command = action.replace("_", "-")
    return _each_of(operations, command, places, jids, done, getattr(operations, action))


def _change_all(
    operations: Operations, action: Action, chosen: Selection, yes: bool, done: str
) -> int:
    place = chosen.place
    size = _size(operations.inspector, place)
    verb = action.replace("_", " ")
    if not yes:
        which = f"{_all(size, 'job')} of {place}"
        if not chosen.everything:
            matching = operations.preview(chosen).matched
            which = f"{matching:,} of the {counted(size, 'job')} in {place}"
        if not agreed(f"{verb.capitalize()} {which}?", yes):
            return EXIT_NOT_FOUND
    with progress_bar(verb, size) as progress:
        for state in operations.bulk(action, chosen):
            if progress:
                progress(state.seen, state.total)
    click.echo(f"{done} {state.done:,}")
    _say_undo(state.undo)
    if state.left:
        click.echo(
            f"jobwire: {state.left:,} stay in {place}: they name no queue, "
            "or the key of their queue is not a list",
            err=True,
        )
    return EXIT_OK


def _show_preview(operations: Operations, chosen: Selection) -> int:
    """Print the number of jobs that a change would examine and change, and some of them."""
    preview = operations.preview(chosen)
    click.echo(f"{preview.matched:,} of the {counted(preview.total, 'job')} in {chosen.place}")
    for entry in preview.sample:
        click.echo(f"{clean(entry.jid or '-')}\t{clean(entry.display_class or 'unreadable')}")
    return EXIT_OK
