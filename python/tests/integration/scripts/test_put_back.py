"""The script that returns jobs to their queues."""

from __future__ import annotations

from jobwire.protocol.reliable import put_back
from tests.integration.clients import listening
from tests.integration.scripts.shell import BINARY, KEYS, ME, NOW, PRIVATE, Shell


def test_put_back_restores_the_order(shell: Shell) -> None:
    """FETCH-6: RPUSH of the exact bytes, so that these jobs run next, the first one first."""
    fields = shell.hold(b"1", BINARY, b"3")
    shell.push("q", b"4")
    assert shell.run(put_back(KEYS, ME, fields, started=False)) == 3
    assert shell.queue("q") == [b"1", BINARY, b"3", b"4"]
    assert not shell.plain.exists(PRIVATE)
    assert not shell.plain.exists(KEYS.returned)  # the jobs never started


def test_put_back_leaves_what_others_own(shell: Shell) -> None:
    """REL-2: each job goes back at most once."""
    fields = shell.hold(b"1", b"2")
    shell.plain.hdel(PRIVATE, fields[0])
    assert shell.run(put_back(KEYS, ME, fields, started=True, now=NOW)) == 1
    assert shell.run(put_back(KEYS, ME, fields, started=True, now=NOW)) == 0
    assert shell.queue("q") == [b"2"]
    assert list(shell.plain.hgetall(KEYS.returned).values()) == [b"1"]


def test_put_back_of_nothing_says_nothing(shell: Shell) -> None:
    with listening(shell.server) as heard:
        assert shell.run(put_back(KEYS, ME, [], started=True, now=NOW)) == 0
        assert heard() == []


def test_put_back_keeps_what_has_no_queue_to_go_to(shell: Shell) -> None:
    """REL-2: a job whose queue is not a list stays held; the others return."""
    fields = shell.hold(b"1", queue="bad") + shell.hold(b"2", queue="good", first=2)
    shell.plain.set(KEYS.queue("bad"), "in the way")
    assert shell.run(put_back(KEYS, ME, fields, started=True, now=NOW)) == 1
    assert shell.plain.hgetall(PRIVATE) == {b"1:bad": b"1"}
    assert shell.queue("good") == [b"2"]


def test_put_back_while_memory_is_short(shell: Shell) -> None:
    """FETCH-6: otherwise a worker that stops then would strand its jobs."""
    fields = shell.hold(b"1", b"2")
    shell.plain.config_set("maxmemory", 1)
    assert shell.run(put_back(KEYS, ME, fields, started=True, now=NOW)) == 2
    shell.plain.config_set("maxmemory", 0)
    assert shell.queue("q") == [b"1", b"2"]
