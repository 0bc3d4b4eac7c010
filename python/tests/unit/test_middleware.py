"""jobwire.application.middleware: middleware in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobwire.application.middleware import MiddlewareChain, is_async
from jobwire.errors import ConfigError

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
