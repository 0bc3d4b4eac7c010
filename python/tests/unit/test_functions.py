"""jobwire.application.functions: it refuses functions that cannot run, and no others."""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from typing import Any

import pytest

from jobwire import App, ConfigError, Cursor, testing
from tests.rows import over


def generator() -> Iterator[int]:
    yield 1


async def agenerator() -> AsyncIterator[int]:
    yield 1


class Shop:
    def method(self, number: int) -> None: ...

    async def amethod(self, number: int) -> None: ...

    @classmethod
    def of_class(cls, number: int) -> None: ...

    @staticmethod
    def static(number: int) -> int:
        return number

    def plain(number: int) -> int:  # type: ignore[misc]
        return number

    def touch(self, cursor: Cursor) -> Iterator[object]:
        yield cursor.value

    def __call__(self, number: int) -> int:
        return number


class Walk:
    def __call__(self) -> Iterator[int]:
        yield 1


REFUSED: dict[str, tuple[Any, str]] = {
    "generator": (generator, "a generator function would not run; define it with @app.iterable"),
    "async generator": (agenerator, "define it with @app.iterable"),
    "generator in a partial": (partial(generator), "define it with @app.iterable"),
    "generator as an object": (Walk(), "define it with @app.iterable"),
    "method": (Shop.method, "a method cannot be a job, because a payload cannot hold its object"),
    "async method": (Shop.amethod, "a method cannot be a job"),
    "classmethod": (vars(Shop)["of_class"], "a classmethod cannot be a job"),
    "class": (Shop, "a class cannot be a job; decorate the function that does the work"),
    "number": (5, "5 is not a function"),
}
NAMELESS: dict[str, Any] = {
    "lambda": lambda: None,
    "partial": partial(Shop.static, 1),
    "object": Shop(),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("name", [None, "Named"])
def test_what_cannot_run_is_refused_at_its_definition(case: str, name: str | None) -> None:
    app = App()
    function, problem = REFUSED[case]
    with pytest.raises(ConfigError) as info:
        app.job(name=name)(function)
    assert problem in str(info.value)
    assert (name or "") in str(info.value)
    assert not app.jobs


@pytest.mark.parametrize("case", NAMELESS)
def test_what_has_no_name_needs_one(case: str) -> None:
    app = App()
    with pytest.raises(ConfigError, match="it has no name to use as the wire class"):
        app.job(NAMELESS[case])
    app.job(name="Named")(NAMELESS[case])
    assert list(app.jobs) == ["Named"]


BOUND: dict[str, tuple[Any, str]] = {
    "method": (Shop().method, "Shop.method"),
    "async method": (Shop().amethod, "Shop.amethod"),
    "classmethod": (Shop.of_class, "Shop.of_class"),
    "in C": ([].append, "builtins.list.append"),
}


@pytest.mark.parametrize("case", BOUND)
def test_a_bound_method_needs_a_name(case: str) -> None:
    """A worker has no object of the program that enqueues; a given name accepts its own one."""
    app = App()
    function, value = BOUND[case]
    with pytest.raises(ConfigError) as info:
        app.job(function)
    message = str(info.value)
    assert value in message
    assert "a bound method cannot be a job under its own name, because a payload" in message
    assert "make it a function, or a staticmethod, that gets the object's key" in message
    assert not app.jobs
    app.job(name="Named")(function)
    assert list(app.jobs) == ["Named"]


def test_a_bound_generator_method_needs_a_name_as_an_iterable_job() -> None:
    with pytest.raises(ConfigError, match=r"Shop\.touch': a bound method cannot be a job"):
        App().iterable()(Shop().touch)
    app = App()
    app.iterable(name="Touch")(Shop().touch)
    assert list(app.jobs) == ["Touch"]


def test_a_method_is_no_iterable_job_either() -> None:
    with pytest.raises(ConfigError, match="a method cannot be a job"):
        App().iterable()(Shop.touch)  # type: ignore[arg-type]


def test_what_can_run_is_accepted() -> None:
    """A function in a class body without `self`, a bound method, a function inside another."""
    app = App()
    ran = []

    def local(self: int) -> None:
        ran.append(self)

    class Inner:
        def bound(self, number: int) -> None:
            ran.append(number)

    @wraps(local)
    def decorated(*args: Any) -> None:
        local(*args)

    functions: dict[str, Callable[..., Any]] = {
        "local": local,
        "bound": Inner().bound,
        "decorated": decorated,
        "static": Shop.static,
        "plain": Shop.plain,
        "staticmethod": vars(Shop)["static"],
        "object": Shop(),
        "C": print,
    }
    with testing.fake(app) as jobs:
        for name, function in functions.items():
            app.job(name=name)(function).enqueue(7)
        assert jobs.drain() == len(functions)
    assert ran == [7, 7, 7]


async def work(number: int) -> None: ...


def walk(number: int) -> Iterator[int]:
    yield number


async def awalk(number: int) -> AsyncIterator[int]:
    yield number


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (work, "'Hidden': the function returned a coroutine, which nothing awaits; make the func"),
        (walk, "the function returned a generator, which nothing runs; run the loop in the job"),
        (awalk, "the function returned an async generator, which nothing runs"),
    ],
)
def test_a_result_that_has_not_run_fails_the_job(
    function: Callable[[int], Any], problem: str
) -> None:
    """Without a warning of Python, which would name no job."""
    app = App()
    app.job(name="Hidden")(lambda number: function(number))
    with testing.fake(app) as jobs, warnings.catch_warnings():
        warnings.simplefilter("error")
        app.jobs["Hidden"].enqueue(1)
        with pytest.raises(ConfigError, match=problem):
            jobs.drain()
        gc.collect()


def test_an_object_with_an_async_call_is_async() -> None:
    ran = []

    class Work:
        async def __call__(self, number: int) -> None:
            ran.append(number)

    app = App()
    job: Any = app.job(name="Work")(Work())
    with testing.fake(app) as jobs:
        job.enqueue(3)
        jobs.drain()
    assert ran == [3]


@over("result", [None, 0, [], "text", iter([1]), {"a": 1}])
def test_other_results_are_ignored(result: object) -> None:
    app = App()
    job = app.job(name="Returns")(lambda: result)
    with testing.fake(app) as jobs:
        job.enqueue()
        assert jobs.drain() == 1
