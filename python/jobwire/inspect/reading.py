"""Readers of data in Redis that any program may have written; odd data is not an error.

[INSP-3] [INSP-28]
"""

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
    "problem",
    "problems",
    "raw",
    "required",
    "score",
    "text",
    "whole",
]

# Errors of single keys: another type, or no permission. They are shown with the other data.
_KEY_ERRORS = ("WRONGTYPE", "NOPERM")


def ask(commands: Sequence[Command]) -> Op[list[Any]]:
    """Send commands in one write; for a key of another type, the reply is an `ErrorReply`.

    Raises:
        RedisRefused: The server refused a command for a reason other than the type of its key.
    """
    if not commands:
        return []
    replies: list[Any] = yield Batch(commands)
    for reply in replies:
        if isinstance(reply, ErrorReply) and not any(reply.says(code) for code in _KEY_ERRORS):
            raise RedisRefused(reply.message)
    return replies


def required(reply: Any) -> Any:
    """Return a reply without which the caller cannot go on.

    Raises:
        RedisRefused: The reply is an error.
    """
    if isinstance(reply, ErrorReply):
        raise RedisRefused(reply.message)
    return reply


def problems(commands: Sequence[Command], replies: Sequence[Any]) -> tuple[str, ...]:
    """Return the errors of commands, each with its key."""
    found = map(problem, commands, replies)
    return tuple({message: None for message in found if message is not None})


def problem(command: Command, reply: Any) -> str | None:
    """Return the error of a command with its key; None if its reply is not an error."""
    if not isinstance(reply, ErrorReply):
        return None
    return f"{text(command.args[1])}: {reply.message}"


def name(stored: bytes) -> str:
    """Return a queue's name or an identity as text that `raw` turns back into the same bytes."""
    return stored.decode("utf-8", "surrogateescape")


def raw(key: str) -> bytes:
    """Return the bytes of a key that contains a `name`."""
    return key.encode("utf-8", "surrogateescape")


def text(value: Arg | None) -> str:
    """Return any value as text to show."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):  # may be a `name`
        return raw(value).decode("utf-8", "replace")
    return "" if value is None else str(value)


def whole(reply: object, default: int = 0) -> int:
    """Return an integer, also from its text; the default for any other value."""
    try:
        return int(reply) if isinstance(reply, int | bytes | str) else default
    except ValueError:
        return default


def number(reply: object) -> float | None:
    """Return a finite number from a text or a JSON value, or None."""
    if isinstance(reply, bool) or not isinstance(reply, int | float | bytes | str):
        return None
    try:
        value = float(reply)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def score(reply: object) -> float | None:
    """Return a score, which may be infinite, from its text."""
    try:
        return float(reply) if isinstance(reply, bytes) else None
    except ValueError:
        return None


def items(reply: object) -> list[Any]:
    """Return a reply that should be a list; an empty one for anything else."""
    return reply if isinstance(reply, list) else []


def decode_json(value: object) -> Any:
    """Return the value of a JSON text; None for anything else."""
    if not isinstance(value, bytes | str):
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
