"""Entries of queues and sorted sets, and the time and process of the tests of the inspector."""

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
