"""Functions of the application that a worker calls: their types, checked at registration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from jobwire.errors import ConfigError
from jobwire.protocol.payload import Job
from jobwire.protocol.retry import Choice

__all__ = [
    "Around",
    "Callback",
    "DeathHandler",
    "ErrorHandler",
    "Event",
    "Events",
    "ExhaustedHook",
    "ExpiredHandler",
    "RetryHook",
    "ServerMiddleware",
    "check_around",
    "check_hook",
]

ServerMiddleware: TypeAlias = Callable[[Job, Callable[[], Any]], Any]
"""`(job, call_next) -> result`: wraps each execution. To skip the job, do not call `call_next`.
[EXEC-6]

`async def` middleware awaits `call_next()`.
"""

Around: TypeAlias = Callable[[Job], AbstractContextManager[Any]]
"""`(job) -> context manager`, entered around each execution, in the thread or task of the job.

One that also has `__aenter__` and `__aexit__` is entered with these in the task of an async job.
"""

DeathHandler: TypeAlias = Callable[[Job, BaseException], object]
"""`(job, error)`: called for a job that will not be tried again. [RETRY-13]"""

ErrorHandler: TypeAlias = Callable[[Job, BaseException], object]
"""`(job, error)`: called for an execution that failed, even if the job is tried again."""

ExpiredHandler: TypeAlias = Callable[[Job], object]
"""`(job)`: called for a job that came too late and did not run. [X-TIME-3]"""

RetryHook: TypeAlias = Callable[[Job, BaseException, int], Choice]
"""`(job, error, retries counted) -> seconds, "discard", "kill" or None`. [RETRY-11] [RETRY-12]"""

ExhaustedHook: TypeAlias = Callable[[Job, BaseException], Literal["discard"] | None]
"""`(job, error)`, called before the job goes to the dead set; "discard" prevents that. [RETRY-13]
"""

H = TypeVar("H", bound=Callable[..., Any])


def check_hook(decorator: str, hook: H, *parameters: str, awaited: bool = False) -> H:
    """Return `hook` if it can be called with positional arguments of these meanings.

    Args:
        decorator: The place of the registration, for messages: `app.on_error`.
        hook: The function to check.
        *parameters: The usual names of the parameters, in their order.
        awaited: True if it may be `async def`.

    Raises:
        ConfigError: It is not callable, takes other parameters, or must not be `async def`.
    """
    if not callable(hook):
        raise ConfigError(f"@{decorator}: {hook!r} is not a function")
    name = getattr(hook, "__qualname__", repr(hook))
    if inspect.iscoroutinefunction(hook) and not awaited:
        raise ConfigError(
            f"@{decorator}: {name} is async, but its result is not awaited; make it a plain `def`"
        )
    _check_parameters(decorator, hook, name, parameters)
    return hook


def check_around(around: H) -> H:
    """Return `around` if it may be a function that returns a context manager.

    Raises:
        ConfigError: It is a generator function, makes async context managers, or takes other
            parameters than the job.
    """
    check_hook("app.wrap", around, "job")
    if inspect.isgeneratorfunction(around):
        problem = "is a generator function; put @contextmanager between it and @app.wrap"
    elif inspect.isasyncgenfunction(inspect.unwrap(around)):
        problem = "is async; make it a sync context manager, or use server middleware"
    else:
        return around
    raise ConfigError(f"@app.wrap: {getattr(around, '__qualname__', repr(around))} {problem}")


def _check_parameters(
    decorator: str, hook: Callable[..., Any], name: str, parameters: tuple[str, ...]
) -> None:
    try:
        signature = inspect.signature(hook)
    except ValueError:  # some functions written in C have none
        return
    named = [parameter for parameter in signature.parameters if parameter in parameters]
    try:
        signature.bind(*parameters)
        fits = named == [parameter for parameter in parameters if parameter in named]
    except TypeError:
        fits = False
    if not fits:
        raise ConfigError(
            f"@{decorator}: {name}{signature} is called with ({', '.join(parameters)}), in this "
            f"order; write `def {_plain(name)}({', '.join(parameters)})`"
        )


def _plain(name: str) -> str:
    short = name.rpartition(".")[2]
    return short if short.isidentifier() else "_"


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
