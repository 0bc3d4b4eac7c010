"""Iterable jobs: a generator function and its hooks.

At each `yield` the job may stop. The yielded value is the cursor: the position of the next item,
at which the job resumes. [ITER-5]
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
    "IterationSteps",
    "aperform",
    "define_iterable",
    "perform",
]

Callback: TypeAlias = Callable[..., object]
"""Called with the arguments of the job: the cursor, then the arguments of its payload."""
Around: TypeAlias = Callable[
    ..., AbstractContextManager[object] | AbstractAsyncContextManager[object]
]


class IterableOptions(Options, total=False):
    """Options of `App.iterable`: those of every job, and these.

    Attributes:
        max_runtime: Seconds after which a run gives way to other jobs; default: the worker's
            setting.
        on_start: Called before the first start.
        on_resume: Called before every later start.
        on_stop: Called after every run that did not fail: complete, cancelled or interrupted.
        on_cancel: Called before `on_stop` if the job was cancelled.
        on_complete: Called after `on_stop` if the job will not be resumed, because all items are
            done or because it was cancelled.
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
    """The generator function of an iterable job and its hooks. Made by `define_iterable`.

    Attributes:
        function: The generator function, sync or async.
        is_async: True if the function is async.
        max_runtime: Seconds, see `IterableOptions`.
        callbacks: Name of the hook, such as `on_start`, to function.
        around: Returns a context manager around each item.
    """

    function: Callable[..., Iterator[Any] | AsyncIterator[Any]]
    is_async: bool
    max_runtime: float | None = None
    callbacks: Mapping[str, Callback] = field(default_factory=dict)
    around: Around | None = None

    def here(self) -> Callable[..., Any]:
        """Return a function that processes all items at once in this process, without Redis.

        Its parameters are those of the job without the cursor, the same as for `enqueue`.
        """

        full_signature = inspect.signature(self.function)
        signature = full_signature.replace(parameters=list(full_signature.parameters.values())[1:])

        def iteration(args: tuple[Any, ...], kwargs: dict[str, Any]) -> IterationSteps:
            bound = signature.bind(
                *args, **kwargs
            )  # hooks get positional arguments, as in a worker
            return IterationSteps(self, bound.args, bound.kwargs)

        def process_all(*args: Any, **kwargs: Any) -> None:
            perform(Run(None, clock=_no_clock).steps(), iteration(args, kwargs).take)

        async def aprocess_all(*args: Any, **kwargs: Any) -> None:
            await aperform(Run(None, clock=_no_clock).steps(), iteration(args, kwargs).atake)

        function = aprocess_all if self.is_async else process_all
        functools.update_wrapper(function, self.function)
        function.__signature__ = signature  # type: ignore[union-attr]
        return function


def _no_clock() -> float:
    """Return 0, because a run that saves no state does not use the time."""
    return 0.0


_OWN_OPTIONS = frozenset(IterableOptions.__annotations__) - frozenset(Options.__annotations__)
_AROUND = "around_iteration"


def define_iterable(
    function: Callable[..., Any], options: Mapping[str, Any]
) -> tuple[IterableSpec, Options]:
    """Return the definition of an iterable job, and the options that every job has.

    Raises:
        ConfigError: `function` is not a generator function, has no parameter for the cursor, or
            an option is invalid.
    """
    name = getattr(function, "__qualname__", repr(function))
    is_async = inspect.isasyncgenfunction(function)
    if not (is_async or inspect.isgeneratorfunction(function)):
        raise ConfigError(
            f"iterable job {name} never yields; yield a cursor before each item, "
            "or define it as a plain job with @app.job"
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
            f"iterable job {name}: max_runtime is {max_runtime!r}; give seconds above 0"
        )
    for key, value in own.items():
        if not callable(value):
            raise ConfigError(f"iterable job {name}: {key} is {value!r}; give a function")
        if inspect.iscoroutinefunction(value) and not is_async:
            raise ConfigError(
                f"iterable job {name}: {key} is async but the job is not; "
                "make both sync or both async"
            )
    around = own.pop(_AROUND, None)
    common = {key: value for key, value in options.items() if key not in _OWN_OPTIONS}
    return IterableSpec(function, is_async, max_runtime, own, around), cast("Options", common)


class IterationSteps:
    """Carries out the steps of a run: drives the generator and calls the hooks."""

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
        """Carry out a step of a sync job."""
        if ask is ADVANCE:
            if not self._is_enclosed():
                return next(self._items, END)
            with cast("AbstractContextManager[object]", self._around()):
                return next(self._items, END)
        if ask is CLOSE:
            return self._items.close()
        return self._call(ask)

    async def atake(self, ask: Ask) -> Any:
        """Carry out a step of an async job."""
        if ask is ADVANCE:
            if not self._is_enclosed():
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

    def _is_enclosed(self) -> bool:
        """True if `around` encloses the next step: all but the code before the first `yield`."""
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
        """Close the generator at its current position, for a run that was interrupted."""
        if self._items is not None:
            self._items.close()

    async def aend(self) -> None:
        """Close the async generator; see `end`."""
        if self._items is not None:
            await self._items.aclose()


def perform(steps: Generator[Ask, Any, None], take: Callable[[Ask], Any]) -> None:
    """Carry out all steps of a run with `take`; errors go back into the run."""
    try:
        ask = next(steps)
        while True:
            try:
                answer = take(ask)
            except Exception as error:  # noqa: BLE001 - passed on to the run
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration:
        return
    finally:
        steps.close()


async def aperform(steps: Generator[Ask, Any, None], take: Callable[[Ask], Awaitable[Any]]) -> None:
    """Carry out all steps of an async run; see `perform`."""
    try:
        ask = next(steps)
        while True:
            try:
                answer = await take(ask)
            except Exception as error:  # noqa: BLE001 - passed on to the run
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration:
        return
    finally:
        steps.close()
