"""Periodic checks, and the interface of the thread that calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

__all__ = ["PeriodicCheck", "PeriodicChecks"]

PeriodicCheck: TypeAlias = Callable[[], float | None]
"""Checks something; returns in how many seconds to call it again, None for not before `wake`."""


class PeriodicChecks(Protocol):
    """The thread that calls periodic checks. One per process.

    Attributes:
        awake: True if all checks are called every few milliseconds now.
    """

    @property
    def awake(self) -> bool: ...

    def add_periodic_check(self, check: PeriodicCheck) -> None:
        """Have a check called after each `wake`, and again after as many seconds as it returns."""

    def wake(self) -> None:
        """Have all checks called soon."""
