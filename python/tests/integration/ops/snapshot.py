"""The contents of a whole database."""

from __future__ import annotations

from typing import Any

__all__ = ["snapshot"]


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
