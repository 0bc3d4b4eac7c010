"""Options and helpers that the commands of `jobwire inspect` share."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from jobwire.cli import output
from jobwire.cli.exits import EXIT_NOT_FOUND, EXIT_OK, NotFound
from jobwire.cli.groups import did_you_mean
from jobwire.cli.options import (
    app_option,
    find_redis,
    namespace_option,
    redis_option,
    time_span,
)
from jobwire.cli.table import Table
from jobwire.inspect import Filter, Inspector, SetName
from jobwire.ops import Operations, Role

__all__ = [
    "SETS",
    "change_options",
    "filter_of",
    "filter_options",
    "json_option",
    "limit_option",
    "not_found",
    "number_option",
    "opened",
    "operating",
    "options",
    "reason_option",
    "require_queue",
    "view",
    "view_options",
    "yes_option",
]

F = TypeVar("F", bound=Callable[..., Any])

SETS: dict[str, SetName] = {
    "scheduled": "schedule",
    "schedule": "schedule",
    "retries": "retry",
    "retry": "retry",
    "dead": "dead",
    "unreadable": "unreadable",
}


def options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds several options to a command."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line."
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
view_options = options(
    app_option,
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
change_options = options(app_option, redis_option, namespace_option)
limit_option = click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    help="Show at most this many; 0 for all.  [default: 50 on a terminal, otherwise all]",
)


reason_option = click.option(
    "--reason",
    metavar="REASON",
    help="Only parked for this reason: a feature such as bid, or unknown, version, size.",
)


def number_option(name: str, default: int, words: str) -> Callable[[F], F]:
    """Return the option of a number of at least 1, such as `-n`, which is also `--limit`."""
    return click.option(
        *(("-n", "--limit") if name == "--limit" else (name,)),
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help=words,
    )


filter_options = options(
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
        callback=time_span,
        help="Only older than 90 (seconds), 15m, 2h or 30d. The age of a dead or failed job "
        "counts from its death or failure.",
    ),
)


def filter_of(given: dict[str, Any]) -> Filter:
    """Return the filter that the options give."""
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
def opened(url: str | None, namespace: str | None) -> Iterator[Inspector]:
    """Open an inspector."""
    redis, _, prefix, _ = find_redis(url, namespace)
    with Inspector(redis, namespace=prefix) as inspector:
        yield inspector


@contextmanager
def operating(url: str | None, namespace: str | None, role: Role = "admin") -> Iterator[Operations]:
    """Open operations, by default of an admin: the user of a shell can do anything with Redis.

    The person in the journal is the user of the system, at this host.
    """
    redis, _, prefix, _ = find_redis(url, namespace)
    person = f"{_user()}@{socket.gethostname()}"
    with Operations(redis, namespace=prefix, person=person, role=role) as operations:
        yield operations


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        return str(os.getuid())


def view(
    make: Callable[[Inspector], Table],
    *,
    url: str | None,
    namespace: str | None,
    as_json: bool,
    watch: float | None,
    limit: int | None = 0,
) -> int:
    """Print the table that `make` returns, once or repeatedly."""
    if watch is not None and as_json:
        raise click.UsageError("--watch and --json cannot be combined")
    if limit is None:
        limit = 50 if sys.stdout.isatty() and not as_json else 0
    with opened(url, namespace) as inspector:
        if watch is not None:
            output.watch(lambda: (make(inspector), limit or None), watch)
        else:
            output.show(make(inspector), as_json=as_json, limit=limit or None)
    return EXIT_OK


def require_queue(inspector: Inspector, name: str) -> None:
    """Check that a queue is registered, or has jobs.

    Raises:
        NotFound: There is no such queue.
    """
    queue = inspector.queue(name)
    if queue.size or queue.problem:
        return
    known = [each.name for each in inspector.queues()]
    if name not in known:
        raise NotFound(f"there is no queue {name!r}{did_you_mean(name, known)}")


def not_found(names: Sequence[str], where: str) -> int:
    """Report the items that are not `where`; return the exit status."""
    for name in names:
        click.echo(f"jobwire: {name} is not {where}", err=True)
    return EXIT_NOT_FOUND if names else EXIT_OK
