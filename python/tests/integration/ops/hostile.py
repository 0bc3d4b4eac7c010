"""Payloads that no producer should write, as exact bytes."""

from __future__ import annotations

import base64
import json

from jobwire.connection import resources

__all__ = ["HOSTILE"]


def _bytes(one: dict[str, str]) -> bytes:
    if "payload_base64" in one:
        return base64.b64decode(one["payload_base64"])
    return one["payload"].encode("utf-8", "surrogatepass")


_INVALID = json.loads((resources.path("fixtures") / "invalid" / "payloads.json").read_text("utf-8"))

HOSTILE = [
    *dict.fromkeys(map(_bytes, _INVALID)),
    *(b"\0" * 9, b'{"class":"A","args":["\\ud800"],"jid":"lone","queue":"default"}'),
    json.dumps(
        {
            "class": "<script>\u202e\x1b[2J",
            "args": ["\ud800", {"a": [[[]]]}],
            "jid": "html",
            "queue": "default",
            "error_class": ["no", "text"],
            "error_message": {"a": 1},
            "error_backtrace": "eJzzSM3JyQcABYwB9Q==",
            "retry_count": 1e400,
            "failed_at": "soon",
        }
    ).encode(),
]
