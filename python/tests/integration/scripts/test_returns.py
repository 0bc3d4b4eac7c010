"""The script that returns jobs to their queues, and the counts of returns and recoveries."""

from __future__ import annotations

import json

import pytest

from jobwire.protocol.outcome import after_decision
from jobwire.protocol.payload import decode
from jobwire.protocol.poison import MAX_RECOVERIES, poisoned
from jobwire.protocol.reliable import REMEMBER_RETURNED_S, fetch, put_back, recover
from tests.integration.clients import listening
from tests.integration.scripts.shell import (
    BINARY,
    KEYS,
    ME,
    NOW,
    OUTCOMES,
    PRIVATE,
    Shell,
    digest,
    finish,
    outcome,
)


@pytest.mark.parametrize("name", OUTCOMES)
def test_returns_are_counted_until_an_execution_ends(shell: Shell, name: str) -> None:
    """REL-7, REL-24: under the SHA-1 of the exact bytes; the next owner gets the count."""
    for returns in range(3):
        [field] = shell.hold(BINARY, first=returns + 1)
        held_twice = shell.run(put_back(KEYS, ME, [field], started=True, now=NOW))
        assert held_twice == 1
        assert shell.plain.hgetall(KEYS.returned) == {
            digest(BINARY).encode(): str(returns + 1).encode()
        }
        shell.plain.delete(KEYS.queue("q"))
    shell.push("q", BINARY, b"another")
    fetched = shell.run(fetch(KEYS, ME, ["q"], count=2, sequence=9))
    assert [held.returned for held in fetched.jobs] == [3, 0]
    assert shell.plain.ttl(KEYS.returned) > REMEMBER_RETURNED_S - 5
    assert REMEMBER_RETURNED_S == 259_200
    shell.step(outcome(name, fetched.jobs[0].field))
    assert not shell.plain.exists(KEYS.returned, KEYS.returned_at)


def test_jobs_that_never_started_are_not_counted(shell: Shell) -> None:
    """REL-7: prefetched jobs that a stop returns."""
    fields = shell.hold(b"1")
    shell.run(put_back(KEYS, ME, fields, started=False))
    assert not shell.plain.exists(KEYS.returned)


def test_recovered_jobs_count_as_started(shell: Shell) -> None:
    """REL-7 and REL-10: they may have started; recoveries also have a count of their own."""
    shell.hold(b"1")
    shell.plain.delete(ME)
    shell.run(recover(KEYS, own="other", now=NOW))
    name = digest(b"1").encode()
    assert shell.plain.hgetall(KEYS.returned) == {name: b"1", name + b":recovered": b"1"}
    assert shell.plain.zrange(KEYS.returned_at, 0, -1, withscores=True) == [(name, NOW)]
    for key in (KEYS.returned, KEYS.returned_at):
        assert REMEMBER_RETURNED_S - 5 < shell.plain.ttl(key) <= REMEMBER_RETURNED_S
    shell.live()
    [held] = shell.run(fetch(KEYS, ME, ["q"], count=1, sequence=2)).jobs
    assert (held.returned, held.recovered) == (1, 1)
    shell.run(put_back(KEYS, ME, [held.field], started=True, now=NOW + 1))
    [held] = shell.run(fetch(KEYS, ME, ["q"], count=1, sequence=3)).jobs
    assert (held.returned, held.recovered) == (2, 1)
    assert shell.plain.zscore(KEYS.returned_at, name) == NOW + 1


def test_nobody_is_blamed_for_a_neighbour(shell: Shell) -> None:
    """REL-10: a recovered job is the last of its fetch, so that no job waits behind it."""
    shell.hold(b"1", b"2")
    shell.plain.delete(ME)
    shell.run(recover(KEYS, own="other", now=NOW))
    shell.live()
    shell.push("first", b"0")
    shell.push("q", b"3", b"4")
    got = []
    for number in (10, 20, 30, 40):
        jobs = shell.run(fetch(KEYS, ME, ["first", "q"], count=9, sequence=number)).jobs
        got.append([(held.text, held.recovered) for held in jobs])
    assert got == [[(b"0", 0), (b"1", 1)], [(b"2", 1)], [(b"3", 0), (b"4", 0)], []]


def test_a_job_that_ends_its_processes_is_buried(shell: Shell) -> None:
    """REL-10: after one recovery too many; put backs and the kill itself do not count."""
    text = b'{"class":"Killer","args":[],"jid":"1","retry":false,"dead":false}'
    shell.push("q", text)
    for number in range(MAX_RECOVERIES + 1):
        shell.live()
        [held] = shell.run(fetch(KEYS, ME, ["q"], count=1, sequence=2 * number)).jobs
        job = decode(held.text, held.queue)
        assert poisoned(job, held.recovered, now=NOW, generation=8) is None
        shell.run(put_back(KEYS, ME, [held.field], started=True, now=NOW))
        shell.run(fetch(KEYS, ME, ["q"], count=1, sequence=2 * number + 1))
        shell.plain.delete(ME)
        shell.run(recover(KEYS, own="other", now=NOW))
    shell.live()
    [held] = shell.run(fetch(KEYS, ME, ["q"], count=1, sequence=99)).jobs
    assert (held.recovered, held.returned) == (MAX_RECOVERIES + 1, 2 * MAX_RECOVERIES + 2)
    fate = poisoned(decode(held.text, held.queue), held.recovered, now=NOW, generation=8)
    assert fate is not None
    shell.step(finish((held.field, after_decision(fate, None))))
    [dead] = shell.plain.zrange("dead", 0, -1)
    assert json.loads(dead)["error_class"] == "jobwire.PoisonPill"
    assert shell.numbers() == {}
    assert not shell.plain.exists(PRIVATE, KEYS.returned, KEYS.returned_at, KEYS.queue("q"))


def test_each_job_is_remembered_for_its_own_time(shell: Shell) -> None:
    """REL-25: a job is forgotten 72 h after its own last return."""
    shell.hold(b"old", b"again", b"new")
    shell.plain.delete(ME)
    shell.run(recover(KEYS, own="other", now=NOW))
    shell.plain.delete(KEYS.queue("q"))
    fields = shell.hold(b"again", first=7) + shell.hold(b"new", first=8)
    shell.run(put_back(KEYS, ME, fields, started=True, now=NOW + 5))
    shell.run(recover(KEYS, own="other", now=NOW + REMEMBER_RETURNED_S - 1))
    assert shell.plain.zcard(KEYS.returned_at) == 3
    shell.run(recover(KEYS, own="other", now=NOW + REMEMBER_RETURNED_S))
    kept = {digest(b"again").encode(), digest(b"new").encode()}
    assert set(shell.plain.zrange(KEYS.returned_at, 0, -1)) == kept
    assert set(shell.plain.hkeys(KEYS.returned)) == kept | {each + b":recovered" for each in kept}


def test_any_number_is_forgotten_at_once(shell: Shell) -> None:
    """REL-25: counts of many crashes do not pile up; each call of the script is bounded."""
    for number in range(0, 2_500, 500):
        shell.hold(*(b"%d" % n for n in range(number, number + 500)), first=number + 1)
    shell.plain.delete(ME)
    shell.run(recover(KEYS, own="other", now=NOW))
    assert shell.plain.zcard(KEYS.returned_at) == 2_500
    shell.run(recover(KEYS, own="other", now=NOW + REMEMBER_RETURNED_S))
    assert not shell.plain.exists(KEYS.returned, KEYS.returned_at)


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
