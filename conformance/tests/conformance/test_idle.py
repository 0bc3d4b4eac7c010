"""The rest of a worker, by its commands and reports: nothing is still to follow."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from jobwire_conformance.sandbox import idle
from jobwire_conformance.sandbox.idle import Event
from jobwire_conformance.wire import resp
from jobwire_conformance.wire.call import Call, name_of
from tests.rows import over

JOB = b'{"class":"JobwireEcho","args":[],"jid":"a1"}'
FETCHED = b"*2\r\n$13\r\nqueue:default\r\n$%d\r\n%b\r\n" % (len(JOB), JOB)
NOTHING = b"*-1\r\n"
_NUMBERS = itertools.count(1)


def call(*words: bytes | str | int, reply: bytes | None = b"+OK\r\n", at: float = 0.0) -> Call:
    """Return a command with its reply."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    frame = resp.command(*parts)
    said = Call(next(_NUMBERS), 1, parts, name_of(parts), frame, at)
    said.reply, said.answered = reply, None if reply is None else at
    return said


def report(kind: str, at: float, *, ok: bool = True, jid: str = "a1") -> Event:
    return Event(at, "w1", kind, jid, [], ok, json.dumps({"ev": kind}))


def owes(calls: Sequence[Call], events: Sequence[Event], now: float) -> bool:
    fetched = {one.sequence: idle.jobs_in(one) for one in calls if idle.brought(one)}
    return idle.debt(calls, fetched, events, now) == "a1"


@over(
    ("command", "reply", "brought"),
    [
        (("BRPOP", "queue:default", 2), FETCHED, True),
        (("BRPOP", "queue:default", 2), NOTHING, False),
        (("RPOP", "queue:default"), b"$5\r\n[1,2]\r\n", True),
        (("EVALSHA", "aa", 1, "queue:default"), b"*3\r\n*0\r\n*0\r\n*0\r\n", False),
        # A script of an implementation may return a bare text: a job, or some other word.
        (("EVAL", "...", 1, "queue:default"), b"$%d\r\n%b\r\n" % (len(JOB), JOB), True),
        (("EVAL", "...", 1, "queue:default"), b"$2\r\nOK\r\n", False),
        (("EVAL", "...", 1, "queue:default"), b"$-1\r\n", False),
    ],
)
def test_a_fetch_brought_a_job_if_its_reply_holds_one(
    command: tuple[str | int, ...], reply: bytes, brought: bool
) -> None:
    assert idle.brought(call(*command, reply=reply)) is brought


def test_a_refused_call_is_not_an_answer() -> None:
    """[LUA-3] [ENV-6]"""
    refused = call("EVALSHA", "aa", 1, "retry", reply=b"-NOSCRIPT No matching script.\r\n", at=1.0)
    fetch = call("EVALSHA", "bb", 1, "queue:default", reply=NOTHING, at=1.0)
    assert idle.unrepeated([refused, fetch], now=2.0) is refused
    assert idle.unrepeated([refused, fetch], now=2.0 + idle.FORGOTTEN_S) is None
    again = call("EVALSHA", "aa", 1, "retry", reply=b":1\r\n", at=1.5)
    assert idle.unrepeated([refused, fetch, again], now=2.0) is None
    full = call("ZADD", "retry", 1, JOB, reply=b"-OOM command not allowed\r\n", at=1.0)
    assert idle.unrepeated([full], now=2.0) is full
    wrong = call("ZADD", "retry", 1, JOB, reply=b"-WRONGTYPE Operation\r\n", at=1.0)
    assert idle.unrepeated([wrong], now=2.0) is None


def test_a_write_of_a_lost_connection_will_be_repeated() -> None:
    """[ENV-5] Its reply never comes; that of a read is not missed."""
    lost = call("ZADD", "retry", 1, JOB, reply=None, at=1.0)
    assert not idle.is_answered(lost, now=2.0)
    assert idle.unrepeated([lost], now=2.0) is None
    lost.given_up = True
    assert idle.is_answered(lost, now=2.0)
    assert idle.unrepeated([lost], now=2.0) is lost
    assert idle.unrepeated([lost], now=2.0 + idle.FORGOTTEN_S) is None
    again = call("ZADD", "retry", 1, JOB, reply=b":1\r\n", at=1.5)
    assert idle.unrepeated([lost, again], now=2.0) is None
    read = call("GET", "x", reply=None, at=1.0)
    read.given_up = True
    assert idle.unrepeated([read], now=2.0) is None


def test_the_outcome_of_a_job_that_failed_is_awaited() -> None:
    fetch = call("BRPOP", "queue:default", 2, reply=FETCHED, at=1.0)
    failed = [report("begin", 1.0), report("end", 1.1, ok=False)]
    assert owes([fetch], failed, now=1.2)
    assert not owes([fetch], failed, now=3.0), "a job that fails may be dropped"
    retry = call("ZADD", "retry", 20, JOB, at=1.3)
    assert not owes([fetch, retry], failed, now=1.4)
    refused = call("ZADD", "retry", 20, JOB, reply=b"-OOM command not allowed\r\n", at=1.3)
    assert owes([fetch, refused], failed, now=1.4)
    record = call("HSET", "w1:work", "t1", b'{"queue":"default","payload":%b}' % JOB, at=1.3)
    assert owes([fetch, record], failed, now=1.4), "a record of running jobs is not an outcome"


def test_a_job_that_reports_nothing_is_awaited_too() -> None:
    """One of an unknown class."""
    fetch = call("BRPOP", "queue:default", 2, reply=FETCHED, at=1.0)
    assert owes([fetch], [], now=1.1)
    assert not owes([fetch, call("ZADD", "dead", 20, JOB, at=1.2)], [], now=1.3)
    assert not owes([fetch, call("RPUSH", "queue:default", JOB, at=1.2)], [], now=1.3)


def test_a_job_that_succeeded_has_its_outcome() -> None:
    fetch = call("BRPOP", "queue:default", 2, reply=FETCHED, at=1.0)
    assert not owes([fetch], [report("begin", 1.0), report("end", 1.1)], now=1.2)


def test_a_worker_is_at_home_if_all_executors_wait() -> None:
    waiting = call("BRPOP", "queue:default", 2, reply=None, at=2.0)
    assert idle.is_at_home([waiting], 1, after=0.0)
    assert not idle.is_at_home([waiting], 2, after=0.0)
    bringing = call("EVALSHA", "aa", 1, "queue:default", reply=FETCHED, at=1.0)
    empty = call("EVALSHA", "aa", 1, "queue:default", reply=NOTHING, at=2.0)
    assert not idle.is_at_home([bringing], 2, after=1.0)
    assert idle.is_at_home([bringing, empty], 2, after=1.5)
    assert not idle.is_at_home([bringing, empty], 2, after=2.5)
