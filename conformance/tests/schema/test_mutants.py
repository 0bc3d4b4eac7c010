"""Payloads with one forbidden field: the schema rejects each and names the requirement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rows import over
from tests.schema.sample_objects import IDENTITY, INFO, METRICS
from tests.schemas import ABSENT, blames, mutant, problems, schema

TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
ERRORS = ("error_message", "error_class")
PUSHED: dict[str, Any] = {
    "retry": True,
    "queue": "default",
    "args": [1, {"a": [None]}],
    "class": "HardJob",
    "jid": "9f2c1b7a4d3e5f60718293a4",
    "created_at": 1786960000123,
    "enqueued_at": 1786960000124,
    "jw_anything": {"x": 1},
}
FAILED: dict[str, Any] = {
    **PUSHED,
    "backtrace": True,
    "error_message": "boom",
    "error_class": "RuntimeError",
    "failed_at": 1786960001000,
    "retry_count": 1,
    "error_backtrace": "eJyLjgUAARUAuQ==",
    "retried_at": 1786960020000,
}


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param({"class": "HardJob"}, id="least"),
        pytest.param({"class": "HardJob", "args": None, "jid": 7, "retry": "5"}, id="odd"),
        pytest.param({**PUSHED, "failed_at": 1786960001.25}, id="mixed generations"),
        pytest.param({**PUSHED, "created_at": 1786960000}, id="integer seconds"),
        pytest.param({**PUSHED, "at": 1786960000.5}, id="leftover at"),
        pytest.param({**PUSHED, "retry_count": None}, id="null count"),
    ],
)
def test_reader_takes_what_writers_may_not_write(payload: dict[str, Any]) -> None:
    assert problems("payload", "reader", payload) == []
    assert problems("payload", "writer-8.1", payload) != []


@pytest.mark.parametrize(
    ("payload", "requirement"),
    [
        ([1, 2], ""),
        ({"args": []}, "EXEC-2"),
        ({"class": "HardJob", "args": {"a": 1}}, "EXEC-7"),
        ({"class": 7}, "EXEC-2"),
    ],
)
def test_reader_rejects_what_cannot_run(payload: object, requirement: str) -> None:
    assert any(requirement in blame for blame in blames("payload", "reader", payload))


@over(
    ("field", "value", "requirement"),
    [
        *((field, "2026-11-20", "GEN-3") for field in TIMES),
        *((field, [1], "RETRY-3") for field in ERRORS),
        ("retry_count", "3", "RETRY-2"),
        ("error_backtrace", 7, "RETRY-8"),
        ("retry_for", "60", "RETRY-6"),
    ],
)
def test_odd_bookkeeping_is_unusual_and_readable(
    field: str, value: object, requirement: str
) -> None:
    """INSP-3: no such value makes a job unreadable."""
    payload = {"class": "HardJob", field: value}
    assert problems("payload", "reader", payload) == []
    assert any(f"[{requirement}]" in blame for blame in blames("payload", "usual", payload))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("process-info", {"hostname": 7, "started_at": "today", "queues": None, "capsules": []}),
        ("process-info", {}),
        ("work-record", {"queue": 5, "payload": [1], "run_at": "1786960000"}),
        ("work-record", {}),
        ("identity-hash", {"info": "{", "beat": "now", "quiet": ""}),
        ("iteration-state", {"ex": "no", "c": "", "rt": "-1", "cancelled": "true"}),
        ("private-hash", {"default": "{}", "1:": "{}", "1:a\nb": "{}"}),
    ],
)
def test_reader_takes_odd_objects_of_others(name: str, value: dict[str, Any]) -> None:
    """INSP-3 and REL-13: a reader fails on none of them."""
    assert problems(name, "reader", value) == []


@pytest.mark.parametrize("field", ["0:", "x:default", "-1:default", ""])
def test_a_writer_writes_fields_of_one_form(field: str) -> None:
    """REL-13."""
    assert problems("private-hash", "writer", {"1:\n": "{}", "17:queue:a": "{}"}) == []
    assert any("[REL-13]" in blame for blame in blames("private-hash", "writer", {field: "{}"}))


STATE = {"ex": "1", "c": "null", "rt": "0.5", "cancelled": "1795191608"}


def test_a_cancel_has_its_time() -> None:
    """ITER-7."""
    assert any(
        "[ITER-7]" in blame
        for blame in blames("iteration-state", "cancelled", mutant(STATE, "cancelled", ABSENT))
    )


@over(
    ("part", "key"),
    [
        ("minute-key", "j|20261120|16:19"),
        ("minute-key", "j|261120|08:19"),
        ("minute-key", "j|261120|8:4"),
        ("minute-key", "j|261320|8:04"),
        ("ten-minute-key", "j|261120|16:6"),
        ("ten-minute-key", "j|261120|16:10"),
        ("histogram-key", "h|EchoJob-02-16:19"),
        ("histogram-key", "h|EchoJob-2-16:04"),
        ("histogram-key", "EchoJob-20-16:19"),
    ],
)
def test_another_key_is_rejected(part: str, key: str) -> None:
    """MET-1 to MET-3: the names of Sidekiq 7.3 must not be accepted."""
    assert problems("metrics-bucket", part, key) != []


@over(
    ("part", "field", "value", "requirement"),
    [
        *(
            ("pushed", field, FAILED[field], "PAY-14")
            for field in ("retry_count", "failed_at", "retried_at")
        ),
        *(
            ("pushed", field, FAILED[field], "PAY-14")
            for field in ("error_message", "error_class", "error_backtrace")
        ),
        *(("pushed", "jw_keep", value, "X-RESULT-1") for value in ("soon", 0, 1_000_000_001)),
        ("pushed", "jw_expires_at", "soon", "X-TIME-1"),
        ("pushed", "enqueued_at", ABSENT, "PUSH-3"),
        ("pushed", "jid", "", "PAY-9"),
        ("scheduled", "jid", ABSENT, "PAY-9"),
        ("scheduled", "enqueued_at", PUSHED["enqueued_at"], "SCHED-13"),
        ("scheduled", "at", 1786960000.5, "SCHED-12"),
        ("scheduled", "retry_count", 0, "PAY-14"),
        ("retry", "retry", False, "RETRY-1"),
        ("retry", "retry", None, "RETRY-1"),
        ("retry", "retry_count", -1, "RETRY-2"),
        ("retry", "retried_at", ABSENT, "RETRY-17"),
        ("retry", "error_message", ABSENT, "RETRY-3"),
        ("queue", "jid", ABSENT, "PAY-9"),
        ("queue", "created_at", ABSENT, "PUSH-11"),
        ("queue", "enqueued_at", ABSENT, "PUSH-3"),
        ("schedule", "jid", ABSENT, "PAY-9"),
        ("schedule", "created_at", ABSENT, "PUSH-11"),
        ("queue", "retry_count", 3, "RETRY-17"),
        ("dead", "retry_count", 3, "RETRY-17"),
    ],
)
def test_mutant_of_a_stored_payload_is_rejected(
    part: str, field: str, value: object, requirement: str
) -> None:
    scheduled = {k: v for k, v in PUSHED.items() if k != "enqueued_at"}
    originals = {"pushed": PUSHED, "scheduled": scheduled, "schedule": scheduled, "queue": PUSHED}
    original = originals.get(part, FAILED)
    if part == "dead" or (part == "queue" and field == "retry_count"):  # failed once
        original = {name: value for name, value in FAILED.items() if name != "retried_at"}
        original["retry_count"] = 0
    assert problems("payload", f"{part}-8.1", original) == []
    rejected_by = blames("payload", f"{part}-8.1", mutant(original, field, value))
    assert any(f"[{requirement}]" in blame for blame in rejected_by), rejected_by


@pytest.mark.parametrize("jid", ["9F2C1B7A4D3E5F60718293A4", "9f2c1b7a4d3e5f60718293a", "order-7"])
def test_only_a_new_jid_has_one_form(jid: str) -> None:
    """PAY-9 and PUSH-19: a caller may give another text, and a value does not show its source."""
    pushed = {**PUSHED, "jid": jid}
    assert problems("payload", "pushed-8.1", pushed) == []
    assert any("[PAY-9]" in blame for blame in blames("payload", "new-jid", pushed))


def test_a_job_that_never_failed_is_no_retry() -> None:
    """RETRY-2 and RETRY-3."""
    assert problems("payload", "writer-8.1", PUSHED) == []
    named = " ".join(blames("payload", "retry-8.1", PUSHED))
    assert "[RETRY-2]" in named
    assert "[RETRY-3]" in named


CRON = schema("cron-entry")["examples"][0]
RECORD = {"queue": "default", "payload": json.dumps(PUSHED), "run_at": 1786960000}


def places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside."""
    if path:
        yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in items:
            yield from places(inner, (*path, name))


@pytest.mark.parametrize(
    ("name", "part", "original"),
    [
        ("process-info", "written", INFO),
        ("process-info", "usual", INFO),
        ("identity-hash", "written", IDENTITY),
        ("identity-hash", "reader", IDENTITY),
        ("iteration-state", "usual", STATE),
        ("metrics-bucket", "written", METRICS),
        ("metrics-bucket", "reader", METRICS),
        ("work-record", "written", RECORD),
        ("cron-entry", None, CRON),
    ],
)
def test_every_value_has_its_type(name: str, part: str | None, original: dict[str, Any]) -> None:
    """A value of another type is rejected at any depth, and so is a negative number."""
    assert problems(name, part, original) == []
    assert problems(name, part, [original]) != []
    for path in places(original):
        for wrong in ([None], {"a": None}, -1, -1.5, True, None, "\0"):
            changed = json.loads(json.dumps(original))
            target = changed
            for step in path[:-1]:
                target = target[step]
            now = target[path[-1]]
            if isinstance(wrong, str) and isinstance(now, str):
                continue  # any text has the right type; the tables above list wrong ones
            if isinstance(wrong, bool) and isinstance(now, bool):
                continue
            target[path[-1]] = wrong
            assert problems(name, part, changed) != [], (path, wrong)
