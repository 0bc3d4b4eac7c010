"""Databases that real Sidekiq left after a step, from the fixtures."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

from jobwire.connection import resources

VERSIONS = ("6.4.1", "7.3.2", "8.1.7")


@cache
def databases() -> dict[str, list[dict[str, Any]]]:
    """Return every database after a step, by name."""
    return {
        f"{version}/{state['name']}": state["redis"]
        for version in VERSIONS
        for state in recorded(version)
    }


def recorded(version: str) -> list[dict[str, Any]]:
    """Return the recordings of a release of Sidekiq."""
    path = resources.path("fixtures") / "sidekiq" / version / "states.json"
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return found


def load(client: Any, keys: list[dict[str, Any]]) -> None:
    """Make the database that of a recording, in one message: members about to expire stay."""
    pipe = client.pipeline()
    pipe.flushdb()
    for each in keys:
        key, value = each["key"], each["value"]
        match each["type"]:
            case "string":
                pipe.set(key, _stored(value))
            case "list":
                pipe.rpush(key, *map(_stored, value))
            case "set":
                pipe.sadd(key, *map(_stored, value))
            case "zset":
                for member, score in value:
                    pipe.execute_command("ZADD", key, score, _stored(member))
            case "hash":
                pipe.hset(key, mapping={name: _stored(text) for name, text in value.items()})
            case other:
                raise AssertionError(other)
    pipe.execute()


def _stored(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value
