"""What makes a job iterable: a generator function, and what is called beside it.

Each `yield` of the function offers to stop, and its value, the cursor, says where to begin again:
at the item that is to be done next. [ITER-5]
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from jobwire.errors import ConfigError
from jobwire.protocol.iteration import ADVANCE, CLOSE, END, Ask, Begin, Call, Cursor, Run
from jobwire.protocol.normalize import Options

__all__ = [
    "IterableOptions",
    "IterableSpec",
    "Stage",
    "aperform",
    "define_iterable",
    "perform",
]

Callback: TypeAlias = Callable[..., object]
"""Called with what the job is called with: the cursor and the arguments."""
Around: TypeAlias = Callable[
    ..., AbstractContextManager[object] | AbstractAsyncContextManager[object]
]


class IterableOptions(Options, total=False):
    """What `App.iterable` takes beside the options of every job.

    Attributes:
        max_runtime: Seconds after which a run gives way to other jobs; the worker's own setting
            if absent.
        on_start: Called before the first start, instead of `on_resume` before every other.
        on_resume: See `on_start`.
        on_stop: Called after every run that did not fail: complete, cancelled or interrupted.
        on_cancel: Called before `on_stop` when somebody cancelled the job.
        on_complete: Called after `on_stop` when the job will not be resumed, be it that all
            items are done or that somebody cancelled it.
        around_iteration: Returns a context manager that is entered around each item.
    """

    max_runtime: float | None
    on_start: Callback
    on_resume: Callback
    on_stop: Callback
    on_cancel: Callback
    on_complete: Callback
    around_iteration: Around


@dataclass(frozen=True, slots=True)
class IterableSpec:
    """What makes a job iterable. Made by `define_iterable`.

    Attributes:
        function: The generator function, sync or async.
        is_async: Which of both.
        max_runtime: Seconds, see `IterableOptions`.
        callbacks: By the moment at which they are called.
        around: Enclosing each item.
    """

    function: Callable[..., Iterator[Any] | AsyncIterator[Any]]
    is_async: bool
    max_runtime: float | None = None
    callbacks: Mapping[str, Callback] = field(default_factory=dict)
    around: Around | None = None

    def here(self) -> Callable[..., Any]:
        """Return a function that goes through all items here and now, without Redis.

        It has the parameters of the job without the cursor, so those that are enqueued.
        """

        whole = inspect.signature(self.function)
        signature = whole.replace(parameters=list(whole.parameters.values())[1:])

        def stage(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stage:
            bound = signature.bind(*args, **kwargs)  # callbacks get a list, as in a worker
            return Stage(self, bound.args, bound.kwargs)

        def everything(*args: Any, **kwargs: Any) -> None:
            perform(Run(None, clock=_no_clock).steps(), stage(args, kwargs).take)

        async def aeverything(*args: Any, **kwargs: Any) -> None:
            await aperform(Run(None, clock=_no_clock).steps(), stage(args, kwargs).atake)

        made = aeverything if self.is_async else everything
        functools.update_wrapper(made, self.function)
        made.__signature__ = signature  # type: ignore[union-attr]
        return made


def _no_clock() -> float:
    """Where nothing is saved, no time matters."""
    return 0.0


_OWN_OPTIONS = frozenset(IterableOptions.__annotations__) - frozenset(Options.__annotations__)
_AROUND = "around_iteration"


def define_iterable(
    function: Callable[..., Any], options: Mapping[str, Any]
) -> tuple[IterableSpec, Options]:
    """Return what makes `function` an iterable job, and the options that any job has.

    Raises:
        ConfigError: It is no generator function, has no parameter for the cursor, or an option
            is wrong.
    """
    name = getattr(function, "__qualname__", repr(function))
    is_async = inspect.isasyncgenfunction(function)
    if not (is_async or inspect.isgeneratorfunction(function)):
        raise ConfigError(
            f"iterable job {name} never yields; yield where to begin again before each item, "
            "or make it a plain job with @app.job"
        )
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not kinds or kinds[0] not in positional:
        raise ConfigError(
            f"iterable job {name} has no parameter for its cursor; write def {name}(cursor, ...)"
        )
    own = {key: value for key, value in options.items() if key in _OWN_OPTIONS}
    max_runtime = own.pop("max_runtime", None)
    if max_runtime is not None and not (
        type(max_runtime) in (int, float) and 0 < max_runtime < math.inf
    ):
        raise ConfigError(
            f"iterable job {name}: max_runtime is {max_runtime!r}; give seconds, more than 0"
        )
    for key, value in own.items():
        if not callable(value):
            raise ConfigError(f"iterable job {name}: {key} is {value!r}; give a function")
        if inspect.iscoroutinefunction(value) and not is_async:
            raise ConfigError(
                f"iterable job {name}: {key} is async, the job is not; make both the same"
            )
    around = own.pop(_AROUND, None)
    rest = {key: value for key, value in options.items() if key not in _OWN_OPTIONS}
    return IterableSpec(function, is_async, max_runtime, own, around), cast("Options", rest)


class Stage:
    """Where a run takes place: the generator, and what is called beside it."""

    def __init__(
        self, spec: IterableSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self._spec = spec
        self._args = args
        self._kwargs = kwargs or {}
        self._cursor = Cursor()
        self._items: Any = None
        self._moving = False

    def take(self, ask: Ask) -> Any:
        """Take a step, blocking."""
        if ask is ADVANCE:
            if not self._enclosed():
                return next(self._items, END)
            with cast("AbstractContextManager[object]", self._around()):
                return next(self._items, END)
        if ask is CLOSE:
            return self._items.close()
        return self._call(ask)

    async def atake(self, ask: Ask) -> Any:
        """Take a step of an async job."""
        if ask is ADVANCE:
            if not self._enclosed():
                return await anext(self._items, END)
            around = self._around()
            if isinstance(around, AbstractAsyncContextManager):
                async with around:
                    return await anext(self._items, END)
            with around:
                return await anext(self._items, END)
        if ask is CLOSE:
            return await self._items.aclose()
        answer = self._call(ask)
        return await answer if inspect.isawaitable(answer) else answer

    def _enclosed(self) -> bool:
        """Whether the next step is an item: that to the first `yield` only gets ready."""
        moving, self._moving = self._moving, True
        return moving and self._spec.around is not None

    def _around(self) -> AbstractContextManager[object] | AbstractAsyncContextManager[object]:
        assert self._spec.around is not None
        return self._spec.around(self._cursor, *self._args, **self._kwargs)

    def _call(self, ask: Ask) -> Any:
        match ask:
            case Begin(cursor):
                self._cursor = cursor
                self._items = self._spec.function(cursor, *self._args, **self._kwargs)
            case Call(moment) if moment in self._spec.callbacks:
                return self._spec.callbacks[moment](self._cursor, *self._args, **self._kwargs)
        return None

    def end(self) -> None:
        """Close the generator wherever it is, for a run that was broken off."""
        if self._items is not None:
            self._items.close()

    async def aend(self) -> None:
        """Close the async generator; the twin of `end`."""
        if self._items is not None:
            await self._items.aclose()


def perform(steps: Generator[Ask, Any, None], take: Callable[[Ask], Any]) -> None:
    """Take all steps of a run, telling it of errors."""
    try:
        ask = next(steps)
        while True:
            try:
                answer = take(ask)
            except Exception as error:  # noqa: BLE001 - handed on, not handled
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration:
        return
    finally:
        steps.close()


async def aperform(steps: Generator[Ask, Any, None], take: Callable[[Ask], Awaitable[Any]]) -> None:
    """Take all steps of an async run; the twin of `perform`."""
    try:
        ask = next(steps)
        while True:
            try:
                answer = await take(ask)
            except Exception as error:  # noqa: BLE001 - handed on, not handled
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration:
        return
    finally:
        steps.close()
