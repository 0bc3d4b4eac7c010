"""`jobwire worker`: run jobs."""

from __future__ import annotations

from typing import Any

import click

from jobwire.cli.loading import load_app
from jobwire.cli.options import find_redis, redis_option, worker_config, worker_options
from jobwire.worker.joblog import LogFormat, set_up

__all__ = ["worker"]


@click.command()
@click.argument("app_name", metavar="MODULE:APP")
@redis_option
@worker_options
def worker(
    app_name: str, url: str | None, log_format: LogFormat, log_level: str, **options: Any
) -> int:
    """Run the jobs of an application until TERM or INT.

    MODULE:APP is where the jobwire.App is: shop.jobs:app, or jobs.py:app.

    Signals: TERM and INT stop, TSTP quiets (start no more jobs), TTIN logs all stacks.
    """
    config = worker_config(**options)
    set_up(log_format, log_level)
    app = load_app(app_name)
    found, source = find_redis(url, app.url)
    app.connect(found)
    from jobwire.worker import process

    return process.run(app, config, source=source)
