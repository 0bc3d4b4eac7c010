"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from jobwire.config import (
    DEFAULT_URL,
    CapsuleConfig,
    FetchMode,
    WorkerConfig,
    parse_capsule,
    parse_queues,
    redis_url,
)
from jobwire.errors import ConfigError

__all__ = ["configured_redis", "find_redis", "redis_option", "worker_config", "worker_options"]

F = TypeVar("F", bound=Callable[..., Any])

redis_option = click.option(
    "--redis", "url", metavar="URL", help="Redis or Valkey, like redis://localhost:6379/0."
)


def configured_redis(url: str | None, app_url: str | None = None) -> tuple[str, str] | None:
    """Return the URL of the Redis that somebody named, and who; None if nobody did."""
    if url:
        return url, "from --redis"
    if app_url:
        return app_url, "from the application"
    return redis_url(None, os.environ)


def find_redis(url: str | None, app_url: str | None = None) -> tuple[str, str]:
    """Return the URL of the Redis to use, and why that one."""
    if found := configured_redis(url, app_url):
        return found
    from jobwire import embedded

    if running := embedded.find(Path.cwd()):
        return running, "the server of 'jobwire dev' in this directory"
    return DEFAULT_URL, "the default"


def worker_options(command: F) -> F:
    """Add what says how a worker runs."""
    for option in reversed(
        [
            click.option(
                "-q",
                "--queue",
                "queues",
                multiple=True,
                metavar="NAME[,WEIGHT]",
                help="A queue to serve; repeatable, in order of preference. Without weights the "
                "order is strict, with weight 1 for all it is random. [default: default]",
            ),
            click.option(
                "-c", "--concurrency", default=5, show_default=True, help="Jobs at a time."
            ),
            click.option(
                "-t",
                "--timeout",
                default=25.0,
                show_default=True,
                help="Seconds that running jobs get after TERM.",
            ),
            click.option(
                "--capsule",
                "capsules",
                multiple=True,
                metavar="'NAME=N QUEUE[,WEIGHT]...'",
                help="A further group of queues with N threads of its own; repeatable.",
            ),
            click.option(
                "--fetch",
                type=click.Choice(["reliable", "basic"]),
                default="reliable",
                show_default=True,
                help="reliable survives kill -9; basic is BRPOP, as Sidekiq does it.",
            ),
            click.option(
                "--poll-interval",
                type=float,
                help="Average seconds between looks for due jobs. [default: by fleet size]",
            ),
            click.option("-g", "--tag", default="", help="Shown in Sidekiq's web page."),
            click.option(
                "--label", "labels", multiple=True, help="Shown in Sidekiq's web page; repeatable."
            ),
            click.option(
                "--log-format",
                type=click.Choice(["human", "json"]),
                default="human",
                show_default=True,
            ),
            click.option(
                "--log-level",
                type=click.Choice(["debug", "info", "warning", "error"]),
                default="info",
                show_default=True,
            ),
        ]
    ):
        command = option(command)
    return command


def worker_config(
    *,
    queues: Sequence[str],
    capsules: Sequence[str],
    concurrency: int,
    timeout: float,
    fetch: FetchMode,
    poll_interval: float | None,
    tag: str,
    labels: Sequence[str],
) -> WorkerConfig:
    """Return the options as a checked configuration."""
    default = CapsuleConfig(
        queues=parse_queues(queues) if queues else {"default": 0}, concurrency=concurrency
    )
    every = {"default": default}
    for text in capsules:
        name, capsule = parse_capsule(text)
        if name in every:
            raise ConfigError(f"capsule {name!r} is named twice; -q and -c make 'default'")
        every[name] = capsule
    return WorkerConfig(
        capsules=every,
        fetch=fetch,
        timeout=timeout,
        poll_interval=poll_interval,
        tag=tag,
        labels=labels,
    )
