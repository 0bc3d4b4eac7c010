"""The JSON Schemas fit what real Sidekiq wrote, and reject what the specification forbids."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

ROOT = Path(__file__).resolve().parents[3]
DATA = ("requirements", "traceability")  # made from the specification
SCHEMAS = [p for p in sorted((ROOT / "schema").glob("*.json")) if p.stem not in DATA]
# The others describe files of this project; these are versioned with the specification.
ON_THE_WIRE = [ROOT / "schema" / f"{n}.json" for n in ("payload", "process-info", "work-record")]
GENERATIONS = {"6.4.1": 7, "7.3.2": 7, "8.1.7": 8}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
ABSENT = object()


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def validator(name: str, part: str = "reader") -> Draft202012Validator:
    schema = load(ROOT / "schema" / f"{name}.json")
    assert part in schema["$defs"]
    return Draft202012Validator({**schema, "$ref": f"#/$defs/{part}"})


def problems(name: str, part: str, value: object) -> list[str]:
    return [f"{e.json_path}: {e.message}" for e in validator(name, part).iter_errors(value)]


def property_schemas(schema: object, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema of a property, with its place."""
    if isinstance(schema, dict):
        for name, inner in schema.get("properties", {}).items():
            yield f"{path}/properties/{name}", inner
        for name, inner in schema.items():
            yield from property_schemas(inner, f"{path}/{name}")
    elif isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from property_schemas(inner, f"{path}/{index}")


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda p: p.stem)
def test_schema_is_valid_itself(path: Path) -> None:
    schema = load(path)
    assert schema["$schema"] == DIALECT
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", ON_THE_WIRE, ids=lambda p: p.stem)
class TestWireSchema:
    def test_id_names_file_and_specification(self, path: Path) -> None:
        schema = load(path)
        version = re.search(
            r"^Version \*\*(\S+)\*\*", (ROOT / "SPEC.md").read_text("utf-8"), re.MULTILINE
        )
        assert version is not None
        assert schema["$id"] == f"urn:jobwire:schema:{version[1]}:{path.stem}"

    def test_every_field_is_described_and_names_a_requirement(self, path: Path) -> None:
        fields = list(property_schemas(load(path)))
        assert fields
        assert [place for place, field in fields if not field.get("description")] == []
        assert [
            place
            for place, field in fields
            if not re.match(r"\[[A-Z]+-\d+\]", field.get("$comment", ""))
        ] == []


# What Sidekiq stored as somebody else handed it over: no statement about what Sidekiq writes.
PLANTED = {
    "api-timestamp-forms": "pushed by hand, to see how readers take other units",
    "push-client-api/queue:default/2": "the caller gave created_at",
}
UNCHECKED = {
    ("6.4.1", "push-invalid/queue:default/2"): "retry_for had no upper limit yet [PUSH-4]",
}


def by_sidekiq(entry: Mapping[str, Any], version: str) -> bool:
    """Return whether Sidekiq itself made this entry."""
    payload = json.loads(entry["payload"])
    hand_made = re.fullmatch(r"(\w)\1{23}", payload["jid"])  # as the capturing program writes them
    return (
        hand_made is None
        and entry["scenario"] not in PLANTED
        and entry["name"] not in PLANTED
        and (version, entry["name"]) not in UNCHECKED
    )


def captured(version: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = load(ROOT / "fixtures" / "sidekiq" / version / "payloads.json")
    return [entry for entry in entries if entry["expect"]["outcome"] == "run"]


STORED = re.compile(r"queue:.*|schedule|retry|dead")


@pytest.mark.parametrize("version", GENERATIONS)
class TestRealPayloads:
    def test_fit_their_generation(self, version: str) -> None:
        checked = 0
        for entry in captured(version):
            if STORED.fullmatch(entry["place"]) and by_sidekiq(entry, version):
                payload = json.loads(entry["payload"])
                part = f"generation-{GENERATIONS[version]}"
                assert problems("payload", part, payload) == [], entry["name"]
                checked += 1
        assert checked > 250, "the fixtures have shrunk, or are filtered out"

    def test_do_not_fit_the_other_generation(self, version: str) -> None:
        other = f"generation-{15 - GENERATIONS[version]}"
        fitting = [
            entry["name"]
            for entry in captured(version)
            if by_sidekiq(entry, version)
            and problems("payload", other, json.loads(entry["payload"])) == []
        ]
        assert fitting == []

    def test_fit_a_reader(self, version: str) -> None:
        for entry in captured(version):
            assert problems("payload", "reader", json.loads(entry["payload"])) == [], entry["name"]

    def test_what_is_excepted_would_not_fit(self, version: str) -> None:
        """An exception that is no longer needed has to go."""
        part = f"generation-{GENERATIONS[version]}"
        bad = {
            entry["name"]
            for entry in captured(version)
            if problems("payload", part, json.loads(entry["payload"]))
        }
        assert any(name.startswith("api-timestamp-forms/") for name in bad)
        assert {name for v, name in UNCHECKED if v == version} <= bad
        if version == "8.1.7":
            assert "push-client-api/queue:default/2" in bad


@pytest.mark.parametrize("version", GENERATIONS)
class TestRealProcesses:
    def test_info(self, version: str) -> None:
        infos = [
            identity["fields"]["info"]
            for scenario in load(ROOT / "fixtures" / "sidekiq" / version / "processes.json")
            for identity in scenario["identities"].values()
        ]
        assert infos
        for info in infos:
            assert problems("process-info", "reader", json.loads(info)) == []

    def test_work_records(self, version: str) -> None:
        records = [
            record
            for scenario in load(ROOT / "fixtures" / "sidekiq" / version / "processes.json")
            for work in scenario["work"].values()
            for record in work["fields"].values()
        ]
        assert records
        for record in records:
            assert problems("work-record", "written", json.loads(record)) == []


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


def in_seconds(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same payload as a writer of generation 7 has it."""
    times = ("created_at", "enqueued_at", "failed_at", "retried_at")
    return {k: v / 1000 if k in times else v for k, v in payload.items()}


VALID = {7: in_seconds(FAILED), 8: FAILED}

MUTANTS: list[tuple[int, str, object, str]] = [
    *(
        (generation, field, value, requirement)
        for generation in (7, 8)
        for field, value, requirement in [
            ("class", ABSENT, "PAY-12"),
            ("class", "", "PAY-12"),
            ("class", None, "PAY-12"),
            ("args", ABSENT, "PAY-12"),
            ("args", {"a": 1}, "PAY-12"),
            ("args", "[1]", "PAY-12"),
            ("jid", ABSENT, "PAY-9"),
            ("jid", "9F2C1B7A4D3E5F60718293A4", "PAY-9"),
            ("jid", "9f2c1b7a4d3e5f60718293a", "PAY-9"),
            ("jid", 12, "PAY-9"),
            ("queue", ABSENT, "PUSH-6"),
            ("queue", "", "PUSH-4"),
            ("queue", None, "PUSH-4"),
            ("retry", ABSENT, "PUSH-6"),
            ("retry", "5", "PUSH-4"),
            ("retry", -1, "PUSH-4"),
            ("retry", 1.5, "PUSH-4"),
            ("retry_for", 1_000_000_001, "PUSH-4"),
            ("retry_for", -1, "PUSH-4"),
            ("backtrace", "all", "PUSH-4"),
            ("tags", "billing", "PUSH-4"),
            ("tags", [1], "PUSH-4"),
            ("at", 1786960000.5, "SCHED-1"),
            ("created_at", ABSENT, "PUSH-3"),
            ("failed_at", ABSENT, "RETRY-2"),
            ("retry_count", ABSENT, "RETRY-2"),
            ("retry_count", None, "RETRY-2"),
            ("retry_count", -2, "RETRY-2"),
            ("error_class", ABSENT, "RETRY-3"),
            ("error_message", ABSENT, "RETRY-3"),
            ("error_message", "é" * 10_001, "RETRY-3"),
            ("retry_queue", "", "RETRY-7"),
            ("error_backtrace", ["app.py:1"], "RETRY-8"),
            ("error_backtrace", "app.py:1", "RETRY-8"),
            ("dead", "false", "DEAD-4"),
        ]
    ),
    *(
        (7, field, value, "GEN-1")
        for field in ("created_at", "enqueued_at", "failed_at", "retried_at")
        for value in (1786960000123, "2026-08-17 09:46:40 UTC", None, -1.5)
    ),
    *(
        (8, field, value, "GEN-2")
        for field in ("created_at", "enqueued_at", "failed_at", "retried_at")
        for value in (1786960000, 1786960000.5, 1786960000123.5, "1786960000123", None)
    ),
    (8, "error_backtrace", "eJyLjgUA\nARUAuQ==", "RETRY-8"),
]


def mutant(payload: Mapping[str, Any], field: str, value: object) -> dict[str, Any]:
    changed = {**payload, field: value}
    if value is ABSENT:
        del changed[field]
    return changed


def blamed(error: ValidationError) -> str:
    """Return the annotation of the schema that rejected."""
    assert isinstance(error.schema, Mapping)
    return str(error.schema.get("$comment", ""))


@pytest.mark.parametrize("generation", VALID)
def test_the_original_of_the_mutants_is_valid(generation: int) -> None:
    assert problems("payload", f"generation-{generation}", VALID[generation]) == []


@pytest.mark.parametrize(("generation", "field", "value", "requirement"), MUTANTS)
def test_mutant_is_rejected_in_the_name_of(
    generation: int, field: str, value: object, requirement: str
) -> None:
    changed = mutant(VALID[generation], field, value)
    errors = list(validator("payload", f"generation-{generation}").iter_errors(changed))
    assert errors, "accepted"
    assert any(f"[{requirement}]" in blamed(error) for error in errors), list(map(blamed, errors))


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
    assert problems("payload", "generation-8", payload) != []


@pytest.mark.parametrize(
    ("payload", "requirement"),
    [
        ([1, 2], ""),
        ({"args": []}, "EXEC-2"),
        ({"class": "HardJob", "args": {"a": 1}}, "EXEC-7"),
        ({"class": "HardJob", "queue": ""}, "SCHED-9"),
    ],
)
def test_reader_rejects_what_cannot_run(payload: object, requirement: str) -> None:
    errors = list(validator("payload").iter_errors(payload))
    assert any(requirement in blamed(error) for error in errors)


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
    "version": "jobwire 0.1.0",
    "embedded": False,
}


def test_info_of_all_generations_is_valid() -> None:
    assert problems("process-info", "written", INFO) == []


@pytest.mark.parametrize(
    ("field", "value", "requirement"),
    [
        *((field, ABSENT, "BEAT-4") for field in INFO),
        ("started_at", 1786959000250, "GEN-4"),
        ("identity", "app-1:4711", "BEAT-6"),
        ("queues", ["a", "a"], "BEAT-4"),
        ("weights", {"a": 2}, "BEAT-4"),
        ("labels", "blue", "BEAT-4"),
        ("embedded", "false", "BEAT-4"),
        ("capsules", {"default": {"concurrency": 5, "mode": "fifo", "weights": {}}}, "FETCH-4"),
    ],
)
def test_info_mutant_is_rejected(field: str, value: object, requirement: str) -> None:
    changed = mutant(INFO, field, value)
    errors = list(validator("process-info", "written").iter_errors(changed))
    assert any(f"[{requirement}]" in blamed(error) for error in errors)


@pytest.mark.parametrize(
    ("field", "value", "requirement"),
    [
        ("queue", ABSENT, "BEAT-5"),
        ("queue", "", "KEY-2"),
        ("payload", {"class": "HardJob"}, "BEAT-5"),
        ("run_at", 1786960000.5, "GEN-4"),
        ("run_at", "1786960000", "GEN-4"),
        ("run_at", 1786960000123, "GEN-4"),
    ],
)
def test_work_record_mutant_is_rejected(field: str, value: object, requirement: str) -> None:
    record = {"queue": "default", "payload": json.dumps(PUSHED), "run_at": 1786960000}
    assert problems("work-record", "written", record) == []
    errors = list(validator("work-record", "written").iter_errors(mutant(record, field, value)))
    assert any(f"[{requirement}]" in blamed(error) for error in errors)
