"""`jobwire config`: shows the effective settings, each with its source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import click

from jobwire.application.config import CapsuleConfig
from jobwire.cli.loading import worker_app_of
from jobwire.cli.options import (
    redis_of,
    serve_all_queues,
    unnamed_redis,
    worker_options,
    worker_settings,
)
from jobwire.connection.connect import check_url, safe_url
from jobwire.settings import SETTINGS, Settings, Value, written

__all__ = ["config"]


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
