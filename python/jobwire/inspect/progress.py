"""Progress of jobs: states of iterable jobs, and reports of any job. [ITER-1] [X-PROG-6]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.inspect.reading import ask, decode_json, items, name, number, raw, text, whole
from jobwire.protocol import progress
from jobwire.protocol.keys import Keys
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.wire import Op, command

__all__ = ["IterationState", "find_states", "reported", "states"]


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


def reported(keys: Keys, jids: Sequence[str]) -> Op[dict[str, JobProgress]]:
    """Return the progress of those of these jobs that have reported it, in one round trip."""
    if not jids:
        return {}
    (reply,) = yield from ask([command("MGET", *(raw(keys.progress(jid)) for jid in jids))])
    read = {jid: progress.read(text) for jid, text in zip(jids, items(reply), strict=False)}
    return {jid: one for jid, one in read.items() if one is not None}


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
