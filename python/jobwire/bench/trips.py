"""A counter of the round trips of this process.

The counters of the server would include the commands of all other clients.
"""

from __future__ import annotations

from jobwire.connection.connection import AsyncConnection, Connection

__all__ = ["count_trips"]


def count_trips() -> list[int]:
    """Count round trips from now on; return a list with one item, their number.

    Those of the connection that waits for notices (`worker/fetch/wakeup.py`) do not count,
    because no job waits for them. Those whose reply is read later do count.
    """
    made = [0]
    send, flush = Connection.send, AsyncConnection._flush

    def counted_send(self: Connection, message: bytes) -> None:
        made[0] += 1
        send(self, message)

    def counted_flush(self: AsyncConnection) -> None:
        made[0] += 1
        flush(self)

    # Only the bench and its workers patch these classes, in their own processes.
    setattr(Connection, "send", counted_send)  # noqa: B010
    setattr(AsyncConnection, "_flush", counted_flush)  # noqa: B010
    return made
