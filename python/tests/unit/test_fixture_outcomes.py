"""Outcomes of every golden payload, compared with fixtures/. [EXEC-1] to [EXEC-7]"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest

from jobwire.connection import resources
from jobwire.errors import MalformedPayload
from jobwire.protocol import times
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import decode, edit
from jobwire.protocol.pushing import detect_generation
from jobwire.protocol.retry import Discard, Failure, after_failure

FIXTURES = resources.path("fixtures")
FILES = [
    line["file"]
    for line in json.loads((FIXTURES / "index.json").read_text("utf-8"))
    if line["kind"] in ("payloads", "invalid")
]
TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
NOW = 1_795_192_067.25


def entries(file: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(Path(FIXTURES / file).read_text("utf-8"))
    return loaded


def payload(entry: dict[str, Any]) -> bytes:
    if "payload" in entry:
        return str(entry["payload"]).encode()
    return base64.b64decode(entry["payload_base64"])


def observed(text: bytes) -> dict[str, Any]:
    """Return the outcome in a worker that knows every class, in the form of `expect`."""
    try:
        job = decode(text, "default")
    except MalformedPayload as error:
        return {"outcome": "bury", "rule": error.rule}
    if not job.class_name:
        return {"outcome": "fail", "reason": "no-class"}
    try:
        args = job.args
    except TypeError:
        return {"outcome": "fail", "reason": "args-not-an-array"}
    seen: dict[str, Any] = {
        "outcome": "run",
        "class": job.class_name,
        "args": exact(args),
        "jid": job.jid,
    }
    for name in TIMES:
        seconds = times.read(job.get(name))
        seen[name] = None if seconds is None else round(seconds * 1000)
    return seen


def exact(value: Any) -> Any:
    """Return a value in which 1, 1.0 and -0.0 compare as different."""
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return [(name, exact(item)) for name, item in sorted(value.items())]
    return (type(value).__name__, repr(value))


def wanted(expect: dict[str, Any]) -> dict[str, Any]:
    if expect["outcome"] == "bury":
        rule = {"not-an-object": "EXEC-4", "too-deep": "PAY-3"}.get(expect["reason"], "EXEC-3")
        return {"outcome": "bury", "rule": rule}
    if expect["outcome"] == "fail":
        return {"outcome": "fail", "reason": expect["reason"]}
    known = {name: expect[name] for name in ("class", "jid", *TIMES)}
    return {"outcome": "run", "args": exact(json.loads(expect["args_json"]))} | known


def differences(entry: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences from the expectation: name to (seen, expected)."""
    seen = observed(payload(entry))
    if entry["expect"]["outcome"] == "run-or-bury" and seen["outcome"] == "bury":
        return {}
    expected = wanted(entry["expect"])
    wrong = {}
    for name in sorted(seen.keys() | expected.keys()):
        ours, theirs = seen.get(name), expected.get(name)
        if name in TIMES and ours is not None and theirs is not None:
            if abs(ours - theirs) > 1:  # cut or rounded
                wrong[name] = (ours, theirs)
        elif ours != theirs:
            wrong[name] = (ours, theirs)
    return wrong


@pytest.mark.parametrize("file", FILES)
def test_every_payload_is_run_failed_or_buried_as_expected(file: str) -> None:
    """EXEC-1, EXEC-3, EXEC-4, EXEC-7, EXEC-9, GEN-3, PAY-1, PAY-3, PAY-5, PAY-6, SEC-1."""
    listed = entries(file)
    assert listed
    assert {e["name"]: wrong for e in listed if (wrong := differences(e))} == {}


@pytest.mark.parametrize("file", FILES)
def test_every_payload_survives_an_edit(file: str) -> None:
    """PAY-7: fields that a transition does not own keep their exact values."""
    for entry in entries(file):
        text = payload(entry)
        if observed(text)["outcome"] == "bury":
            continue
        before = json.loads(text)
        after = json.loads(edit(text, {"retried_at": 5}))
        assert exact(after) == exact(before | {"retried_at": 5}), entry["name"]


@pytest.mark.parametrize("file", FILES)
def test_every_payload_can_fail(file: str) -> None:
    """RETRY-1 and RETRY-9: every payload has an outcome after a failure, and stays a payload."""
    for entry in entries(file):
        text = payload(entry)
        if observed(text)["outcome"] == "bury":
            continue
        for generation in (7, 8):
            outcome = after_failure(
                decode(text, "default"),
                Failure("E", "m"),
                now=NOW,
                jitter=0.5,
                generation=generation,
                default_retry=True,
            )
            if not isinstance(outcome, Discard):
                assert decode(outcome.text, "default").get("error_class") == "E", entry["name"]
                assert math.isfinite(getattr(outcome, "at", 0.0))


@pytest.mark.parametrize(("version", "generation"), [("6.4.1", 7), ("7.3.2", 7), ("8.1.7", 8)])
def test_real_processes_tell_their_generation(version: str, generation: int) -> None:
    """GEN-5: detected from the records of real processes of three versions."""
    asked = 0
    for entry in entries(f"sidekiq/{version}/processes.json"):
        op = detect_generation(Keys())
        next(op)
        infos = [identity["fields"]["info"].encode() for identity in entry["identities"].values()]
        if not infos:
            continue
        op.send([name.encode() for name in entry["identities"]])
        with pytest.raises(StopIteration) as done:
            op.send(infos)
        assert done.value.value == generation, entry["name"]
        asked += 1
    assert asked
