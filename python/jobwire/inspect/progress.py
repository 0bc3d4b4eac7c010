"""States of iterable jobs, and their cancellation. [ITER-1] [ITER-2] [ITER-7] [ITER-9]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.inspect.reading import ask, decode_json, items, name, number, text, whole
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Op, command

__all__ = ["IterationState", "cancel", "find_states", "states"]

STATE_TTL_S = 2_592_000  # [ITER-2]


@dataclass(frozen=True, slots=True)
class IterationState:
    """The state of one iterable job. [ITER-1]

    Attributes:
        jid: The job id.
        starts: Number of starts.
        cursor: Its position; None at the beginning.
        runtime: Seconds that earlier starts ran.
        cancelled_at: Epoch second of its cancellation, or None.
        problem: The problem with its state, or None.
    """

    jid: str
    starts: int
    cursor: Any
    runtime: float
    cancelled_at: float | None
    problem: str | None = None


def states(keys: Keys, jids: Sequence[str]) -> Op[list[IterationState]]:
    """Return the states of these jobs, without jobs that have none."""
    commands = [command("HGETALL", keys.iteration(jid)) for jid in jids]
    replies = yield from ask(commands)
    existing = []
    for jid, reply in zip(jids, replies, strict=True):
        flat = items(reply)
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        if not isinstance(reply, list):
            problem = getattr(reply, "message", None)
            existing.append(IterationState(jid, 0, None, 0.0, None, problem))
        elif fields:
            cursor = fields.get(b"c")
            decoded = decode_json(cursor)
            odd = cursor is not None and decoded is None and cursor.strip() != b"null"
            existing.append(
                IterationState(
                    jid,
                    whole(fields.get(b"ex")),
                    text(cursor) if odd else decoded,
                    number(fields.get(b"rt")) or 0.0,
                    number(fields.get(b"cancelled")),
                    "the cursor is not JSON" if odd else None,
                )
            )
    return existing


def find_states(keys: Keys, cursor: bytes) -> Op[tuple[list[IterationState], bytes | None]]:
    """Return some states and the next cursor, None at the end. Scans every key of the server."""
    prefix = keys.iteration("")
    pattern = "".join(f"\\{char}" if char in r"*?[]\\" else char for char in prefix) + "*"
    (reply,) = yield from ask(
        [command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000, "TYPE", "hash")]
    )
    next_cursor, state_keys = items(reply) or (b"0", [])
    jids = [name(key).removeprefix(prefix) for key in state_keys]
    readable = [jid for jid in jids if jid.isprintable()]
    return (yield from states(keys, readable)), next_cursor if whole(next_cursor) else None


def cancel(keys: Keys, jid: str, *, now: float) -> Op[float]:
    """Cancel an iterable job; return the epoch second of its first cancellation.

    [ITER-7] [ITER-9]
    """
    key = keys.iteration(jid)
    ttl: int = yield command("TTL", key)
    _, _, since, _ = yield Batch(
        [
            # Sidekiq 8.1 cannot start a job whose state has no cursor.
            command("HSETNX", key, "c", "null"),
            command("HSETNX", key, "cancelled", int(now)),
            command("HGET", key, "cancelled"),
            command("EXPIRE", key, ttl if ttl > 0 else STATE_TTL_S),
        ],
        atomic=True,
    )
    return number(since) or now
