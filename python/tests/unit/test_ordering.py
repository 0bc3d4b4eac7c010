"""jobwire.protocol.ordering: the order in which a fetch reads its queues."""

from __future__ import annotations

from jobwire.protocol.ordering import expand


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
