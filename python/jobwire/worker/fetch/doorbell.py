"""The guards of a group of idle processes, and the doorbell at which the others wait. [REL-30]

The processes that serve the same queues are a group. At most two of its idle processes are guards:
they watch the queues. The others wait at the doorbell, a list, first come first served. A guard
that cannot watch any more, or finds more jobs than it can run, rings. A ring is a hint: it moves no
job, and a lost one costs time only.

This module knows the keys and the values. It does no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Command, command

__all__ = ["HELD_S", "PLACES", "RENEW_AFTER_S", "RING", "Doorbell", "group_of"]

PLACES = ("0", "1")  # of the guards of a group
HELD_S = 30  # for which a guard has its place; twice its longest wait
RENEW_AFTER_S = 5.0
RING = "-"  # fetch; the name of a place instead: take this place
RING_S = 15  # after which a ring that no process waited for is gone


def group_of(queues: Collection[str]) -> str:
    """Return the group of the processes that serve these queues, in any order."""
    names = sorted({name.encode() for name in queues})
    return hashlib.sha1(b"\n".join(names), usedforsecurity=False).hexdigest()


class Doorbell:
    """The commands of one process in one group.

    Args:
        keys: Key names.
        identity: The process.
        group: See `group_of`.
    """

    __slots__ = ("_identity", "_keys", "group", "key")

    def __init__(self, keys: Keys, identity: str, group: str) -> None:
        self._keys = keys
        self._identity = identity
        self.group = group
        self.key = keys.idle(group, "bell")

    def claim(self, place: str) -> Command:
        """Become a guard if the place is free; the reply is nil if it is not."""
        return command("SET", self._place(place), self._identity, "NX", "EX", HELD_S)

    def give_up(self, place: str) -> Command:
        """Free a place."""
        return command("UNLINK", self._place(place))

    def take_over(self, place: str) -> Command:
        """Become a guard at a place that was passed on to this process."""
        return command("SET", self._place(place), self._identity, "EX", HELD_S)

    def owner(self, place: str) -> Command:
        """Ask which process has a place; the reply is its identity or nil."""
        return command("GET", self._place(place))

    def lives(self, identity: bytes) -> Command:
        """Ask whether the owner of a place has a lease. [REL-5]"""
        return command("EXISTS", self._keys.process(identity.decode("utf-8", "replace")))

    def renew(self, place: str) -> list[Command]:
        """Keep a place; the first reply is the identity of the guard that has it."""
        key = self._place(place)
        return [command("GET", key), command("EXPIRE", key, HELD_S)]

    def has(self, owner: object) -> bool:
        """True if a reply to `renew` names this process."""
        return owner == self._identity.encode()

    def pass_on(self, place: str) -> list[Command]:
        """Give a place to a process that waits; the second reply is nil if there was one.

        Otherwise the second command takes the ring back, and the place stays.
        """
        return [command("RPUSH", self.key, place), command("RPOP", self.key)]

    def ring(self, rings: int, place: str | None = None) -> list[Command]:
        """Wake so many processes, or the next that come to wait; also give up a place.

        Rings that no process has taken are replaced, so that they do not grow in number.
        """
        gone = [self.key] if place is None else [self._place(place), self.key]
        return [
            command("UNLINK", *gone),
            command("RPUSH", self.key, *[RING] * rings),
            command("EXPIRE", self.key, RING_S),
        ]

    def _place(self, place: str) -> str:
        return self._keys.idle(self.group, place)
