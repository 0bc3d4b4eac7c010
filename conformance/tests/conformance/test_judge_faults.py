"""The judge of `jobwire conform watch` finds each wrong command that is planted."""

from __future__ import annotations

import base64
import json
import zlib

from jobwire_conformance.judge import VISIBLE
from jobwire_conformance.wire.resp import Refusal
from tests.conformance.traffic import (
    AGAIN,
    DROP,
    FAILED,
    INFO,
    JID,
    JOB,
    ME,
    NOW,
    OTHER,
    SCHEDULED,
    SHA,
    WAIT,
    Line,
    counted,
    dead,
    fetch,
    found,
    hash_of,
    heartbeat,
    judged,
    multi,
    push,
    say,
    text,
    wiped,
    work,
)
from tests.rows import over

BACKTRACE = base64.b64encode(zlib.compress(b'["a","b"]')).decode()
DEEP = "[" * 99 + "]" * 99
POP = "000a4c2f82df69db1780053377a2c9b0741570e0"


# Planted mistakes: the requirement to report, the grade, and the commands.
WRONG: list[tuple[str, str, list[Line]]] = [
    ("PUSH-1", "violation", push(command="RPUSH")),
    ("PUSH-2", "note", [*push()[1:2], *push()[2:3]]),
    ("PUSH-3", "violation", push(text(JOB, enqueued_at=1795102067124))),
    ("PUSH-3", "violation", push(text(JOB, enqueued_at=DROP))),
    ("PUSH-4", "violation", push(text(JOB, tags="red"))),
    ("PUSH-6", "violation", push(text(JOB, retry=DROP))),
    ("KEY-1", "violation", [*push()[2:3], WAIT]),
    ("KEY-2", "violation", push(text(JOB, queue="low"))),
    ("KEY-2", "violation", push(queue="queue:default")),
    ("KEY-2", "violation", [say("LPUSH", "queues:default", text(JOB), reply=1)]),
    ("KEY-2", "violation", [say("BRPOP", "queues:default", 2, reply=None)]),
    ("KEY-3", "violation", [say("ZADD", "schedule", NOW, JID, reply=1)]),
    ("KEY-10", "violation", [
        fetch(), say("ZADD", "retry", NOW + 20, text(FAILED, seen_by="me"), reply=1),
    ]),
    ("KEY-6", "note", [say("SADD", "batches", "x", reply=1)]),
    ("KEY-6", "note", [say("FLUSHALL")]),
    ("PAY-1", "violation", push("HardJob 1")),
    ("PAY-2", "violation", push(json.dumps(JOB))),
    ("PAY-21", "violation", push(text(JOB).replace("x", "\\/"))),
    ("PAY-20", "violation", push(text(JOB).replace("x", "\\u000a"))),
    ("PUSH-11", "violation", push(text(JOB, created_at=DROP))),
    ("PAY-22", "violation", push(text(JOB).replace("x", "\\ud800"))),
    ("PAY-26", "violation", push(text(JOB).replace("[1", "[-0"))),
    ("PAY-3", "violation", push(text(JOB).replace("[1", f"[{DEEP}"))),
    ("PAY-4", "violation", push(text(JOB, args=[float("nan")]))),
    ("PAY-6", "violation", push(text(JOB).replace("[1", "[1e400"))),
    ("PAY-33", "violation", push(text(JOB).replace("[1", "[1.50"))),
    ("PAY-8", "violation", push(text(JOB).replace('"args"', '"retry":1,"args"'))),
    ("PAY-9", "note", push(text(JOB, jid="4a6f0e3c-9a55-4b43-a1e5-0f5d4c3b2a19"))),
    ("PAY-9", "violation", push(text(JOB, jid=""))),
    ("PAY-9", "violation", push(text(JOB, jid=DROP))),
    ("PAY-11", "warning", push(text({**{"jid": JID}, **JOB}))),
    ("PAY-12", "violation", push(text(JOB, **{"class": 7}))),
    ("PAY-30", "violation", push(text(JOB, args={"a": 1}))),
    ("PAY-14", "violation", push(text(FAILED))),
    ("PAY-5", "violation", [
        fetch(text(JOB, args=[9007199254740993])),
        say("ZADD", "retry", NOW + 20, text(FAILED, args=[9007199254740992]), reply=1),
    ]),
    ("PAY-7", "violation", [
        fetch(text(JOB, bid="b1")), say("ZADD", "retry", NOW + 20, text(FAILED), reply=1),
    ]),
    ("EXEC-5", "violation", [
        fetch(), say("ZADD", "retry", NOW + 20, text(FAILED, args=[2]), reply=1),
    ]),
    ("GEN-1", "violation", push(text(JOB, created_at=1795192067, enqueued_at=1795192067))),
    ("GEN-1", "violation", [
        *push(text(JOB, created_at=1795192067.5, enqueued_at=1795192067.5)), *push()]),
    ("GEN-2", "violation", push(text(JOB, enqueued_at=1795192067124.0))),
    ("GEN-2", "violation", [
        fetch(text(FAILED, retry_count=-1, retried_at=1700000000.5)),
        say("ZADD", "retry", NOW + 20, text(FAILED, retried_at=1795192067251.0), reply=1)]),
    ("GEN-4", "violation",
        [say("ZADD", "schedule", int(NOW * 1000), text(SCHEDULED), reply=1)]),
    ("BULK-1", "violation", [
        *push()[:2],
        say("LPUSH", "queue:default", *[text(JOB, jid=f"{n:024x}") for n in range(1001)]),
        say("EXEC", reply=[1, 1001])]),
    ("BULK-7", "violation", [
        say("ZADD", "schedule",
            *[w for n in range(101) for w in (NOW + 60, text(SCHEDULED, jid=f"{n:024x}"))],
            reply=101)]),
    ("BULK-2", "violation", [
        *push()[:2],
        say("LPUSH", "queue:default", text(JOB), text(JOB)), say("EXEC", reply=[1, 2])]),
    ("BULK-5", "violation", [
        *push()[:2],
        say("LPUSH", "queue:default", text(JOB), text(JOB, jid=OTHER, queue="low")),
        say("EXEC", reply=[1, 2])]),
    ("BULK-5", "violation", [
        *push()[:2],
        say("LPUSH", "queue:default", text(JOB), text(JOB, jid=OTHER, at=NOW + 9)),
        say("EXEC", reply=[1, 2])]),
    ("SCHED-12", "violation",
        [say("ZADD", "schedule", NOW + 9, text(SCHEDULED, at=NOW + 9), reply=1)]),
    ("SCHED-13", "violation", [say("ZADD", "schedule", NOW + 9, text(JOB), reply=1)]),
    ("SCHED-4", "violation", [say("ZADD", "schedule", "-5", text(SCHEDULED), reply=1)]),
    ("SCHED-5", "note", [
        say("EVALSHA", POP, 1, "schedule", NOW, reply=text(SCHEDULED).encode()), *push(AGAIN)]),
    ("SCHED-18", "violation", [
        say("EVALSHA", POP, 1, "schedule", NOW, reply=text(SCHEDULED, at=NOW).encode()),
        *push(text(JOB, at=NOW))]),
    ("SCHED-20", "violation", [
        say("EVALSHA", POP, 1, "retry", NOW, reply=text(FAILED).encode()),
        say("RPUSH", "queue:default", text(FAILED, enqueued_at=1795192067200), reply=1)]),
    ("FETCH-1", "violation", [say("BLPOP", "queue:default", 2, reply=None)]),
    ("FETCH-1", "violation", [say("LMOVE", "queue:default", "mine", "LEFT", "RIGHT", reply=None)]),
    ("FETCH-6", "violation", [fetch(), say("LPUSH", "queue:default", text(JOB), reply=1)]),
    ("FETCH-6", "violation",
        [fetch(), say("RPUSH", "queue:default", text(JOB, x=1), reply=1)]),
    ("FETCH-6", "violation", [fetch(), say("RPUSH", "queue:low", text(JOB), reply=1)]),
    ("EXEC-3", "violation", [fetch("{odd"), say("PING", after=40)]),
    ("RETRY-1", "violation", [
        fetch(text(JOB, retry=False)),
        say("ZADD", "retry", NOW + 20, text(FAILED, retry=False), reply=1)]),
    ("RETRY-2", "violation", [
        fetch(), say("ZADD", "retry", NOW + 20, text(FAILED, retry_count=1), reply=1)]),
    ("RETRY-19", "violation", [
        fetch(text(JOB, retry_count=True)),
        say("ZADD", "retry", NOW + 20, text(FAILED, retry_count=2), reply=1)]),
    ("RETRY-19", "violation", [
        fetch(text(JOB, retry_count=1.5, failed_at=1795192000000)),
        say("ZADD", "retry", NOW + 20, text(FAILED, failed_at=1795192000000), reply=1)]),
    ("RETRY-17", "violation", [
        fetch(text(FAILED, failed_at=1795192000000)),
        say("ZADD", "retry", NOW + 20,
            text(FAILED, retry_count=1, retried_at=1795192067251), reply=1)]),
    ("RETRY-17", "violation", [
        fetch(text(FAILED, retry_for=60, failed_at=1795192000000)),
        say("ZADD", "retry", NOW + 20,
            text(FAILED, retry_count=1, retry_for=60, retried_at=1795192067251), reply=1)]),
    ("RETRY-19", "violation", [
        fetch(text(FAILED, failed_at="yesterday")),
        say("ZADD", "retry", NOW + 20,
            text(FAILED, retry_count=1, failed_at=1795000000000, retried_at=1795192067251),
            reply=1)]),
    ("RETRY-14", "violation", [
        fetch(text(FAILED, retry_for=60, failed_at="yesterday")),
        say("ZADD", "retry", NOW + 20,
            text(FAILED, retry_count=1, retry_for=60, failed_at=1795000000000,
                 retried_at=1795192067251), reply=1)]),
    ("RETRY-3", "violation", [
        fetch(), say("ZADD", "retry", NOW + 20, text(FAILED, error_class=DROP), reply=1)]),
    ("RETRY-3", "violation", [
        fetch(), say("ZADD", "retry", NOW + 20, text(FAILED, error_message="m" * 10_001))]),
    ("RETRY-4", "note", [fetch(), say("ZADD", "retry", NOW + 500, text(FAILED), reply=1)]),
    ("RETRY-5", "violation", [
        fetch(text(FAILED, retry=1)),
        say("ZADD", "retry", NOW + 20,
            text(FAILED, retry=1, retry_count=1, retried_at=1795192067251), reply=1)]),
    ("RETRY-7", "violation", [
        fetch(text(JOB, retry_queue="low")),
        say("ZADD", "retry", NOW + 20, text(FAILED, retry_queue="low"), reply=1)]),
    ("RETRY-32", "violation", [
        fetch(text(JOB, retry_queue="")),
        say("ZADD", "retry", NOW + 20, text(FAILED, retry_queue="", queue=""), reply=1)]),
    ("RETRY-8", "violation", [
        fetch(text(JOB, backtrace=True)),
        say("ZADD", "retry", NOW + 20,
            text(FAILED, backtrace=True, error_backtrace=["a", "b"]), reply=1)]),
    ("RETRY-22", "violation", [
        fetch(text(JOB, backtrace=1)),
        say("ZADD", "retry", NOW + 20,
            text(FAILED, backtrace=1, error_backtrace=BACKTRACE), reply=1)]),
    ("DEAD-1", "violation", [fetch(text(JOB, retry=0)),
        *dead(text(FAILED, retry=0), score=NOW + 9e5)]),
    ("DEAD-2", "violation", [fetch(text(JOB, retry=0)),
        say("ZADD", "dead", NOW, text(FAILED, retry=0), reply=1)]),
    ("DEAD-2", "violation", dead(text(FAILED, retry=0), bound="+inf")),
    ("DEAD-3", "violation", dead(text(FAILED, retry=0), rank="-10001")),
    ("DEAD-4", "violation", [fetch(text(JOB, dead=False, retry=0)),
        *dead(text(FAILED, dead=False, retry=0))]),
    ("BEAT-1", "violation", [say("SADD", "processes", ME), say("HSET", ME, *hash_of())]),
    ("BEAT-1", "violation", heartbeat(expire="6000")),
    ("BEAT-2", "violation", [*heartbeat(), *work(), *heartbeat(after=45)]),
    ("BEAT-3", "violation", heartbeat(quiet="0")),
    ("BEAT-13", "violation", heartbeat(concurrency=DROP)),
    ("BEAT-13", "violation", heartbeat(info={**INFO, "weights": DROP})),
    ("BEAT-4", "violation", heartbeat(info={**INFO, "labels": DROP})),
    ("BEAT-14", "violation", [*heartbeat(), *wiped(), *heartbeat(after=5)]),
    ("BEAT-5", "violation", work(expire="0")),
    ("BEAT-17", "violation", work({"queue": "default", "payload": {}, "run_at": 1795192067})),
    ("EXEC-5", "violation", [fetch(), *work(
        {"queue": "default", "payload": text(JOB, args=[]), "run_at": 1795192067})]),
    ("BEAT-17", "violation", [fetch(), *work(
        {"queue": "default", "payload": text(JOB) + " ", "run_at": 1795192067})]),
    ("BEAT-6", "violation", multi(say("SADD", "processes", "web-1"))),
    ("BEAT-20", "violation", [*heartbeat(), say("SREM", "processes", ME, reply=1), WAIT]),
    ("BEAT-21", "violation", [say("SET", "process_cleanup", "1")]),
    ("STAT-2", "violation", [say("INCRBY", "stat:processed", 1, reply=1), WAIT]),
    ("STAT-2", "violation", counted(date="2026-11-19")),
    ("STAT-4", "violation", [*counted(seconds="3600"), WAIT]),
    ("SIG-4", "violation",
        [*heartbeat(signals=False), *work(), *heartbeat(signals=False, after=5)]),
    ("INSP-13", "violation", [say("LPUSH", f"{ME}-signals", "KILL", reply=1)]),
    ("INSP-1", "violation", [say("KEYS", "queue:*", reply=[])]),
    ("INSP-1", "violation", [say("SCAN", "0", "MATCH", "queue:*", reply=[b"0", []])]),
    ("INSP-15", "violation", [say("ZREMRANGEBYSCORE", "retry", NOW, NOW, reply=1)]),
    ("INSP-8", "violation", [say("ZINCRBY", "schedule", 5, text(SCHEDULED), reply=b"5")]),
    ("INSP-9", "violation", [say("DEL", "queue:default", reply=1)]),
    ("LUA-1", "note", [
        say("EVAL", "return cjson.decode(redis.call('RPOP', KEYS[1]))", 1, "queue:default")]),
    ("LUA-2", "note", [say("EVALSHA", SHA, 0, "queue:default", reply=1)]),
    ("LUA-3", "note", [say("EVALSHA", SHA, 0, reply=Refusal("NOSCRIPT No matching script")), WAIT]),
    ("ITER-1", "violation", [say("HSET", f"it-{JID}", "ex", "0"),
        say("EXPIRE", f"it-{JID}", 2592000)]),
    ("ITER-2", "violation", [say("HSET", f"it-{JID}", "ex", 1, "c", "1", "rt", "0"), WAIT]),
    ("ITER-7", "violation", [say("HSETNX", f"it-{JID}", "cancelled", "1795192067000")]),
    ("ITER-9", "warning", [say("HSETNX", f"it-{JID}", "cancelled", "1795192067")]),
    ("MET-1", "violation", [say("HINCRBY", "j|20261120|08:04", "HardJob|x", 1),
        say("EXPIRE", "j|20261120|08:04", 28800)]),
    ("MET-2", "violation", [say("BITFIELD", "h|HardJob-20-8:4", "INCRBY", "u8", "#5", 1),
        say("EXPIRE", "h|HardJob-20-8:4", 28800)]),
    ("MET-3", "violation", [say("HINCRBY", "j|261120|8:04", "HardJob|p", 1), WAIT]),
    ("ENV-3", "violation", [
        say("BRPOP", "queue:default", 2, reply=None, on=n, answered=False, seconds=1.0)
        for n in (1, 2)]),
    ("ENV-3", "note", [say("BRPOP", "queue:default", 0, reply=None)]),
]  # fmt: skip


@over(("rule", "grade", "lines"), WRONG, ids=[f"{rule}-{n}" for n, (rule, *_) in enumerate(WRONG)])
def test_what_is_planted_is_found(rule: str, grade: str, lines: list[Line]) -> None:
    judge = judged(lines)
    assert found(judge).get(rule) == grade, found(judge)
    assert judge.ledger.tallies[rule].seen, "a finding without a look"
    finding = judge.ledger.tallies[rule].findings[0]
    assert finding.expected
    assert finding.seen
    assert 1 <= len(finding.record.wire()) <= 6


# BEAT-7, KEY-4 and KEY-5 have their own tests; the others only count commands, and no single one is
# wrong.
@over("rule", sorted({*VISIBLE} - {"BEAT-7", "KEY-4", "KEY-5", "RETRY-9", "STAT-1"}))
def test_every_check_has_a_planted_fault(rule: str) -> None:
    assert rule in {planted for planted, *_ in WRONG}


def test_a_hand_over_is_not_taken_for_a_job_that_is_put_back() -> None:
    """X-CLASS-4: it goes to the head, after another process was found to know the class."""
    known = say("SISMEMBER", "jobwire:classes:other", "A", reply=1)
    judge = judged([known, fetch(), say("LPUSH", "queue:default", text(JOB), reply=1)])
    assert "FETCH-6" not in found(judge)
