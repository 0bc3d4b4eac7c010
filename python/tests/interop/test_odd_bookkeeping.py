"""Odd values of the fields that keep books, in failing jobs of real Sidekiq."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop

LOST = "lost"
AGO = 1_700_000_000.5
ODD_COUNTS: dict[str, Any] = {
    '"3"': LOST,
    "true": LOST,
    "[]": LOST,
    "{}": LOST,
    "2.5": 3.5,
    "3.0": 4.0,
    "-1": 0,
    "-5": -4,
    "false": 0,
    "null": 0,
}
# Of a backtrace with more than three lines: the number of lines that is stored, -1 for all but one.
ODD_BACKTRACES: dict[str, Any] = {
    '"3"': 3,
    '"yes"': 0,
    "1.5": 1,
    "0": 0,
    "-1": -1,
    "2": 2,
    "[]": LOST,
    "{}": LOST,
}


def payload(jid: str, **raw: str) -> str:
    """Return the payload of a failing job, with the exact text of some fields."""
    known = {"class": '"FailJob"', "args": '["boom"]', "queue": '"default"', "retry": "5"}
    fields = {**known, "jid": json.dumps(jid), "created_at": "1700000000.25", **raw}
    return "{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}"


def failed(
    sidekiq: RealSidekiq, client: redis.Redis, payloads: list[str]
) -> dict[str, dict[str, Any]]:
    """Return what a worker stored of these jobs, by jid; a job that it lost is not there."""
    client.lpush("queue:default", *payloads)

    def processed() -> bool:
        return client.get("stat:processed") == str(len(payloads)).encode()

    with sidekiq.worker(poll=None, concurrency=1) as worker:
        wait_until(processed, 60, "the failures, which a heartbeat counts")
        worker.stop()
    stored = {}
    for name in ("retry", "dead"):
        for text in cast("list[bytes]", client.zrange(name, 0, -1)):
            item = json.loads(text)
            stored[item["jid"]] = {**item, "place": name}
    return stored


def test_odd_counts(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-2, RETRY-17, RETRY-19: texts, true, arrays and objects lose the job; numbers count."""
    texts = [payload(raw, retry_count=raw, failed_at=str(AGO)) for raw in ODD_COUNTS]
    stored = failed(sidekiq, client, texts)
    seen = {raw: stored[raw]["retry_count"] if raw in stored else LOST for raw in ODD_COUNTS}
    assert seen == ODD_COUNTS
    for raw in ("false", "null"):  # a first failure
        assert stored[raw]["failed_at"] != AGO
        assert "retried_at" not in stored[raw]
    assert stored["-1"]["failed_at"] == AGO
    assert "retried_at" in stored["-1"]


def test_odd_backtraces(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-22, RETRY-19: the first N lines, all but the last for -1, all for true."""
    stored = failed(
        sidekiq,
        client,
        [payload(raw, backtrace=raw) for raw in (*ODD_BACKTRACES, "true", "false", "null")],
    )

    def lines(jid: str) -> int:
        text = base64.b64decode(stored[jid]["error_backtrace"].replace("\n", ""))
        return len(json.loads(zlib.decompress(text)))

    whole = lines("true")
    assert whole > 3
    seen = {raw: lines(raw) if raw in stored else LOST for raw in ODD_BACKTRACES}
    assert seen == {**ODD_BACKTRACES, "-1": whole - 1}
    assert "error_backtrace" not in {*stored["false"], *stored["null"]}


def test_odd_time_limits(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-6, RETRY-21, RETRY-14, RETRY-19: 6 ignores `retry_for`, 7 and 8 lose on odd types."""
    limits = ['"3600"', '""', "true", "[]", "{}"]
    texts = [payload(f"limit {raw}", retry_for=raw) for raw in limits]
    texts += [payload(f"plain {raw}", retry_for=raw) for raw in ("0", "-5", "3600.5")]
    times = ['"yesterday"', "null", "true"]
    later = {"retry_for": "3600", "retry_count": "1"}
    texts += [payload(f"time {raw}", failed_at=raw, **later) for raw in times]
    texts.append(payload("time missing", **later))
    stored = failed(sidekiq, client, texts)
    seen = {jid: item["place"] for jid, item in stored.items()}
    if sidekiq.generation == 6:
        assert seen == {json.loads(text)["jid"]: "retry" for text in texts}
        assert stored["time missing"].get("failed_at") is None  # nothing needs it
        return
    assert seen == {"plain 0": "dead", "plain -5": "dead", "plain 3600.5": "retry"}
