"""jobwire.protocol.ordering: the order in which a fetch reads its queues."""

from __future__ import annotations

from jobwire.protocol.ordering import Mode, QueueOrder, expand
from tests.rows import over


def reverse(names: list[str]) -> None:
    names.reverse()


def never(names: list[str]) -> None:
    raise AssertionError("strict order needs no random numbers")


@over(
    ("weights", "mode"),
    [
        ({"a": 0}, "strict"),
        ({"a": 0, "b": 0}, "strict"),
        ({"a": 1}, "random"),
        ({"a": 1, "b": 1}, "random"),
        ({"a": 2, "b": 1}, "weighted"),
        ({"a": 2}, "weighted"),
        ({"a": 0, "b": 1}, "weighted"),
    ],
)
def test_mode(weights: dict[str, int], mode: Mode) -> None:
    """FETCH-4: all weights 0 are strict, all 1 random, others weighted."""
    assert QueueOrder(weights).mode == mode


def test_strict_is_the_listed_order() -> None:
    """FETCH-2: the order is the same at every fetch."""
    order = QueueOrder({"b": 0, "a": 0, "c": 0})
    assert [order.pick(never) for _ in range(3)] == [["b", "a", "c"]] * 3


def test_every_queue_comes_once() -> None:
    """FETCH-3: later repeats are dropped."""
    assert QueueOrder({"a": 3, "b": 0, "c": 1}).pick(reverse) == ["c", "b", "a"]


def test_tickets() -> None:
    """FETCH-3: a name is repeated as often as its weight, at least once. FETCH-4: 0 counts as 1."""
    seen: list[list[str]] = []
    QueueOrder({"a": 3, "b": 0, "c": 1}).pick(lambda names: seen.append(names.copy()))
    assert seen == [["a", "a", "a", "b", "c"]]


def test_each_pick_starts_anew() -> None:
    """FETCH-3: each fetch draws a new order, independent of the last."""
    order = QueueOrder({"a": 2, "b": 1})
    assert order.pick(reverse) == ["b", "a"]
    assert order.pick(reverse) == ["b", "a"]


def test_patterns_become_the_known_queues() -> None:
    """In their place, alphabetical, with their weight; a named queue keeps its own weight."""
    known = {"mail:b", "mail:a", "mail:fast", "mailbox", "low", "mail:"}
    weights = {"high": 3, "mail:*": 2, "mail:fast": 5, "none:*": 1}
    assert list(expand(weights, known, weights).items()) == [
        ("high", 3),
        ("mail:", 2),
        ("mail:a", 2),
        ("mail:b", 2),
        ("mail:fast", 5),
        ("none:*", 1),
    ]
    assert expand({"*": 0, "l*": 0}, known) == dict.fromkeys([*sorted(known), "l*"], 0)
