"""`jobwire enqueue`: pushes one job."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Sequence
from contextlib import chdir, redirect_stdout, suppress
from datetime import datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import click

from jobwire.application.app import App
from jobwire.application.client import Client
from jobwire.application.jobtype import JobType
from jobwire.cli.exits import EXIT_NOT_FOUND, EXIT_OK, AppNotLoaded
from jobwire.cli.groups import did_you_mean
from jobwire.cli.loading import app_of, load_app, other_apps
from jobwire.cli.options import namespace_option, redis_of, redis_option, time_span, unnamed_redis
from jobwire.connection.connect import safe_url
from jobwire.errors import InvalidArgument, InvalidJob, RedisTrouble
from jobwire.protocol.normalize import Options
from jobwire.protocol.times import When
from jobwire.settings import Settings, resolve
from jobwire.text import visible

__all__ = ["enqueue", "time_of"]


class _Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not error.option_name[1:2].isdigit():
                raise
            raise click.UsageError(
                f"no option {error.option_name!r}; put -- before arguments that begin with a dash",
                ctx,
            ) from None


def _job_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the job classes of the application, for the Tab key."""
    # The words for the shell go to standard output, where a module may print at its import.
    with suppress(Exception), redirect_stdout(StringIO()):
        settings = _settings(ctx.params.get("target"), ctx.params.get("url"))
        app = _find_app(settings, any_class=False)[0]
        return [name for name in app.jobs if name.startswith(incomplete)] if app else []
    return []


@click.command(cls=_Command)
@click.argument("class_name", metavar="CLASS", shell_complete=_job_names)
@click.argument("args", nargs=-1, metavar="[--] [ARGUMENT]...")
@click.option(
    "-r",
    "--require",
    "target",
    metavar="MODULE:APP",
    help="Application that defines the job, like shop.jobs:app. [env: JOBWIRE_APP] "
    "[default: app in jobwire.toml]",
)
@click.option(
    "--any-class", is_flag=True, help="Push a class that the application does not define."
)
@redis_option
@click.option("-q", "--queue", help="Bare queue name. [default: the definition's, or default]")
@click.option(
    "--retry",
    metavar="true|false|N",
    help="Number of retries. [default: the definition's, or true]",
)
@click.option(
    "--in",
    "delay",
    callback=time_span,
    metavar="SPAN",
    help="Run the job after 90 (seconds), 15m, 2h or 30d.",
)
@click.option(
    "--at", metavar="TIME", help="Run the job at this time: 2026-12-24T18:00:00Z or epoch seconds."
)
@namespace_option
def enqueue(
    class_name: str,
    args: Sequence[str],
    target: str | None,
    any_class: bool,
    url: str | None,
    queue: str | None,
    retry: str | None,
    delay: float | None,
    at: str | None,
    namespace: str | None,
) -> int:
    """Push one job, for a Ruby or a Python worker, and print its id.

    If an application is configured, or `jobwire dev` runs one here, the job gets the options of
    its definition, and the arguments must fit the function. Each ARGUMENT is JSON, or a string: 42,
    true, null, Ada, '{"a": [1, 2]}'. A string that looks like other JSON needs its own quotes:
    '"42"'. Put -- before arguments that begin with a dash.
    """
    if delay is not None and at is not None:
        raise click.UsageError("--in and --at cannot be combined")
    options: Options = {}
    if queue is not None:
        options["queue"] = queue
    if retry is not None:
        options["retry"] = _retry(retry)
    when: When | None = delay if at is None else time_of(at)

    settings = _settings(target, url)
    app, unnamed = _find_app(settings, any_class)
    job = _definition(app, class_name, any_class) if app else None
    values = _values(args, job)
    sharded = app is not None and bool(app.shards) and url is None
    redis, source = redis_of(app, settings) or unnamed or unnamed_redis(settings)
    if sharded and namespace is not None:
        raise click.UsageError("--namespace: the application has shards, and its own namespace")
    if sharded:
        redis = ""
    elif app:
        app.namespace = app.namespace if namespace is None else namespace
        app.connect(redis)
        if job and job.redis and url is None:
            redis, source = app.redis[job.redis], f"{job.redis!r} of the application"
    client = app.client_of(app.name_of(redis)) if app else Client(redis, namespace=namespace or "")
    with client:
        if app and job:
            with app.via(redis):
                jid = _push(job.options(**options), values, when)
        elif when is None:
            jid = client.push(class_name, values, **options)
        else:
            jid = client.push_in(when, class_name, values, **options)
    if jid is None:
        click.echo("jobwire: client middleware stopped the job", err=True)
        return EXIT_NOT_FOUND
    unchecked = "" if job else ", not checked: no application is named (-r)"
    if app and not job:
        unchecked = ", not checked: the application does not define this job"
    if app and sharded:
        app.close()
        click.echo(f"pushed to one of the shards {', '.join(app.shards)}{unchecked}", err=True)
    else:
        click.echo(f"pushed to {safe_url(redis)} ({source}){unchecked}", err=True)
        named = queue or (job.defaults.get("queue") if job else None) or "default"
        _warn_of_idle(redis, app.namespace if app else namespace or "", named)
    click.echo(jid)
    return EXIT_OK


def _settings(target: str | None, url: str | None) -> Settings:
    return resolve({"app": target, "redis": url}, os.environ, Path.cwd(), names=["app", "redis"])


def _find_app(settings: Settings, any_class: bool) -> tuple[App | None, tuple[str, str] | None]:
    """Return the application, and the Redis with its source if none is configured."""
    app = app_of(settings) if settings["app"] else None
    unnamed = None if redis_of(app, settings) else unnamed_redis(settings)
    if app is None and unnamed and (noted := _application_of_dev(unnamed)):
        app = _loaded_from_dev(*noted, any_class)
    return app, unnamed


def _warn_of_idle(redis: str, namespace: str, queue: str) -> None:
    """Tell a person that no worker will run the job as things stand."""
    from jobwire.inspect import Inspector  # after the push, which need not wait for it

    with suppress(RedisTrouble), Inspector(redis, namespace=namespace) as inspector:
        summary = inspector.queue(queue)
        if not summary.workers:
            click.echo(
                f"jobwire: no running worker serves the queue {visible(queue)!r}: the job waits "
                "for one",
                err=True,
            )
        elif summary.paused:
            click.echo(
                f"jobwire: the queue {visible(queue)!r} is paused: the job waits for "
                "'jobwire inspect unpause'",
                err=True,
            )


def _application_of_dev(redis: tuple[str, str]) -> tuple[Path, str] | None:
    """Return the directory and the application of `jobwire dev`, if it runs this Redis."""
    from jobwire.connection import embedded

    directory = embedded.home(Path.cwd())
    if directory is None or embedded.find(directory) != redis[0]:
        return None
    target = embedded.noted_app(directory)
    return (directory, target) if target else None


def _loaded_from_dev(directory: Path, target: str, any_class: bool) -> App | None:
    """Return the application of `jobwire dev`; None if it is broken and any class may be pushed."""
    try:
        with chdir(directory):
            return load_app(target)
    except AppNotLoaded as error:
        if any_class:
            return None
        raise AppNotLoaded(
            f"the application of 'jobwire dev', {target!r}: {error}; --any-class pushes without it"
        ) from error


def _definition(app: App, class_name: str, any_class: bool) -> JobType[..., Any] | None:
    job = app.jobs.get(class_name)
    if job is None and not any_class:
        for name, other in other_apps(app):
            if class_name in other.jobs:
                raise click.UsageError(
                    f"the application defines no job {class_name!r}; {name} defines it: "
                    f"-r {name}; --any-class pushes it anyway"
                )
        hint = did_you_mean(class_name, [*app.jobs]) or "; import its module: App(imports=[...]);"
        raise click.UsageError(
            f"the application defines no job {class_name!r}{hint} --any-class pushes it anyway"
        )
    return job


def _push(job: JobType[..., Any], values: list[Any], when: When | None) -> str | None:
    try:
        return job.enqueue(*values) if when is None else job.enqueue_in(when, *values)
    except TypeError as error:
        raise click.UsageError(f"{error}; it is {job.name}{_signature(job)}") from None


def _signature(job: JobType[..., Any]) -> inspect.Signature:
    """Return the parameters of a job, without its return type."""
    try:
        signature = inspect.signature(job, eval_str=True)
    except Exception:  # noqa: BLE001 - an annotation may be any code
        signature = inspect.signature(job)
    return signature.replace(return_annotation=inspect.Signature.empty)


def _values(args: Sequence[str], job: JobType[..., Any] | None) -> list[Any]:
    """Return the values of the arguments. A parameter that is a `str` takes any text."""
    parameters = list(_signature(job).parameters.values()) if job else []
    values = []
    for number, text in enumerate(args, start=1):
        value = _value(number, text)
        if number <= len(parameters) and parameters[number - 1].annotation in (str, "str"):
            value = value if isinstance(value, str) else text
        values.append(value)
    return _exact(values, job)


def _exact(values: list[Any], job: JobType[..., Any] | None) -> list[Any]:
    """Return the values with their `Decimal` in the form that annotations ask for.

    Where none asks for it, it is a float, like every number with a fraction in JSON.
    """
    encoded = values
    if job is not None:
        with suppress(InvalidArgument, InvalidJob):
            encoded = job.parameters.encode(job.parameters.decode(values))
    encoded = [_with_floats(value) for value in encoded]
    if job is not None:
        try:
            job.parameters.check(encoded)
        except InvalidArgument as error:
            raise click.UsageError(str(error)) from None
    return encoded


def _with_floats(value: Any) -> Any:
    match value:
        case Decimal():
            return float(value)
        case list():
            return [_with_floats(item) for item in value]
        case dict():
            return {key: _with_floats(item) for key, item in value.items()}
    return value


def _value(number: int, text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"JSON has no {word}")

    try:
        return json.loads(text, parse_float=Decimal, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        if not text.lstrip().startswith(("{", "[", '"', "NaN", "Infinity", "-Infinity")):
            return text
        raise click.UsageError(
            f"argument {number}: {text!r} looks like JSON and is not: {error}; a text that looks "
            f"like that needs quotes: '{json.dumps(text, ensure_ascii=False)}'"
        ) from None


def _retry(text: str) -> bool | int:
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text)
    except ValueError:
        raise click.UsageError(f"--retry {text!r} is not true, false or a number") from None


def time_of(text: str) -> When:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--at {text!r} is not a time; write 2026-12-24T18:00:00Z or epoch seconds"
        ) from None
    if moment.tzinfo is None:
        raise click.UsageError(
            f"--at {text!r} has no time zone; write {text}Z for UTC, or an offset, {text}+01:00"
        )
    return moment
