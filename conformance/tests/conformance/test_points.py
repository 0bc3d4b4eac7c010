"""Rules and points: the command that a fault hits, and the kind of fault."""

from __future__ import annotations

import pytest

from jobwire_conformance.run.transactions import executed
from jobwire_conformance.wire.call import Call, name_of
from jobwire_conformance.wire.faults import (
    FAULTS,
    Action,
    Cut,
    Faults,
    Kill,
    Refuse,
    Rule,
    action_of,
    on_key,
)
from jobwire_conformance.wire.points import Point, has_effect, points_of
from tests.rows import over

CUT = Cut("before")


def struck(rule: Rule, *commands: tuple[str, int]) -> list[int]:
    faults = Faults([rule])
    return [at for at, each in enumerate(commands) if faults.meet(*each) is not None]


def test_a_rule_strikes_the_nth_of_those_that_fit_once() -> None:
    calls = [("GET", 1), ("SET", 1), ("GET", 2), ("GET", 1), ("GET", 2)]
    assert struck(Rule(CUT, nth=2), *calls) == [1]
    assert struck(Rule(CUT, label="GET", nth=2), *calls) == [2]
    assert struck(Rule(CUT, label="GET", connection=2, nth=2), *calls) == [4]
    assert struck(Rule(CUT, label="GET", nth=2, times=2), *calls) == [2, 3]
    assert struck(Rule(CUT, label="DEL"), *calls) == []


PUTS = [
    "LPUSH queue:a x",
    "ZADD queue:a 1 x",
    "SORT list STORE queue:a",
    "RENAME list queue:a",
    "EVALSHA aa 1 queue:a x",
    "FCALL push 1 queue:a x",
    "MODULE.PUT queue:a x",
]
TAKES = ["RPOP queue:a", "BRPOP queue:a 1", "ZREM queue:a x", "DEL queue:a", "LMOVE queue:a b"]


@over("command", PUTS + TAKES)
def test_a_rule_for_an_effect_strikes_whatever_has_it(command: str) -> None:
    words = [word.encode() for word in command.split()]
    both = words[0] in (b"EVALSHA", b"FCALL", b"MODULE.PUT", b"RENAME", b"LMOVE")
    for does, some in (("puts", PUTS), ("takes", TAKES)):
        rule = Rule(CUT, does="puts" if does == "puts" else "takes", fits=on_key("queue:a"))
        assert rule.meets(words[0].decode(), 1, words) is (both or command in some), does


@pytest.mark.parametrize("command", ["LRANGE queue:a 0 1", "EVAL_RO x 1 queue:a", "LPUSH b x"])
def test_a_rule_for_an_effect_leaves_the_rest(command: str) -> None:
    words = [word.encode() for word in command.split()]
    assert not Rule(CUT, does="puts", fits=on_key("queue:a")).meets("", 1, words)


@pytest.mark.parametrize(
    ("action", "struck"),
    [(CUT, [5]), (Refuse("OOM"), [5]), (Cut("after"), [7])],
)
def test_a_transaction_counts_as_one_step(action: Action, struck: list[int]) -> None:
    """The second one is struck at its first write, or where it is carried out."""
    texts = ["MULTI", "LPUSH q a", "LPUSH q b", "EXEC", "MULTI", "LPUSH q c", "LPUSH q d", "EXEC"]
    rule = Rule(action, does="puts", fits=on_key("q"), nth=2)
    met = []
    for at, text in enumerate(texts):
        words = [word.encode() for word in text.split()]
        transaction = None if text == "MULTI" else at // 4 + 1
        if rule.meets(words[0].decode(), 1, words, transaction):
            met.append(at)
    assert met == struck
    assert rule.struck == 1


def test_every_rule_counts_every_command_and_the_first_one_acts() -> None:
    first, second = Rule(CUT, nth=2), Rule(Refuse("ERR"), nth=2)
    faults = Faults([first, second])
    assert [faults.meet("GET", 1) for _ in range(3)] == [None, CUT, None]
    assert (first.struck, second.struck) == (1, 1)


def end() -> None:
    """Kill nothing."""


def test_every_fault_has_an_action() -> None:
    assert [action_of(fault, end) for fault in FAULTS] == [
        *(Cut("before"), Cut("after")),
        Refuse("OOM command not allowed when used memory > 'maxmemory'."),
        Refuse("READONLY You can't write against a read only replica."),
        *(Kill("before", end), Kill("after", end)),
    ]
    for unknown in ("cut", "cut sideways", "NO SUCH CODE"):
        with pytest.raises(KeyError):
            action_of(unknown, end)


def test_a_rule_can_ask_for_a_key() -> None:
    fits = on_key("queue:*")
    assert fits([b"LPUSH", b"queue:a", b"payload"])
    assert not fits([b"LPUSH", b"other", b"queue:a"])
    assert fits([b"EVALSHA", b"sha", b"1", b"queue:a", b"x"])
    assert not fits([b"EVALSHA", b"sha", b"1", b"x", b"queue:a"])
    assert on_key("*")([b"PING"])


def call(words: str, reply: bytes | None, *, transaction: bool = False) -> Call:
    parts = words.encode().split()
    return Call(1, 1, parts, name_of(parts), b"", 0.0, transaction=transaction, reply=reply)


def test_points_are_numbered_by_label() -> None:
    calls = [call(words, b"+OK\r\n") for words in ("GET a", "SET a 1", "get b")]
    points = [point for point, _ in points_of(calls)]
    assert points == [Point("GET", 1), Point("SET", 1), Point("GET", 2)]
    assert [Point.parse(str(point)) for point in points] == points
    action: Action = Cut("before")
    assert struck(points[2].rule(action), *((point.label, 1) for point in points)) == [2]


@over(
    ("words", "reply", "changed"),
    [
        ("HSETNX h f 1", b":1\r\n", True),
        ("HSETNX h f 1", b":0\r\n", False),
        ("BRPOP q 1", b"*-1\r\n", False),
        ("BRPOP q 1", b"*2\r\n$1\r\nq\r\n$1\r\nx\r\n", True),
        ("EVALSHA sha 0", b"$1\r\nx\r\n", True),
        ("EVALSHA sha 0", b"*0\r\n", True),
        ("EVALSHA sha 0", b":0\r\n", False),
        ("EVALSHA sha 0", b"-NOSCRIPT No matching script.\r\n", False),
        ("EXEC", b"*1\r\n:1\r\n", True),
        ("GET a", b"$1\r\nx\r\n", False),
        ("SCRIPT LOAD x", b"$1\r\nx\r\n", False),
        ("JSON.SET a b", b"+OK\r\n", True),
        ("SET a 1", None, False),
    ],
)
def test_an_effect_is_a_write_that_changed_something(
    words: str, reply: bytes | None, changed: bool
) -> None:
    assert has_effect(call(words, reply)) is changed
    assert not has_effect(call(words, reply, transaction=True))


@pytest.mark.parametrize(
    ("last", "reply", "names"),
    [
        ("EXEC", b"*1\r\n:1\r\n", ["MULTI", "ZREM a x", "EXEC", "GET a"]),
        ("EXEC", b"-EXECABORT Transaction discarded because of previous errors.\r\n", ["GET a"]),
        ("EXEC", None, ["GET a"]),  # it may still be aborted
        ("DISCARD", b"+OK\r\n", ["GET a"]),
    ],
)
def test_commands_of_a_transaction_that_ends_without_effect_do_not_count(
    last: str, reply: bytes | None, names: list[str]
) -> None:
    """A worker may queue commands at its start to find out what its user may do."""
    calls = [call(words, b"+QUEUED\r\n", transaction=True) for words in ("MULTI", "ZREM a x")]
    calls += [call(last, reply), call("GET a", b"$1\r\nx\r\n")]
    assert [b" ".join(each.words).decode() for each in executed(calls)] == names
