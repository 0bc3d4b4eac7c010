"""Reading what anybody may have put into Redis: nothing here fails on odd data. [INSP-3]"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from jobwire.errors import RedisRefused
from jobwire.protocol.wire import Arg, Batch, Command, ErrorReply, Op

__all__ = [
    "ask",
    "decode_json",
    "items",
    "name",
    "number",
    "problems",
    "raw",
    "score",
    "text",
    "whole",
]

# The key is of another type, or not for our eyes: a finding, to be shown beside the others.
_FINDINGS = ("WRONGTYPE", "NOPERM")


def ask(commands: Sequence[Command]) -> Op[list[Any]]:
    """Send commands in one write. Keys of another type have an `ErrorReply` in their place.

    Raises:
        RedisRefused: The server has another reason than the data.
    """
    if not commands:
        return []
    replies: list[Any] = yield Batch(commands)
    for reply in replies:
        if isinstance(reply, ErrorReply) and not any(reply.says(code) for code in _FINDINGS):
            raise RedisRefused(reply.message)
    return replies


def problems(commands: Sequence[Command], replies: Sequence[Any]) -> tuple[str, ...]:
    """Return what is wrong with the keys that commands were for."""
    found = {
        f"{text(command.args[1])}: {reply.message}": None
        for command, reply in zip(commands, replies, strict=True)
        if isinstance(reply, ErrorReply)
    }
    return tuple(found)


def name(found: bytes) -> str:
    """Return a queue's name or an identity as text from which `raw` makes the same bytes."""
    return found.decode("utf-8", "surrogateescape")


def raw(key: str) -> bytes:
    """Return the bytes of a key that was made from a `name`."""
    return key.encode("utf-8", "surrogateescape")


def text(value: Arg | None) -> str:
    """Return something to show for any value."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):  # may be a `name`
        return raw(value).decode("utf-8", "replace")
    return "" if value is None else str(value)


def whole(reply: object, default: int = 0) -> int:
    """Return an integer, from the server or from a text; the default for anything else."""
    try:
        return int(reply) if isinstance(reply, int | bytes | str) else default
    except ValueError:
        return default


def number(reply: object) -> float | None:
    """Return a finite number from a text or a JSON value, or None."""
    if isinstance(reply, bool) or not isinstance(reply, int | float | bytes | str):
        return None
    try:
        found = float(reply)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def score(reply: object) -> float | None:
    """Return a score, which may be infinite, from its text."""
    try:
        return float(reply) if isinstance(reply, bytes) else None
    except ValueError:
        return None


def items(reply: object) -> list[Any]:
    """Return a reply that should be a list; an empty one for anything else."""
    return reply if isinstance(reply, list) else []


def decode_json(found: object) -> Any:
    """Return the value of a JSON text, or None if it is none."""
    if not isinstance(found, bytes | str):
        return None
    try:
        return msgspec.json.decode(found)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
