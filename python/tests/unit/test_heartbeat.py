"""jobwire.protocol.heartbeat: the texts with which a process registers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jobwire.connection import resources
from jobwire.protocol.heartbeat import CapsuleShape, HeartbeatSample, Work, beat, process_info
from jobwire.protocol.keys import Keys
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.wire import Batch, Command
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


def test_started_at_is_seconds_in_both_generations() -> None:
    """GEN-4: with a fraction, for both generations of payloads."""
    assert b'"started_at":1795192067.25,' in process_info(
        identity=IDENTITY,
        hostname="h",
        pid=1,
        started_at=NOW,
        tag="t",
        labels=(),
        capsules=CAPSULES,
        version="v",
    )


def test_work_record() -> None:
    """BEAT-5: the payload as fetched, as a string. GEN-9: run_at in whole seconds."""
    text = '{"class":"A","args":[1.50,"é\\u0000\\/"], "x":1}'.encode()
    record = Work("a:b", text, run_at=NOW).record()
    assert json.loads(record) == {"queue": "a:b", "payload": text.decode(), "run_at": 1795192067}
    assert list(json.loads(record)) == ["queue", "payload", "run_at"]
    schema = json.loads((resources.path("schema") / "work-record.json").read_text())
    Draft202012Validator({**schema, "$ref": "#/$defs/written"}).validate(json.loads(record))


def steps(sample: HeartbeatSample, *, owner: bool = False) -> list[Batch]:
    op = beat(Keys("n:"), IDENTITY, b"{info}", 6, sample, owner=owner)
    first, second = next(op), op.send([1])
    assert isinstance(first, Batch)
    assert isinstance(second, Batch)
    with pytest.raises(StopIteration) as done:
        op.send([0, 0, 1, None, *([1, 7] if owner else ())])
    assert done.value.value[:2] == (None, 7 if owner else 0)
    return [first, second]


def test_the_words_of_a_beat() -> None:
    """BEAT-1, BEAT-3, BEAT-5 and SIG-4: two transactions, the work record first."""
    work, process = steps(
        HeartbeatSample(NOW, {"t1": Work("q", b"{}", NOW)}, quiet=True, rss=7, rtt_us=5)
    )
    assert (work.atomic, process.atomic) == (True, True)
    record = b'{"queue":"q","payload":"{}","run_at":1795192067}'
    assert work.steps == [
        Command(("UNLINK", f"n:{IDENTITY}:work", f"n:{IDENTITY}:workers")),
        Command(("HSET", f"n:{IDENTITY}:work", "t1", record)),
        Command(("EXPIRE", f"n:{IDENTITY}:work", 60)),
        Command(("HSET", f"n:{IDENTITY}:workers", "t1", record)),
        Command(("EXPIRE", f"n:{IDENTITY}:workers", 60)),
    ]
    fields = ("info", b"{info}", "concurrency", 6, "busy", 1, "beat", NOW)
    rest = ("rtt_us", 5, "quiet", "true", "rss", 7)
    assert process.steps == [
        Command(("SADD", "n:processes", IDENTITY)),
        Command(("HSET", f"n:{IDENTITY}", *fields, *rest)),
        Command(("EXPIRE", f"n:{IDENTITY}", 60)),
        Command(("RPOP", f"n:{IDENTITY}-signals")),
        Command(("UNLINK", f"n:jobwire:classes:{IDENTITY}")),  # no class to announce
    ]


def test_the_beat_of_an_owner() -> None:
    """REL-5, REL-8: it names itself, in case the set was deleted, and counts what it holds."""
    sample = HeartbeatSample(NOW, {}, quiet=False, rss=0, rtt_us=0)
    assert steps(sample, owner=True)[1].steps[5:] == [
        Command(("SADD", "n:jobwire:owners", IDENTITY)),
        Command(("HLEN", f"n:jobwire:private:{IDENTITY}")),
    ]


def test_an_idle_beat_has_no_work() -> None:
    """BEAT-5: without jobs, the work record is only deleted."""
    work, process = steps(HeartbeatSample(NOW, {}, quiet=False, rss=0, rtt_us=0))
    names = (f"n:{IDENTITY}:work", f"n:{IDENTITY}:workers")
    assert work.steps == [Command(("UNLINK", *names))]
    hset = process.steps[1]
    assert isinstance(hset, Command)
    assert hset.args[hset.args.index("quiet") + 1] == "false"


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
