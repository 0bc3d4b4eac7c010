"""Names, a shell and the scripts that end a job, for all tests of the scripts."""

from __future__ import annotations

import hashlib
from typing import Any

from harness.servers import Server
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import Outcome
from jobwire.protocol.reliable import fetch, script_done, script_finish
from jobwire.protocol.wire import Op, Script, Step

NOW = 1_795_192_067.25
DAY = "2026-11-20"
ME = "web-1:42:0123456789ab"
KEYS = Keys()
PRIVATE = KEYS.private(ME)

BINARY = bytes(range(256)) + b"\r\n$-1\r\n"
ODD_NAMES = ["default", "a:b", "queue:x", "a|b", "a b", "größe", "7:q", ":", "*"]


def one(step: Step) -> Op[Any]:
    return (yield step)


class Shell:
    """A server, an operation runner and a plain client to look behind it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.redis = SyncRedis(server.url)
        self.plain: Any = server.client()
        self.run = self.redis.run

    def live(self, identity: str = ME, keys: Keys = KEYS) -> None:
        """Give a process its lease."""
        self.plain.hset(keys.process(identity), "info", "{}")

    def push(self, queue: str, *texts: bytes) -> None:
        """Fill a queue; the first text is next."""
        self.plain.lpush(KEYS.queue(queue), *texts)

    def queue(self, name: str) -> list[bytes]:
        """Return a queue, next first."""
        return list(reversed(self.plain.lrange(KEYS.queue(name), 0, -1)))

    def hold(self, *texts: bytes, queue: str = "q", first: int = 1) -> list[str]:
        """Hold these jobs for us; return their fields."""
        self.live()
        self.push(queue, *texts)
        fetched = self.run(fetch(KEYS, ME, [queue], count=len(texts), sequence=first))
        assert [held.text for held in fetched.jobs] == list(texts)
        return [held.field for held in fetched.jobs]

    def step(self, script: Script) -> Any:
        return self.run(one(script))

    def numbers(self) -> dict[str, int]:
        """Return the counters by the part of their names after `stat:`."""
        return {
            key.decode().removeprefix("stat:"): int(self.plain.get(key) or 0)
            for key in self.plain.keys("stat:*")
        }


def finish(
    *ends: tuple[str, Outcome],
    keys: Keys = KEYS,
    limits: DeadSetLimits | None = None,
    repeated: bool = False,
) -> Script:
    """Return the script that stores outcomes of jobs that we hold, by their fields."""
    if limits is None and ends[0][1].trims:
        limits = DeadSetLimits(NOW)
    return script_finish(keys, ME, ends, day=DAY, dead_limits=limits, repeated=repeated)


FINISHES = {
    "retry": Outcome("retry", b"new", NOW + 15.5, "failed"),
    "kill": Outcome("dead", b"new", counted="failed"),
    "requeue": Outcome("queue", b"new", counted="failed"),
}
STORED = {"retry": "retry", "kill": "dead", "requeue": "queue:q"}
OUTCOMES = ("done", *FINISHES)


def outcome(name: str, field: str, *, repeated: bool = False) -> Script:
    """Return the script that ends a job in this way."""
    if name == "done":
        return script_done(KEYS, ME, [field], failed=True, day=DAY, repeated=repeated)
    return finish((field, FINISHES[name]), repeated=repeated)


def digest(text: bytes) -> str:
    return hashlib.sha1(text).hexdigest()
