"""Every object that genuine Sidekiq wrote keeps the rules; hand-made faults break theirs."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from jobwire_conformance.judge import payloads
from jobwire_conformance.judge.objects import OBJECTS
from jobwire_conformance.judge.payloads import View
from jobwire_conformance.spec import verdicts
from jobwire_conformance.spec.fixture_files import place_of
from tests.rows import over
from tests.schemas import ABSENT, GENERATIONS, ROOT, blames, load, mutant, problems, schema

INFO: dict[str, Any] = {
    "hostname": "app-1",
    "started_at": 1786959000.25,
    "pid": 4711,
    "tag": "shop",
    "concurrency": 5,
    "capsules": {"default": {"concurrency": 5, "mode": "weighted", "weights": {"a": 2, "b": 1}}},
    "queues": ["a", "b"],
    "weights": [{"a": 2, "b": 1}],
    "labels": [],
    "identity": "app-1:4711:0a1b2c3d4e5f",
    "version": "example 1.0",
    "embedded": False,
}
IDENTITY: dict[str, Any] = {
    "info": json.dumps(INFO),
    "concurrency": "5",
    "busy": "0",
    "beat": "1786959010.5",
    "rtt_us": "120",
    "quiet": "false",
    "rss": "43872",
}
METRICS = {"EchoJob|p": "3", "EchoJob|f": "1", "EchoJob|ms": "20"}

RELEASES = pytest.mark.parametrize("release", GENERATIONS)


class Recorded(NamedTuple):
    """One object of a recorded run."""

    name: str
    schema: str
    text: bytes


def entries(release: str, file: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = load(ROOT / "fixtures/sidekiq" / release / f"{file}.json")
    return loaded


def text_of(entry: dict[str, Any]) -> bytes:
    if "payload" in entry:
        return str(entry["payload"]).encode()
    return base64.b64decode(entry["payload_base64"])


def objects_of(release: str) -> Iterator[Recorded]:
    """Yield every recorded object that is not a payload."""
    for entry in entries(release, "processes"):
        for kind in ("identities", "work"):
            for key, value in entry[kind].items():
                yield from in_hash(f"{entry['name']} {key}", key, value["fields"])
        for key, names in entry["signals"].items():
            yield Recorded(f"{entry['name']} {key}", "signals", json.dumps(names).encode())
    for entry in entries(release, "states"):
        for part in ("before", "redis"):
            for key in entry.get(part, []):
                name = f"{entry['name']}/{part} {key['key']}"
                if key["type"] == "hash":
                    yield from in_hash(name, key["key"], key["value"])
                elif key["key"].endswith("-signals"):
                    yield Recorded(name, "signals", json.dumps(key["value"]).encode())


def in_hash(name: str, key: str, fields: dict[str, Any]) -> Iterator[Recorded]:
    """Yield the objects of a hash; the name of its key tells their kind."""
    if key.endswith((":work", ":workers")):
        for thread, record in fields.items():
            if isinstance(record, str):  # a payload that is not UTF-8 is stored as base64
                yield Recorded(f"{name} {thread}", "work", record.encode())
        return
    kinds = {r"it-.+": "iteration", r"j\|.+": "metrics", r"\d{8}-marks": "marks"}
    kind = next((kinds[form] for form in kinds if re.fullmatch(form, key)), None)
    if kind is None and "info" in fields:
        kind = "identity"
        yield Recorded(f"{name} info", "process-info", fields["info"].encode())
    if kind is not None:
        yield Recorded(name, kind, json.dumps(fields).encode())


def broken(judged: list[verdicts.Verdict]) -> list[str]:
    return [f"{v.rule} {v.path} {v.problem}" for v in judged if v.broken]


# Scenarios with payloads that the recording program wrote, in part or as a whole, and the areas of
# the rules that these break. Sidekiq stored them as they were.
HAND_MADE = {
    "api-timestamp-forms": "GEN",  # pushed with LPUSH, in every form of a time
    "push-client-api": "GEN",  # `created_at` in seconds, given to a client of 8.1.7
    "api-scheduled-schedule": "PUSH",  # an item without `queue`, given to the API
    "api-dead-kill": "PUSH",  # a text without `queue`, given to the API
    "monitor-api": "PUSH RETRY",  # added with ZADD, and given to the API
}


@RELEASES
def test_every_recorded_payload_is_read(release: str) -> None:
    """PAY-1, EXEC-1, KEY-3, SCHED-9: in its place; a text that no worker runs is only in dead."""
    generation = GENERATIONS[release]
    for entry in entries(release, "payloads"):
        view = View("reader", place_of(entry), generation)
        found = broken(verdicts.judge(text_of(entry), view))
        is_refused = entry["expect"]["outcome"] != "run" and view.place != "dead"
        assert bool(found) == is_refused, (entry["name"], found)


@RELEASES
def test_every_payload_that_sidekiq_wrote_keeps_the_rules_of_its_generation(release: str) -> None:
    """PAY-2, PAY-6, PAY-8, PAY-9, GEN-1, GEN-2, PUSH-3, SCHED-1, RETRY-2, RETRY-3, RETRY-8."""
    generation = GENERATIONS[release]
    hand_made = set()
    for entry in entries(release, "payloads"):
        view = View("writer", place_of(entry), generation)
        found = broken(verdicts.judge(text_of(entry), view, "interop"))
        areas = HAND_MADE.get(entry["scenario"], "").split()
        if any(problem.startswith(tuple(areas)) for problem in found):
            hand_made.add(entry["scenario"])
        else:
            assert found == [], entry["name"]
    assert hand_made == {*HAND_MADE} - ({"push-client-api"} if release != "8.1.7" else set())


@RELEASES
def test_every_recorded_object_keeps_the_rules_of_its_generation(release: str) -> None:
    """BEAT-3, BEAT-4, BEAT-17, BEAT-9 to BEAT-12, ITER-1, MET-1, MET-5, SIG-4."""
    generation = GENERATIONS[release]
    seen = set()
    for name, kind, text in objects_of(release):
        seen.add(kind)
        for view in (View("reader"), View("writer", None, generation)):
            found = broken(verdicts.judge_object(text, kind, view, "interop"))
            assert found == [], name
    expected = {"process-info", "identity", "work", "signals"}
    if release != "6.4.1":
        expected |= {"iteration", "metrics", "marks"}
    assert seen == expected


PAYLOAD = '{"class":"HardJob","args":[]}'
VALID: dict[str, Any] = {
    "process-info": INFO,
    "identity": IDENTITY,
    "work": {"queue": "default", "payload": PAYLOAD, "run_at": 1786960000},
    "iteration": {"ex": "1", "c": "null", "rt": "0.5"},
    "metrics": METRICS,
    "marks": {"2025-02-14T08:04:00Z": "4f2d1c0"},
    "signals": ["TERM", "TSTP"],
    "private": {"17:default": PAYLOAD},
    "cron": {
        **{"name": "nightly", "namespace": "default", "klass": "NightlyJob", "cron": "0 3 * * *"},
        **{"args": "[]", "message": "{}", "status": "enabled", "last_enqueue_time": ""},
    },
}
GONE = object()
# Object, field, value, rule, path. A list and a whole object have no field.
FAULTS: list[tuple[str, str, Any, str, str]] = [
    ("process-info", "hostname", GONE, "BEAT-4", "$"),
    ("process-info", "started_at", 1786959000250, "BEAT-4", "$.started_at"),
    ("process-info", "started_at", "1786959000.25", "BEAT-4", "$.started_at"),
    ("process-info", "queues", "default", "BEAT-4", "$.queues"),
    ("process-info", "queues", ["a", "a"], "BEAT-4", "$.queues"),
    ("process-info", "identity", "app-1:4711", "BEAT-6", "$.identity"),
    ("process-info", "weights", GONE, "BEAT-11", "$"),
    ("process-info", "weights", {"default": 0}, "BEAT-11", "$.weights"),
    ("process-info", "version", GONE, "BEAT-11", "$"),
    ("process-info", "embedded", "false", "BEAT-11", "$.embedded"),
    ("process-info", "capsules", GONE, "BEAT-12", "$"),
    ("process-info", "capsules", {"default": {}}, "BEAT-4", "$.capsules.default"),
    ("process-info", "concurrency", GONE, "BEAT-13", "$"),
    ("identity", "info", GONE, "BEAT-3", "$"),
    ("identity", "info", "{", "BEAT-4", "$.info"),
    ("identity", "info", json.dumps({**INFO, "labels": None}), "BEAT-4", "$.info.labels"),
    ("identity", "concurrency", GONE, "BEAT-9", "$"),
    ("identity", "busy", "-1", "BEAT-3", "$.busy"),
    ("identity", "busy", 0, "BEAT-3", "$.busy"),
    ("identity", "beat", "1786959010500", "BEAT-3", "$.beat"),
    ("identity", "beat", "now", "BEAT-3", "$.beat"),
    ("identity", "quiet", "1", "BEAT-3", "$.quiet"),
    ("identity", "rss", "43872 kB", "BEAT-3", "$.rss"),
    ("work", "queue", "", "BEAT-17", "$.queue"),
    ("work", "queue", GONE, "BEAT-17", "$"),
    ("work", "payload", json.loads(PAYLOAD), "BEAT-17", "$.payload"),
    ("work", "payload", "[", "BEAT-17", "$.payload"),
    ("work", "payload", "[]", "BEAT-17", "$.payload"),
    ("work", "run_at", 1786960000.5, "BEAT-17", "$.run_at"),
    ("work", "run_at", 1786960000123, "BEAT-17", "$.run_at"),
    ("iteration", "ex", "0", "ITER-1", "$.ex"),
    ("iteration", "ex", 1, "ITER-1", "$.ex"),
    ("iteration", "c", GONE, "ITER-1", "$"),
    ("iteration", "c", "{", "ITER-1", "$.c"),
    ("iteration", "rt", "-1", "ITER-1", "$.rt"),
    ("iteration", "cancelled", "1795191608123", "ITER-1", "$.cancelled"),
    ("iteration", "cancelled", "true", "ITER-1", "$.cancelled"),
    ("metrics", "EchoJob|p", "1.5", "MET-7", "$['EchoJob|p']"),
    ("metrics", "EchoJob|f", "-1", "MET-8", "$['EchoJob|f']"),
    ("metrics", "Echo|Job|p", "1", "MET-1", "$['Echo|Job|p']"),
    ("metrics", "EchoJob", "1", "MET-1", "$.EchoJob"),
    ("marks", "2025-02-14T08:04:30Z", "x", "MET-5", "$"),
    ("marks", "2025-02-14T08:04:00Z", 1, "MET-5", "$['2025-02-14T08:04:00Z']"),
    ("signals", "", ["TERM", "KILL"], "INSP-13", "$[1]"),
    ("signals", "", {"0": "TERM"}, "INSP-13", "$"),
    ("private", "default", PAYLOAD, "REL-13", "$"),
    ("private", "17:default", {}, "REL-1", "$['17:default']"),
    ("cron", "klass", "", "X-CRON-33", "$.klass"),
    ("cron", "args", [], "X-CRON-30", "$.args"),
    ("cron", "last_enqueue_time", "1770717900", "X-CRON-7", "$.last_enqueue_time"),
    ("cron", "jw_catch_up", "all:0", "X-CRON-24", "$.jw_catch_up"),
    *((kind, "", GONE, known.rule, "$") for kind, known in OBJECTS.items()),
]


@over("kind", OBJECTS)
def test_the_original_of_the_faults_is_valid(kind: str) -> None:
    text = json.dumps(VALID[kind]).encode()
    for view in (View("reader"), View("writer")):
        assert broken(verdicts.judge_object(text, kind, view)) == []


@over(("kind", "field", "value", "rule", "path"), FAULTS)
def test_a_fault_is_found_with_its_rule(
    kind: str, field: str, value: Any, rule: str, path: str
) -> None:
    changed = value if not field else {**VALID[kind], field: value}
    if field and value is GONE:
        del changed[field]
    text = b"{" if changed is GONE else json.dumps(changed).encode()
    judged = verdicts.judge_object(text, kind, View("writer"))
    assert (rule, path) in {(v.rule, v.path) for v in judged if v.broken}, broken(judged)
    assert all(v.seen and v.expected for v in judged if v.broken)


SPELLINGS: list[dict[str, Any]] = load(ROOT / "fixtures/vectors/spellings.json")


@over("vector", SPELLINGS, ids=[vector["name"] for vector in SPELLINGS])
def test_judge_knows_the_lawful_spellings(vector: dict[str, Any]) -> None:
    """[PAY-2] [PAY-6] [PAY-20] [PAY-21] [PAY-22] [PAY-26] [PAY-33]"""
    for text in vector["written"]:
        assert [*payloads.spelling(text.encode())] == []
        assert json.loads(text) == json.loads(vector["json"])
    found = {breach.rule for breach in payloads.spelling(vector["json"].encode())}
    if vector["json"] in vector["written"]:
        assert found == set()
    elif "PAY-25" not in vector["covers"]:
        assert found & {*vector["covers"], "PAY-6", "PAY-33"}


SCHEMA = Path(__file__).resolve().parents[3] / "schema"

PAYLOADS = (
    *("reader", "reader-queue", "reader-schedule", "reader-retry", "reader-dead"),
    *(
        f"{part}-{generation}"
        for part in ("writer", "queue", "schedule", "retry", "dead", "pushed", "scheduled")
        for generation in ("6.4", "7.3", "8.1")
    ),
)
OF_WRITERS = ("writer-6.4", "writer-7.3", "writer-8.1")
ROLES = ("reader", "writer")
LISTED = [
    *(("payload", part) for part in PAYLOADS),
    *(("process-info", part) for part in ("reader", "usual", "written", *OF_WRITERS)),
    *(("identity-hash", part) for part in ("reader", "written", "sidekiq", *OF_WRITERS)),
    *(("work-record", part) for part in ("reader", "usual", "written")),
    *(("iteration-state", part) for part in ("reader", "usual", "written", "cancelled", "stored")),
    *(
        (name, part)
        for name in ("deploy-marks", "private-hash", "result", "signals")
        for part in ROLES
    ),
    ("cron-entry", "reader"),
    ("cron-entry", "writer"),
    *(("driver", part) for part in ("request", "response")),
    ("case", None),
    ("results", None),
]


@cache
def checked(name: str) -> dict[str, Any]:
    """Return a schema that is sound."""
    schema: dict[str, Any] = json.loads((SCHEMA / f"{name}.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return schema


@pytest.mark.process
@over(("name", "part"), LISTED)
def test_there_is_a_schema_of_it(name: str, part: str | None) -> None:
    schema = checked(name)
    if part is not None:
        assert part in schema["$defs"]
        schema = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{part}"}
    assert not Draft202012Validator(schema).is_valid("no object")


# -- Payloads with one forbidden field: the schema rejects each and names the requirement

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
