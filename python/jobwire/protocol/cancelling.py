"""Cancelling a job of any kind, wherever it is. [X-CANCEL-1] to [X-CANCEL-6]"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from jobwire.errors import MalformedPayload
from jobwire.protocol import iteration
from jobwire.protocol.batches import BATCH, membership, script_end, time_text
from jobwire.protocol.iteration import Cancellation, Place
from jobwire.protocol.keys import Keys
from jobwire.protocol.output import script_tell
from jobwire.protocol.payload import decode
from jobwire.protocol.results import ResultToStore, keep_of, read, result_to_store
from jobwire.protocol.unique import held_in
from jobwire.protocol.wire import Batch, Command, ErrorReply, Op, Script, command

__all__ = ["REMEMBER_S", "cancel", "forget", "mark", "marked", "remove", "script_cancel"]

REMEMBER_S = 86_400  # for which a mark stays [X-CANCEL-2]
BATCH_SIZE = 1_000  # payloads to read at once
_PLAIN = re.compile(r"[0-9A-Za-z_-]+")  # ids that have one spelling in JSON


def cancel(keys: Keys, jid: str, *, now: float) -> Op[Cancellation]:
    """Cancel a job: mark it, remove it if it waits, and tell where it was.

    The mark comes first, so a job that moves meanwhile is refused at its start, or asked to end.
    """
    was_held = yield from _is_held(keys, jid)  # before the mark, which may end it at once
    asked = yield from iteration.cancel(keys, jid, now=now)
    yield mark(keys, [jid], now=now)
    place: Place = "running" if was_held else (yield from _place(keys, jid, now))
    return asked._replace(place=place)


def mark(keys: Keys, jids: Sequence[str], *, now: float) -> Batch:
    """Return the step that marks jobs as cancelled. [X-CANCEL-2]"""
    marks = [word for jid in jids for word in (now, jid)]
    return Batch(
        [
            command("ZADD", keys.cancelled, *marks),
            command("ZREMRANGEBYSCORE", keys.cancelled, "-inf", now - REMEMBER_S),
            command("EXPIRE", keys.cancelled, REMEMBER_S),
        ],
        atomic=True,
    )


def marked(keys: Keys, *, now: float) -> Command:
    """Return the step that reads the ids of jobs to cancel. [X-CANCEL-3]"""
    return command("ZRANGE", keys.cancelled, now - REMEMBER_S, "+inf", "BYSCORE")


def forget(keys: Keys, jid: str) -> tuple[Command, ...]:
    """Return the commands that delete what a cancellation has left. [X-CANCEL-5]"""
    return command("ZREM", keys.cancelled, jid), iteration.forget(keys, jid)


def _place(keys: Keys, jid: str, now: float) -> Op[Place]:
    def take(key: str, text: bytes) -> Op[bool]:
        removed: int = yield script_cancel(keys, key, text, jid, now)
        if removed == 1 and key == keys.retry:  # it ran before; an error here undoes nothing
            yield Batch([script_tell(keys, jid, "cancelled", now=now)])
        return removed == 1

    if (yield from remove(keys, jid, take)):
        return "queued"
    if (yield from _is_held(keys, jid)):  # it was fetched meanwhile
        return "running"
    text: bytes | None = yield command("GET", keys.result(jid))
    result = None if text is None else read(jid, text)
    if result is not None and result.final:
        # Fetched and ended meanwhile, because of the mark.
        return "running" if result.outcome == "cancelled" and result.at >= now else "done"
    for text in (yield from _members(keys.dead, jid)):
        if _is(text, jid):
            return "done"
    return "unknown"


def _is_held(keys: Keys, jid: str) -> Op[bool]:
    """Return whether a process holds the job: it runs, or will be refused there."""
    owners: Sequence[bytes] = yield command("SMEMBERS", keys.owners)
    processes: Sequence[bytes] = yield command("SMEMBERS", keys.processes)
    names = [
        *(keys.private(_text(owner)) for owner in owners),
        *(keys.work(_text(process)) for process in processes),
    ]
    for start in range(0, len(names), BATCH_SIZE):
        part = names[start : start + BATCH_SIZE]
        for reply in (yield Batch([command("HGETALL", name) for name in part])):
            for value in () if isinstance(reply, ErrorReply) else reply[1::2]:
                if _may_be(value, jid) and any(_is(text, jid) for text in _payloads(value)):
                    return True
    return False


def _payloads(value: bytes) -> Iterator[bytes]:
    """Yield a private entry, or the payload in a work record."""
    yield value
    try:
        record = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if isinstance(record, dict) and isinstance(payload := record.get("payload"), str):
        yield payload.encode("utf-8", "replace")


def remove(keys: Keys, jid: str, take: Callable[[str, bytes], Op[bool]]) -> Op[bool]:
    """Remove the job from the place where it waits.

    `take` gets a key and a payload there; it returns False if the payload is there no more.
    """
    for key in (keys.schedule, keys.retry):
        for text in (yield from _members(key, jid)):
            if _is(text, jid) and (yield from take(key, text)):
                return True
    names: Sequence[bytes] = yield command("SMEMBERS", keys.queues)
    for name in names:
        key = keys.queue(_text(name))
        start = -BATCH_SIZE  # from the tail, where the next job is
        while True:
            (texts,) = yield Batch([command("LRANGE", key, start, start + BATCH_SIZE - 1)])
            if isinstance(texts, ErrorReply) or not texts:
                break
            for text in texts:
                if _is(text, jid) and (yield from take(key, text)):
                    return True
            start -= BATCH_SIZE
    return False


def _members(key: str, jid: str) -> Op[list[bytes]]:
    """Return the members of a sorted set that contain an id; the server looks for them."""
    pattern = f"*{jid}*" if _PLAIN.fullmatch(jid) else "*"
    found: list[bytes] = []
    cursor: Any = b"0"
    while True:
        step = command("ZSCAN", key, cursor, "MATCH", pattern, "COUNT", BATCH_SIZE)
        (reply,) = yield Batch([step])
        if isinstance(reply, ErrorReply):  # a key of another type holds no job
            return found
        cursor, pairs = reply
        found += pairs[::2]
        if int(cursor) == 0:
            return found


def script_cancel(keys: Keys, key: str, text: bytes, jid: str, now: float) -> Script:
    """Return the step that removes a waiting job and keeps its result.

    [X-CANCEL-4] [X-BATCH-6]
    """
    job = decode(text, "")
    seconds, lock = keep_of(job, 0), held_in(job)
    end = (
        result_to_store(jid, seconds, "cancelled", now=now)
        if seconds
        else ResultToStore(jid, 0, b"")
    )
    member = membership(job.get(BATCH))
    if member is not None:
        at = time_text(now, 7)  # every reader knows this form
        return script_end(
            *(keys, member, "dropped"),
            at=at,
            jid=jid,
            place=key,
            text=text,
            result=end,
            lock=lock,
        )
    names = [key, keys.result(jid), keys.cancelled, keys.iteration(jid)]
    if lock:
        names.append(keys.unique(lock))
    return Script(
        "cancel",
        names,
        [text, jid, end.seconds, end.text],
    )


def _may_be(text: bytes, jid: str) -> bool:
    """False if a text cannot be the payload of the job, which is quicker than to decode it."""
    return jid.encode() in text if _PLAIN.fullmatch(jid) else True


def _is(text: bytes, jid: str) -> bool:
    """True if a text is the payload of the job."""
    if not _may_be(text, jid):
        return False
    try:
        return decode(text, "").jid == jid
    except MalformedPayload:
        return False


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
