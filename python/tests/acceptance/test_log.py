"""The worker's log: lines for people, lines for machines."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server, wait_until
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


def run(server: Server, workers: Workers, *arguments: str) -> str:
    """Return the log of a worker with all kinds of events."""
    client = server.client()
    client.lpush("queue:default", *EVENTS)
    worker = workers.start(APP, "--redis", server.url, "--foreign", "bid=run", *arguments)
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
    levels = {jid: (found[0]["lvl"], found[1]["lvl"]) for jid, found in of.items()}
    assert levels["ok"] == ("INFO", "INFO")
    assert levels["fails"] == levels["un\nknown"] == ("INFO", "WARNING")
    assert levels["dies"] == levels["drops"] == ("INFO", "ERROR")
    assert {jid for jid, found in of.items() if "exc" in found[1]} == {
        *("fails", "dies", "drops", "un\nknown")
    }
    trace = of["fails"][1]["exc"].split("\n")
    assert trace[0] == "Traceback (most recent call last):"
    assert re.fullmatch(r'  File ".*recording.py", line \d+, in fail', trace[1])
    assert trace[2:] == ["    raise ValueError(text)", "ValueError: bo", "\x1b[2Jom"]


def test_human_lines_stay_on_their_line(server: Server, workers: Workers) -> None:
    """EXEC-3: with any text in a payload or an error."""
    text = run(server, workers, "--log-format", "human")
    lines = text.splitlines()
    head = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO |WARNING|ERROR) +\S+ ")
    others = [line for line in lines if not head.match(line)]
    assert all(line.startswith("  ") for line in others)
    assert sum(line.startswith("  Traceback") for line in others) == 3
    assert others.count("  ValueError: x") == 2
    assert "\x1b" not in text
    assert [line for line in lines if r"bo\n\x1b[2Jom" in line]
    assert [line for line in lines if r"class=No\nbody jid=un\nknown" in line]
    assert [
        line for line in lines if "done class=Note jid=ok queue=default bid=batch tags=a,b" in line
    ]


OWN_LOG = """
import logging.config
from jobwire import App

CONFIG = {
    "version": 1,
    %s
    "filters": {"job": {"()": "jobwire.JobFilter"}},
    "formatters": {"line": {"format": "own %%(levelname)s [%%(job_class)s/%%(jid)s] %%(message)s"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "filters": ["job"], "formatter": "line"}
    },
    "loggers": {%r: {"handlers": ["console"], "level": "INFO", "propagate": False}},
}
app = App()
%s

@app.job(name="Hello", isolated=%r)
def hello(name):
    logging.getLogger("shop").warning("hello %%s", name)
    raise ValueError("no " + name)
"""
AT_ONCE = "logging.config.dictConfig(CONFIG)"
AT_STARTUP = 'app.on("startup")(lambda: logging.config.dictConfig(CONFIG))'


def own_log(
    server: Server,
    workers: Workers,
    directory: Path,
    *,
    loggers: str = "",
    keep: str = "",
    when: str = AT_ONCE,
    isolated: bool = False,
    log_format: str | None = None,
) -> str:
    """Return the log of a worker whose application sets up a log of its own."""
    (directory / "own.py").write_text(OWN_LOG % (keep, loggers, when, isolated))
    payload = {"class": "Hello", "args": ["Ada"], "jid": "j1", "queue": "default", "retry": True}
    server.client().lpush("queue:default", json.dumps(payload))
    worker = workers.start("own:app", "--redis", server.url, log_format=log_format)
    wait_until(lambda: server.client().zcard("retry"))
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    return worker.log.read_text()


@pytest.mark.parametrize(
    ("loggers", "keep"), [("", ""), ("jobwire", '"disable_existing_loggers": False,')]
)
def test_an_application_s_own_log_has_the_job(
    server: Server, workers: Workers, tmp_path: Path, loggers: str, keep: str
) -> None:
    """SEC-2: also if its set-up disables the loggers that exist, which is Python's default."""
    lines = own_log(server, workers, tmp_path, loggers=loggers, keep=keep).splitlines()
    assert "own INFO [Hello/j1] start" in lines
    (fail,) = (line for line in lines if "fail: ValueError: no Ada; retry 1 in " in line)
    assert re.search(r"^own WARNING \[Hello/j1\] fail.* elapsed=\d", fail)
    assert "class=" not in fail
    at = lines.index(fail)
    assert lines[at + 1] == "Traceback (most recent call last):"
    assert re.fullmatch(r'  File ".*own.py", line \d+, in hello', lines[at + 2])
    if loggers == "":
        assert "own WARNING [Hello/j1] hello Ada" in lines


@pytest.mark.parametrize(
    ("loggers", "when", "isolated"),
    [
        ("", AT_ONCE, False),
        ("", AT_ONCE, True),
        ("jobwire", AT_STARTUP, False),
    ],
)
def test_the_format_of_a_flag_replaces_an_application_s_own_log(
    server: Server, workers: Workers, tmp_path: Path, loggers: str, when: str, isolated: bool
) -> None:
    """REL-7: every line is JSON with the job."""
    text = own_log(
        *(server, workers, tmp_path),
        loggers=loggers,
        when=when,
        isolated=isolated,
        log_format="json",
    )
    lines = [json.loads(line) for line in text.splitlines()]
    of_job = [line for line in lines if line.get("ctx", {}).get("jid") == "j1"]
    assert [line["msg"].split(";")[0] for line in of_job] == [
        *("start", "hello Ada", "fail: ValueError: no Ada")
    ]
    assert "in hello\n" in of_job[-1]["exc"]


def test_levels_choose_the_lines(server: Server, workers: Workers) -> None:
    """EXEC-2: `debug` names the registered classes, `error` omits what is tried again."""
    text = run(server, workers, "--log-level", "debug")
    assert any("registered classes" in json.loads(line)["msg"] for line in text.splitlines())
    server.client().flushall()
    text = run(server, workers, "--log-level", "error", "--log-format", "human")
    lines = [line for line in text.splitlines() if not line.startswith("  ")]
    assert len(lines) == 3
    assert "no retry left; moved to the dead set class=Fail jid=dies" in text
    assert "no retry, because retry is false; dropped class=Fail jid=drops" in text
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
    (ready,) = wait_until(lambda: worker.logged("ready: "), what="the second line")
    assert "7 threads for high (3), low (1)" in ready["msg"]
    assert "s3cret" not in worker.log.read_text()


def test_the_recipe_for_structlog_gives_all_lines_one_format(
    server: Server, workers: Workers, tmp_path: Path
) -> None:
    """The page is right: events and records, of application and worker, on one stream."""
    page = (Path(__file__).parents[3] / "docs/how-to/logging.md").read_text("utf-8")
    [recipe] = re.findall(r"```python\n(# structured\.py\n.*?)```", page, re.DOTALL)
    (tmp_path / "structured.py").write_text(recipe)
    client = server.client()
    client.lpush(
        "queue:default",
        '{"class":"divide","args":[4,2],"jid":"works"}',
        '{"class":"divide","args":[1,0],"jid":"fails","retry":false}',
    )
    worker = workers.start("structured:app", "--redis", server.url, log_format=None)
    wait_until(lambda: client.get("stat:processed") == b"2")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    lines = [json.loads(line) for line in worker.log.read_text().splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    told = {
        jid: [line["event"].partition(":")[0] for line in lines if line.get("jid") == jid]
        for jid in ("works", "fails")
    }
    assert told["works"][:-1] == ["start", "divide", "the result is 2"]
    assert told["works"][-1].startswith("done ")
    assert told["fails"] == ["start", "divide", "fail"]
