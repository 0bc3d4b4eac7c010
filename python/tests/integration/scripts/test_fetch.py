"""The script that fetches jobs."""

from __future__ import annotations

import pytest

from jobwire import RedisRefused
from jobwire.protocol.reliable import fetch, put_back, read_fetched, script_done, script_fetch
from jobwire.protocol.wire import Batch
from tests.integration.clients import everything
from tests.integration.scripts.shell import BINARY, DAY, KEYS, ME, ODD_NAMES, PRIVATE, Shell, one


def test_fetch_takes_from_the_tail_in_order(shell: Shell) -> None:
    """FETCH-1, FETCH-2, REL-1, REL-13, REL-14: to the private hash; the reply names the queue."""
    shell.live()
    shell.push("high", b"h1", b"h2")
    shell.push("low", b"l1", b"l2", b"l3")
    fetched = shell.run(fetch(KEYS, ME, ["high", "empty", "low"], count=4, sequence=7))
    assert fetched.lease
    assert fetched.broken == {}
    assert [(held.field, held.queue, held.text, held.returned) for held in fetched.jobs] == [
        ("7:high", "high", b"h1", 0),
        ("8:high", "high", b"h2", 0),
        ("9:low", "low", b"l1", 0),
        ("10:low", "low", b"l2", 0),
    ]
    assert everything(shell.server) == {
        b"queue:low": [b"l3"],
        PRIVATE.encode(): {b"7:high": b"h1", b"8:high": b"h2", b"9:low": b"l1", b"10:low": b"l2"},
        b"jobwire:owners": {ME.encode()},
        ME.encode(): {b"info": b"{}"},
    }


def test_fetch_needs_a_lease(shell: Shell) -> None:
    """REL-16: without the identity hash nothing is taken."""
    shell.push("q", b"{}")
    fetched = shell.run(fetch(KEYS, ME, ["q"], count=5, sequence=1))
    assert (list(fetched.jobs), fetched.lease) == ([], False)
    assert everything(shell.server) == {b"queue:q": [b"{}"]}


def test_fetch_of_nothing_leaves_nothing(shell: Shell) -> None:
    """REL-14: an idle process owns nothing."""
    shell.live()
    fetched = shell.run(fetch(KEYS, ME, ["q"], count=5, sequence=1))
    assert (list(fetched.jobs), fetched.lease) == ([], True)
    assert everything(shell.server) == {ME.encode(): {b"info": b"{}"}}


def test_payloads_and_names_keep_their_bytes(shell: Shell) -> None:
    """LUA-1, REL-13 and KEY-2: any bytes and any queue name, in both directions."""
    shell.live()
    for name in ODD_NAMES:
        shell.push(name, BINARY, b"", b'{"a":[],"n":12345678901234567890}')
    before = everything(shell.server)
    fetched = shell.run(fetch(KEYS, ME, ODD_NAMES, count=100, sequence=1))
    assert [held.queue for held in fetched.jobs] == [name for name in ODD_NAMES for _ in range(3)]
    assert {held.text for held in fetched.jobs} == {
        BINARY,
        b"",
        b'{"a":[],"n":12345678901234567890}',
    }
    assert shell.plain.keys("queue:*") == []  # none of our own keys looks like a queue
    fields = [held.field for held in fetched.jobs]
    assert shell.run(put_back(KEYS, ME, fields, started=False)) == len(fields)
    after = everything(shell.server)
    assert after.pop(b"jobwire:owners") == {ME.encode()}
    assert after.pop(b"queues") == {name.encode() for name in ODD_NAMES}  # KEY-1
    assert after == before


def test_a_key_that_is_no_list_stops_no_other_queue(shell: Shell) -> None:
    """FETCH-7: and the reply names the key."""
    shell.live()
    shell.plain.set(KEYS.queue("bad:one"), "x")
    shell.push("good", b"{}")
    fetched = shell.run(fetch(KEYS, ME, ["bad:one", "good"], count=2, sequence=1))
    assert [held.text for held in fetched.jobs] == [b"{}"]
    assert list(fetched.broken) == ["bad:one"]
    assert "WRONGTYPE" in fetched.broken["bad:one"]


def test_many_at_once(shell: Shell) -> None:
    """REL-1: the script can handle any number of jobs that it takes."""
    texts = [b"%d" % number for number in range(9_000)]
    shell.hold(*texts)
    assert shell.plain.hlen(PRIVATE) == 9_000
    assert shell.queue("q") == []


def test_large_sequence_numbers(shell: Shell) -> None:
    """REL-13: decimal digits, however long the process lives."""
    assert shell.hold(b"a", b"b", first=10**15) == ["1000000000000000:q", "1000000000000001:q"]


@pytest.mark.parametrize(("key", "kind"), [(PRIVATE, "hash"), (KEYS.owners, "set")])
def test_fetch_loses_nothing_when_it_cannot_hold(shell: Shell, key: str, kind: str) -> None:
    """REL-26: a key of another type is noticed before anything is taken, and the error names it."""
    shell.live()
    shell.plain.set(key, "in the way")
    shell.push("q", b"{}")
    problem = f"{key} is a string, not a {kind}: delete or rename it"
    with pytest.raises(RedisRefused, match=problem):
        shell.run(fetch(KEYS, ME, ["q"], count=1, sequence=1))
    assert shell.queue("q") == [b"{}"]


@pytest.mark.parametrize("key", [KEYS.returned, KEYS.paused])
def test_fetch_does_without_broken_helpers(shell: Shell, key: str) -> None:
    """REL-1: a script is not rolled back, so a broken auxiliary key must not make it fail."""
    shell.plain.set(key, "in the way")
    assert shell.hold(b"{}") == ["1:q"]
    assert shell.plain.hgetall(PRIVATE) == {b"1:q": b"{}"}


def test_fetch_while_memory_is_short(shell: Shell) -> None:
    """REL-1: taking a job must not lose it when the server takes no more data."""
    shell.live()
    shell.push("q", b"{}")
    shell.plain.config_set("maxmemory", 1)
    fetched = shell.run(fetch(KEYS, ME, ["q"], count=1, sequence=1))
    shell.plain.config_set("maxmemory", 0)
    assert [held.text for held in fetched.jobs] == [b"{}"]
    assert shell.plain.hgetall(PRIVATE) == {b"1:q": b"{}"}


def test_a_fetch_rides_along_with_outcomes(shell: Shell) -> None:
    """REL-1 and REL-2: one round trip ends a job and brings the next, or an error."""
    [field] = shell.hold(b"1")
    shell.push("q", b"2")
    done = script_done(KEYS, ME, [field], failed=False, day=DAY)
    call = script_fetch(KEYS, ME, ["q"], count=1, sequence=2)
    lost, reply = shell.run(one(Batch([done, call])))
    assert lost == []
    assert [(held.field, held.text) for held in read_fetched(reply).jobs] == [("2:q", b"2")]
    shell.plain.delete(PRIVATE)
    shell.plain.set(PRIVATE, "in the way")
    _, reply = shell.run(one(Batch([done, call])))
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        read_fetched(reply)


def test_a_paused_queue_is_left_alone(shell: Shell) -> None:
    """REL-9: the same step serves other queues, until the paused queue continues."""
    shell.live()
    for name in ODD_NAMES:
        shell.push(name, name.encode())
    shell.plain.sadd(KEYS.paused, *ODD_NAMES[1:], "elsewhere")
    fetched = shell.run(fetch(KEYS, ME, ODD_NAMES, count=50, sequence=1))
    assert [held.queue for held in fetched.jobs] == [ODD_NAMES[0]]
    assert (list(fetched.paused), fetched.broken) == (ODD_NAMES[1:], {})
    shell.plain.srem(KEYS.paused, *ODD_NAMES)
    fetched = shell.run(fetch(KEYS, ME, ODD_NAMES, count=50, sequence=9))
    assert [held.queue for held in fetched.jobs] == ODD_NAMES[1:]
    assert list(fetched.paused) == []
