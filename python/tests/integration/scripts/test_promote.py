"""The scripts for due jobs: promote and kill_due. More of promotion: ../test_promotion.py."""

from __future__ import annotations

import pytest

from jobwire import RedisRefused
from jobwire.protocol.wire import Script
from tests.integration.clients import everything
from tests.integration.scripts.shell import BINARY, KEYS, NOW, Shell


def test_promote_moves_only_what_it_removed(shell: Shell) -> None:
    """SCHED-5, SCHED-7 and KEY-1: registered, at the head, once."""
    shell.push("a", b"waiting")
    shell.plain.zadd("retry", {b"due": 1, BINARY: 1})
    call = Script(
        "promote",
        [KEYS.retry, KEYS.queues, KEYS.queue("a"), KEYS.queue("b:c")],
        [b"due", 1, "a", b"new", BINARY, 2, "b:c", BINARY, b"gone", 1, "a", b"never"],
    )
    assert shell.step(call) == [2, 0]
    assert shell.step(call) == [0, 0]
    assert everything(shell.server) == {
        b"queues": {b"a", b"b:c"},
        b"queue:a": [b"new", b"waiting"],
        b"queue:b:c": [BINARY],
    }


def test_promote_leaves_what_has_no_queue_to_go_to(shell: Shell) -> None:
    """SCHED-26: a member whose queue is not a list stays; the others move."""
    shell.plain.set(KEYS.queue("bad"), "in the way")
    shell.plain.zadd("retry", {b"1": 1, b"2": 1})
    call = Script(
        "promote",
        [KEYS.retry, KEYS.queues, KEYS.queue("bad"), KEYS.queue("good")],
        [b"1", 1, "bad", b"1", b"2", 2, "good", b"2", b"gone", 1, "bad", b"3"],
    )
    assert shell.step(call) == [1, 1]
    assert shell.plain.zrange("retry", 0, -1) == [b"1"]
    assert shell.queue("good") == [b"2"]


def test_promote_does_without_the_register(shell: Shell) -> None:
    """SCHED-5: a broken `queues` must not lose a job between ZREM and LPUSH."""
    shell.plain.set(KEYS.queues, "in the way")
    shell.plain.zadd("retry", {b"1": 1})
    call = Script("promote", [KEYS.retry, KEYS.queues, KEYS.queue("q")], [b"1", 1, "q", b"1"])
    assert shell.step(call) == [1, 0]
    assert shell.queue("q") == [b"1"]


def test_promotion_while_memory_is_short(shell: Shell) -> None:
    """SCHED-5: either moved or still there."""
    shell.plain.zadd("retry", {b"1": 1})
    shell.plain.config_set("maxmemory", 1)
    call = Script("promote", [KEYS.retry, KEYS.queues, KEYS.queue("q")], [b"1", 1, "q", b"1"])
    assert shell.step(call) == [1, 0]
    shell.plain.config_set("maxmemory", 0)
    assert shell.queue("q") == [b"1"]


def test_kill_due_moves_only_what_it_removed(shell: Shell) -> None:
    """SCHED-9, SCHED-25, DEAD-1: the exact bytes, at the time of the kill."""
    shell.plain.zadd("schedule", {BINARY: 1})
    call = Script("kill_due", [KEYS.schedule, KEYS.dead], [NOW, NOW - 5, 10_000, BINARY, b"gone"])
    assert shell.step(call) == [BINARY]
    assert shell.step(call) == []
    assert everything(shell.server) == {b"dead": [(BINARY, NOW)]}


def test_kill_due_changes_nothing_when_it_cannot_kill(shell: Shell) -> None:
    """SCHED-9: the member stays."""
    shell.plain.zadd("schedule", {b"1": 1})
    shell.plain.set("dead", "in the way")
    call = Script("kill_due", [KEYS.schedule, KEYS.dead], [NOW, NOW - 5, 10_000, b"1"])
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        shell.step(call)
    assert shell.plain.zrange("schedule", 0, -1) == [b"1"]
