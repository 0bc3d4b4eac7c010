"""`jobwire worker`: run jobs."""

from __future__ import annotations

from typing import Any

import click

from jobwire.cli.banner import greet
from jobwire.cli.loading import app_of
from jobwire.cli.options import redis_of, set_up_log, unnamed_redis, worker_options, worker_settings

__all__ = ["worker"]


@click.command()
@worker_options
def worker(**options: Any) -> int:
    """Run the jobs of an application until TERM or INT.

    MODULE:APP is where the jobwire.App is: shop.jobs:app, or jobs.py:app. It and all settings can
    be in a file too, or in variables: JOBWIRE_APP, JOBWIRE_CONCURRENCY... `jobwire config` shows
    what counts.

    Signals: TERM and INT stop, TSTP quiets (start no more jobs), TTIN logs all stacks, USR2
    restarts the processes of --processes one after the other.
    """
    settings = worker_settings(**options)
    config = settings.worker()
    greet(settings)
    set_up_log(settings)
    from jobwire.worker.process import process, supervisor

    if supervisor.wanted(config):
        return supervisor.run(config)
    app = app_of(settings)
    url, source = redis_of(app, settings) or unnamed_redis()
    app.connect(url)
    return process.run(app, config, source=source)
