"""Payloads that a test writes into a queue and reads from the sorted sets."""

from __future__ import annotations

import json
from typing import Any

from harness.servers import Server


def push_job(server: Server, class_name: str, *args: Any, **fields: Any) -> None:
    """Push a job to the default queue as another program would; `fields` are added last."""
    payload = {"class": class_name, "args": [*args], "jid": "ab" * 12, "queue": "default", **fields}
    server.client().lpush("queue:default", json.dumps(payload))


def scored(server: Server, key: str) -> list[tuple[dict[str, Any], float]]:
    """Return the payloads of a sorted set with their scores."""
    stored: Any = server.client().zrange(key, 0, -1, withscores=True)
    return [(json.loads(text), score) for text, score in stored]
