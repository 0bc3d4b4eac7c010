"""The scripts that end an execution: done, retry, kill and requeue; and the counters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobwire import RedisRefused
from jobwire.protocol.dead_set import DeadSetLimits, kill
from jobwire.protocol.outcome import Counted, NextJob, Outcome, Place
from jobwire.protocol.reliable import put_back, script_done
from jobwire.protocol.results import ResultToStore
from jobwire.protocol.stats import DAY_TTL_S, Deliveries, count, deliveries
from jobwire.protocol.wire import Script
from tests.integration.clients import everything
from tests.integration.scripts.shell import (
    BINARY,
    DAY,
    KEYS,
    ME,
    NOW,
    OUTCOMES,
    PRIVATE,
    STORED,
    Shell,
    finish,
    one,
    outcome,
)

# done


def test_done_counts_and_forgets(shell: Shell) -> None:
    """REL-2, STAT-1, STAT-2 and STAT-4: executions in total and of the day; the latter expire."""
    fields = shell.hold(b"a", b"b", b"c")
    lost = shell.step(script_done(KEYS, ME, fields[:2], failed=False, day=DAY))
    assert lost == []
    assert shell.plain.hgetall(PRIVATE) == {b"3:q": b"c"}
    assert shell.numbers() == {"processed": 2, f"processed:{DAY}": 2}
    assert DAY_TTL_S - 5 <= shell.plain.ttl(f"stat:processed:{DAY}") <= DAY_TTL_S == 157_680_000
    assert shell.plain.ttl("stat:processed") == -1


def test_done_counts_failures(shell: Shell) -> None:
    """STAT-1 and DEAD-5: a failed job that is dropped counts as both."""
    fields = shell.hold(b"a")
    shell.step(script_done(KEYS, ME, fields, failed=True, day=DAY))
    assert shell.numbers() == {
        "processed": 1,
        f"processed:{DAY}": 1,
        "failed": 1,
        f"failed:{DAY}": 1,
    }
    assert shell.plain.ttl(f"stat:failed:{DAY}") > DAY_TTL_S - 5


def test_done_leaves_what_others_own(shell: Shell) -> None:
    """REL-15: jobs that were recovered meanwhile are named and not counted."""
    fields = shell.hold(b"a", b"b")
    assert shell.step(script_done(KEYS, ME, [fields[1]], failed=False, day=DAY)) == []
    call = script_done(KEYS, ME, [*fields, "9:q"], failed=False, day=DAY)
    assert shell.step(call) == [b"2:q", b"9:q"]
    assert shell.numbers()["processed"] == 2
    assert shell.step(call) == [b"1:q", b"2:q", b"9:q"]
    assert shell.numbers()["processed"] == 2


COUNTERS = ("stat:processed", f"stat:processed:{DAY}", "stat:failed", f"stat:failed:{DAY}")


@pytest.mark.parametrize("name", OUTCOMES)
@pytest.mark.parametrize("broken", [*COUNTERS, KEYS.returned, KEYS.returned_at, KEYS.queues])
def test_a_broken_counter_undoes_no_outcome(shell: Shell, name: str, broken: str) -> None:
    """REL-2 and STAT-1: the other counters still count."""
    [field] = shell.hold(b"old")
    shell.plain.sadd(broken, "in the way")
    shell.step(outcome(name, field))
    assert not shell.plain.exists(PRIVATE)
    for counter in COUNTERS:
        if counter != broken:
            assert shell.plain.get(counter) == b"1"


@pytest.mark.parametrize("name", STORED)
def test_an_outcome_that_cannot_be_stored_changes_nothing(shell: Shell, name: str) -> None:
    """REL-2: the job stays held, to be recovered or tried again."""
    [field] = shell.hold(b"old")
    shell.plain.set(STORED[name], "in the way")
    before = everything(shell.server)
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        shell.step(outcome(name, field))
    assert everything(shell.server) == before


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_of_a_lost_job_is_nothing(shell: Shell, name: str) -> None:
    """REL-15: nothing is stored for a job that another process owns now. REL-23: the job counts as
    late, unless the call may be a repetition of itself.
    """
    assert shell.step(outcome(name, "1:q")) == [b"1:q"]
    assert everything(shell.server) == {KEYS.lost.encode(): b"1"}
    assert shell.step(outcome(name, "1:q", repeated=True)) == [b"1:q"]
    assert shell.run(deliveries(KEYS)) == Deliveries(recovered=0, lost=1)


def test_a_put_back_that_is_repeated_counts_no_job_as_lost(shell: Shell) -> None:
    """REL-23: like an outcome. Only a job that had started can be lost."""
    for started, repeated, lost in [(False, False, 0), (True, True, 0), (True, False, 1)]:
        step = put_back(KEYS, ME, ["1:q"], started=started, now=NOW, repeated=repeated)
        assert shell.run(step) == 0
        assert shell.run(deliveries(KEYS)).lost == lost


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_is_stored_while_memory_is_short(shell: Shell, name: str) -> None:
    """REL-2 and RETRY-9: after the deletion of the entry nothing may fail."""
    [field] = shell.hold(b"old")
    shell.plain.config_set("maxmemory", 1)
    shell.step(outcome(name, field))
    shell.plain.config_set("maxmemory", 0)
    assert not shell.plain.exists(PRIVATE)
    if name == "requeue":
        assert shell.queue("q") == [b"new"]
    elif name != "done":
        assert shell.plain.zrange(STORED[name], 0, -1) == [b"new"]


# retry


def test_retry_stores_and_counts(shell: Shell) -> None:
    """RETRY-9, STAT-1 and GEN-4: the new payload, its time, and both counters in one step."""
    [field] = shell.hold(b"old")
    call = finish((field, Outcome("retry", BINARY, 1795192082.123456, "failed")))
    assert shell.step(call) == []
    assert shell.plain.zrange("retry", 0, -1, withscores=True) == [(BINARY, 1795192082.123456)]
    assert not shell.plain.exists(PRIVATE)
    assert shell.numbers() == dict.fromkeys(
        ("processed", f"processed:{DAY}", "failed", f"failed:{DAY}"), 1
    )
    assert shell.step(call) == [b"1:q"]
    assert shell.plain.get("stat:failed") == b"1"


def test_many_retries_are_stored_in_one_call(shell: Shell) -> None:
    """RETRY-9, REL-2: each job that is still held; the others are named and counted as late."""
    fields = shell.hold(*(b"old %d" % n for n in range(3000)))
    retries = [
        (field, Outcome("retry", b"new %d" % n, NOW + n, "failed"))
        for n, field in enumerate([*fields, "9999:q"])
    ]
    assert shell.step(finish(*retries)) == [b"9999:q"]
    assert not shell.plain.exists(PRIVATE)
    assert shell.plain.zcard("retry") == 3000
    assert shell.plain.zscore("retry", b"new 2999") == NOW + 2999
    assert shell.numbers()["processed"] == shell.numbers()["failed"] == 3000
    assert shell.run(deliveries(KEYS)).lost == 1


# kill


def test_bury_stores_and_counts(shell: Shell) -> None:
    """DEAD-1 and STAT-1: the score is now."""
    [field] = shell.hold(b"old")
    call = outcome("kill", field)
    assert shell.step(call) == []
    assert shell.plain.zrange("dead", 0, -1, withscores=True) == [(b"new", NOW)]
    assert shell.numbers()["processed"] == shell.numbers()["failed"] == 1
    assert shell.step(call) == [field.encode()]


@pytest.mark.parametrize("text", [BINARY, b""], ids=["binary", "empty"])
def test_what_cannot_be_read_is_buried_uncounted(shell: Shell, text: bytes) -> None:
    """EXEC-3 and EXEC-4: as its exact bytes, also if there are none."""
    [field] = shell.hold(text)
    shell.step(finish((field, Outcome("dead", text, counted=""))))
    assert shell.plain.zrange("dead", 0, -1) == [text]
    assert shell.numbers() == {}


def bury_held(shell: Shell, dead_limits: DeadSetLimits) -> None:
    [field] = shell.hold(b"new", first=shell.plain.incr("test:sequence"))
    shell.step(finish((field, Outcome("dead", b"new")), limits=dead_limits))


def bury_basic(shell: Shell, dead_limits: DeadSetLimits) -> None:
    shell.run(one(kill(KEYS.dead, b"new", dead_limits)))


def kill_due(shell: Shell, dead_limits: DeadSetLimits) -> None:
    shell.plain.zadd("retry", {b"new": 0})
    call = Script(
        "kill_due",
        [KEYS.retry, KEYS.dead],
        [dead_limits.now, dead_limits.oldest, dead_limits.limit, b"new"],
    )
    assert shell.step(call) == [b"new"]


@pytest.mark.parametrize("burial", [bury_held, bury_basic, kill_due])
def test_the_dead_set_is_trimmed_by_age(
    shell: Shell, burial: Callable[[Shell, DeadSetLimits], None]
) -> None:
    """DEAD-2: 180 days, inclusive, at every insertion."""
    age = 15_552_000
    ages = {"older": age + 1, "as old": age, "younger": age - 1}
    shell.plain.zadd("dead", {name: NOW - seconds for name, seconds in ages.items()})
    burial(shell, DeadSetLimits(NOW))
    assert shell.plain.zrange("dead", 0, -1) == [b"younger", b"new"]


@pytest.mark.parametrize("burial", [bury_held, bury_basic, kill_due])
def test_the_dead_set_is_trimmed_by_size(
    shell: Shell, burial: Callable[[Shell, DeadSetLimits], None]
) -> None:
    """DEAD-3: one less than the limit stays, the youngest."""
    shell.plain.zadd("dead", {f"{n}": NOW - 100 + n for n in range(10)})
    burial(shell, DeadSetLimits(NOW, limit=5))
    assert shell.plain.zrange("dead", 0, -1) == [b"7", b"8", b"9", b"new"]


def test_the_default_size_is_9999(shell: Shell) -> None:
    """DEAD-3: as real Sidekiq trims it."""
    shell.plain.zadd("dead", {f"{n}": NOW - 20_000 + n for n in range(10_500)})
    bury_held(shell, DeadSetLimits(NOW))
    assert shell.plain.zcard("dead") == 9_999


# requeue


@pytest.mark.parametrize("counts", ["", "executed", "failed"])
def test_again_is_a_push(shell: Shell, counts: Counted) -> None:
    """ITER-4, KEY-1, KEY-2, REL-7: at the head of its queue, registered; no return is counted."""
    [field] = shell.hold(b"old", queue="a:b")
    shell.push("a:b", b"waiting")
    call = finish((field, Outcome("queue", BINARY, counted=counts)))
    assert shell.step(call) == []
    assert shell.queue("a:b") == [b"waiting", BINARY]
    assert shell.plain.smembers(KEYS.queues) == {b"a:b"}
    assert not shell.plain.exists(PRIVATE, KEYS.returned, KEYS.returned_at)
    counted = ["processed"] * bool(counts) + ["failed"] * (counts == "failed")
    assert shell.numbers() == {name: 1 for kind in counted for name in (kind, f"{kind}:{DAY}")}
    assert shell.step(call) == [field.encode()]
    assert shell.plain.llen(KEYS.queue("a:b")) == 2


# the next job


def test_an_end_pushes_the_next_job_of_each_job_that_was_held(shell: Shell) -> None:
    """REL-2, REL-15, KEY-1: in the step that stores the end; a repeated call pushes none."""
    fields = shell.hold(b"a", b"b", b"c")
    shell.push("x", b"waiting")
    shell.plain.set(KEYS.unique("a" * 64), "b")
    ends = [
        (fields[0], Outcome(next=NextJob("x", BINARY), result=KEPT)),
        (fields[1], Outcome(unlocks=("a" * 64, "b"))),
        ("9:q", Outcome(next=NextJob("y", b"late"))),
        (fields[2], Outcome(next=NextJob("x", b"second"), unlocks=("b" * 64, "c"))),
    ]
    assert shell.step(finish(*ends)) == [b"9:q"]
    assert shell.queue("x") == [b"waiting", BINARY, b"second"]
    assert shell.plain.smembers(KEYS.queues) == {b"x"}
    assert not shell.plain.exists(PRIVATE, KEYS.unique("a" * 64), KEYS.queue("y"))
    assert shell.plain.get(KEYS.result(KEPT.jid)) == KEPT.text
    assert len(shell.step(finish(*ends, repeated=True))) == 4
    assert len(shell.queue("x")) == 3


def test_an_end_waits_for_a_list_that_its_next_job_can_go_to(shell: Shell) -> None:
    """REL-2: the job stays held, and nothing of the call is stored."""
    fields = shell.hold(b"a", b"b")
    shell.plain.set(KEYS.queue("x"), "in the way")
    before = everything(shell.server)
    step = finish((fields[0], Outcome(result=KEPT)), (fields[1], Outcome(next=NextJob("x", b"n"))))
    with pytest.raises(RedisRefused, match="WRONGTYPE queue:x is not a list"):
        shell.step(step)
    assert everything(shell.server) == before


# counters of the basic mode


def test_counters(shell: Shell) -> None:
    """STAT-1 and STAT-2: added by a worker whose outcomes do not count themselves."""
    shell.run(one(count(KEYS, processed=3, failed=1, day=DAY)))
    shell.run(one(count(KEYS, processed=2, failed=0, day=DAY)))
    assert shell.numbers() == {
        "processed": 5,
        f"processed:{DAY}": 5,
        "failed": 1,
        f"failed:{DAY}": 1,
    }
    assert shell.plain.ttl(f"stat:processed:{DAY}") > DAY_TTL_S - 5
    assert shell.plain.ttl(f"stat:failed:{DAY}") > DAY_TTL_S - 5


# results

KEPT = ResultToStore("9f2c1b7a4d3e5f60718293a4", 60, b'{"outcome":"done","at":1.5,"value":[]}')


@pytest.mark.parametrize("is_dead", [False, True])
def test_finish_stores_payload_and_result(shell: Shell, is_dead: bool) -> None:
    """X-RESULT-2: in one step, with the effects of retry and kill. [RETRY-9] [DEAD-2]"""
    [field] = shell.hold(b"old")
    key: Place = "dead" if is_dead else "retry"
    shell.plain.zadd(key, {"ancient": 1})
    step = finish((field, Outcome(key, b"new", NOW, "failed", result=KEPT)))
    assert shell.step(step) == []
    assert not shell.plain.exists(PRIVATE)
    stored = shell.plain.zrange(key, 0, -1, withscores=True)
    assert stored == [*(() if is_dead else [(b"ancient", 1)]), (b"new", NOW)]
    assert shell.plain.get(KEYS.result(KEPT.jid)) == KEPT.text
    assert shell.plain.ttl(KEYS.result(KEPT.jid)) in (59, 60)
    assert shell.numbers()["failed"] == shell.numbers()["processed"] == 1


def test_finish_stores_nothing_for_a_lost_job(shell: Shell) -> None:
    """X-RESULT-8, REL-15: the execution that holds the job decides."""
    [field] = shell.hold(b"a")
    other = KEPT._replace(jid="other")
    shell.plain.zadd(KEYS.cancelled, {"a": 1, "b": 1})
    step = finish(
        ("9:q", Outcome(cancelled="a", result=KEPT)), (field, Outcome(cancelled="b", result=other))
    )
    assert shell.step(step) == [b"9:q"]
    assert shell.plain.keys("jobwire:result:*") == [KEYS.result("other").encode()]
    assert shell.numbers() == {"processed": 1, f"processed:{DAY}": 1}
    assert shell.step(step) == [b"9:q", field.encode()]
    assert shell.plain.get(KEYS.lost) == b"3"
    assert shell.plain.zrange(KEYS.cancelled, 0, -1) == [b"a"]


def test_finish_changes_nothing_if_the_set_is_of_another_type(shell: Shell) -> None:
    """X-RESULT-2: neither outcome nor result."""
    [field] = shell.hold(b"a")
    shell.plain.set(KEYS.retry, "in the way")
    before = everything(shell.server)
    step = finish((field, Outcome("retry", b"new", NOW, "failed", result=KEPT)))
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        shell.step(step)
    assert everything(shell.server) == before
