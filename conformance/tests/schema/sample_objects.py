"""Valid objects of a process, from which tests make invalid ones."""

from __future__ import annotations

import json
from typing import Any

INFO: dict[str, Any] = {
    "hostname": "app-1",
    "started_at": 1786959000.25,
    "pid": 4711,
    "tag": "shop",
    "concurrency": 5,
    "capsules": {"default": {"concurrency": 5, "mode": "weighted", "weights": {"a": 2, "b": 1}}},
    "queues": ["a", "b"],
    "weights": [{"a": 2, "b": 1}],
    "labels": [],
    "identity": "app-1:4711:0a1b2c3d4e5f",
    "version": "example 1.0",
    "embedded": False,
}
IDENTITY: dict[str, Any] = {
    "info": json.dumps(INFO),
    "concurrency": "5",
    "busy": "0",
    "beat": "1786959010.5",
    "rtt_us": "120",
    "quiet": "false",
    "rss": "43872",
}
METRICS = {"EchoJob|p": "3", "EchoJob|f": "1", "EchoJob|ms": "20"}
