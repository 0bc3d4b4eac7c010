"""The judge of `jobwire conform watch` finds nothing in correct traffic."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobwire_conformance.wire.resp import Refusal
from tests.conformance.suite import ROOT
from tests.conformance.traffic import (
    AGAIN,
    FAILED,
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
    heartbeat,
    judged,
    multi,
    push,
    say,
    text,
    work,
)
from tests.rows import over

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
