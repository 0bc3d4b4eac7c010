"""`jobwire conform watch`: judges the commands of an application, without an adapter."""

from __future__ import annotations

import click

__all__ = ["watch"]

_CLAIMS = ("client/faults", "worker/reliable", "scheduler/reliable")


@click.command(
    context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]"
)
@click.option(
    "--redis",
    metavar="URL",
    help="The server to use, redis://... [default: a new empty server for this run]",
)
@click.option(
    "--listen",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Port to listen on, on 127.0.0.1. Without COMMAND: judge all connections, until Ctrl-C.",
)
@click.option(
    "--env",
    "variables",
    metavar="NAME",
    multiple=True,
    help="Set this variable to the URL also.",
)
@click.option(
    "--json",
    "json_to",
    metavar="FILE|-",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write all findings and counts as JSON to FILE; - is standard output.",
)
@click.option(
    "--claim",
    "claims",
    multiple=True,
    type=click.Choice(_CLAIMS),
    help="Require the obligations of this profile; otherwise breaking them is a note.",
)
@click.option("--namespace", metavar="PREFIX", default="", help="The prefix of every key.")
@click.argument("command", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
def watch(
    redis: str | None,
    listen: int | None,
    variables: tuple[str, ...],
    json_to: str | None,
    claims: tuple[str, ...],
    namespace: str,
    command: tuple[str, ...],
) -> int:
    """Run an application and judge its commands to Redis.

    COMMAND gets the URL of a proxy in REDIS_URL and JOBWIRE_REDIS_URL. The proxy passes every
    command unchanged, and a judge examines payloads, keys, transactions, heartbeats and scripts.
    COMMAND receives the signals of this process. The verdict comes when COMMAND ends.

    Exit status: 0 no violation; 1 violations; 3 COMMAND cannot be started, or never connected; 4
    no Redis, or the port is taken; 64 wrong usage.
    """
    from jobwire_conformance.watch.session import WatchOptions, run

    if not command and listen is None:
        raise click.UsageError("name the COMMAND to run, or a port with --listen")
    return run(WatchOptions(command, redis, listen or 0, json_to, variables, claims, namespace))
