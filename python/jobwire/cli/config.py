"""`jobwire config`: the settings that count, and who set them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import click

from jobwire.application.config import CapsuleConfig
from jobwire.cli.loading import app_of
from jobwire.cli.options import redis_of, unnamed_redis, worker_options, worker_settings
from jobwire.connection.connect import check_url, safe_url
from jobwire.settings import SETTINGS, Settings, Value, written

__all__ = ["config"]


@click.command()
@worker_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def config(as_json: bool, **options: Any) -> int:
    """Show how `jobwire worker` would run, and what each setting comes from.

    Takes what the worker takes. Everything is checked as the worker does it: files, variables,
    and the application, which is imported if one is named. Nothing is connected.
    """
    settings = worker_settings(**options)
    settings.worker()
    app = app_of(settings) if settings["app"] else None
    url, source = redis_of(app, settings) or unnamed_redis()
    check_url(url)
    redis = Value(url, "default", source.removeprefix("from "))
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
    """Yield lines of three columns; a long value is whole and moves what is right of it."""
    first = {"environment": settings.environment, "file": settings.file}
    rows = [(name, _words(name, v.value), v.source) for name, v in {**first, **values}.items()]
    rows.insert(0, ("setting", "value", "source"))
    left = max(len(name) for name, _, _ in rows)
    middle = min(max(len(value) for _, value, _ in rows), 40)
    for name, value, source in rows:
        yield f"{name:<{left}}  {value:<{middle}}  {source}"


def _words(name: str, value: Any) -> str:
    """Return a value as a variable would have to hold it."""
    match value:
        case None | "":
            return SETTINGS[name].without if name in SETTINGS else "none"
        case Mapping() if name == "capsules":
            return "; ".join(map(_capsule, value, value.values())) or "none"
        case Mapping():
            return _queues(value)
        case str() if name == "redis":
            return safe_url(value)
        case str() | int() | float():
            return text if (text := written(value)).isprintable() else repr(text)
        case _:
            return " ".join(value) or "none"


def _queues(queues: Mapping[str, int]) -> str:
    return " ".join(f"{name},{weight}" if weight else name for name, weight in queues.items())


def _capsule(name: str, capsule: CapsuleConfig) -> str:
    return f"{name}={capsule.concurrency} {_queues(capsule.queues)}"


def _object(settings: Settings, values: Mapping[str, Value]) -> dict[str, Any]:
    def entry(name: str, found: Value) -> dict[str, Any]:
        value = found.value
        if name == "redis":
            value = safe_url(value)
        elif name == "capsules":
            value = {capsule: asdict(each) for capsule, each in value.items()}
        return {"value": value, "source": found.source}

    return {
        "environment": entry("environment", settings.environment),
        "file": entry("file", settings.file),
        "settings": {name: entry(name, found) for name, found in values.items()},
        "notes": [*settings.notes],
    }
