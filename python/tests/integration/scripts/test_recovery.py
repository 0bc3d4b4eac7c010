"""The scripts that recover the jobs of other processes."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from jobwire.protocol.keys import Keys
from jobwire.protocol.reliable import (
    MOVES_PER_CALL,
    fetch,
    name_owners,
    put_back,
    recover,
    resign,
    script_done,
)
from jobwire.protocol.stats import Deliveries, deliveries
from jobwire.protocol.wire import Script
from tests.integration.clients import everything, listening
from tests.integration.scripts.shell import (
    BINARY,
    DAY,
    KEYS,
    ME,
    NOW,
    ODD_NAMES,
    OUTCOMES,
    PRIVATE,
    Shell,
    digest,
    one,
    outcome,
)


def test_recovery_of_many_is_done_in_steps(shell: Shell) -> None:
    """REL-4: in the order of the fetch, and no call of a script blocks the server for long."""
    texts = [b"%d" % number for number in range(MOVES_PER_CALL * 2 + 7)]
    shell.hold(*texts)
    shell.plain.delete(ME)
    with listening(shell.server) as heard:
        assert shell.run(recover(KEYS, own="other", now=NOW)) == {ME: len(texts)}
        calls = [line for line in heard() if line.name == "EVALSHA" and not line.by_script]
    assert shell.queue("q") == texts
    assert max(len(call.words) for call in calls) < 3 * MOVES_PER_CALL
    assert shell.run(deliveries(KEYS)).recovered == len(texts)


def test_recovery_does_not_wait_for_a_process_that_has_ended(shell: Shell) -> None:
    """REL-27: the lease of a process that has ended is removed, and it leaves the list."""
    shell.hold(b"1")
    shell.plain.sadd(KEYS.processes, ME, "other")
    assert shell.run(recover(KEYS, own="other", now=NOW, ended=[ME, "other"])) == {ME: 1}
    assert shell.queue("q") == [b"1"]
    assert not shell.plain.exists(ME, KEYS.owners)
    assert shell.plain.smembers(KEYS.processes) == {b"other"}


def test_resigning_is_no_crash(shell: Shell) -> None:
    """REL-10: jobs that a process holds at its normal end go back without a recovery count."""
    shell.hold(b"1", b"2")
    assert shell.run(resign(KEYS, ME, now=NOW)) == 0
    assert shell.queue("q") == [b"1", b"2"]
    assert not shell.plain.exists(KEYS.owners)
    assert shell.plain.hgetall(KEYS.returned) == {
        digest(b"1").encode(): b"1",
        digest(b"2").encode(): b"1",
    }


def test_a_late_fetch_cannot_hide_from_recovery(shell: Shell) -> None:
    """REL-20 and REL-21: before every step of a normal end, the server carries out a fetch."""
    for number in itertools.count():
        shell.plain.flushall()
        shell.hold(b"1")
        shell.push("q", b"2")
        steps = resign(KEYS, ME, now=NOW)
        reply, ended = None, False
        for step in itertools.count():
            if step == number:
                shell.run(fetch(KEYS, ME, ["q"], count=1, sequence=9))
            try:
                reply = shell.run(one(steps.send(reply)))
            except StopIteration:
                ended = step < number
                break
        held_by = {KEYS.private(name.decode()) for name in shell.plain.smembers(KEYS.owners)}
        assert shell.plain.hlen(PRIVATE) == 0 or PRIVATE in held_by, number
        shell.plain.delete(KEYS.process(ME))  # the lease ends
        shell.run(recover(KEYS, own="other", now=NOW))
        assert sorted(shell.queue("q")) == [b"1", b"2"]
        assert not shell.plain.exists(KEYS.owners)
        if ended:
            break


def test_recovery_returns_the_jobs_of_the_dead(shell: Shell) -> None:
    """REL-4 and REL-13: exact bytes, to the tails, for any queue name; the owner is deleted."""
    shell.hold(b"1", BINARY, b"3")
    for number, name in enumerate(ODD_NAMES):
        shell.hold(name.encode(), queue=name, first=10 + number)
    shell.push("q", b"4")
    shell.plain.delete(ME)
    assert shell.run(recover(KEYS, own="other", now=NOW)) == {ME: 3 + len(ODD_NAMES)}
    assert shell.queue("q") == [b"1", BINARY, b"3", b"4"]
    assert {name: shell.queue(name) for name in ODD_NAMES} == {
        name: [name.encode()] for name in ODD_NAMES
    }
    assert not shell.plain.exists(PRIVATE, KEYS.owners)
    assert shell.run(recover(KEYS, own="other", now=NOW)) == {}


def test_recovery_leaves_fields_that_are_no_entries(shell: Shell) -> None:
    """REL-13: without digits and a colon a field names no queue."""
    shell.hold(b"1")
    odd = {"7": "a", "-1:q": "b", "+2:q": "c", "\N{ARABIC-INDIC DIGIT ONE}:q": "d"}
    shell.plain.hset(PRIVATE, mapping=odd)
    shell.plain.delete(ME)
    assert shell.run(recover(KEYS, own="other", now=NOW)) == {ME: 1}
    left = shell.plain.hgetall(PRIVATE)
    assert left == {field.encode(): text.encode() for field, text in odd.items()}
    assert shell.queue("q") == [b"1"]


def test_recovery_leaves_the_living_alone(shell: Shell) -> None:
    """REL-11: while the lease lasts, and never the caller's own jobs."""
    shell.hold(b"1")
    before = everything(shell.server)
    assert shell.run(recover(KEYS, own="other", now=NOW)) == {}
    shell.plain.delete(ME)
    assert shell.run(recover(KEYS, own=ME, now=NOW)) == {}
    shell.live()
    assert everything(shell.server) == before


def recovery(field: str) -> Script:
    """Return the step that recovers one entry of queue `q`."""
    keys = [PRIVATE, KEYS.process(ME), KEYS.owners, KEYS.returned, KEYS.returned_at]
    keys += [KEYS.recovered, KEYS.queues, KEYS.queue("q")]
    return Script("recover", keys, [ME, 60, NOW, field, 1])


def test_a_lease_that_returns_stops_the_recovery(shell: Shell) -> None:
    """REL-4, REL-11: the recovery checks the lease in its own step, not before it."""
    shell.hold(b"1")
    assert shell.step(recovery("1:q")) == -1
    assert shell.plain.hgetall(PRIVATE) == {b"1:q": b"1"}


def test_an_owner_without_jobs_is_forgotten(shell: Shell) -> None:
    """REL-20: and the owner is not reported."""
    fields = shell.hold(b"1")
    shell.step(script_done(KEYS, ME, fields, failed=False, day=DAY))
    shell.plain.delete(ME)
    assert shell.run(recover(KEYS, own="other", now=NOW)) == {}
    assert not shell.plain.exists(KEYS.owners)


def test_jobs_fetched_since_the_look_are_for_the_next_round(shell: Shell) -> None:
    """REL-20: the owner stays on the list while it holds anything."""
    shell.hold(b"1", b"2")
    shell.plain.delete(ME)
    assert shell.step(recovery("1:q")) == 1
    assert shell.plain.smembers(KEYS.owners) == {ME.encode()}
    assert shell.run(recover(KEYS, own="other", now=NOW)) == {ME: 1}


def test_recovery_keeps_what_has_no_queue_to_go_to(shell: Shell) -> None:
    """REL-20: a job whose queue is not a list stays, and so does its owner's name."""
    shell.hold(b"1", queue="bad")
    shell.hold(b"2", queue="good", first=2)
    shell.plain.set(KEYS.queue("bad"), "in the way")
    shell.plain.delete(ME)
    assert shell.run(recover(KEYS, own="other", now=NOW)) == {ME: 1}
    assert shell.plain.hgetall(PRIVATE) == {b"1:bad": b"1"}
    shell.plain.delete(KEYS.queue("bad"))
    assert shell.run(recover(KEYS, own="other", now=NOW)) == {ME: 1}
    assert shell.queue("bad") == [b"1"]


@pytest.mark.parametrize("queues", ["", "in the way"])
def test_a_job_that_returns_registers_its_queue(shell: Shell, queues: str) -> None:
    """KEY-1, REL-22: also of a queue cleared meanwhile; a broken set stops nothing."""
    names = ["q", "a:b", "line\nbreak"]
    for first, name in enumerate(names, 1):
        shell.hold(b"1", queue=name, first=first)
    if queues:
        shell.plain.set(KEYS.queues, queues)
    assert shell.run(put_back(KEYS, ME, ["1:q"], started=True)) == 1
    shell.plain.delete(ME)
    assert shell.run(recover(KEYS, own="other", now=NOW)) == {ME: 2}
    assert [shell.queue(name) for name in names] == [[b"1"]] * 3
    if not queues:
        assert shell.plain.smembers(KEYS.queues) == {name.encode() for name in names}


def test_a_look_at_many_owners_takes_few_round_trips(shell: Shell) -> None:
    """REL-17: one process looks for all, with one command a lease; others ask one question."""
    owners = [f"h:{number}:x" for number in range(1_000)]
    shell.plain.sadd(KEYS.owners, *owners)
    for owner in owners:
        shell.live(owner)
    counts = []
    for _ in range(2):
        op = recover(KEYS, own=ME, now=NOW, every=60.0)
        step = next(op)
        sent = [step]
        with suppress(StopIteration):
            while True:
                step = op.send(shell.run(one(step)))
                sent.append(step)
        counts.append((len(sent), sum(len(getattr(each, "steps", [0])) for each in sent)))
    assert counts == [(3, 1_004), (1, 3)]
    assert 0 < shell.plain.pttl(KEYS.recovery) <= 60_000
    shell.plain.delete(owners[7])
    assert shell.run(recover(KEYS, own=ME, now=NOW, every=60.0)) == {}
    assert shell.plain.scard(KEYS.owners) == 1_000
    shell.run(recover(KEYS, own=ME, now=NOW, ended=[owners[8]], every=60.0))  # REL-27: at once
    shell.run(recover(KEYS, own=ME, now=NOW))
    assert shell.plain.scard(KEYS.owners) == 998


def test_recovery_goes_on_after_an_owner_that_it_cannot_read(shell: Shell) -> None:
    """REL-17: and names the key; without memory for the lock it looks nevertheless."""
    shell.hold(b"1")
    shell.plain.set(KEYS.private("a:1:x"), "in the way")
    shell.plain.sadd(KEYS.owners, "a:1:x")
    shell.plain.delete(ME)
    shell.plain.config_set("maxmemory", 1)
    recovered = shell.run(recover(KEYS, own="other", now=NOW, every=60.0))
    shell.plain.config_set("maxmemory", 0)
    assert recovered.pop(ME) == 1
    assert f"{KEYS.private('a:1:x')}: WRONGTYPE" in str(recovered.pop("a:1:x"))
    assert recovered == {}


@pytest.mark.parametrize("namespace", ["", "a[b]*?\\:"])
def test_owners_that_the_set_does_not_name_are_found(shell: Shell, namespace: str) -> None:
    """REL-18: by the names of their private hashes, in calls of limited size."""
    keys = Keys(namespace)
    pipe = shell.plain.pipeline()
    for number in range(15_000):
        pipe.set(f"other:{number}", "x")
    pipe.hset(keys.private("h:1:x"), "1:q", "text")
    pipe.hset(f"x{keys.private('h:2:x')}", "1:q", "text")
    pipe.execute()
    cursor, calls = b"0", 0
    while not calls or cursor != b"0":
        cursor, calls = shell.run(name_owners(keys, cursor)), calls + 1
    assert 2 <= calls <= 3
    assert shell.plain.smembers(keys.owners) == {b"h:1:x"}
    assert shell.run(recover(keys, own=ME, now=NOW)) == {"h:1:x": 1}


def test_recoveries_race_harmlessly(shell: Shell) -> None:
    """REL-4: at most once for each entry, with any number of recoveries at the same time."""
    texts = [b"%d" % number for number in range(200)]
    shell.hold(*texts)
    shell.plain.delete(ME)
    with ThreadPoolExecutor(8) as threads:
        counts = list(
            threads.map(
                lambda n: shell.run(recover(KEYS, own=f"{n}", now=NOW)).get(ME, 0), range(8)
            )
        )
    assert sum(map(int, counts)) == 200
    assert sorted(shell.queue("q")) == sorted(texts)


def test_a_late_owner_finds_its_jobs_gone(shell: Shell) -> None:
    """REL-4, REL-15: an owner paused for longer than its lease stores no outcome. REL-23: and
    its job counts as late.
    """
    [field] = shell.hold(b"1")
    shell.plain.delete(ME)
    shell.run(recover(KEYS, own="other", now=NOW))
    shell.live()
    for name in OUTCOMES:
        assert shell.step(outcome(name, field)) in (0, [field.encode()])
    assert shell.run(put_back(KEYS, ME, [field], started=True, now=NOW)) == 0
    assert shell.queue("q") == [b"1"]
    assert shell.numbers() == {}
    assert not shell.plain.exists(KEYS.retry, KEYS.dead)
    assert shell.run(deliveries(KEYS)) == Deliveries(recovered=1, lost=5)
