"""`jobwire dev`: a server and a worker for development, nothing to install."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobwire.cli.loading import load_app
from jobwire.cli.options import worker_config, worker_options
from jobwire.worker.joblog import LogFormat, set_up

__all__ = ["dev"]


@click.command()
@click.argument("app_name", metavar="MODULE:APP")
@worker_options
def dev(app_name: str, log_format: LogFormat, log_level: str, **options: Any) -> int:
    """Run an application with a Valkey server of this directory.

    The server's data is in ./.jobwire and survives restarts; the other commands, run in this
    directory, find the server by themselves. Needs: pip install 'jobwire[embedded]'.
    """
    if options["poll_interval"] is None:
        options["poll_interval"] = 1.0  # one process, and somebody who waits for it
    config = worker_config(**options)
    set_up(log_format, log_level)
    app = load_app(app_name)
    from jobwire import embedded
    from jobwire.worker import process

    with embedded.start(Path.cwd()) as server:
        click.echo(f"jobwire dev: Valkey at {server.url}, data in ./.jobwire", err=True)
        click.echo(f"For your own programs: export JOBWIRE_REDIS_URL={server.url}", err=True)
        app.connect(server.url)
        return process.run(app, config, source="this directory's own")
