"""A server and its replica, which can take its place."""

from __future__ import annotations

import time
from typing import Any

from harness.servers import Reaper
from tests.chaos.snapshots import SnapshotServer

__all__ = ["Pair"]

CATCH_UP = 10.0  # seconds in which a replica must have all data


class Pair:
    """Two servers that store every write. One follows the other, until it takes its place.

    Attributes:
        primary: The server in use.
    """

    def __init__(self, reaper: Reaper) -> None:
        # Without the option, a full copy begins five seconds after it was asked for.
        self.primary, self._replica = (
            SnapshotServer(reaper, "--repl-diskless-sync-delay", "0") for _ in range(2)
        )
        self._follow()

    def stop_following(self) -> bool:
        """Have the replica get no more writes; return False if it does not have all data in time.

        From here on it lags more and more.
        """
        deadline = time.monotonic() + CATCH_UP
        with self.primary.client() as primary, self._replica.client() as replica:
            while not _has_all(primary, replica):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
            replica.replicaof("NO", "ONE")
            return True

    def switch(self) -> None:
        """Put the replica in the primary's place, and the other way round.

        All writes since `stop_following` are forgotten. The old primary refuses to write.
        """
        self.primary, self._replica = self._replica, self.primary
        self._follow()

    def close(self) -> None:
        """Stop both servers."""
        self.primary.close()
        self._replica.close()

    def _follow(self) -> None:
        with self._replica.client() as replica:
            replica.replicaof("127.0.0.1", self.primary.port)


def _has_all(primary: Any, replica: Any) -> bool:
    """Return whether the replica has all data, also on its disk."""
    link, history = replica.info("replication"), primary.info("replication")["master_replid"]
    # After a restart of the primary, the link of before may still look up for a moment.
    if link.get("master_link_status") != "up" or link["master_replid"] != history:
        return False
    disk = replica.info("persistence")
    if disk["aof_rewrite_in_progress"] or disk["aof_rewrite_scheduled"]:
        return False  # a crash would lose what it got from the primary
    _, stored = primary.execute_command("WAITAOF", 0, 1, 100)
    return bool(primary.wait(1, 100) == 1 and stored == 1)
