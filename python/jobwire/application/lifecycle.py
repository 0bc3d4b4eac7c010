"""Moments of a worker's life that an application can hook into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

from jobwire.errors import ConfigError

__all__ = ["Callback", "Event", "Events"]

Event: TypeAlias = Literal["startup", "quiet", "shutdown", "exit", "heartbeat", "beat"]
Callback: TypeAlias = Callable[[], object]

_LAST_FIRST = ("quiet", "shutdown", "exit")  # what was opened first is closed last


class Events:
    """Callbacks by event."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callback]] = {name: [] for name in get_args(Event)}

    def adder(self, event: Event) -> Callable[[Callback], Callback]:
        """Return a decorator that adds a callback.

        Raises:
            ConfigError: There is no such event.
        """
        if event not in self._callbacks:
            raise ConfigError(f"event {event!r}: there is {', '.join(self._callbacks)}")

        def add(callback: Callback) -> Callback:
            self._callbacks[event].append(callback)
            return callback

        return add

    def callbacks(self, event: Event) -> Sequence[Callback]:
        """Return what to call, in order."""
        every = self._callbacks[event]
        return every[::-1] if event in _LAST_FIRST else list(every)
