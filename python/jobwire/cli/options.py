"""Options that several commands share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from jobwire._version import __version__
from jobwire.application.app import App
from jobwire.application.redis_url import unnamed_address
from jobwire.cli.exits import AppNotLoaded
from jobwire.cli.loading import app_of
from jobwire.errors import ConfigError
from jobwire.settings import SETTINGS, Setting, Settings, resolve
from jobwire.worker.execute.joblog import insist, set_up
from jobwire.worker.process.notify import SUPERVISOR

__all__ = [
    "Place",
    "app_option",
    "find_places",
    "find_redis",
    "insist_on_log",
    "namespace_option",
    "redis_of",
    "redis_option",
    "serve_all_queues",
    "set_up_log",
    "time_span",
    "unnamed_redis",
    "worker_options",
    "worker_settings",
]

F = TypeVar("F", bound=Callable[..., Any])

redis_option = click.option(
    "--redis",
    "url",
    metavar="URL|NAME",
    help="Redis or Valkey, like redis://localhost:6379/0, or a name of App(redis=...).",
)
namespace_option = click.option(
    "--namespace", help="Prefix of every key. [default: the application's, or none]"
)
_APP = f"{__name__}.app"  # where a command keeps its --require, which `find_redis` reads


def _keep_app(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    context.meta[_APP] = value


app_option = click.option(
    "-r",
    "--require",
    "app",
    metavar="MODULE:APP",
    expose_value=False,
    callback=_keep_app,
    help="Application whose Redis and namespace to use. [env: JOBWIRE_APP] "
    "[default: app in jobwire.toml]",
)


class Place(NamedTuple):
    """The Redis of a command, and the settings of the application that concern it.

    Attributes:
        url: URL of the server.
        source: Source of the URL.
        namespace: Prefix of the keys.
        wait_replicas: Replicas that confirm a push of the application; None without one.
    """

    url: str
    source: str
    namespace: str
    wait_replicas: int | None


def time_span(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of a time span like `90`, `15m`, `2h` or `30d`."""
    if value is None:
        return None
    from jobwire.inspect.formats import seconds  # a worker has no spans, and does without it

    try:
        return seconds(value)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def find_redis(url: str | None, namespace: str | None = None) -> Place:
    """Return the Redis and the namespace that the worker of this application would use.

    Args:
        url: The value of --redis.
        namespace: The value of --namespace.

    Raises:
        AppNotLoaded: The application cannot be imported, and not both values are given.
        click.UsageError: The application has shards, and none is chosen.
    """
    places = find_places(url, namespace)
    if "" not in places:
        raise click.UsageError(
            f"the application has the shards {', '.join(places)}, and this command shows one; "
            f"choose it: --redis {next(iter(places))}"
        )
    return places[""]


def find_places(url: str | None, namespace: str | None = None) -> dict[str, Place]:
    """Return each shard of the application by its name, unless --redis chooses one; or "" alone.

    The arguments and errors are those of `find_redis`.
    """
    context = click.get_current_context(silent=True)
    flags = {"app": context.meta.get(_APP) if context else None, "redis": url}
    settings = resolve(flags, os.environ, Path.cwd(), names=["app", "redis"])
    app = None
    if settings["app"] and (url is None or namespace is None):
        try:
            app = app_of(settings)
        except AppNotLoaded as error:
            raise AppNotLoaded(f"{error}; --redis and --namespace do without it") from error
    prefix = namespace if namespace is not None else app.namespace if app else ""
    confirming = app.wait_replicas if app else None
    if app and app.shards and settings.values["redis"].giver != "flag":
        return {
            name: Place(app.redis[name], f"{name!r} of the application", prefix, confirming)
            for name in app.shards
        }
    found = redis_of(app, settings) or unnamed_redis(settings)
    return {"": Place(*found, prefix, confirming)}


def redis_of(app: App | None, settings: Settings) -> tuple[str, str] | None:
    """Return the configured Redis URL of a worker, and its source; None if none is configured."""
    configured = settings.values["redis"]
    if app and app.url and configured.giver != "flag":
        return app.url, "from the application"
    if not configured.value:
        return None
    if app and app.redis:
        name = app.name_of(configured.value)
        if name in app.redis:
            return app.redis[name], f"{name!r} of the application"
    return configured.value, f"from {configured.source}"


def unnamed_redis(settings: Settings) -> tuple[str, str]:
    """Return the Redis URL to use if none is configured, and its source."""
    address = unnamed_address(settings.environment.value)
    return address.url, address.source


def serve_all_queues(app: App, settings: Settings) -> Settings:
    """Return the settings of a worker that serves all queues of its jobs, unless queues are named.

    The capsule `default` leaves out the queues of other capsules. If it has none left, the worker
    does without it.
    """
    capsules = settings["capsules"]
    if "default" in capsules:
        return settings
    others = {queue for capsule in capsules.values() for queue in capsule.queues}
    queues = [queue for queue in app.queues if queue not in others]
    weights = dict.fromkeys(queues, 1 if len(queues) > 1 else 0)
    return settings.otherwise("queues", weights, "queues of the jobs")


def set_up_log(settings: Settings, *, alone: bool = False) -> None:
    """Set up the log as configured, and log the warnings about the settings.

    If the process is not `alone`, the lines of `--processes` show their process.
    """
    set_up(settings["log_format"], settings["log_level"], pid=not alone and _has_siblings(settings))
    for note in settings.notes:
        logging.getLogger("jobwire.settings").warning("%s", note)


def insist_on_log(app: App, settings: Settings, *, alone: bool = False) -> None:
    """Keep to the settings of the log, now and after the application's own start.

    An application that sets up its own log keeps it, except for the format and the level if the
    settings name them. See `set_up_log` for `alone`.
    """

    @app.on("startup")
    def again() -> None:
        insist(
            settings["log_format"] if settings.given("log_format") else None,
            settings["log_level"] if settings.given("log_level") else None,
            pid=not alone and _has_siblings(settings),
        )

    again()


def _has_siblings(settings: Settings) -> bool:
    return settings["processes"] > 1 or SUPERVISOR in os.environ


def worker_options(command: F) -> F:
    """Add the argument and options of a worker: one for each setting, and for the settings file.

    `worker_settings` takes their values.
    """
    for add in reversed(
        [
            click.argument("target", metavar="[MODULE:APP]", required=False),
            click.option(
                "-C",
                "--config",
                "file",
                metavar="FILE",
                help="Settings file, TOML or YAML. [default: jobwire.toml, jobwire.yml, "
                "jobwire.yaml, or [tool.jobwire] in pyproject.toml]",
            ),
            click.option(
                "-e",
                "--environment",
                metavar="NAME",
                help="Section of that file to apply on top. [env: JOBWIRE_ENV, APP_ENV, "
                "RAILS_ENV, RACK_ENV] [default: development]",
            ),
            *map(_option, SETTINGS.values()),
            click.option("-v", "--verbose", is_flag=True, help="Same as --log-level debug."),
            click.version_option(__version__, "-V", "--version", prog_name="jobwire"),
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
    """Return the settings of a worker from its options, the environment and the file."""
    if target and flags["app"]:
        raise click.UsageError(f"the application is named twice, as {target} and by --require")
    if verbose and flags["log_level"] is None:
        flags["log_level"] = "debug"
    flags["app"] = target or flags["app"]
    return resolve(flags, os.environ, Path.cwd(), file=file, environment=environment)
