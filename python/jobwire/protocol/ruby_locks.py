"""Locks that sidekiq-unique-jobs takes for jobs, and describes in their payloads. [X-ADDON-1]"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job
from jobwire.protocol.wire import Script

__all__ = [
    "LOCK_DIGEST",
    "RubyLock",
    "rejects",
    "ruby_lock_of",
    "script_ruby_take",
    "script_ruby_tidy",
]

LOCK_DIGEST: Final = "lock_digest"

Kind: TypeAlias = Literal[
    "until_executing",
    "until_executed",
    "until_expired",
    "while_executing",
    "until_and_while_executing",
]
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("until_executing", "while_enqueued"), "until_executing"),
    **dict.fromkeys(
        (
            *("until_executed", "until_completed", "until_performed", "until_processed"),
            "until_successfully_completed",
        ),
        "until_executed",
    ),
    "until_expired": "until_expired",
    **dict.fromkeys(
        (
            *("while_executing", "around_perform", "while_busy", "while_working"),
            "while_executing_reject",
        ),
        "while_executing",
    ),
    "until_and_while_executing": "until_and_while_executing",
}
_RUN = ":RUN"
# Key names are made of it, and a key that is made of any other text may be one of another program.
_DIGEST = re.compile(r"[^:\s]*:(?:[0-9a-f]{32}|[0-9a-f]{64})")
_MAX_MS = 2**52


class RubyLock(NamedTuple):
    """The lock that a payload describes.

    Attributes:
        digest: Its key, without the end `:RUN`.
        kind: When it is taken and released.
        limit: How many jobs may have it at a time.
        ttl_ms: Its bound in milliseconds after it was taken; 0 for none.
    """

    digest: str
    kind: Kind
    limit: int
    ttl_ms: int

    @property
    def needed(self) -> str:
        """Name of the lock that the job needs while it runs; empty if it needs none."""
        if self.kind.endswith("while_executing"):
            return self.digest + _RUN
        return self.digest if self.kind == "until_executed" else ""

    @property
    def ends_at_start(self) -> bool:
        """True if the lock of the push is released before the job runs."""
        return self.kind in ("until_executing", "until_and_while_executing")

    def released(self, *, waits: bool, done: bool) -> list[str]:
        """Return the names of the locks that an execution or an end releases.

        [X-ADDON-4] [X-ADDON-5]

        Args:
            waits: True if the job runs again later.
            done: True if it succeeded.
        """
        running = [self.digest + _RUN] if self.kind.endswith("while_executing") else []
        if waits or self.kind == "while_executing" or (self.kind == "until_expired" and done):
            return running
        return [*running, self.digest]


def ruby_lock_of(fields: Mapping[str, Any] | Job) -> RubyLock | None:
    """Return the lock that a payload describes; None if it describes none. [X-ADDON-1]"""
    digest = fields.get(LOCK_DIGEST)
    if not isinstance(digest, str):
        return None
    kind, digest = fields.get("lock"), digest.removesuffix(_RUN)
    if not isinstance(kind, str) or kind not in _KINDS or not _DIGEST.fullmatch(digest):
        return None
    limit, ttl = fields.get("lock_limit"), fields.get("lock_ttl")
    return RubyLock(digest, _KINDS[kind], _whole(limit) or 1, min(_whole(ttl) * 1000, _MAX_MS))


def rejects(fields: Mapping[str, Any] | Job) -> bool:
    """True if a job does not wait for its lock, but goes to the dead set. [X-ADDON-18]"""
    wish = fields.get("on_conflict")
    if isinstance(wish, dict):
        wish = wish.get("server")
    return wish == "reject" or fields.get("lock") == "while_executing_reject"


def _whole(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def script_ruby_take(keys: Keys, lock: RubyLock, jid: str, now: float) -> Script:
    """Return the step that takes the lock which a job needs while it runs, or that of its push.

    [X-ADDON-2] [X-ADDON-17]

    The reply is 1 if the job has it, 0 if so many others have it that it must wait.
    """
    return _script(keys, lock.needed or lock.digest, jid, lock.limit, now, lock.ttl_ms)


def script_ruby_tidy(keys: Keys, name: str) -> Script:
    """Return the step that deletes what is left of a lock which no job has. [X-ADDON-6]"""
    return _script(keys, name)


def _script(keys: Keys, name: str, jid: str = "", *words: float) -> Script:
    names = [keys.unique(name), *keys.ruby_lock(name), keys.ruby_digests]
    return Script("ruby_lock", names, [name, jid, *words])
