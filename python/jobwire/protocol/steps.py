"""The finished steps of a job, which a later execution of it does not repeat. [X-STEP-5]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from jobwire.errors import InvalidArgument
from jobwire.protocol.arguments import check_value
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import encode
from jobwire.protocol.wire import Batch, Command, Op, command

__all__ = [
    "KEEP_S",
    "MAX_VALUE_BYTES",
    "USED",
    "commit",
    "encoded",
    "forget",
    "load",
    "take",
    "value_of",
]

KEEP_S: Final = 2_592_000  # 30 days after the last step [X-STEP-3]
MAX_VALUE_BYTES: Final = 1024 * 1024  # of JSON [X-STEP-1]
USED: Final = b""  # in place of a value, which is never empty


def load(keys: Keys, jid: str) -> Op[dict[str, bytes]]:
    """Return the steps that the job has finished: name to value as JSON."""
    reply: Any = yield command("HGETALL", keys.steps(jid))
    if not isinstance(reply, Mapping):
        reply = dict(zip(reply[::2], reply[1::2], strict=True))
    return {name.decode("utf-8", "replace"): value for name, value in reply.items()}


def take(finished: dict[str, bytes], name: str) -> bytes | None:
    """Return the value of a step of this execution, as JSON; None if it is not finished.

    Raises:
        InvalidArgument: The execution has used the name before. [X-STEP-4]
    """
    kept = finished.get(name)
    if kept == USED:
        raise InvalidArgument(
            f"step {name!r} was used before in this execution; give each step its own name, "
            f"such as {name + '-2'!r}"
        )
    if kept is not None:
        finished[name] = USED
    return kept


def encoded(name: str, value: object) -> bytes:
    """Return the value of a step as JSON.

    Raises:
        InvalidArgument: JSON has no form for it, or it is too large. [X-STEP-1]
    """
    try:
        check_value(value, "value", depth=2)
        text = encode(value)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"step {name!r} returned a value that cannot be kept: {error}; return what JSON can "
            "write, such as an id"
        ) from error
    if len(text) > MAX_VALUE_BYTES:
        raise InvalidArgument(
            f"step {name!r} returned {len(text):,} bytes of JSON; at most {MAX_VALUE_BYTES:,} are"
            " kept: store it elsewhere, and return its place"
        )
    return text


def commit(keys: Keys, jid: str, name: str, text: bytes) -> Op[bytes]:
    """Keep the value of a step; return the value that is kept. [X-STEP-2]

    That is another one if another execution of the same job has finished the step meanwhile.
    """
    key = keys.steps(jid)
    steps = [
        command("HSETNX", key, name, text),
        command("EXPIRE", key, KEEP_S),
        command("HGET", key, name),
    ]
    kept: bytes = (yield Batch(steps, atomic=True))[-1]
    return kept


def value_of(text: bytes) -> Any:
    """Return the value of a step."""
    return msgspec.json.decode(text)


def forget(keys: Keys, jid: str) -> Command:
    """Return the command that removes the steps of a job that succeeded. [X-STEP-6]"""
    return command("UNLINK", keys.steps(jid))
