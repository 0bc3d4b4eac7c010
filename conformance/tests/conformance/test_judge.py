"""The judge of `jobwire conform watch`: claims, namespaces, versions and ends of processes."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobwire_conformance.data import requirements
from jobwire_conformance.judge import VISIBLE
from jobwire_conformance.wire.resp import Refusal
from tests.conformance.suite import ROOT
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


def test_keys_are_judged_where_nothing_else_has_any() -> None:
    """[KEY-5] [KEY-6]: an application may have other keys in the same database."""
    lines = [say("SET", "cache:1", "x"), say("SADD", "batches", "x", reply=1)]
    lines += [say("SADD", "jobwire:own", "x", reply=1), say("DEL", "queue:a", "unique:b", reply=2)]
    judge = judged(lines, alone=True)
    broken = {rule: tally.broken for rule, tally in judge.ledger.tallies.items() if tally.broken}
    assert (broken["KEY-5"], broken["KEY-6"]) == (1, 2)
    assert judge.ledger.tallies["KEY-5"].seen == 3
    assert "KEY-5" not in found(judged(lines))


def test_a_namespace_is_before_every_key() -> None:
    """KEY-4: two instances would share a key that is outside the namespace."""
    inside = multi(
        say("SADD", "app:queues", "default"), say("LPUSH", "app:queue:default", text(JOB))
    )
    assert found(judged(inside, namespace="app:")) == {}
    assert judged(inside, namespace="app:").ledger.tallies["PUSH-1"].seen == 1
    assert found(judged(push(), namespace="app:")) == {"KEY-4": "violation"}


def test_who_ended_in_good_order_sends_nothing_more() -> None:
    """KEY-1: the judge stops waiting for it; a killed process could have sent more."""
    unregistered = [say("LPUSH", "queue:default", text(JOB), reply=1)]
    ended = judged(unregistered, cleanly=True, later=0.1)
    assert found(ended) == {"KEY-1": "violation", "PUSH-2": "note"}
    assert found(judged(unregistered, later=0.1)) == {"PUSH-2": "note"}


def test_a_process_that_stays_registered_is_noted() -> None:
    """BEAT-7: the traffic does not show how the process ended, so it is a note."""
    assert found(judged(heartbeat(), cleanly=True)) == {"BEAT-7": "note"}
    assert found(judged(heartbeat())) == {}


def test_claims_turn_notes_into_violations() -> None:
    """PUSH-2 is required of clients that claim client/faults; others get a note."""
    apart = [say("SADD", "queues", "default"), say("LPUSH", "queue:default", text(JOB))]
    assert found(judged(apart)) == {"PUSH-2": "note"}
    assert found(judged(apart, claims=["client/faults"])) == {"PUSH-2": "violation"}


def test_genuine_sidekiq_is_excused_where_the_specification_says_so() -> None:
    """It does not meet robust requirements."""
    zincrby = say("ZINCRBY", "retry", 5, text(FAILED), reply=b"5")
    info = {**INFO, "version": "8.1.7", "concurrency": DROP}
    judge = judged([*heartbeat(info=info), zincrby])
    assert (found(judge), judge.ledger.sidekiq) == ({"INSP-8": "deviation"}, {8})
    assert found(judged([*heartbeat(), zincrby])) == {"INSP-8": "violation"}
    named = say("CLIENT", "SETINFO", "LIB-NAME", "redis-client(sidekiq_v8.1.7)")
    assert found(judged([named, zincrby])) == {"INSP-8": "deviation"}


def test_a_release_is_excused_for_what_that_release_does() -> None:
    """These metrics keys belong to generation 8.1: Sidekiq 7 has other names."""
    wrong = say("HINCRBY", "j|250220|8:04", "HardJob|x", 1, reply=1)
    expire = say("EXPIRE", "j|250220|8:04", 28800, reply=1)
    for version, grade in (("7.3.2", "deviation"), ("8.1.7", "violation")):
        lines = [*heartbeat(info={**INFO, "version": version}), wrong, expire]
        assert found(judged(lines)) == {"MET-1": grade}


def test_a_payload_without_times_is_of_no_generation() -> None:
    """[GEN-1] [PUSH-3] [PUSH-11]: a missing time is not also a change of generation."""
    seconds = push(text(JOB, created_at=1795192067.5, enqueued_at=1795192067.5))
    timeless = push(text(JOB, created_at=DROP, enqueued_at=DROP))
    for lines in ([*seconds, *timeless], [*timeless, *seconds], [*seconds, *timeless, *seconds]):
        verdict = found(judged(lines))
        assert verdict == {"PUSH-3": "violation", "PUSH-11": "violation"}, verdict
    # Without created_at, the other time still tells the generation.
    of_seconds = push(text(JOB, created_at=DROP, enqueued_at=1795192067.5))
    assert "GEN-1" not in found(judged([*of_seconds, *seconds]))
    assert found(judged([*of_seconds, *push()])).get("GEN-1") == "violation"


def test_a_push_that_its_fetch_overtakes_is_a_first_push_all_the_same() -> None:
    """PAY-9: answers of two connections come in any order; the push was sent first."""
    late = say("LPUSH", "queue:default", text(JOB), reply=1, seconds=1.0)
    judge = judged([say("SADD", "queues", "default", reply=1), fetch(), late])
    assert judge.ledger.tallies["PAY-9"].seen == 1


def test_a_jid_of_the_caller_is_lawful_where_one_can_be_given() -> None:
    """[PAY-9] [PUSH-19]: a bad generator is found in a case whose requests give no jid."""
    own = push(text(JOB, jid="order-7"))
    later = [say("ZADD", "schedule", NOW + 60, text(SCHEDULED, jid="order-8"), reply=1)]
    for lines in (own, later):
        assert found(judged(lines)) == {"PAY-9": "note"}
        assert found(judged(lines, generated=True)) == {"PAY-9": "violation"}
    assert found(judged(push(), generated=True)) == {}


def test_every_finding_names_a_requirement_of_the_specification() -> None:
    assert {*VISIBLE} <= {*requirements()}


# -- The judge of `jobwire conform watch` finds nothing in correct traffic

RIGHT: dict[str, list[Line]] = {
    "push": push(),
    "push of generation 7": push(text(JOB, created_at=1795192067.5, enqueued_at=1795192067.0)),
    "push with a given time": push(text(JOB, created_at=1700000000123)),
    "push with a given time in seconds": push(text(JOB, created_at=1700000000)),
    "push with a given time of 0": push(text(JOB, created_at=0)),
    "registered long before": [say("SADD", "queues", "default", reply=1), WAIT, *push()[1:]],
    "registered right behind": [*push()[0:1], *push()[2:], say("SADD", "queues", "default")],
    "bulk": [
        *push()[:2],
        say("LPUSH", "queue:default", text(JOB), text(JOB, jid=OTHER), reply=b"QUEUED"),
        say("EXEC", reply=[1, 2]),
    ],
    "schedule": [say("ZADD", "schedule", NOW + 60, text(SCHEDULED), reply=1)],
    "put back": [fetch(), say("RPUSH", "queue:default", text(JOB), reply=1)],
    "odd bytes put back": [fetch("{odd"), say("RPUSH", "queue:default", "{odd", reply=1)],
    "odd bytes killed": [fetch("{odd"), *dead("{odd"), WAIT],
    "odd foreign payload carried": [
        fetch('{ "class":"A", "jid":"j-1", "args":[1.50] , "retry":true, "x":"\\/" }'),
        say(
            *("ZADD", "retry", NOW + 20),
            '{ "class":"A", "jid":"j-1", "args":[1.50] , "retry":true, "x":"\\/" '
            ',"queue":"default","error_message":"m","error_class":"E","failed_at":1795192067250,'
            '"retry_count":0}',
            reply=1,
        ),
    ],
    "retry": [fetch(), say("ZADD", "retry", NOW + 20, text(FAILED), reply=1)],
    "second retry": [
        fetch(text(FAILED)),
        say(
            *("ZADD", "retry", NOW + 20),
            text(FAILED, retry_count=1, retried_at=1795192067251),
            reply=1,
        ),
    ],
    "a stale time is carried": [
        fetch(text(JOB, retry_count="3", failed_at=1700000000.5, retried_at=1700000000.5)),
        say("ZADD", "retry", NOW + 20, text(FAILED, retried_at=1700000000.5), reply=1),
    ],
    "retry elsewhere": [
        fetch(text(JOB, retry_queue="low")),
        say("ZADD", "retry", NOW + 20, text(FAILED, retry_queue="low", queue="low"), reply=1),
    ],
    "dead": [fetch(text(JOB, retry=0)), *dead(text(FAILED, retry=0))],
    "killed by an inspector": [
        say("ZRANGE", "retry", 0, -1, reply=[text(FAILED).encode()]),
        *dead(text(FAILED)),
    ],
    "promotion by a script that is ours": [
        say("ZRANGE", "schedule", 0, -1, reply=[text(SCHEDULED).encode()]),
        say("EVALSHA", "?promote", 3, "schedule", "queues", "queue:default", text(SCHEDULED), 1,
            "default", AGAIN, reply=[1, 0]),
    ],
    "beats": [*heartbeat(), *work(), *heartbeat(after=10), *work(), *heartbeat(after=10)],
    "a clean end": [
        *heartbeat(),
        *multi(say("SREM", "processes", ME, reply=1), say("UNLINK", f"{ME}:work", reply=0)),
    ],
    "counters": counted(),
    "pruning": [say("SET", "process_cleanup", "1", "NX", "EX", "60")],
    "signal": multi(
        say("LPUSH", f"{ME}-signals", "TSTP", reply=1), say("EXPIRE", f"{ME}-signals", 60, reply=1)
    ),
    "script loaded when it was gone": [
        say("EVALSHA", SHA, 1, "x", reply=Refusal("NOSCRIPT No matching script")),
        say("SCRIPT", "LOAD", "return 1", reply=SHA.encode()),
        say("EVALSHA", SHA, 1, "x", reply=1),
        WAIT,
    ],
    "rescheduled when it was gone": [
        say("ZADD", "retry", "XX", "CH", 1796068385.5, '{"class":"A","args":[],"jid":"a"}', reply=0)
    ],
    "script called again because the error was lost": [
        say("EVALSHA", SHA, 1, "x", reply=Refusal("NOSCRIPT No"), received=False),
        say("EVALSHA", SHA, 1, "x", reply=Refusal("NOSCRIPT No")),
        say("SCRIPT", "LOAD", "return 1", reply=SHA.encode()),
        say("EVALSHA", SHA, 1, "x", reply=1),
        WAIT,
    ],
    "state": multi(
        say("HSET", f"it-{JID}", "ex", 1, "c", "42", "rt", "5.25", reply=3),
        say("EXPIRE", f"it-{JID}", 2592000, "NX", reply=1),
    ),
    "cancel": multi(
        say("HSETNX", f"it-{JID}", "c", "null", reply=1),
        say("HSETNX", f"it-{JID}", "cancelled", "1795192067", reply=1),
        say("EXPIRE", f"it-{JID}", 2592000, "NX", reply=1),
    ),
    "metrics": [
        say("HINCRBY", "j|261120|8:04", "HardJob|p", 1, reply=1),
        say("EXPIRE", "j|261120|8:04", 28800, reply=1),
        say("HINCRBY", "j|261120|8:0", "HardJob|ms", 1, reply=1),
        say("EXPIRE", "j|261120|8:0", 259200, reply=1),
        say("BITFIELD", "h|HardJob-20-8:4", "OVERFLOW", "SAT", "INCRBY", "u16", "#5", 1, reply=[1]),
        say("EXPIRE", "h|HardJob-20-8:4", 28800, reply=1),
    ],
    "clearing": multi(
        say("UNLINK", "queue:default", reply=1), say("SREM", "queues", "default", reply=1)
    ),
    "an aborted transaction": [
        say("MULTI"),
        say("LPUSH", "queue:default", "rubbish", reply=b"QUEUED"),
        say("EXEC", reply=None),
    ],
    "a refused command": [say("LPUSH", "queue:default", "rubbish", reply=Refusal("OOM no"))],
    "other keys": [say("LPUSH", "app:list", "rubbish"), say("ZADD", "scores", "1e15", "x")],
    "a read overtakes its push": [fetch(), say("LPUSH", "queue:default", text(JOB), seconds=1.0),
        say("SADD", "queues", "default")],
}  # fmt: skip


def known(lines: list[Line]) -> Iterator[Line]:
    """Insert the SHA-1 of our own scripts."""
    for words, *rest in lines:
        changed = [
            hashlib.sha1((ROOT / f"lua/{word[1:]}.lua").read_bytes()).hexdigest()
            if isinstance(word, str) and word.startswith("?")
            else word
            for word in words
        ]
        yield (changed, *rest)


@over("lines", RIGHT.values(), ids=RIGHT)
def test_what_is_right_is_left_alone(lines: list[Line]) -> None:
    judge = judged(known(lines))
    notes = {"PUSH-2", "RETRY-4"}
    wrong = {rule: grade for rule, grade in found(judge).items() if rule not in notes}
    assert wrong == {}, [
        finding for tally in judge.ledger.tallies.values() for finding in tally.findings
    ]


@pytest.mark.parametrize("version", ["6.4.1", "7.3.2", "8.1.7"])
@pytest.mark.parametrize("name", ["push", "push-bulk", "failing-job", "heartbeat"])
def test_transcripts_of_real_sidekiq_are_right(version: str, name: str) -> None:
    """The commands are recorded from Sidekiq; the answers are made up."""
    judge = judged(_transcript(ROOT / f"fixtures/sidekiq/{version}/transcripts/{name}.txt"))
    assert set(found(judge).values()) <= {"note"}
    assert judge.commands > 5


def _transcript(path: Path) -> Iterator[Line]:
    last, started = NOW, False
    queued = 0
    connections: dict[str, int] = {}
    for row in path.read_text("utf-8").splitlines():
        match = re.match(r"(\d+\.\d+) \[0 (\w+)\] (.*)", row)
        if match is None or match[2] == "lua":
            continue
        words = [
            ast.literal_eval(word).encode() for word in re.findall(r'"(?:[^"\\]|\\.)*"', match[3])
        ]
        # The judge uses the times of the transcript.
        at, on = float(match[1]), connections.setdefault(match[2], len(connections) + 1)
        after = at - (last if started else NOW)
        last, started = at, True
        reply: Any = b"OK"
        match words[0].upper():
            case b"MULTI":
                queued = 0
            case b"EXEC":
                reply = [1] * queued
            case b"BRPOP" | b"EVALSHA":
                reply = None
            case _:
                queued += 1
        yield tuple(words), reply, after, on, {}


# -- The judge of `jobwire conform watch` finds each wrong command that is planted

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
    ("BULK-15", "violation", [
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
