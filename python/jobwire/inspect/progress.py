"""Progress of jobs: states of iterable jobs, reports of any job, statuses of sidekiq-status.

[ITER-1] [X-PROG-6]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.inspect.reading import ask, decode_json, items, name, number, raw, text, whole
from jobwire.protocol import progress
from jobwire.protocol.keys import Keys
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.wire import Op, command

__all__ = ["IterationState", "StatusOfRuby", "find_states", "reported", "ruby_status", "states"]


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


@dataclass(frozen=True, slots=True)
class StatusOfRuby:
    """The status of a job as sidekiq-status keeps it, also for a job of Ruby. [X-ADDON-19]

    Attributes:
        status: Such as `queued` or `complete`; any text.
        progress: How far the job is, with the time of the last change; None if it does not say.
        moments: Epoch seconds of its push, its last start and its end, by words for people.
        stops: True if a program has asked the job to end. [X-ADDON-21]
    """

    status: str
    progress: JobProgress | None
    moments: dict[str, float]
    stops: bool


_MOMENTS = {"enqueued_at": "Enqueued", "started_at": "Started", "ended_at": "Ended"}


def ruby_status(keys: Keys, jid: str) -> Op[StatusOfRuby | None]:
    """Return the status of a job that sidekiq-status, or a worker in its form, has written."""
    names = ("status", "at", "total", "message", "stop", "updated_at", "update_time", *_MOMENTS)
    (reply,) = yield from ask([command("HMGET", raw(keys.ruby_status(jid)), *names)])
    found = dict(zip(names, items(reply), strict=False))
    if found.get("status") is None:
        return None
    done = _count(found["at"])
    changed = number(found["updated_at"]) or number(found["update_time"]) or 0.0  # up to 3.x
    note = text(found["message"])[: progress.MAX_NOTE_CHARS]
    return StatusOfRuby(
        text(found["status"])[: progress.MAX_NOTE_CHARS],
        None if done is None else JobProgress(done, _count(found["total"]), note, changed),
        {said: at for name, said in _MOMENTS.items() if (at := number(found[name])) is not None},
        found["stop"] == b"true",
    )


def _count(value: object) -> int | None:
    count = whole(value, -1)
    return count if 0 <= count <= progress.MAX_NUMBER else None


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
