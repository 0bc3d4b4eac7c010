"""Options that several commands share, and what they mean."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

import jobwire
from jobwire.application.app import App
from jobwire.application.config import DEFAULT_URL, redis_url
from jobwire.settings import SETTINGS, Setting, Settings, resolve
from jobwire.worker.execute.joblog import set_up
from jobwire.worker.process.notify import SUPERVISOR

__all__ = [
    "find_redis",
    "redis_of",
    "redis_option",
    "set_up_log",
    "unnamed_redis",
    "worker_options",
    "worker_settings",
]

F = TypeVar("F", bound=Callable[..., Any])

redis_option = click.option(
    "--redis", "url", metavar="URL", help="Redis or Valkey, like redis://localhost:6379/0."
)


def find_redis(url: str | None, app_url: str | None = None) -> tuple[str, str]:
    """Return the URL of the Redis to use, and why that one."""
    if url:
        return url, "from --redis"
    if app_url:
        return app_url, "from the application"
    if found := redis_url(None, os.environ):
        return found
    in_file = resolve({}, os.environ, Path.cwd(), names=["redis"])
    return redis_of(None, in_file) or unnamed_redis()


def redis_of(app: App | None, settings: Settings) -> tuple[str, str] | None:
    """Return the URL that somebody named for a worker, and who; None if nobody did."""
    named = settings.values["redis"]
    if app and app.url and named.giver != "flag":
        return app.url, "from the application"
    return (named.value, f"from {named.source}") if named.value else None


def unnamed_redis() -> tuple[str, str]:
    """Return the URL of the Redis to use where nobody named one, and why that one."""
    from jobwire.connection import embedded

    if running := embedded.find(Path.cwd()):
        return running, "the server of 'jobwire dev' in this directory"
    return DEFAULT_URL, "the default"


def set_up_log(settings: Settings) -> None:
    """Log as the settings say, beginning with what is odd about them."""
    several = settings["processes"] > 1 or SUPERVISOR in os.environ
    set_up(settings["log_format"], settings["log_level"], pid=several)
    for note in settings.notes:
        logging.getLogger("jobwire.settings").warning("%s", note)


def worker_options(command: F) -> F:
    """Add what says how a worker runs: an argument, an option for each setting, and where more is.

    What they mean is for `worker_settings`, which takes them all.
    """
    for add in reversed(
        [
            click.argument("target", metavar="[MODULE:APP]", required=False),
            click.option(
                "-C",
                "--config",
                "file",
                metavar="FILE",
                help="Settings: TOML or YAML. [default: jobwire.toml, jobwire.yml, jobwire.yaml, "
                "or [tool.jobwire] in pyproject.toml]",
            ),
            click.option(
                "-e",
                "--environment",
                metavar="NAME",
                help="Which section of that file counts too. [env: JOBWIRE_ENV, APP_ENV, "
                "RAILS_ENV, RACK_ENV] [default: development]",
            ),
            *map(_option, SETTINGS.values()),
            click.option("-v", "--verbose", is_flag=True, help="The same as --log-level debug."),
            click.version_option(jobwire.__version__, "-V", "--version", prog_name="jobwire"),
        ]
    ):
        command = add(command)
    return command


def _option(setting: Setting) -> Callable[[F], F]:
    text = f"{setting.help} [default: {setting.shown_default}]"
    if any("/" in flag for flag in setting.flags):
        return click.option(*setting.flags, setting.name, default=None, help=text)
    return click.option(
        *setting.flags,
        setting.name,
        metavar=setting.metavar,
        multiple=setting.kind.split is not None,
        help=text,
    )


def worker_settings(
    *, target: str | None, file: str | None, environment: str | None, verbose: bool, **flags: Any
) -> Settings:
    """Return what the options of a worker, the variables and the file come to."""
    if target and flags["app"]:
        raise click.UsageError(f"the application is named twice, as {target} and by --require")
    if verbose and flags["log_level"] is None:
        flags["log_level"] = "debug"
    flags["app"] = target or flags["app"]
    return resolve(flags, os.environ, Path.cwd(), file=file, environment=environment)
