"""The parts that all screens share: the command layer, the pace, the changes at work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from jobwire.console.ops.changes import Changes
from jobwire.console.ops.operations import Operations
from jobwire.console.ops.roles import LOWEST_ROLE, Action
from jobwire.errors import NotPermitted

__all__ = ["ScreenContext"]


@dataclass(slots=True, kw_only=True)
class ScreenContext:
    """The parts that all screens share.

    Attributes:
        operations: The command layer, in the name and role of the user.
        address: The URL of Redis without its password.
        interval: Seconds between two reads.
        changes: The changes of many jobs.
        clock: Returns epoch seconds.
        wake: Set to read the screen again now.
        away_since: Time of the first read that failed, or None while Redis answers.
    """

    operations: Operations
    address: str
    interval: float
    changes: Changes = field(default_factory=Changes)
    clock: Callable[[], float] = time.time
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    away_since: float | None = None

    def permits(self, act: Action) -> bool:
        """Return True if the role of the user allows an action."""
        return self.operations.permits(act)

    def refusal(self, act: Action) -> NotPermitted:
        """Return the error for an action that the role does not allow."""
        return NotPermitted(act, self.operations.role, LOWEST_ROLE[act])
