"""The Redis type of each key of the protocol, to name the key behind a WRONGTYPE error."""

from __future__ import annotations

from jobwire.errors import RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Op, command

__all__ = ["explained"]


def explained(error: RedisRefused, keys: Keys, identity: str) -> Op[RedisRefused]:
    """Return the error to raise instead: if keys have another type, one that names the keys.

    Args:
        error: The error of the server.
        keys: Key names.
        identity: Identity of the process that got it.
    """
    if "WRONGTYPE" not in str(error) or not (wrong := (yield from _wrong(keys, identity))):
        return error
    return RedisRefused(f"WRONGTYPE {'; '.join(wrong)}")


def _wrong(keys: Keys, identity: str) -> Op[list[str]]:
    """Return a sentence for each key of another type, among the keys of a worker process."""
    sets = (keys.processes, keys.owners, keys.queues, keys.paused, keys.classes(identity))
    sorted_sets = (keys.schedule, keys.retry, keys.dead, keys.unreadable, keys.parked)
    records = (keys.process(identity), keys.work(identity), keys.old_work(identity))
    expected = {
        **dict.fromkeys(sets, "set"),
        **dict.fromkeys((*sorted_sets, keys.returned_at), "zset"),
        **dict.fromkeys((*records, keys.private(identity), keys.returned), "hash"),
        keys.parked_why: "hash",
        **dict.fromkeys((keys.recovery, keys.recovered, keys.lost, keys.cleanup_lock), "string"),
        keys.signals(identity): "list",
    }
    replies = yield Batch([command("TYPE", key) for key in expected])
    return [
        f"{key} is a {reply.decode()}, not a {kind}: delete or rename it"
        for (key, kind), reply in zip(expected.items(), replies, strict=True)
        if isinstance(reply, bytes) and reply.decode() not in (kind, "none")
    ]
