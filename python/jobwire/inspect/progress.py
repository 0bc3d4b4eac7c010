"""How far iterable jobs are, and stopping them. [ITER-1] [ITER-2] [ITER-7] [ITER-9]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.inspect.reading import ask, decode_json, items, name, number, text, whole
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Op, command

__all__ = ["IterationState", "cancel", "find_states", "states"]

STATE_TTL_S = 2_592_000  # seconds [ITER-2]


@dataclass(frozen=True, slots=True)
class IterationState:
    """The state of one iterable job. [ITER-1]

    Attributes:
        jid: The job id.
        starts: How often it has started.
        cursor: Where it is; None at the beginning.
        runtime: Seconds that it ran in earlier starts.
        cancelled_at: When somebody cancelled it, in epoch seconds; None if nobody did.
        problem: What cannot be read, or None.
    """

    jid: str
    starts: int
    cursor: Any
    runtime: float
    cancelled_at: float | None
    problem: str | None = None


def states(keys: Keys, jids: Sequence[str]) -> Op[list[IterationState]]:
    """Return the states of those of these jobs that have one."""
    commands = [command("HGETALL", keys.iteration(jid)) for jid in jids]
    replies = yield from ask(commands)
    found = []
    for jid, reply in zip(jids, replies, strict=True):
        flat = items(reply)
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        if not isinstance(reply, list):
            found.append(IterationState(jid, 0, None, 0.0, None, getattr(reply, "message", None)))
        elif fields:
            cursor = fields.get(b"c")
            decoded = decode_json(cursor)
            odd = cursor is not None and decoded is None and cursor.strip() != b"null"
            found.append(
                IterationState(
                    jid,
                    whole(fields.get(b"ex")),
                    text(cursor) if odd else decoded,
                    number(fields.get(b"rt")) or 0.0,
                    number(fields.get(b"cancelled")),
                    "the cursor is no JSON" if odd else None,
                )
            )
    return found


def find_states(keys: Keys, cursor: bytes) -> Op[tuple[list[IterationState], bytes | None]]:
    """Return some states and where to go on, None at the end. Looks at every key there is."""
    prefix = keys.iteration("")
    pattern = "".join(f"\\{char}" if char in r"*?[]\\" else char for char in prefix) + "*"
    (reply,) = yield from ask(
        [command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000, "TYPE", "hash")]
    )
    following, found = items(reply) or (b"0", [])
    jids = [name(key).removeprefix(prefix) for key in found]
    readable = [jid for jid in jids if jid.isprintable()]
    return (yield from states(keys, readable)), following if whole(following) else None


def cancel(keys: Keys, jid: str, *, now: float) -> Op[float]:
    """Ask an iterable job to stop; return when somebody first did so, in epoch seconds.

    [ITER-7] [ITER-9]
    """
    key = keys.iteration(jid)
    left: int = yield command("TTL", key)
    _, _, since, _ = yield Batch(
        [
            # Sidekiq 8.1 cannot start a job whose state has no cursor.
            command("HSETNX", key, "c", "null"),
            command("HSETNX", key, "cancelled", int(now)),
            command("HGET", key, "cancelled"),
            command("EXPIRE", key, left if left > 0 else STATE_TTL_S),
        ],
        atomic=True,
    )
    return number(since) or now
