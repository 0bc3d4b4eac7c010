"""jobwire.application.iterabletype: valid iterable functions, and direct calls."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from jobwire.application.iterabletype import IterableOptions, define_iterable
from jobwire.errors import ConfigError
from jobwire.protocol.iteration import Cursor
from jobwire.protocol.normalize import Options


def rebuild(cursor: Cursor, shop: int, *, fast: bool = False) -> Iterator[object]:
    """Rebuild a shop."""
    yield shop


async def arebuild(cursor: Cursor, shop: int) -> AsyncIterator[object]:
    yield shop


async def coroutine(*_: Any) -> None: ...


def no_cursor(*, cursor: Cursor) -> Iterator[object]:
    yield 1


@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (len, {}, "len never yields; yield a cursor before each item, or define it"),
        (coroutine, {}, "coroutine never yields"),
        (no_cursor, {}, r"no parameter for its cursor; write def no_cursor\(cursor, \.\.\.\)"),
        (rebuild, {"max_runtime": 0}, "max_runtime is 0; give seconds above 0"),
        (rebuild, {"max_runtime": True}, "max_runtime is True"),
        (rebuild, {"max_runtime": math.nan}, "max_runtime is nan"),
        (rebuild, {"on_stop": 1}, "on_stop is 1; give a function"),
        (rebuild, {"on_stop": coroutine}, "on_stop is async but the job is not; make both"),
    ],
)
def test_what_is_no_iterable_job(function: Any, options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        define_iterable(function, options)


def test_options_are_told_apart() -> None:
    """Options of every job are passed on."""
    options = {"queue": "low", "max_runtime": 5, "on_stop": print, "around_iteration": len}
    spec, rest = define_iterable(rebuild, options)
    assert rest == {"queue": "low"}
    assert (spec.max_runtime, spec.callbacks) == (5, {"on_stop": print})
    assert spec.around is not None
    assert (spec.is_async, define_iterable(arebuild, {})[0].is_async) == (False, True)
    assert set(Options.__annotations__) < set(IterableOptions.__annotations__)


def test_here_and_now() -> None:
    """A direct call runs all items with callbacks, without Redis, with `enqueue`'s parameters."""
    log: list[Any] = []

    def job(cursor: Cursor, count: int, step: int = 1) -> Iterator[object]:
        for number in range(0, count, step):
            yield number
            log.append(number)

    spec, _ = define_iterable(job, {"on_complete": lambda *args: log.append(args[1:])})
    here = spec.here()
    here(5, step=2)
    assert log == [0, 2, 4, (5, 2)]
    assert list(inspect.signature(here).parameters) == ["count", "step"]
    assert (here.__name__, define_iterable(rebuild, {})[0].here().__doc__) == (
        "job",
        "Rebuild a shop.",
    )


def test_here_and_now_async() -> None:
    log: list[int] = []

    async def job(cursor: Cursor, count: int) -> AsyncIterator[object]:
        for number in range(count):
            yield number
            log.append(number)

    here = define_iterable(job, {})[0].here()
    asyncio.run(here(3))
    assert log == [0, 1, 2]
    assert inspect.iscoroutinefunction(here)
    assert not inspect.isasyncgenfunction(here)
