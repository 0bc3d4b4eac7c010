"""The batches of an application, for people."""

from __future__ import annotations

from jobwire.inspect.sets import escape
from jobwire.protocol.batches import BatchStatus, read_status
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

__all__ = ["read"]

KEYS_PER_SCAN = 1_000


def read(keys: Keys, *, limit: int) -> Op[list[BatchStatus]]:
    """Return batches, the newest first; at most `limit`. The server looks at every key. [X-BATCH-1]

    Args:
        keys: Key names.
        limit: Maximum number, of those that were found first.
    """
    prefix = keys.batch("")
    pattern = escape(prefix) + "*"
    found: dict[str, BatchStatus] = {}
    cursor: bytes = b"0"
    while len(found) < limit:
        cursor, names = yield command(
            *("SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_PER_SCAN, "TYPE", "hash")
        )
        for name in names:
            batch_id = name.decode("utf-8", "replace").removeprefix(prefix)
            status = yield from read_status(keys, batch_id)
            if status is not None and len(found) < limit:
                found[batch_id] = status
        if cursor == b"0":
            break
    return sorted(found.values(), key=lambda status: -status.created_at)
