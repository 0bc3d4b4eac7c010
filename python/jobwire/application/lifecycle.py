"""Events in the life of a worker, for which an application can add callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, TypeVar, get_args

from jobwire.application.hooks import check_hook
from jobwire.errors import ConfigError

__all__ = ["Callback", "Event", "Events"]

Event: TypeAlias = Literal["startup", "quiet", "shutdown", "exit", "heartbeat", "beat"]
Callback: TypeAlias = Callable[[], object]
C = TypeVar("C", bound=Callback)

_LAST_FIRST = ("quiet", "shutdown", "exit")  # so that resources opened first are closed last


class Events:
    """Callbacks by event."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callback]] = {name: [] for name in get_args(Event)}

    def adder(self, event: Event) -> Callable[[C], C]:
        """Return a decorator that adds a callback.

        Raises:
            ConfigError: The event is unknown. The decorator also refuses a function that needs
                arguments.
        """
        if event not in self._callbacks:
            known = ", ".join(self._callbacks)
            raise ConfigError(f"unknown event {event!r}; expected one of {known}")

        def add(callback: C) -> C:
            check_hook(f"app.on({event!r})", callback, awaited=True)
            self._callbacks[event].append(callback)
            return callback

        return add

    def callbacks(self, event: Event) -> Sequence[Callback]:
        """Return the callbacks of an event, in the order in which to call them."""
        added = self._callbacks[event]
        return added[::-1] if event in _LAST_FIRST else list(added)
