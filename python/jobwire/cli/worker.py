"""`jobwire worker`: runs jobs."""

from __future__ import annotations

import os
from typing import Any

import click

from jobwire.cli.banner import greet
from jobwire.cli.loading import worker_app_of
from jobwire.cli.options import (
    insist_on_log,
    redis_of,
    serve_all_queues,
    set_up_log,
    unnamed_redis,
    worker_options,
    worker_settings,
)

__all__ = ["worker"]


@click.command()
@worker_options
def worker(**options: Any) -> int:
    """Run the jobs of an application until TERM or INT.

    MODULE:APP names the jobwire.App, such as shop.jobs:app or jobs.py:app. A file or environment
    variables (JOBWIRE_APP, JOBWIRE_CONCURRENCY...) can set it and all options. `jobwire config`
    shows the effective settings. If no queues are named, the worker serves all queues that the
    jobs name. An application with shards has a process for each, or as many as --processes says;
    --redis chooses one shard.

    Signals: TERM and INT stop the worker. TSTP quiets it: it starts no more jobs. TTIN logs the
    stacks of all threads. USR2 restarts the processes of --processes one after the other.
    """
    settings = worker_settings(**options)
    config = settings.worker()
    greet(settings)
    set_up_log(settings)
    from jobwire.worker.process import process, supervisor
    from jobwire.worker.process.notify import SHARD, SUPERVISOR

    if supervisor.wanted(config):
        return supervisor.run(config)
    app = worker_app_of(settings)
    if app.shards and settings.values["redis"].giver != "flag":
        if SUPERVISOR not in os.environ:  # a process for each shard
            return supervisor.run(config)
        place = os.environ.pop(SHARD, app.shards[0])
        source = f"{place!r} of the application"
    else:
        place, source = redis_of(app, settings) or unnamed_redis(settings)
    insist_on_log(app, settings)
    app.serve(place)
    return process.run(app, serve_all_queues(app, settings).worker(), source=source)
