"""Entries for the tests of the inspector, their time and process, and all that a database has."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

NOW = 1_795_192_067.25
IDENTITY = "web:1:0123456789ab"


def payload(jid: str, **fields: Any) -> bytes:
    made = {"class": "A", "args": [], "jid": jid, "queue": "default", "created_at": 5} | fields
    return json.dumps(made, separators=(",", ":")).encode()


def fill(client: Any, name: str, count: int, score: Callable[[int], float] = float) -> None:
    text = payload("@", retry_count=3)
    client.zadd(name, {text.replace(b"@", b"j%06d" % n): score(n) for n in range(count)})


def snapshot(
    client: Any, *, without: tuple[bytes, ...] = (b"jobwire:journal",)
) -> dict[bytes, Any]:
    """Return every key with its value, and whether it expires."""
    read = {
        b"string": lambda key: client.get(key),
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": lambda key: client.smembers(key),
        b"hash": lambda key: client.hgetall(key),
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"stream": lambda key: client.xrange(key),
    }
    return {
        key: (read[client.type(key)](key), client.ttl(key) > 0)
        for key in sorted(client.scan_iter())
        if key not in without
    }
