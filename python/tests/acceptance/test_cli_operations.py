"""`jobwire doctor`, `detect`, `explain`, `groups`, `journal` and `undo` from the view of a user."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from harness.servers import Server
from tests.acceptance.test_cli_inspect import command as run
from tests.acceptance.test_cli_inspect import payload
from tests.acceptance.test_cli_inspect import run as inspect
from tests.workers import jobwire


def records(server: Server, *words: str, status: int = 0) -> list[dict[str, Any]]:
    written = run(server, *words, "--json", status=status).stdout
    return [json.loads(line) for line in written.splitlines()]


@pytest.fixture
def client(server: Server) -> Any:
    client = server.client()
    for number in range(30):
        error = {"error_class": "Gone", "error_message": f"user {number} is gone\x1b[2J"}
        client.zadd("retry", {payload(f"r{number}", retry_count=1, **error): time.time() + 900})
        client.zadd("dead", {payload(f"d{number}", "SoftJob", **error): time.time() - 9})
    return client


def test_doctor(server: Server, client: Any) -> None:
    """The exit status is 1 only with an error."""
    client.config_set("save", "")
    found = records(server, "doctor")
    assert [(one["code"], one["severity"]) for one in found] == [("no-persistence", "warning")]
    client.sadd("queues", "left")
    client.lpush("queue:left", payload("a"))
    found = records(server, "doctor", status=1)
    assert found[0]["code"] == "queue-abandoned"
    assert set(found[0]) == {"code", "severity", "sentence", "remedy", "evidence"}
    header, first, *_ = run(server, "doctor", status=1).stdout.splitlines()
    assert header.split("\t") == ["severity", "finding", "problem and remedy"]
    assert first.split("\t")[:2] == ["error", "queue-abandoned"]


def test_detect(server: Server, client: Any) -> None:
    client.hset("sidekiq:status:ab", "status", "queued")
    client.lpush("queue:q", payload("q1", bid="ab", created_at=1.5))
    client.sadd("queues", "q")
    (found,) = records(server, "detect")
    writers = {writer["product"]: writer for writer in found["writers"]}
    assert set(writers) == {"sidekiq", "sidekiq-pro", "sidekiq-status"}
    assert writers["sidekiq"]["versions"] == "before 8.0"
    assert writers["sidekiq"]["generations"] == [5, 6, 7]
    assert writers["sidekiq-pro"]["treatments"]["field bid"] == {
        "fate": "park",
        "effect": "nothing here counts the jobs of a batch",
        "setting": "foreign bid=run",
    }
    assert [one["code"] for one in found["findings"]] == ["upgrade-8-times"]
    assert (found["keys"], found["payloads"], found["refused"]) == (5, 41, {})
    lines = run(server, "detect").stdout.splitlines()
    assert lines[0] == "product\tversion\tevidence\tin a worker of jobwire"
    assert lines[1].startswith("Sidekiq\tbefore 8.0\t")
    assert lines[4] == "severity\tfinding\tproblem and remedy"
    twice = run(server, "detect", server.url, status=2)
    assert "give the URL once" in twice.stderr
    ended = jobwire("detect", server.url, "--namespace", "none:")
    assert (ended.returncode, ended.stdout.splitlines()[1:]) == (
        0,
        ["severity\tfinding\tproblem and remedy"],
    )


def test_explain(server: Server, client: Any) -> None:
    (one,) = records(server, "explain", "r3")
    assert [place["place"] for place in one["places"]] == ["retry"]
    assert one["places"][0]["job"]["jid"] == "r3"
    assert [reason["code"] for reason in one["reasons"]] == ["failed", "not-due"]
    lines = dict(line.split("\t") for line in run(server, "explain", "r3").stdout.splitlines())
    assert lines["place"] == "retry"
    assert "due in" in lines["not-due"]
    client.lpush("queue:q", payload("q1"), payload("q2"))
    client.sadd("queues", "q")
    assert "1 job before it" in run(server, "explain", "q2").stdout
    assert "start a worker" in run(server, "explain", "q2").stdout
    (missing,) = records(server, "explain", "nowhere", status=1)
    assert [reason["code"] for reason in missing["reasons"]] == ["not-found"]
    cut = run(server, "explain", "q2", "--examine", "1", status=1)
    assert "--examine" in cut.stdout


def test_groups(server: Server, client: Any) -> None:
    minute = time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime(time.time() - 600))
    client.hset(f"{minute[:10].replace('-', '')}-marks", minute, "v1\x1b[2J")
    found = records(server, "groups")
    assert found[0]["deployed"]["label"] == "v1\x1b[2J"
    assert found[1]["deployed"] is None  # nothing says when these failed
    assert [(one["count"], one["job_class"], one["places"]) for one in found] == [
        (30, "SoftJob", {"dead": 30}),
        (30, "HardJob", {"retry": 30}),
    ]
    assert found[0]["message"] == "user N is gone\x1b[NJ"
    (only,) = records(server, "groups", "--from", "retries")
    assert only["key"] == found[1]["key"]
    assert records(server, "groups", "--class", "Soft*", "--examine", "7")[0]["count"] == 7
    assert len(records(server, "groups", "-n", "1")) == 1
    text = run(server, "groups").stdout
    assert "\x1b" not in text
    assert "Gone: user N is gone\\x1b[NJ" in text
    assert "\tv1\\x1b[2J\n" in text
    ended = inspect(server, "kill", "--group", only["key"], "--yes")
    assert ended.stdout == "killed 30\n"
    assert client.zcard("dead") == 60
    assert records(server, "groups", "--from", "retries") == []


def test_delete_journal_and_undo(server: Server, client: Any) -> None:
    """Each deletion says how to undo it."""
    before = client.zrange("retry", 0, -1, withscores=True)
    dry = inspect(server, "delete", "--error", "user 1", "--dry-run").stdout.splitlines()
    assert dry[0] == "11 of the 30 jobs in retry"
    assert len(dry) == 11
    assert dry[1] == "r1\tHardJob"
    assert client.zcard("retry") == 30
    assert records(server, "journal") == []
    ids = []
    for words in (
        ["delete", "--error", "user 1", "--yes"],
        ["delete", "r0"],
        ["clear", "retries", "--yes"],
    ):
        ended = inspect(server, *words)
        assert ended.stdout.startswith("deleted ")
        line = ended.stderr.strip()
        assert line.startswith("to undo this within 24 hours: jobwire undo ")
        ids.append(line.rpartition(" ")[2])
    assert client.exists("retry") == 0
    entries = records(server, "journal")
    assert [one["undo"] for one in entries] == [one for one in reversed(ids) for _ in "12"]
    assert {one["act"] for one in entries} == {"delete", "clear"}
    assert "@" in entries[0]["person"]
    assert [one["count"] for one in entries[::2]] == [18, 1, 11]
    assert len(records(server, "journal", "-n", "1")) == 1
    header, first = run(server, "journal", "-n", "1").stdout.splitlines()
    assert header.split("\t")[0] == "at"
    assert first.split("\t")[2] == "clear"
    assert run(server, "undo", ids[0]).stdout == "put back 11 in retry\n"
    (undone,) = records(server, "undo", ids[1])
    assert (undone["restored"], undone["kept"], undone["unsure"]) == (1, 0, 0)
    run(server, "undo", ids[2])
    assert client.zrange("retry", 0, -1, withscores=True) == before
    missing = run(server, "undo", ids[2], status=1)
    assert missing.stdout == ""
    assert "there is no deletion" in missing.stderr


def test_what_an_undo_cannot_promise_is_said(server: Server, client: Any) -> None:
    ended = inspect(server, "clear", "dead", "--yes")
    client.zadd("dead", {payload("new"): 1})
    undo_id = ended.stderr.split()[-1]
    same = client.zrange(f"jobwire:undo:{undo_id}:0", 0, 0)[0]
    client.zadd("dead", {same: 1})
    undone = run(server, "undo", undo_id)
    assert undone.stdout == "put back 29 in dead\n"
    assert undone.stderr == "jobwire: 1 were there again already\n"
    client.lpush("queue:q", b"a")
    undo_id = inspect(server, "delete", "--from", "queue:q", "--all", "--yes").stderr.split()[-1]
    client.hset(f"jobwire:undo:{undo_id}", "settled", 0)
    undone = run(server, "undo", undo_id)
    assert "may run twice" in undone.stderr


@pytest.mark.parametrize(
    "words",
    [["undo"], ["explain"], ["groups", "--from", "schedule"], ["journal", "-n", "0"]],
)
def test_wrong_usage(server: Server, words: list[str]) -> None:
    assert len(run(server, *words, status=2).stderr.splitlines()) == 1


def test_a_dry_run_is_for_many(server: Server, client: Any) -> None:
    ended = inspect(server, "delete", "r1", "--dry-run", status=2)
    assert "--dry-run is for --all, --limit or a filter" in ended.stderr
    for words in (["r1", "--limit", "2"], ["r1", "--all"]):
        ended = inspect(server, "delete", *words, "--yes", status=2)
        assert ", not both" in ended.stderr
    assert "2 of the 30 jobs" in inspect(server, "retry", "--limit", "2", "--dry-run").stdout
    assert inspect(server, "retry", "--limit", "2", "--yes").stdout == "enqueued 2\n"


@pytest.mark.parametrize(
    "command", ["doctor", "detect", "explain x", "groups", "journal", "undo x"]
)
def test_no_redis(command: str) -> None:
    """ENV-7: status 4, as for every command."""
    ended = jobwire(*command.split(), "--redis", "redis://127.0.0.1:1/0")
    assert ended.returncode == 4
    assert ended.stderr.startswith("jobwire: cannot use Redis")
