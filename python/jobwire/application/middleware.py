"""Middleware in order, outermost first. [PUSH-7] [EXEC-6]"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from inspect import getattr_static, isawaitable, iscoroutine, iscoroutinefunction
from typing import Any, Generic, Self, TypeVar, cast, overload

from jobwire.errors import ConfigError

__all__ = ["MiddlewareChain", "arun", "is_async", "run"]

M = TypeVar("M", bound=Callable[..., Any])


class _Fresh:
    """A middleware class: each call is made to an instance of its own."""

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

    A function is called with the subject (client: the item; server: the job) and `call_next`. Of
    a class, a fresh instance is made for every call, from the arguments given to `add`, and
    called in the same way.

        chain.add(Timing, unit="ms")
        chain.insert_before(Timing, tenant)

    Changes count from the next push, or from the start of the worker.
    """

    def __init__(self, middleware: Iterable[M | type] = ()) -> None:
        self._entries: list[M] = []
        self.extend(middleware)

    def add(self, middleware: M | type, *args: Any, **kwargs: Any) -> None:
        """Add it innermost. One that is in the chain already moves."""
        self._place(len(self._entries), middleware, args, kwargs)

    append = add

    def extend(self, middleware: Iterable[M | type]) -> None:
        """Add several, the last one innermost."""
        for each in middleware:
            self.add(each)

    def __iadd__(self, middleware: Iterable[M | type]) -> Self:
        self.extend(middleware)
        return self

    def prepend(self, middleware: M | type, *args: Any, **kwargs: Any) -> None:
        """Add it outermost. One that is in the chain already moves."""
        self._place(0, middleware, args, kwargs)

    def insert_before(
        self, other: M | type, middleware: M | type, *args: Any, **kwargs: Any
    ) -> None:
        """Add it just outside of `other`.

        Raises:
            ConfigError: `other` is not in the chain.
        """
        self._beside(other, 0, middleware, args, kwargs)

    def insert_after(
        self, other: M | type, middleware: M | type, *args: Any, **kwargs: Any
    ) -> None:
        """Add it just inside of `other`.

        Raises:
            ConfigError: `other` is not in the chain.
        """
        self._beside(other, 1, middleware, args, kwargs)

    def remove(self, middleware: M | type) -> None:
        """Take it out, if it is there."""
        self._entries = [each for each in self._entries if not _is(each, middleware)]

    def clear(self) -> None:
        """Take all out."""
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
        return any(_is(each, middleware) for each in self._entries)

    def __repr__(self) -> str:
        return f"<Chain {self._entries}>"

    def _beside(
        self, other: M | type, after: int, middleware: M | type, args: Any, kwargs: Any
    ) -> None:
        if other not in self:
            raise ConfigError(f"middleware {other!r} is not in the chain {self._entries}")
        if _is(cast("M", other), middleware):
            return
        self.remove(middleware)
        place = next(i for i, each in enumerate(self._entries) if _is(each, other))
        self._place(place + after, middleware, args, kwargs)

    def _place(self, index: int, middleware: M | type, args: Any, kwargs: Any) -> None:
        if not callable(middleware):
            raise ConfigError(
                f"middleware {middleware!r} cannot be called; give a function "
                "(subject, call_next) or a class with such a __call__"
            )
        if isinstance(middleware, type):
            if not any("__call__" in vars(base) for base in middleware.__mro__):
                raise ConfigError(
                    f"middleware class {middleware.__qualname__} has no method "
                    "__call__(self, subject, call_next)"
                )
        elif args or kwargs:
            raise ConfigError(f"middleware {middleware!r} is no class, so it takes no arguments")
        entries = [each for each in self._entries[:index] if not _is(each, middleware)]
        rest = [each for each in self._entries[index:] if not _is(each, middleware)]
        entry = _Fresh(middleware, args, kwargs) if isinstance(middleware, type) else middleware
        self._entries = [*entries, cast("M", entry), *rest]


def is_async(middleware: Callable[..., Any]) -> bool:
    """Whether a middleware, or any callable, is `async def`."""
    kind = middleware.kind if isinstance(middleware, _Fresh) else type(middleware)
    return iscoroutinefunction(middleware) or iscoroutinefunction(
        getattr_static(kind, "__call__", None)
    )


def run(chain: Sequence[Callable[..., Any]], subject: Any, last: Callable[[], Any]) -> Any:
    """Return what the chain makes of calling `last`, all of it sync.

    Raises:
        ConfigError: One of them is `async def`.
    """
    chain = tuple(chain)

    def layer(index: int) -> Any:
        if index == len(chain):
            return last()
        result = chain[index](subject, partial(layer, index + 1))
        if iscoroutine(result):
            result.close()  # nobody will await it
            raise ConfigError(
                f"middleware {chain[index]!r} is async, so only asyncio can enqueue through it: "
                "use aenqueue or AsyncClient, or make it sync"
            )
        return result

    return layer(0)


async def arun(chain: Sequence[Callable[..., Any]], subject: Any, last: Callable[[], Any]) -> Any:
    """Return what a chain of sync and async middleware makes of calling `last`, which is sync.

    Raises:
        ConfigError: A sync one has looked at what an async one inside of it returns.
    """
    chain = tuple(chain)
    kinds = [is_async(each) for each in chain]

    def layer(index: int) -> Any:  # the result, or, with an async one from here on, its promise
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
                inner.close()  # nobody will await it
        if ignored:
            raise ConfigError(
                f"middleware {chain[index]!r} is sync and outside of an async one, so it has to "
                "return call_next() as it is; make it async too, or place it further inside"
            )
        return result

    async def alayer(index: int) -> Any:
        result = layer(index)
        return await result if isawaitable(result) else result

    return await alayer(0)


def _is(entry: Any, middleware: object) -> bool:
    return (entry.kind if isinstance(entry, _Fresh) else entry) is middleware
