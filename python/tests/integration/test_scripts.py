"""The contract of every script in lua/, against a real server."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.debian_servers import SERVERS, DebianServer
from harness.servers import Server, wait_until
from jobwire import RedisRefused
from jobwire.connection import data
from jobwire.connection.scripts import script
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits, kill
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import decode
from jobwire.protocol.poison import MAX_RECOVERIES, poisoned
from jobwire.protocol.promotion import promote_batch
from jobwire.protocol.reliable import (
    MOVES_PER_CALL,
    REMEMBER_RETURNED_S,
    fetch,
    name_owners,
    put_back,
    read_fetched,
    recover,
    resign,
    script_done,
    script_fetch,
    script_kill,
    script_requeue,
    script_retry,
)
from jobwire.protocol.stats import DAY_TTL_S, Deliveries, count, deliveries
from jobwire.protocol.wire import Batch, Op, Script, Step
from tests.conftest import ServerFactory
from tests.integration.clients import PROGRAMS, everything, listening

NOW = 1_795_192_067.25
DAY = "2026-11-20"
ME = "web-1:42:0123456789ab"
KEYS = Keys()
PRIVATE = KEYS.private(ME)

BINARY = bytes(range(256)) + b"\r\n$-1\r\n"
ODD_NAMES = ["default", "a:b", "queue:x", "a|b", "a b", "größe", "7:q", ":", "*"]


def one(step: Step) -> Op[Any]:
    return (yield step)


class Shell:
    """A server, an operation runner and a plain client to look behind it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.redis = SyncRedis(server.url)
        self.plain: Any = server.client()
        self.run = self.redis.run

    def live(self, identity: str = ME, keys: Keys = KEYS) -> None:
        """Give a process its lease."""
        self.plain.hset(keys.process(identity), "info", "{}")

    def push(self, queue: str, *texts: bytes) -> None:
        """Fill a queue; the first text is next."""
        self.plain.lpush(KEYS.queue(queue), *texts)

    def queue(self, name: str) -> list[bytes]:
        """Return a queue, next first."""
        return list(reversed(self.plain.lrange(KEYS.queue(name), 0, -1)))

    def hold(self, *texts: bytes, queue: str = "q", first: int = 1) -> list[str]:
        """Hold these jobs for us; return their fields."""
        self.live()
        self.push(queue, *texts)
        fetched = self.run(fetch(KEYS, ME, [queue], count=len(texts), sequence=first))
        assert [held.text for held in fetched.jobs] == list(texts)
        return [held.field for held in fetched.jobs]

    def step(self, script: Script) -> Any:
        return self.run(one(script))

    def numbers(self) -> dict[str, int]:
        """Return the counters by the part of their names after `stat:`."""
        return {
            key.decode().removeprefix("stat:"): int(self.plain.get(key) or 0)
            for key in self.plain.keys("stat:*")
        }


@pytest.fixture(
    params=[
        *(pytest.param(program, id=os.path.basename(program)) for program in PROGRAMS),
        *(pytest.param(each, id=each.name, marks=pytest.mark.interop) for each in SERVERS),
    ]
)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each installed server, and with `make interop` those of three Debian releases."""
    if not isinstance(request.param, DebianServer):
        return str(request.param)
    if not request.param.program.exists():
        missing = f"no {request.param.program}: run `make interop`"
        if os.environ.get("JOBWIRE_REQUIRE_INTEROP") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    return request.param.launcher(tmp_path)


@pytest.fixture
def shell(program: str, server_factory: ServerFactory) -> Iterator[Shell]:
    made = Shell(server_factory(program=program))
    yield made
    made.redis.close()


# fetch


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


def outcome(name: str, field: str, *, repeated: bool = False) -> Script:
    """Return the script that ends a job in this way."""
    if name == "done":
        return script_done(KEYS, ME, [field], failed=True, day=DAY, repeated=repeated)
    if name == "retry":
        return script_retry(KEYS, ME, [(field, NOW + 15.5, b"new")], day=DAY, repeated=repeated)
    if name == "requeue":
        return script_requeue(
            KEYS, ME, field, b"new", "a:b", day=DAY, executed=True, failed=True, repeated=repeated
        )
    return script_kill(KEYS, ME, field, b"new", DeadSetLimits(NOW), day=DAY, repeated=repeated)


OUTCOMES = ("done", "retry", "kill", "requeue")
STORED = {"retry": "retry", "kill": "dead", "requeue": "queue:a:b"}


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
    assert shell.step(outcome(name, "1:q")) in (0, [b"1:q"])
    assert everything(shell.server) == {KEYS.lost.encode(): b"1"}
    assert shell.step(outcome(name, "1:q", repeated=True)) in (0, [b"1:q"])
    assert shell.run(deliveries(KEYS)) == Deliveries(recovered=0, lost=1)


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_is_stored_while_memory_is_short(shell: Shell, name: str) -> None:
    """REL-2 and RETRY-9: after the deletion of the entry nothing may fail."""
    [field] = shell.hold(b"old")
    shell.plain.config_set("maxmemory", 1)
    shell.step(outcome(name, field))
    shell.plain.config_set("maxmemory", 0)
    assert not shell.plain.exists(PRIVATE)
    if name == "requeue":
        assert shell.queue("a:b") == [b"new"]
    elif name != "done":
        assert shell.plain.zrange(STORED[name], 0, -1) == [b"new"]


# retry


def test_retry_stores_and_counts(shell: Shell) -> None:
    """RETRY-9, STAT-1 and GEN-4: the new payload, its time, and both counters in one step."""
    [field] = shell.hold(b"old")
    call = script_retry(KEYS, ME, [(field, 1795192082.123456, BINARY)], day=DAY)
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
    retries = [(field, NOW + n, b"new %d" % n) for n, field in enumerate(fields)]
    assert shell.step(script_retry(KEYS, ME, [*retries, ("9999:q", 1, b"x")], day=DAY)) == [
        b"9999:q"
    ]
    assert not shell.plain.exists(PRIVATE)
    assert shell.plain.zcard("retry") == 3000
    assert shell.plain.zscore("retry", b"new 2999") == NOW + 2999
    assert shell.numbers()["processed"] == shell.numbers()["failed"] == 3000
    assert shell.run(deliveries(KEYS)).lost == 1


# kill


def test_bury_stores_and_counts(shell: Shell) -> None:
    """DEAD-1 and STAT-1: the score is now."""
    [field] = shell.hold(b"old")
    call = script_kill(KEYS, ME, field, b"new", DeadSetLimits(NOW), counted=True, day=DAY)
    assert shell.step(call) == 1
    assert shell.plain.zrange("dead", 0, -1, withscores=True) == [(b"new", NOW)]
    assert shell.numbers()["processed"] == shell.numbers()["failed"] == 1
    assert shell.step(call) == 0


def test_what_cannot_be_read_is_buried_uncounted(shell: Shell) -> None:
    """EXEC-3 and EXEC-4: as its exact bytes."""
    [field] = shell.hold(BINARY)
    shell.step(script_kill(KEYS, ME, field, BINARY, DeadSetLimits(NOW), counted=False, day=DAY))
    assert shell.plain.zrange("dead", 0, -1) == [BINARY]
    assert shell.numbers() == {}


def bury_held(shell: Shell, dead_limits: DeadSetLimits) -> None:
    [field] = shell.hold(b"new", first=shell.plain.incr("test:sequence"))
    shell.step(script_kill(KEYS, ME, field, b"new", dead_limits, counted=True, day=DAY))


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


@pytest.mark.parametrize(("executed", "failed"), [(False, False), (True, False), (True, True)])
def test_again_is_a_push(shell: Shell, executed: bool, failed: bool) -> None:
    """ITER-4, KEY-1, KEY-2, REL-7: at the head of its queue, registered; no return is counted."""
    [field] = shell.hold(b"old", queue="a:b")
    shell.push("a:b", b"waiting")
    call = script_requeue(KEYS, ME, field, BINARY, "a:b", day=DAY, executed=executed, failed=failed)
    assert shell.step(call) == 1
    assert shell.queue("a:b") == [b"waiting", BINARY]
    assert shell.plain.smembers(KEYS.queues) == {b"a:b"}
    assert not shell.plain.exists(PRIVATE, KEYS.returned, KEYS.returned_at)
    counted = ["processed"] * executed + ["failed"] * failed
    assert shell.numbers() == {name: 1 for kind in counted for name in (kind, f"{kind}:{DAY}")}
    assert shell.step(call) == 0
    assert shell.plain.llen(KEYS.queue("a:b")) == 2


# put_back


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


# counts of returns


def digest(text: bytes) -> str:
    return hashlib.sha1(text).hexdigest()


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
    shell.step(
        script_kill(
            KEYS, ME, held.field, fate.text, DeadSetLimits(NOW), day=DAY, counted=fate.counted
        )
    )
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


# recover


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
    assert counts == [(4, 1_003), (1, 1)]
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
    assert not shell.plain.exists(*STORED.values())
    assert shell.run(deliveries(KEYS)) == Deliveries(recovered=1, lost=5)


# promote and kill_due; the rest of promotion is in test_promotion.py


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


# keys


def life(shell: Shell, keys: Keys) -> None:
    """Run jobs through every script, with odd names of queues."""
    shell.live(ME, keys)
    queues = ["a:b", "c|d"]
    for name in queues:
        shell.plain.lpush(keys.queue(name), *(b"%d" % n for n in range(6)))
    held = shell.run(fetch(keys, ME, queues, count=12, sequence=1)).jobs
    fields = [each.field for each in held]
    steps = [
        script_requeue(keys, ME, fields[9], b"{}", "a:b", day=DAY, executed=True),
        script_done(keys, ME, fields[:2], failed=True, day=DAY),
        script_retry(keys, ME, [(fields[2], NOW, b"{}")], day=DAY),
        script_kill(keys, ME, fields[3], b"{}", DeadSetLimits(NOW), counted=True, day=DAY),
    ]
    for step in steps:
        shell.run(one(step))
    shell.run(put_back(keys, ME, fields[4:9], started=True, now=NOW))
    shell.run(fetch(keys, ME, queues, count=1, sequence=50))
    shell.plain.delete(keys.process(ME))
    assert shell.run(recover(keys, own="other", now=NOW)) == {ME: 3}
    shell.plain.zadd(keys.schedule, {b'{"queue":"a:b"}': 1, b"\xff": 1, b'{"queue":"new"}': 1})
    for zset in (keys.retry, keys.schedule):
        shell.run(promote_batch(keys, zset, now=NOW, generation=8, dead_limits=DeadSetLimits(NOW)))
    assert shell.plain.zcard(keys.schedule) == 0


SCRIPTS = {path.stem for path in data.path("lua").glob("*.lua")}


def test_scripts_touch_declared_keys_only(shell: Shell) -> None:
    """LUA-2: as the server sees every script. KEY-5: our own keys carry our name."""
    with listening(shell.server) as heard:
        life(shell, KEYS)
        lines = heard()
    declared: set[bytes] = set()
    calls = 0
    for line in lines:
        if line.name == "EVALSHA":
            declared = set(line.words[3 : 3 + int(line.words[2])])
        elif line.by_script:
            calls += 1
            assert line.words[1] in declared, line
    assert calls > 50
    own = shell.plain.keys("*jobwire*")
    assert own
    assert all(key.startswith(b"jobwire:") for key in own)


def test_every_script_has_been_tried(shell: Shell) -> None:
    """LUA-2: otherwise the test above would prove nothing."""
    with listening(shell.server) as heard:
        life(shell, KEYS)
        called = {line.words[1].decode() for line in heard() if line.name == "EVALSHA"}
    assert called == {script(name).sha for name in SCRIPTS}


def test_all_scripts_run_on_a_cluster(program: str, server_factory: ServerFactory) -> None:
    """LUA-2 and KEY-4: a cluster refuses undeclared keys and keys of other slots."""
    server = server_factory("--cluster-enabled", "yes", program=program)
    shell = Shell(server)
    shell.plain.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
    wait_until(lambda: b"cluster_state:ok" in shell.plain.execute_command("CLUSTER", "INFO"))
    life(shell, Keys("{shard-03}:"))
    shell.live(ME, KEYS)
    assert set(shell.plain.keys()) - set(shell.plain.keys("{shard-03}:*")) == {ME.encode()}
    with pytest.raises(RedisRefused, match="CROSSSLOT"):
        shell.run(fetch(KEYS, ME, ["a", "b"], count=1, sequence=1))
    shell.redis.close()


def test_bytes_are_json_that_ruby_would_read(shell: Shell) -> None:
    """LUA-1: bytes that Lua's own JSON would change pass unchanged through every transition."""
    text = b'{"retry":true,"queue":"q","args":[[],{},9007199254740993,1.0],"class":"A"}'
    [field] = shell.hold(text)
    shell.step(script_retry(KEYS, ME, [(field, 1, text)], day=DAY))
    shell.run(
        promote_batch(KEYS, KEYS.retry, now=NOW, generation=8, dead_limits=DeadSetLimits(NOW))
    )
    [promoted] = shell.queue("q")
    assert promoted.startswith(text[:-1])
    assert json.loads(promoted)["args"] == [[], {}, 9007199254740993, 1.0]


@pytest.mark.interop
@pytest.mark.parametrize("debian", SERVERS, ids=lambda debian: debian.name)
def test_the_servers_are_those_of_their_names(
    debian: DebianServer, server_factory: ServerFactory, tmp_path: Path
) -> None:
    """LUA-2: the scripts were tried on Redis 7.0 and 8, on Valkey 8 and 9."""
    info = server_factory(program=debian.launcher(tmp_path)).client().info("server")
    assert info[f"{debian.kind}_version"].startswith(debian.version)
