"""`jobwire enqueue`: pushes one job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from jobwire.application.client import Client
from jobwire.cli.options import find_redis, redis_option
from jobwire.connection.connect import safe_url
from jobwire.protocol.normalize import Options
from jobwire.protocol.times import When

__all__ = ["enqueue", "time_of"]


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("class_name", metavar="CLASS")
@click.argument("args", nargs=-1, metavar="[--] [JSON]...")
@redis_option
@click.option("-q", "--queue", help="Bare queue name. [default: default]")
@click.option("--retry", metavar="true|false|N", help="Number of retries. [default: true]")
@click.option("--in", "delay", type=float, metavar="SECONDS", help="Run the job after this delay.")
@click.option(
    "--at", metavar="TIME", help="Run the job at this time: 2026-12-24T18:00:00Z or epoch seconds."
)
@click.option("--namespace", default="", help="Prefix of every key.")
def enqueue(
    class_name: str,
    args: Sequence[str],
    url: str | None,
    queue: str | None,
    retry: str | None,
    delay: float | None,
    at: str | None,
    namespace: str,
) -> int:
    """Push one job, for a Ruby or a Python worker, and print its id.

    Each argument is JSON: 42, true, null, '"text"', '{"a": [1, 2]}'. Put -- before arguments
    that begin with a dash.
    """
    if delay is not None and at is not None:
        raise click.UsageError("--in and --at cannot be combined")
    values = [_value(number, text) for number, text in enumerate(args, start=1)]
    options: Options = {}
    if queue is not None:
        options["queue"] = queue
    if retry is not None:
        options["retry"] = _retry(retry)
    when: When | None = delay if at is None else time_of(at)

    redis, source = find_redis(url)
    with Client(redis, namespace=namespace) as client:
        if when is None:
            jid = client.push(class_name, values, **options)
        else:
            jid = client.push_in(when, class_name, values, **options)
    click.echo(f"pushed to {safe_url(redis)} ({source})", err=True)
    click.echo(jid)
    return 0


def _value(number: int, text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"JSON has no {word}")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(
            f"argument {number}: {text!r} is not JSON: {error}; a string needs quotes: "
            f"'{json.dumps(text, ensure_ascii=False)}'"
        ) from None


def _retry(text: str) -> bool | int:
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text)
    except ValueError:
        raise click.UsageError(f"--retry {text!r} is not true, false or a number") from None


def time_of(text: str) -> When:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--at {text!r} is not a time; write 2026-12-24T18:00:00Z or epoch seconds"
        ) from None
    if moment.tzinfo is None:
        raise click.UsageError(
            f"--at {text!r} has no time zone; write {text}Z for UTC, or an offset, {text}+01:00"
        )
    return moment
