"""Names, a shell and the scripts that end a job, for all tests of the scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from harness.servers import Server
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.reliable import Finish, fetch, script_done, script_finish
from jobwire.protocol.results import ResultToStore
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


def script_retry(
    keys: Keys, identity: str, retries: Sequence[tuple[str, float, bytes]], **more: Any
) -> Script:
    """Return the step that moves jobs to the retry set."""
    ends = [(field, Finish(keys.retry, text, at, failed=True)) for field, at, text in retries]
    return script_finish(keys, identity, ends, **more)


def script_kill(
    keys: Keys,
    identity: str,
    field: str,
    text: bytes,
    limits: DeadSetLimits,
    *,
    key: str | None = None,
    counted: bool = True,
    **more: Any,
) -> Script:
    """Return the step that moves a job to the dead set."""
    end = Finish(key or keys.dead, text, executed=counted, failed=counted, trimmed=True)
    return script_finish(keys, identity, [(field, end)], limits=limits, **more)


def script_requeue(
    keys: Keys,
    identity: str,
    field: str,
    text: bytes,
    queue: str,
    *,
    executed: bool = False,
    failed: bool = False,
    **more: Any,
) -> Script:
    """Return the step that moves a job to the head of a queue."""
    end = Finish(keys.queue(queue), text, queue=queue, executed=executed, failed=failed)
    return script_finish(keys, identity, [(field, end)], **more)


def script_keep(
    keys: Keys,
    identity: str,
    ends: Sequence[tuple[str, float, bytes, ResultToStore, str]],
    *,
    key: str | None = None,
    dead_limits: DeadSetLimits | None = None,
    executed: bool = True,
    failed: bool = False,
    expired: bool = False,
    **more: Any,
) -> Script:
    """Return the step that ends jobs and keeps their results."""
    made = [
        (
            field,
            Finish(
                *(key or keys.retry, text, score),
                executed=executed,
                failed=failed,
                expired=expired,
                trimmed=dead_limits is not None,
                cancelled=cancelled,
                result=result if result.text else None,
            ),
        )
        for field, score, text, result, cancelled in ends
    ]
    return script_finish(keys, identity, made, limits=dead_limits, **more)


def outcome(name: str, field: str, *, repeated: bool = False) -> Script:
    """Return the script that ends a job in this way."""
    if name == "done":
        return script_done(KEYS, ME, [field], failed=True, day=DAY, repeated=repeated)
    if name == "retry":
        return script_retry(KEYS, ME, [(field, NOW + 15.5, b"new")], day=DAY, repeated=repeated)
    if name == "requeue":
        return script_requeue(
            KEYS, ME, field, b"new", "a:b", day=DAY, executed=True, failed=True, repeated=repeated
        )
    return script_kill(KEYS, ME, field, b"new", DeadSetLimits(NOW), day=DAY, repeated=repeated)


OUTCOMES = ("done", "retry", "kill", "requeue")
STORED = {"retry": "retry", "kill": "dead", "requeue": "queue:a:b"}


def digest(text: bytes) -> str:
    return hashlib.sha1(text).hexdigest()
