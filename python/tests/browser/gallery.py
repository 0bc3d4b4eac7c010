"""A database like that of a shop at noon, for the pictures of the documentation."""

from __future__ import annotations

import hashlib
import json
import random
from datetime import UTC, datetime
from typing import Any

import redis

from jobwire.protocol import metrics
from jobwire.protocol.keys import Keys
from jobwire.protocol.retry import encode_backtrace

__all__ = ["FINISHED", "RETRIES", "fill"]

RETRIES = 40_000
FINISHED = "5e1f0c88a7d24b3396c0f1aa"  # a job that is over, and keeps its result
DAY_S, MINUTE_S = 86_400, 60
# Class, executions of a minute, share that fails, milliseconds of most executions.
CLASSES = [
    ("Billing::ChargeJob", 310, 0.031, 220),
    ("SendReceipt", 290, 0.004, 90),
    ("SyncInventoryJob", 120, 0.0, 640),
    ("ResizeImage", 85, 0.001, 1_450),
    ("Search::ReindexJob", 40, 0.012, 3_100),
    ("NightlyReport", 2, 0.0, 24_000),
]
ERRORS = [
    (
        "Billing::ChargeJob",
        "Net::ReadTimeout",
        "Net::ReadTimeout with #<TCPSocket:(closed)> after {n} s for order {order}",
        ["app/clients/bank.rb:48:in `charge'", "app/jobs/billing/charge_job.rb:12:in `perform'"],
    ),
    (
        "Billing::ChargeJob",
        "Bank::Refused",
        "card of order {order} refused: limit reached",
        ["app/clients/bank.rb:61:in `charge'", "app/jobs/billing/charge_job.rb:12:in `perform'"],
    ),
    (
        "SendReceipt",
        "smtplib.SMTPServerDisconnected",
        "Connection unexpectedly closed (message {order})",
        ["shop/mail.py:31:in send", "shop/jobs.py:18:in send_receipt"],
    ),
    (
        "Search::ReindexJob",
        "Elastic::Transport::ServerError",
        "[503] shard products-{n} is not available",
        ["app/search/index.rb:77:in `bulk'", "app/jobs/search/reindex_job.rb:9:in `perform'"],
    ),
]
QUEUES = {"billing": (1_840, 42.0), "mail": (96, 1.2), "images": (311, 7.5), "search": (58, 3.1)}
PROCESSES = [
    ("web-1:4021:9f0c2d7a1b3e", "shop", ["billing", "mail"], 10, "8.1.7"),
    ("web-2:3977:41d6e0bb82aa", "shop", ["billing", "mail", "search"], 10, "8.1.7"),
    ("py-1:812:c05d19e4f770", "receipts", ["mail", "images"], 20, "jobwire"),
]


def fill(client: redis.Redis, now: float) -> None:
    """Fill a database, the same at each call but for the times."""
    dice = random.Random(16)
    keys = Keys()
    pipeline = client.pipeline(transaction=False)
    _counters(pipeline, keys, dice, now)
    for number, (name, (size, latency)) in enumerate(QUEUES.items()):
        pipeline.sadd("queues", name)
        for index in range(size):
            at = now - latency * (1 - index / size)
            pipeline.lpush(f"queue:{name}", _job(dice, CLASSES[number][0], name, at))
    for _ in range(RETRIES):
        payload, at = _failed(dice, now)
        pipeline.zadd("retry", {payload: at})
    for _ in range(212):
        payload, at = _failed(dice, now, dead=True)
        pipeline.zadd("dead", {payload: at})
    for _ in range(640):
        at = now + dice.uniform(60, DAY_S)
        pipeline.zadd("schedule", {_job(dice, "SyncInventoryJob", "search", now - 900): at})
    _finished(pipeline, keys, dice, now)
    for identity, tag, queues, concurrency, version in PROCESSES:
        _process(pipeline, dice, now, identity, tag, queues, concurrency, version)
    pipeline.execute()


def _finished(pipeline: Any, keys: Keys, dice: random.Random, now: float) -> None:
    """Add a job that is over: its payload is gone, its result and its progress are there."""
    value = {"rows": 18_204, "file": "reports/2026-11.csv", "totals": {"net": "81,204.50"}}
    result = {"outcome": "done", "at": now - 95, "value": value}
    pipeline.set(keys.result(FINISHED), json.dumps(result), ex=3_600)
    _progress(pipeline, keys, FINISHED, 18_204, 18_204, "totals", now - 96)


def _progress(
    pipeline: Any, keys: Keys, jid: str, done: int, total: int, note: str, at: float
) -> None:
    report = {"done": done, "total": total, "note": note, "at": at}
    pipeline.set(keys.progress(jid), json.dumps(report), ex=DAY_S)


def _counters(pipeline: Any, keys: Keys, dice: random.Random, now: float) -> None:
    total = failed = 0
    for back in range(90):
        day = f"{datetime.fromtimestamp(now - back * DAY_S, UTC):%Y-%m-%d}"
        processed = dice.randrange(900_000, 1_400_000)
        bad = round(processed * dice.uniform(0.006, 0.02))
        pipeline.set(f"stat:processed:{day}", processed).set(f"stat:failed:{day}", bad)
        total, failed = total + processed, failed + bad
    pipeline.set("stat:processed", total).set("stat:failed", failed)
    for back in range(60):
        at = now - back * MINUTE_S
        for name, count, share, ms in CLASSES:
            ran = round(count * dice.uniform(0.7, 1.3))
            bad = sum(dice.random() < share * (4 if 18 < back < 25 else 1) for _ in range(ran))
            counters = {"p": ran, "f": bad, "ms": (ran - bad) * ms}
            for key in (metrics.minute_key(keys, at), metrics.tens_key(keys, at)):
                for counter, value in counters.items():
                    pipeline.hincrby(key, f"{name}|{counter}", value)
            for step in (metrics.MINUTE_S, metrics.TEN_MINUTES_S):
                waits = metrics.waits_key(keys, at, step)
                for _ in range(min(ran, 40)):
                    power = 5 + int(abs(dice.gauss(0, 2))) + (3 if 18 < back < 25 else 0)
                    pipeline.execute_command("BITFIELD", waits, "INCRBY", "u32", f"#{power}", 1)
            histogram = metrics.histogram_key(keys, name, at)
            for _ in range(min(ran, 40)):
                took = ms * dice.lognormvariate(0, 0.5)
                span = sum(bound < took for bound in metrics.BOUNDS)
                pipeline.execute_command("BITFIELD", histogram, "INCRBY", "u16", f"#{span}", 1)
    marked = now - 26 * MINUTE_S
    stamp = f"{datetime.fromtimestamp(marked, UTC):%Y-%m-%dT%H:%M:00Z}"
    pipeline.hset(metrics.marks_key(keys, marked), stamp, "v214 new bank client")


def _jid(dice: random.Random) -> str:
    return f"{dice.getrandbits(96):024x}"


def _fields(dice: random.Random, class_name: str, queue: str, at: float) -> dict[str, Any]:
    order = dice.randrange(400_000, 500_000)
    return {
        "class": class_name,
        "args": [order, {"customer": f"c-{order % 9973}", "total": dice.randrange(900, 90_000)}],
        "queue": queue,
        "jid": _jid(dice),
        "retry": True,
        "created_at": round(at * 1000),
        "enqueued_at": round(at * 1000),
    }


def _job(dice: random.Random, class_name: str, queue: str, at: float) -> bytes:
    return json.dumps(_fields(dice, class_name, queue, at), separators=(",", ":")).encode()


def _failed(dice: random.Random, now: float, *, dead: bool = False) -> tuple[bytes, float]:
    (class_name, error, message, trace) = dice.choices(ERRORS, [30, 6, 3, 1])[0]
    queue = {"B": "billing", "S": "mail"}[class_name[0]]
    first = now - dice.uniform(600, 20 * DAY_S if dead else 7_200)
    fields = _fields(dice, class_name, queue, first)
    fields |= {
        "error_class": error,
        "error_message": message.format(order=fields["args"][0], n=dice.randrange(3, 30)),
        "failed_at": round(first * 1000),
        "retry_count": 24 if dead else dice.randrange(4),
    }
    fields["error_backtrace"] = encode_backtrace(trace)
    payload = json.dumps(fields, separators=(",", ":")).encode()
    return payload, first + 500 if dead else now + dice.uniform(5, 7_200)


def _process(
    pipeline: Any,
    dice: random.Random,
    now: float,
    identity: str,
    tag: str,
    queues: list[str],
    concurrency: int,
    version: str,
) -> None:
    hostname, pid, _ = identity.split(":")
    info = {
        "hostname": hostname,
        "pid": int(pid),
        "identity": identity,
        "tag": tag,
        "queues": queues,
        "labels": [],
        "concurrency": concurrency,
        "started_at": now - dice.uniform(3_600, 40_000),
        "version": version,
        "embedded": False,
    }
    busy = concurrency - dice.randrange(4)
    pipeline.sadd("processes", identity)
    beat = {"info": json.dumps(info), "busy": busy, "beat": now - 2, "quiet": "false"}
    pipeline.hset(identity, mapping={**beat, "rss": dice.randrange(180_000, 420_000)})
    pipeline.expire(identity, 60)
    for number in range(busy):
        queue = dice.choice(queues)
        names = {"billing": 0, "mail": 1, "images": 3, "search": 4}
        class_name = CLASSES[names[queue]][0]
        started = now - dice.uniform(0.1, 30)
        fields = _fields(dice, class_name, queue, started - 3)
        work = {
            "queue": queue,
            "run_at": int(started),
            "payload": json.dumps(fields, separators=(",", ":")),
        }
        if version == "jobwire":
            done = 8 + 12 * number % 90
            _progress(pipeline, Keys(), fields["jid"], done, 120, f"part {done}", now - 2)
        thread = hashlib.sha256(f"{identity}{number}".encode()).hexdigest()[:5]
        pipeline.hset(f"{identity}:work", thread, json.dumps(work))
    pipeline.expire(f"{identity}:work", 60)
