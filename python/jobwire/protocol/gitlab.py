"""GitLab's layer on top of Sidekiq, as far as a worker has to know it. [X-ADDON-11]"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job
from jobwire.protocol.wire import Batch, Command, Op, command

__all__ = [
    "CORRELATION_ID",
    "IDEMPOTENCY_KEY",
    "META",
    "STATUS_EXPIRATION",
    "cancelled",
    "end_wait",
    "forget_status",
    "inherited",
    "is_of_gitlab",
    "starts",
    "take_waiter",
]

CORRELATION_ID: Final = "correlation_id"
IDEMPOTENCY_KEY: Final = "idempotency_key"
STATUS_EXPIRATION: Final = "status_expiration"
META: Final = "meta."
"""Start of the fields that describe the request behind a job."""

WAITER_KEEP_S = 21_600  # [X-ADDON-14]

# A key name is made of it, and a key that is made of any other text may be one of another program.
_KEY = re.compile(r"resque:gitlab:duplicate:.+:[0-9a-f]{64}")
_WAITER = re.compile(r"gitlab:job_waiter:[0-9a-f-]{36}")


def is_of_gitlab(fields: Mapping[str, Any]) -> bool:
    """True if GitLab has pushed a job."""
    return CORRELATION_ID in fields or IDEMPOTENCY_KEY in fields


def starts(keys: Keys, fields: Mapping[str, Any], jid: str) -> Op[bool]:
    """Let a job start; return False if it was cancelled. [X-ADDON-11] [X-ADDON-13]

    The cookie of the job is deleted, so that GitLab accepts the next job that is equal to it.
    """
    steps: list[Command] = [command("EXISTS", keys.gitlab_cancel(jid))]
    key = fields.get(IDEMPOTENCY_KEY)
    if isinstance(key, str) and _KEY.fullmatch(key):
        steps.append(command("UNLINK", keys.gitlab_cookie(key)))
    replies = yield Batch(steps)
    return bool(replies[0] != 1)


def forget_status(keys: Keys, fields: Mapping[str, Any], jid: str) -> list[Command]:
    """Return the steps that tell those who wait for a job that it succeeded. [X-ADDON-12]"""
    expiration = fields.get(STATUS_EXPIRATION)  # truthy as in Ruby, so 0 counts
    if expiration is None or expiration is False:
        return []
    return [command("UNLINK", keys.gitlab_status(jid))]


def take_waiter(job: Job) -> str:
    """Remove the waiter from the arguments of a job; return its key, "" if it has none.

    [X-ADDON-14]
    """
    args = job.fields.get("args")
    if not isinstance(args, list) or not args or not isinstance(args[-1], str):
        return ""
    if not _WAITER.fullmatch(args[-1]):
        return ""
    job.fields["args"] = args[:-1]
    return str(args[-1])


def end_wait(keys: Keys, waiter: str, jid: str) -> list[Command]:
    """Return the steps that tell a waiter of the end of an execution. [X-ADDON-14]"""
    key = keys.gitlab_waiter(waiter)
    return [command("LPUSH", key, jid), command("EXPIRE", key, WAITER_KEEP_S)]


def inherited(job: Job) -> dict[str, Any]:
    """Return the fields that a running job passes on to those that it pushes. [X-ADDON-15]"""
    fields = {
        name: value
        for name, value in job.fields.items()
        if name == CORRELATION_ID or name.startswith(META)
    }
    if len(fields) > 1:
        fields["meta.caller_id"] = job.display_class
    return fields


def cancelled(keys: Keys, jids: Sequence[str]) -> Op[Collection[str]]:
    """Return those of these jobs that GitLab has cancelled. [X-ADDON-16]"""
    replies = yield Batch([command("EXISTS", keys.gitlab_cancel(jid)) for jid in jids])
    return {jid for jid, reply in zip(jids, replies, strict=True) if reply == 1}
