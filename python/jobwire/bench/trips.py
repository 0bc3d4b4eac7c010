"""How often this process waits for Redis.

Counted here and not by the server, whose counters have what everybody else asks as well.
"""

from __future__ import annotations

from jobwire.connection.connection import AsyncConnection, Connection

__all__ = ["count_trips"]


def count_trips() -> list[int]:
    """Count round trips from now on; return the list whose only item is their number.

    Those of the connection that waits for notices (`worker/wakeup.py`) are left out: nobody is
    kept waiting by them. Those whose answer is read later count: they may be.
    """
    made = [0]
    send, flush = Connection.send, AsyncConnection._flush

    def counted_send(self: Connection, message: bytes) -> None:
        made[0] += 1
        send(self, message)

    def counted_flush(self: AsyncConnection) -> None:
        made[0] += 1
        flush(self)

    # Nothing else in this process uses the classes: it is the bench, or a worker of it.
    setattr(Connection, "send", counted_send)  # noqa: B010
    setattr(AsyncConnection, "_flush", counted_flush)  # noqa: B010
    return made
