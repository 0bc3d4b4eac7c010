"""`jobwire config` shows the effective settings, `jobwire queues` the queues of an application."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from jobwire.application.config import CapsuleConfig
from jobwire.cli import output
from jobwire.cli.exits import EXIT_OK, EXIT_UNEXPECTED
from jobwire.cli.loading import worker_app_of
from jobwire.cli.options import (
    redis_of,
    serve_all_queues,
    unnamed_redis,
    worker_options,
    worker_settings,
)
from jobwire.cli.table import Column, Table
from jobwire.connection.connect import check_url, safe_url
from jobwire.errors import ConfigError
from jobwire.inspect.formats import clean
from jobwire.settings import SETTINGS, Settings, Value, resolve, written

__all__ = ["config", "queues"]

_GENERATED = "# Queues of an application, written by `jobwire queues --write`. Do not edit.\n"


@click.command()
@worker_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def config(as_json: bool, **options: Any) -> int:
    """Show the settings that `jobwire worker` would use, each with its source.

    Takes the same options as the worker, and makes the same checks: of files, of environment
    variables, and of the application, which it imports if one is named. It does not connect to
    Redis.
    """
    settings = worker_settings(**options)
    settings.worker()
    app = worker_app_of(settings) if settings["app"] else None
    if app:
        settings = serve_all_queues(app, settings)
    if app and app.shards and settings.values["redis"].giver != "flag":
        # Each one is a URL of its own; `_shown` hides passwords of one.
        redis = Value(f"shards {', '.join(app.shards)}", "default", "the application")
    else:
        url, source = redis_of(app, settings) or unnamed_redis(settings)
        redis = Value(check_url(url), "default", source.removeprefix("from "))
    values = {**settings.values, "redis": redis}
    if as_json:
        click.echo(json.dumps(_object(settings, values), ensure_ascii=False))
        return 0
    for line in _table(settings, values):
        click.echo(line)
    for note in settings.notes:
        click.echo(note, err=True)
    return 0


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--write", metavar="FILE", help="Write them as a settings file, in YAML.")
@click.option("--check", metavar="FILE", help="Only say whether --write would change FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each queue.")
def queues(target: str | None, write: str | None, check: str | None, as_json: bool) -> int:
    """Show the queues of the jobs of an application, each with the classes of its jobs.

    `jobwire worker -C FILE` and `sidekiq -C FILE` serve the queues of a file of --write, each as
    often as the others. So a program can start workers on a machine that does not have the
    application, or start Ruby for its jobs. The file holds nothing else, in an order that does not
    depend on the code: keep it with the code, and --check it in CI. It does not connect to Redis.

    Exit status: 0 done; 1 --check found a difference; 2 wrong usage; 3 the application cannot be
    loaded.
    """
    if sum(map(bool, (write, check, as_json))) > 1:
        raise click.UsageError("--write, --check and --json exclude each other; give one of them")
    app = worker_app_of(resolve({"app": target}, os.environ, Path.cwd(), names=["app"]))
    found = dict(sorted(app.queues.items()))
    if write:
        _write(Path(write), _file_of(found))
        return EXIT_OK
    if check:
        path = Path(check)
        if path.is_file() and path.read_bytes() == _file_of(found):
            return EXIT_OK
        click.echo(
            f"jobwire: {path} does not list the queues of the application "
            f"({', '.join(map(clean, found))}); run jobwire queues --write {path}",
            err=True,
        )
        return EXIT_UNEXPECTED
    table = Table(
        "Queues of the application",
        [Column("queue", style="cyan"), Column("classes", fold=True)],
        found.items(),
        lambda item: (clean(item[0]), ", ".join(map(clean, item[1]))),
        lambda item: {"queue": item[0], "classes": item[1]},
    )
    output.show(table, as_json=as_json)
    return EXIT_OK


def _file_of(names: Collection[str]) -> bytes:
    """Return the settings file with these queues, as bytes in UTF-8.

    Each has a weight, because without weights a worker looks at a queue only when all before it
    are empty. A name in quotes is never a number, a truth value or a symbol. [FETCH-4]
    """
    lines = (f"  - [{json.dumps(name, ensure_ascii=False)}, 1]\n" for name in names)
    return f"{_GENERATED}:queues:\n{''.join(lines)}".encode()


def _write(path: Path, content: bytes) -> None:
    """Write a file of `_file_of`, which is the old or the new one at every instant.

    Raises:
        ConfigError: The file is not one of this command, or cannot be written.
    """
    try:
        if path.exists() and not path.read_bytes().startswith(_GENERATED.encode()):
            raise ConfigError(
                f"{path} was not written by this command, which would replace it as a whole; "
                "name another file"
            )
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(content)
        new.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def _table(settings: Settings, values: Mapping[str, Value]) -> Iterator[str]:
    """Yield lines of three columns; a long value is not cut and moves its source to the right."""
    origin = {"environment": settings.environment, "file": settings.file}
    rows = [
        (name, _shown(name, setting.value), setting.source)
        for name, setting in {**origin, **values}.items()
    ]
    rows.insert(0, ("setting", "value", "source"))
    name_width = max(len(name) for name, _, _ in rows)
    value_width = min(max(len(value) for _, value, _ in rows), 40)
    for name, value, source in rows:
        yield f"{name:<{name_width}}  {value:<{value_width}}  {source}"


def _shown(name: str, value: Any) -> str:
    """Return a value in the form that an environment variable would hold."""
    match value:
        case None | "":
            return SETTINGS[name].without if name in SETTINGS else "none"
        case Mapping() if name == "capsules":
            return "; ".join(map(_capsule, value, value.values())) or "none"
        case Mapping() if name in ("foreign", "hand_over"):
            return " ".join(f"{each}={fate}" for each, fate in value.items()) or "none"
        case Mapping():
            return _queues(value)
        case str() if name == "redis":
            return safe_url(value)
        case str() | int() | float():
            return text if (text := written(value)).isprintable() else repr(text)
        case _ if name == "schedule":
            return " ".join(entry.name for entry in value) or "none"
        case _:
            return " ".join(value) or "none"


def _queues(queues: Mapping[str, int]) -> str:
    return " ".join(f"{name},{weight}" if weight else name for name, weight in queues.items())


def _capsule(name: str, capsule: CapsuleConfig) -> str:
    return f"{name}={capsule.concurrency} {_queues(capsule.queues)}"


def _object(settings: Settings, values: Mapping[str, Value]) -> dict[str, Any]:
    def entry(name: str, setting: Value) -> dict[str, Any]:
        value = setting.value
        if name == "redis":
            value = safe_url(value)
        elif name == "capsules":
            value = {name: asdict(capsule) for name, capsule in value.items()}
        elif name == "schedule":
            value = [asdict(entry) for entry in value]
        return {"value": value, "source": setting.source}

    return {
        "environment": entry("environment", settings.environment),
        "file": entry("file", settings.file),
        "settings": {name: entry(name, setting) for name, setting in values.items()},
        "notes": [*settings.notes],
    }
