"""Commands with their answers, as a correct program sends them, and the judge that hears them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from jobwire_conformance.judge import Grade, Judge, Record

NOW = 1795192067.25
JID = "9f2c1b7a4d3e5f60718293a4"
OTHER = "0123456789abcdef01234567"
ME = "web-1:4711:0123456789ab"
JOB: dict[str, Any] = {
    "retry": True,
    "queue": "default",
    "args": [1, "x"],
    "class": "HardJob",
    "jid": JID,
    "created_at": 1795192067123,
    "enqueued_at": 1795192067124,
}
SCHEDULED = {name: value for name, value in JOB.items() if name != "enqueued_at"}
FAILURE = {
    "error_message": "boom",
    "error_class": "RuntimeError",
    "failed_at": 1795192067250,
    "retry_count": 0,
}
FAILED = {**JOB, **FAILURE}
INFO: dict[str, Any] = {
    "hostname": "web-1",
    "started_at": 1795192000.25,
    "pid": 4711,
    "tag": "",
    "concurrency": 5,
    "queues": ["default"],
    "weights": [{"default": 0}],
    "labels": [],
    "identity": ME,
    "version": "example 1.0",
    "embedded": False,
    "capsules": {"default": {"concurrency": 5, "mode": "strict", "weights": {"default": 0}}},
}
DROP = object()

Line = tuple[Any, ...]


def text(base: dict[str, Any], **changes: Any) -> str:
    """Return a payload with fields changed, added, or dropped."""
    merged = {name: value for name, value in {**base, **changes}.items() if value is not DROP}
    return json.dumps(merged, separators=(",", ":"), ensure_ascii=False)


def say(*words: Any, reply: Any = b"OK", after: float = 0.0, on: int = 1, **more: Any) -> Line:
    """Return a command, its answer, and the seconds since the one before it."""
    return words, reply, after, on, more


def multi(*lines: Line) -> list[Line]:
    """Return a transaction."""
    queued = [(words, b"QUEUED", after, on, more) for words, _, after, on, more in lines]
    replies = [reply for _, reply, _, _, _ in lines]
    return [say("MULTI"), *queued, say("EXEC", reply=replies)]


def push(payload: str = "", queue: str = "default", command: str = "LPUSH") -> list[Line]:
    one = say(command, f"queue:{queue}", payload or text(JOB), reply=1)
    return multi(say("SADD", "queues", queue, reply=1), one)


def fetch(payload: str = "", queue: str = "default") -> Line:
    reply = [f"queue:{queue}".encode(), (payload or text(JOB)).encode()]
    return say("BRPOP", f"queue:{queue}", "2", reply=reply)


def dead(payload: str, score: float = NOW, rank: str = "-10000", bound: str = "") -> list[Line]:
    return multi(
        say("ZADD", "dead", str(score), payload, reply=1),
        say("ZREMRANGEBYSCORE", "dead", "-inf", bound or str(NOW - 15_552_000), reply=0),
        say("ZREMRANGEBYRANK", "dead", "0", rank, reply=0),
    )


def hash_of(info: dict[str, Any] | None = None, **changes: Any) -> list[str]:
    fields = {
        "info": json.dumps({k: v for k, v in (info or INFO).items() if v is not DROP}),
        **{"concurrency": "5", "busy": "0", "beat": str(NOW), "rtt_us": "180"},
        **{"quiet": "false", "rss": "34420"},
        **changes,
    }
    return [part for pair in fields.items() if pair[1] is not DROP for part in pair]


def wiped(*more: str) -> list[Line]:
    return multi(say("UNLINK", f"{ME}:work", *more, reply=0))


def heartbeat(
    *, info: Any = None, expire: str = "60", signals: bool = True, after: float = 0, **changes: Any
) -> list[Line]:
    lines = [
        say("SADD", "processes", ME, reply=1, after=after),
        say("HSET", ME, *hash_of(info, **changes), reply=7),
        say("EXPIRE", ME, expire, reply=1),
    ]
    return multi(*lines, *([say("RPOP", f"{ME}-signals", reply=None)] if signals else []))


def work(record: dict[str, Any] | None = None, expire: str = "60") -> list[Line]:
    value = record or {"queue": "default", "payload": text(JOB), "run_at": 1795192067}
    lines: list[Line] = [say("UNLINK", f"{ME}:work", f"{ME}:workers", reply=0)]
    for name in (f"{ME}:work", f"{ME}:workers"):
        lines += [
            say("HSET", name, "t1", json.dumps(value), reply=1),
            say("EXPIRE", name, expire, reply=1),
        ]
    return multi(*lines)


def counted(date: str = "2026-11-20", seconds: str = "157680000") -> list[Line]:
    key = f"stat:processed:{date}"
    return [
        say("INCRBY", "stat:processed", "1", reply=1),
        say("INCRBY", key, "1", reply=1),
        say("EXPIRE", key, seconds, reply=1),
    ]


def judged(
    lines: Iterable[Line],
    *,
    namespace: str = "",
    claims: Iterable[str] = (),
    cleanly: bool = False,
    later: float = 60.0,
    alone: bool = False,
    generated: bool = False,
) -> Judge:
    judge = Judge(claims, namespace, alone=alone, generated=generated)
    at = NOW
    for number, (words, reply, after, on, more) in enumerate(lines, 1):
        at += after
        raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        judge.feed(Record(number, on, raw, at, reply, **more))
    judge.end(at + later, cleanly=cleanly)
    return judge


def found(judge: Judge) -> dict[str, str]:
    """Return the ids of all findings, with the worst grade of each."""
    order: tuple[Grade, ...] = ("violation", "warning", "deviation", "note")
    return {
        rule: next(grade for grade in order if judge.ledger.counts(rule)[grade])
        for rule, tally in judge.ledger.tallies.items()
        if tally.broken or tally.doubtful
    }


SHA = "0" * 40
AGAIN = text(JOB, enqueued_at=1795192067200)
WAIT = say("PING", after=20)
