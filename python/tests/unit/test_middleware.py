"""Middleware, hooks and handlers of an application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest

from jobwire import App, ConfigError, Job
from jobwire.application.middleware import MiddlewareChain, is_async


def registrars(app: App) -> dict[str, tuple[Callable[[Any], Any], str]]:
    """Return name to decorator and the arguments of its calls."""

    @app.job(name="Any")
    def job() -> None: ...

    return {
        "app.on_error": (app.on_error, "job, error"),
        "app.on_death": (app.on_death, "job, error"),
        "job.retry_in": (job.retry_in, "job, error, count"),
        "job.exhausted": (job.exhausted, "job, error"),
        "app.wrap": (app.wrap, "job"),
        "app.on('startup')": (app.on("startup"), ""),
    }


NAMES = pytest.mark.parametrize("name", registrars(App()))


@NAMES
def test_the_right_number_of_parameters_is_accepted(name: str) -> None:
    """With any names, defaults, and as functions without a signature."""
    register, arguments = registrars(App())[name]
    count = len(arguments.split(", ")) if arguments else 0

    def bound(one: int, *args: object) -> None: ...

    names = ", ".join("abc"[:count])
    for hook in (
        lambda *args: None,
        partial(bound, 1),
        eval(f"lambda {names}: None"),
        eval(f"lambda {arguments}: None"),
        eval(f"lambda {names}{names and ', '}more=None: None"),
    ):
        assert register(hook) is hook
    assert register(dict) is dict  # `inspect.signature` raises


@NAMES
def test_the_wrong_number_is_refused_with_the_right_signature(name: str) -> None:
    register, arguments = registrars(App())[name]

    def told(a: Any, b: Any, c: Any, d: Any) -> None: ...

    with pytest.raises(ConfigError) as info:
        register(told)
    assert f"@{name}" in str(info.value)
    assert "told(a: " in str(info.value)
    assert f"write `def told({arguments})`" in str(info.value)
    with pytest.raises(ConfigError, match="5 is not a function"):
        register(5)


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        ("app.on_error", lambda error, job: None),
        ("app.on_death", lambda error, job: None),
        ("job.retry_in", lambda count, error, job: None),
        ("job.exhausted", lambda error, job: None),
    ],
)
def test_another_order_of_the_names_is_refused(name: str, hook: Any) -> None:
    """The call is by position, so the names would lie."""
    register, _ = registrars(App())[name]
    with pytest.raises(ConfigError, match=r"in this order; write `def _\("):
        register(hook)


@pytest.mark.parametrize("name", ["app.on_error", "app.on_death", "job.retry_in", "job.exhausted"])
def test_a_hook_that_nothing_awaits_is_refused(name: str) -> None:
    app = App()
    register, _ = registrars(app)[name]

    async def later(*args: object) -> None: ...

    with pytest.raises(ConfigError, match="later is async, but its result is not awaited"):
        register(later)
    assert not app.error_handlers
    assert not app.death_handlers
    app.on("startup")(later)


def test_a_wrapper_must_make_context_managers() -> None:
    app = App()

    def generator(job: Job) -> Iterator[None]:
        yield

    @asynccontextmanager
    async def later(job: Job) -> AsyncIterator[None]:
        yield

    with pytest.raises(ConfigError, match="generator is a generator function; put @contextmanager"):
        app.wrap(generator)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="later is async; make it a sync context manager"):
        app.wrap(outermost=True)(later)  # type: ignore[type-var]
    assert not app.around
    assert not app.outermost
    app.wrap(contextmanager(generator))
    assert len(app.around) == 1


Middleware = Callable[[Any, Callable[[], Any]], Any]


def one(subject: Any, call_next: Callable[[], Any]) -> Any: ...


def two(subject: Any, call_next: Callable[[], Any]) -> Any: ...


async def later(subject: Any, call_next: Callable[[], Any]) -> Any: ...


class Counting:
    made = 0

    def __init__(self, step: int = 1) -> None:
        type(self).made += step

    def __call__(self, subject: Any, call_next: Callable[[], Any]) -> Any:
        return (subject, self, call_next())


class Later(Counting):
    async def __call__(self, subject: Any, call_next: Callable[[], Any]) -> Any: ...


def chain(*middleware: Middleware | type) -> MiddlewareChain[Middleware]:
    return MiddlewareChain(middleware)


def test_the_order_is_outermost_first() -> None:
    it: Any = chain(one)
    it.add(two)
    it.prepend(later)
    assert list(it) == [later, one, two]
    assert (len(it), it[0], one in it, Counting in it) == (3, later, True, False)
    it += [Counting]
    assert Counting in it
    it.clear()
    assert list(it) == []


def test_one_is_placed_beside_another() -> None:
    it = chain(one)
    it.insert_before(one, two)
    it.insert_after(one, later)
    assert list(it) == [two, one, later]
    it.insert_after(two, later)  # it moves
    assert list(it) == [two, later, one]
    it.insert_before(two, two)  # next to itself it stays
    assert list(it) == [two, later, one]
    it.insert_before(two, one)
    assert list(it) == [one, two, later]


def test_one_that_is_there_moves_and_one_that_is_not_can_be_removed() -> None:
    it = chain(one, two)
    it.add(one)
    assert list(it) == [two, one]
    it.prepend(one)
    assert list(it) == [one, two]
    it.remove(later)
    it.remove(one)
    assert list(it) == [two]


def test_of_a_class_each_call_gets_a_fresh_instance() -> None:
    it = chain()
    it.add(Counting, step=2)
    before = Counting.made
    first, second = (it[0]("job", lambda: "result") for _ in range(2))
    assert first[0] == "job"
    assert first[2] == "result"
    assert first[1] is not second[1]
    assert Counting.made == before + 4


@pytest.mark.parametrize(
    ("middleware", "words"),
    [
        ("nothing", "'nothing' is not callable"),
        (int, "int has no method __call__"),
    ],
)
def test_what_cannot_be_called_is_refused(middleware: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        chain().add(middleware)


def test_arguments_are_for_classes_and_neighbours_must_exist() -> None:
    with pytest.raises(ConfigError, match="only a class takes arguments"):
        chain().add(one, 1)
    it = chain(two)
    with pytest.raises(ConfigError, match=r"one at .* is not in the chain"):
        it.insert_after(one, later)
    assert list(it) == [two]


def test_async_is_told_from_sync() -> None:
    it = chain(later, Later, one, Counting)
    assert [is_async(each) for each in it] == [True, True, False, False]
