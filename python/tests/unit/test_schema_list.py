"""Every object that needs a schema has a sound one, which rejects other objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).resolve().parents[3] / "schema"

PAYLOADS = (
    "reader", "generation-7", "generation-8", "pushed-7", "pushed-8", "scheduled-7", "scheduled-8",
    "retry-7", "retry-8", "dead-7", "dead-8",
)  # fmt: skip
OBJECTS = [
    *(("payload", part) for part in PAYLOADS),
    *(("process-info", part) for part in ("reader", "written")),
    *(("identity-hash", part) for part in ("reader", "written", "sidekiq")),
    *(("work-record", part) for part in ("reader", "written")),
    *(("iteration-state", part) for part in ("reader", "written", "cancelled")),
    ("cron-entry", None),
    *(("driver", part) for part in ("request", "response")),
    ("case", None),
    ("results", None),
]


@pytest.mark.parametrize(("name", "part"), OBJECTS)
def test_there_is_a_schema_of_it(name: str, part: str | None) -> None:
    schema: dict[str, Any] = json.loads((SCHEMA / f"{name}.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    if part is not None:
        assert part in schema["$defs"]
        schema = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{part}"}
    assert not Draft202012Validator(schema).is_valid("no object")
