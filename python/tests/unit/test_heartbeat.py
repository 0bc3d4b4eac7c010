"""jobwire.protocol.heartbeat: the texts with which a process registers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jobwire.connection import resources
from jobwire.protocol.heartbeat import CapsuleShape, Work, process_info
from jobwire.protocol.ordering import QueueOrder
from jobwire.worker.background.heartbeat import misleads
from tests.rows import over

NOW = 1_795_192_067.25
IDENTITY = "web-1:42:0123456789ab"


def info(*capsules: CapsuleShape) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(
        process_info(
            identity=IDENTITY,
            hostname="web-1",
            pid=42,
            started_at=NOW,
            tag="",
            labels=("blue",),
            capsules=capsules,
            version="jobwire 0.1.0",
        )
    )
    return loaded


CAPSULES = (
    CapsuleShape("default", 2, QueueOrder({"critical": 5, "default": 0})),
    CapsuleShape("single", 1, QueueOrder({"serial": 0})),
    CapsuleShape("more", 3, QueueOrder({"default": 1, "größe": 1})),
)


def test_info() -> None:
    """BEAT-4: members for readers of all generations, each under its own name."""
    assert info(*CAPSULES) == {
        "hostname": "web-1",
        "started_at": NOW,
        "pid": 42,
        "tag": "",
        "concurrency": 6,
        "capsules": {
            "default": {
                "concurrency": 2,
                "mode": "weighted",
                "weights": {"critical": 5, "default": 0},
            },
            "single": {"concurrency": 1, "mode": "strict", "weights": {"serial": 0}},
            "more": {"concurrency": 3, "mode": "random", "weights": {"default": 1, "größe": 1}},
        },
        "queues": ["critical", "default", "serial", "größe"],
        "weights": [{"critical": 5, "default": 0}, {"serial": 0}, {"default": 1, "größe": 1}],
        "labels": ["blue"],
        "identity": IDENTITY,
        "version": "jobwire 0.1.0",
        "embedded": False,
    }


@pytest.mark.parametrize("version", ["6.4.1", "7.3.2", "8.1.7"])
def test_info_has_all_that_real_processes_write(version: str) -> None:
    """BEAT-4: the info has the members of all generations, in the same JSON types."""
    entries = json.loads(
        (resources.path("fixtures") / f"sidekiq/{version}/processes.json").read_text()
    )
    ours = info(*CAPSULES)
    seen = 0
    for entry in entries:
        for identity in entry["identities"].values():
            for name, value in json.loads(identity["fields"]["info"]).items():
                seen += 1
                if name == "weights" and version == "6.4.1":
                    continue  # not there yet as an array of objects
                assert type(ours[name]) is type(value), name
    assert seen


def test_info_follows_the_schema() -> None:
    """BEAT-4: schema/process-info.json."""
    schema = json.loads((resources.path("schema") / "process-info.json").read_text())
    Draft202012Validator({**schema, "$ref": "#/$defs/written"}).validate(info(*CAPSULES))


@over(
    ("shown", "ages", "expected"),
    [
        (0, [], False),
        (0, [0.0, 0.5], False),  # quick jobs are not worth a beat
        (0, [0.5, 1.0], True),
        (2, [1.0, 3.0, 0.1], False),  # a steady load
        (2, [1.0, 3.0, 2.0], True),
        (2, [0.5], False),
        (2, [], True),
    ],
)
def test_a_beat_that_misleads_people(shown: int, ages: list[float], expected: bool) -> None:
    """BEAT-2: an early beat shows jobs that take long, and costs quick jobs nothing."""
    works = {str(index): Work("default", b"{}", NOW - age) for index, age in enumerate(ages)}
    assert misleads(shown, works, NOW - 1.0) is expected
