"""Every object that needs a schema has a sound one, which rejects other objects."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.rows import over

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
OBJECTS = [
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
@over(("name", "part"), OBJECTS)
def test_there_is_a_schema_of_it(name: str, part: str | None) -> None:
    schema = checked(name)
    if part is not None:
        assert part in schema["$defs"]
        schema = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{part}"}
    assert not Draft202012Validator(schema).is_valid("no object")
