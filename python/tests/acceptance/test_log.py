"""The worker's log: lines for people, lines for machines."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Reaper, Server, wait_until
from tests.workers import Workers

APP = "tests.apps.recording:app"
EVENTS = [
    '{"class":"Note","args":[1],"jid":"ok","tags":["a","b"],"bid":"batch"}',
    '{"class":"Fail","args":["bo\\n\\u001b[2Jom"],"jid":"fails","retry":true}',
    '{"class":"Fail","args":["x"],"jid":"dies","retry":0}',
    '{"class":"Fail","args":["x"],"jid":"drops","retry":false}',
    '{"class":"No\\nbody","args":[],"jid":"un\\nknown","retry":true}',
    '{"class":"Note","wrapped":"Inner","jid":"wrapped"}',
    "not JSON",
]


@pytest.fixture
def workers(_reaper: Reaper, tmp_path: Path) -> Iterator[Workers]:
    with Workers(_reaper, tmp_path) as running:
        yield running


def run(server: Server, workers: Workers, *arguments: str) -> str:
    """Return the log of a worker with all kinds of events."""
    client = server.client()
    client.lpush("queue:default", *EVENTS)
    worker = workers.start(APP, "--redis", server.url, *arguments)
    wait_until(lambda: client.get("stat:processed") == b"6" and client.zcard("dead") == 2)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    return worker.log.read_text()


def test_json_lines_are_objects_with_the_job(server: Server, workers: Workers) -> None:
    """EXEC-2, EXEC-3: every line is valid JSON, and lines of a job name it."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in run(server, workers).splitlines()]
    assert all({"ts", "pid", "tid", "lvl", "msg"} <= line.keys() for line in lines)
    assert len({line["pid"] for line in lines}) == 1
    of: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if "ctx" in line:
            of.setdefault(line["ctx"]["jid"], []).append(line)
    ctx = of["ok"][0]["ctx"]
    assert ctx == {
        "class": "Note", "jid": "ok", "queue": "default", "bid": "batch", "tags": ["a", "b"],
    }  # fmt: skip
    assert {jid: [line["msg"].split(":")[0] for line in found] for jid, found in of.items()} == {
        "ok": ["start", "done"],
        "wrapped": ["start", "done"],
        "fails": ["start", "fail"],
        "dies": ["start", "fail"],
        "drops": ["start", "fail"],
        "un\nknown": ["start", "fail"],
    }
    assert all(found[1]["ctx"]["elapsed"] >= 0 for found in of.values())
    assert of["wrapped"][0]["ctx"]["class"] == "Inner"
    assert re.search(r"ValueError: bo\n\x1b\[2Jom; retry 1 in \d\d s$", of["fails"][1]["msg"])
    assert "moved to the dead set" in of["dies"][1]["msg"]
    assert "dropped" in of["drops"][1]["msg"]
    unreadable = [line["msg"] for line in lines if "unchanged" in line["msg"]]
    assert len(unreadable) == 1
    assert "queue default" in unreadable[0]
    levels = {line["msg"].split(":")[0]: line["lvl"] for line in lines}
    assert (levels["start"], levels["fail"]) == ("INFO", "WARNING")


def test_human_lines_stay_on_their_line(server: Server, workers: Workers) -> None:
    """EXEC-3: with any text in a payload or an error."""
    text = run(server, workers, "--log-format", "human")
    lines = text.splitlines()
    head = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO |WARNING|ERROR) +\S+ ")
    assert [line for line in lines if not head.match(line)] == []
    assert "\x1b" not in text
    assert [line for line in lines if r"bo\n\x1b[2Jom" in line]
    assert [line for line in lines if r"class=No\nbody jid=un\nknown" in line]
    assert [
        line for line in lines if "done class=Note jid=ok queue=default bid=batch tags=a,b" in line
    ]


@pytest.mark.thorough
def test_levels_choose_the_lines(server: Server, workers: Workers) -> None:
    """EXEC-2: `debug` adds tracebacks of failures, `error` omits failures."""
    text = run(server, workers, "--log-level", "debug")
    errors = [json.loads(line).get("error", "") for line in text.splitlines()]
    assert any("in fail\n" in error and "Traceback" in error for error in errors)
    server.client().flushall()
    text = run(server, workers, "--log-level", "error", "--log-format", "human")
    assert len(text.splitlines()) == 1
    assert "moved to the dead set unchanged" in text


def test_the_first_lines_say_who_and_where_without_the_password(
    server_factory: Any, workers: Workers
) -> None:
    """BEAT-6, SEC-2: the facts that an operator needs first."""
    server = server_factory(password="s3cret")
    worker = workers.start(
        APP, "--redis", server.url, "-q", "high,3", "-q", "low,1", "-c", "7", "--fetch", "basic"
    )
    wait_until(lambda: worker.logged("jobwire "))
    (line,) = worker.logged("jobwire ")
    identity = worker.identity(server.client())
    for words in (identity, "basic fetch", "Valkey 9.", f"127.0.0.1:{server.port}", "from --redis"):
        assert words in line["msg"]
    assert "7 threads for high (3), low (1)" in worker.logged("capsule")[0]["msg"]
    assert "s3cret" not in worker.log.read_text()
