"""GitLab's layer on top of Sidekiq, as far as a worker has to know it. [X-ADDON-11]"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Command, Op, command

__all__ = ["CORRELATION_ID", "IDEMPOTENCY_KEY", "STATUS_EXPIRATION", "forget_status", "starts"]

CORRELATION_ID: Final = "correlation_id"
IDEMPOTENCY_KEY: Final = "idempotency_key"
STATUS_EXPIRATION: Final = "status_expiration"

# A key name is made of it, and a key that is made of any other text may be one of another program.
_KEY = re.compile(r"resque:gitlab:duplicate:.+:[0-9a-f]{64}")


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
    return [command("UNLINK", keys.gitlab_status(jid))] if fields.get(STATUS_EXPIRATION) else []
