"""Chains of middleware, outermost first. [PUSH-7] [EXEC-6]"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from inspect import getattr_static, isawaitable, iscoroutine, iscoroutinefunction
from typing import Any, Generic, Self, TypeVar, cast, overload

from jobwire.errors import ConfigError

__all__ = ["MiddlewareChain", "arun", "is_async", "run"]

M = TypeVar("M", bound=Callable[..., Any])


class _PerCall:
    """A middleware class; each call gets a new instance."""

    def __init__(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.kind = kind
        self._args = args
        self._kwargs = kwargs

    def __call__(self, subject: Any, call_next: Any) -> Any:
        return self.kind(*self._args, **self._kwargs)(subject, call_next)

    def __repr__(self) -> str:
        return self.kind.__qualname__


class MiddlewareChain(Sequence[M], Generic[M]):
    """A list of middleware: functions, other callables, or classes.

    A function is called with the subject (client: the item; server: the job) and `call_next`. For
    a class, each call makes a new instance with the arguments of `add`, and calls that instance in
    the same way.

        chain.add(Timing, unit="ms")
        chain.insert_before(Timing, tenant)

    Changes take effect with the next push, or with the next start of a worker.
    """

    def __init__(self, middleware: Iterable[M | type] = ()) -> None:
        self._entries: list[M] = []
        self.extend(middleware)

    def add(self, middleware: M | type, *args: Any, **kwargs: Any) -> None:
        """Add middleware as the innermost one, or move it there."""
        self._place(len(self._entries), middleware, args, kwargs)

    append = add

    def extend(self, middleware: Iterable[M | type]) -> None:
        """Add several middleware, the last one innermost."""
        for added in middleware:
            self.add(added)

    def __iadd__(self, middleware: Iterable[M | type]) -> Self:
        self.extend(middleware)
        return self

    def prepend(self, middleware: M | type, *args: Any, **kwargs: Any) -> None:
        """Add middleware as the outermost one, or move it there."""
        self._place(0, middleware, args, kwargs)

    def insert_before(
        self, other: M | type, middleware: M | type, *args: Any, **kwargs: Any
    ) -> None:
        """Add middleware next to `other`, on its outer side.

        Raises:
            ConfigError: `other` is not in the chain.
        """
        self._place_next_to(other, 0, middleware, args, kwargs)

    def insert_after(
        self, other: M | type, middleware: M | type, *args: Any, **kwargs: Any
    ) -> None:
        """Add middleware next to `other`, on its inner side.

        Raises:
            ConfigError: `other` is not in the chain.
        """
        self._place_next_to(other, 1, middleware, args, kwargs)

    def remove(self, middleware: M | type) -> None:
        """Remove middleware, if it is in the chain."""
        self._entries = [entry for entry in self._entries if not _is(entry, middleware)]

    def clear(self) -> None:
        """Remove all middleware."""
        self._entries = []

    @overload
    def __getitem__(self, index: int) -> M: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[M]: ...

    def __getitem__(self, index: int | slice) -> M | Sequence[M]:
        return self._entries[index]

    def __iter__(self) -> Iterator[M]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, middleware: object) -> bool:
        return any(_is(entry, middleware) for entry in self._entries)

    def __repr__(self) -> str:
        return f"<Chain {self._entries}>"

    def _place_next_to(
        self, other: M | type, after: int, middleware: M | type, args: Any, kwargs: Any
    ) -> None:
        if other not in self:
            raise ConfigError(f"middleware {other!r} is not in the chain {self._entries}")
        if _is(cast("M", other), middleware):
            return
        self.remove(middleware)
        index = next(i for i, entry in enumerate(self._entries) if _is(entry, other))
        self._place(index + after, middleware, args, kwargs)

    def _place(self, index: int, middleware: M | type, args: Any, kwargs: Any) -> None:
        if not callable(middleware):
            raise ConfigError(
                f"middleware {middleware!r} is not callable; give a function "
                "(subject, call_next) or a class with such a __call__"
            )
        if isinstance(middleware, type):
            if not any("__call__" in vars(base) for base in middleware.__mro__):
                raise ConfigError(
                    f"middleware class {middleware.__qualname__} has no method "
                    "__call__(self, subject, call_next)"
                )
        elif args or kwargs:
            raise ConfigError(
                f"middleware {middleware!r} is not a class; only a class takes arguments here"
            )
        outer = [entry for entry in self._entries[:index] if not _is(entry, middleware)]
        inner = [entry for entry in self._entries[index:] if not _is(entry, middleware)]
        added = _PerCall(middleware, args, kwargs) if isinstance(middleware, type) else middleware
        self._entries = [*outer, cast("M", added), *inner]


def is_async(middleware: Callable[..., Any]) -> bool:
    """True if a middleware, or any callable, is `async def`."""
    kind = middleware.kind if isinstance(middleware, _PerCall) else type(middleware)
    return iscoroutinefunction(middleware) or iscoroutinefunction(
        getattr_static(kind, "__call__", None)
    )


def run(chain: Sequence[Callable[..., Any]], subject: Any, last: Callable[[], Any]) -> Any:
    """Call a chain of sync middleware around `last`, and return its result.

    Raises:
        ConfigError: A middleware is `async def`.
    """
    chain = tuple(chain)

    def layer(index: int) -> Any:
        if index == len(chain):
            return last()
        result = chain[index](subject, partial(layer, index + 1))
        if iscoroutine(result):
            result.close()  # it is never awaited
            raise ConfigError(
                f"middleware {chain[index]!r} is async, so it works only with asyncio; "
                "use aenqueue or AsyncClient, or make it sync"
            )
        return result

    return layer(0)


async def arun(chain: Sequence[Callable[..., Any]], subject: Any, last: Callable[[], Any]) -> Any:
    """Call a chain of sync and async middleware around `last`, which is sync.

    Raises:
        ConfigError: A sync middleware used the result of an async one inside it.
    """
    chain = tuple(chain)
    kinds = [is_async(middleware) for middleware in chain]

    # Returns the result; a coroutine, if a middleware from `index` on is async.
    def layer(index: int) -> Any:
        if index == len(chain):
            return last()
        if kinds[index]:
            return chain[index](subject, partial(alayer, index + 1))
        inner: Any = None

        def call_next() -> Any:
            nonlocal inner
            inner = layer(index + 1)
            return inner

        result = None
        try:
            result = chain[index](subject, call_next)
        finally:
            ignored = iscoroutine(inner) and inner is not result
            if ignored:
                inner.close()  # it is never awaited
        if ignored:
            raise ConfigError(
                f"middleware {chain[index]!r} is sync and outside an async one, so it must return "
                "call_next() unchanged; make it async, or place it inside the async one"
            )
        return result

    async def alayer(index: int) -> Any:
        result = layer(index)
        return await result if isawaitable(result) else result

    return await alayer(0)


def _is(entry: Any, middleware: object) -> bool:
    return (entry.kind if isinstance(entry, _PerCall) else entry) is middleware
